package llmhttp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// ErrUsageDropped is wrapped by the error of a [UsageBuffer] that is full.
var ErrUsageDropped = errors.New("llmhttp: usage dropped")

// bufferedBatches is how many batches a UsageBuffer holds while its store
// cannot take them; it holds at least minBuffered records.
const (
	bufferedBatches = 100
	minBuffered     = 10_000
)

// storeTimeout is how long a store has for one batch.
const storeTimeout = 30 * time.Second

// A UsageBuffer is a [UsageStore] that gathers records and stores them in
// batches of size, or after delay, off the path of requests. It may be used
// concurrently.
//
// A batch that its store refuses is tried again after a delay that doubles, up
// to a minute, and meanwhile more is gathered: up to a hundred batches, or
// 10,000 records if that is more. What comes on top is dropped, and Record says
// so. A process that ends without Close loses what was gathered.
type UsageBuffer struct {
	// Logger is told of batches that the store refused; if nil, slog.Default()
	// is. It must be set before the first Record.
	Logger *slog.Logger

	store UsageStore
	size  int
	delay time.Duration
	limit int

	storing chan struct{} // has room for who takes records to the store

	mu      sync.Mutex
	records []UsageRecord
	timer   *time.Timer   // runs if there are records and nobody stores them
	busy    bool          // a goroutine is about to store
	failed  time.Duration // how long was waited after the last failure, or 0
	dropped int64
	closed  bool
}

// NewUsageBuffer returns a UsageBuffer in front of s. A size of zero or less
// means 100, a delay of zero or less a second.
func NewUsageBuffer(s UsageStore, size int, delay time.Duration) *UsageBuffer {
	if s == nil {
		panic("llmhttp: nil UsageStore")
	}
	if size <= 0 {
		size = 100
	}
	if delay <= 0 {
		delay = time.Second
	}
	return &UsageBuffer{
		store: s, size: size, delay: delay,
		limit:   max(bufferedBatches*size, minBuffered),
		storing: make(chan struct{}, 1),
	}
}

// Record gathers records and returns at once. If the buffer is full it returns
// an error wrapping [ErrUsageDropped]. After Close it stores them itself.
func (b *UsageBuffer) Record(ctx context.Context, records ...UsageRecord) error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return b.store.Record(ctx, records...)
	}
	defer b.mu.Unlock()
	fit := min(len(records), b.limit-len(b.records))
	b.records = append(b.records, records[:fit]...)
	b.schedule()
	if lost := len(records) - fit; lost > 0 {
		b.dropped += int64(lost)
		return fmt.Errorf("%w: %d records, %d in all: the store does not keep up", ErrUsageDropped, lost, b.dropped)
	}
	return nil
}

// schedule sees to it that what was gathered will be stored. It is called with
// mu held.
func (b *UsageBuffer) schedule() {
	switch {
	case b.busy || b.closed || len(b.records) == 0:
	case b.failed == 0 && len(b.records) >= b.size:
		b.busy = true
		go b.run()
	case b.timer == nil:
		b.timer = time.AfterFunc(max(b.delay, b.failed), b.due)
	}
}

// due is called when what was gathered has waited long enough.
func (b *UsageBuffer) due() {
	b.mu.Lock()
	b.timer = nil
	run := !b.busy && !b.closed
	b.busy = b.busy || run
	b.mu.Unlock()
	if run {
		b.run()
	}
}

// run stores what was gathered, on a goroutine of its own.
func (b *UsageBuffer) run() {
	err := b.flush(context.Background())
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		l := b.Logger
		if l == nil {
			l = slog.Default()
		}
		l.Error("usage not stored yet", "error", err, "waiting", len(b.records), "retry_after", b.failed)
	}
	b.busy = false
	b.schedule()
}

// maxBackoff bounds the delay after failures.
const maxBackoff = time.Minute

// flush stores what has been gathered so far, in batches, up to the first
// failure.
func (b *UsageBuffer) flush(ctx context.Context) error {
	select {
	case b.storing <- struct{}{}:
		defer func() { <-b.storing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	b.mu.Lock()
	left := len(b.records)
	b.mu.Unlock()
	for left > 0 {
		b.mu.Lock()
		batch := slices.Clone(b.records[:min(left, b.size)])
		b.mu.Unlock()
		err := b.storeBatch(ctx, batch)
		b.mu.Lock()
		if err != nil {
			b.failed = min(max(2*b.failed, b.delay), maxBackoff)
			b.mu.Unlock()
			return err
		}
		b.failed = 0
		b.records = slices.Delete(b.records, 0, len(batch))
		if len(b.records) == 0 && cap(b.records) > 4*b.size {
			b.records = nil
		}
		b.mu.Unlock()
		left -= len(batch)
	}
	return nil
}

func (b *UsageBuffer) storeBatch(ctx context.Context, batch []UsageRecord) (err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = newPanicError(p)
		}
	}()
	return b.store.Record(ctx, batch...)
}

// Query stores what was gathered and then asks the store. If it cannot be
// stored, the sums are without it.
func (b *UsageBuffer) Query(ctx context.Context, q UsageQuery) ([]UsageSum, error) {
	b.flush(ctx)
	return b.store.Query(ctx, q)
}

// Close stores what is left. Call it after [Handler.Shutdown]. If it fails, or
// ctx is done first, it returns an error that says how much is not stored; it
// may be called again.
func (b *UsageBuffer) Close(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
	b.mu.Unlock()
	if err := b.flush(ctx); err != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		return fmt.Errorf("llmhttp: %d usage records not stored: %w", len(b.records), err)
	}
	return nil
}
