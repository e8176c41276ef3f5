// Package usagebuffer has a [llmhttp.UsageStore] for slow ones, such as databases: requests do not wait for
// those, because their usage is written in batches, in the background.
//
//	usage := usagebuffer.New(store, nil)
//	h := llmhttp.NewHandler(backend, keys, &llmhttp.Options{Usage: usage})
//	err := llmhttp.Serve(ctx, &http.Server{Addr: addr, Handler: h}, h, nil) // closes usage
package usagebuffer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/option"
)

// ErrDropped is wrapped by the error of a [Buffer] that is full.
var ErrDropped = errors.New("usagebuffer: usage dropped")

const (
	defaultBatchSize  = 100
	defaultBatchDelay = time.Second

	// maxBatches is how many batches a Buffer holds while its store fails.
	// It holds at least minRecords records.
	maxBatches = 100
	minRecords = 10_000

	// maxBackoff bounds the delay between tries.
	maxBackoff = time.Minute
)

// A Buffer is a [llmhttp.UsageStore] that collects records and writes them to
// another store in batches, in the background. It may be used concurrently.
//
// The records of a batch that the store refuses are written one by one, so that a
// record which the store cannot take does not hold back the others. Such a record is
// tried again with the next ones, and dropped when it was refused five times while the
// store took others: it is logged, and counted by Dropped. A store that takes nothing is
// tried again with exponential backoff of at most a minute. Meanwhile the buffer holds up to 100
// batches, or 10,000 records if that is more; further records are dropped, and
// Record returns an error. If the process ends without Close, the records in the
// buffer are lost.
type Buffer struct {
	store    llmhttp.UsageStore
	size     int           // of a batch
	delay    time.Duration // after which an incomplete batch is written
	logger   *slog.Logger
	capacity int

	// writing is a semaphore: it holds a value while records are written. Only its holder
	// removes records.
	writing chan struct{}

	mu      sync.Mutex // guards the fields below
	records []llmhttp.UsageRecord
	refused []refusedRecord // not in records
	tried   map[string]bool // the IDs of records that the store may have: a write of them is in progress or has failed
	timer   *time.Timer     // set while there are records and no goroutine writes them in the background
	busy    bool            // a background goroutine writes or is about to
	backoff time.Duration   // before the next try; zero if the last one succeeded
	dropped int64
	err     error // of the last batch; nil if it was written
	closed  bool
}

// Options configure a [Buffer]. The zero value is ready to use.
type Options struct {
	// BatchSize is the number of records that are written together. A batch is
	// written as soon as it is complete. Zero means 100; negative means no batches:
	// records are written one by one.
	BatchSize int

	// Delay is the age of the oldest record at which an incomplete batch is written.
	// Zero means a second; negative means no delay: records are written at once, still
	// in the background.
	Delay time.Duration

	// Logger receives the errors of the store. If nil, slog.Default() is used.
	Logger *slog.Logger
}

// New returns a Buffer that writes to s. Nil opts mean the zero Options. New panics if s is nil.
func New(s llmhttp.UsageStore, opts *Options) *Buffer {
	if option.IsNil(s) {
		panic("usagebuffer: nil UsageStore")
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	size := max(cmp.Or(o.BatchSize, defaultBatchSize), 1)
	return &Buffer{
		store:    s,
		size:     size,
		delay:    max(cmp.Or(o.Delay, defaultBatchDelay), 0),
		logger:   cmp.Or(o.Logger, slog.Default()),
		capacity: max(maxBatches*min(size, math.MaxInt/maxBatches), minRecords),
		writing:  make(chan struct{}, 1),
	}
}

// Record adds records to the buffer and returns at once. If the buffer is full,
// it returns an error wrapping [ErrDropped]. After Close it writes to the
// store directly.
func (b *Buffer) Record(ctx context.Context, records ...llmhttp.UsageRecord) error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return b.store.Record(ctx, records...)
	}
	defer b.mu.Unlock()
	room := min(len(records), max(b.capacity-len(b.records)-len(b.refused), 0))
	b.records = append(b.records, records[:room]...)
	b.schedule()
	if lost := len(records) - room; lost > 0 {
		b.dropped += int64(lost)
		return fmt.Errorf("%w: %d records, %d in total: the store does not keep up", ErrDropped, lost, b.dropped)
	}
	return nil
}

// schedule starts a write if one is due, or sets the timer for it. It is called
// with mu held.
func (b *Buffer) schedule() {
	switch {
	case b.busy || b.closed || len(b.records) == 0:
	case b.backoff == 0 && len(b.records) >= b.size:
		b.busy = true
		go b.run()
	case b.timer == nil:
		b.timer = time.AfterFunc(max(b.delay, b.backoff), b.onTimer)
	}
}

func (b *Buffer) onTimer() {
	b.mu.Lock()
	b.timer = nil
	run := !b.busy && !b.closed
	b.busy = b.busy || run
	b.mu.Unlock()
	if run {
		b.run()
	}
}

// run writes the collected records, in the background.
func (b *Buffer) run() {
	err := b.writeAll(context.Background())
	b.mu.Lock()
	waiting, backoff := len(b.records)+len(b.refused), b.backoff
	b.busy = false
	b.schedule()
	b.mu.Unlock()
	if err != nil {
		b.logger.Error("usage not stored yet", "error", err, "waiting", waiting, "retry_after", backoff)
	}
}

// writeAll writes the records that are in the buffer when it is called, until the store seems to
// be down. It returns an error if some are left.
func (b *Buffer) writeAll(ctx context.Context) error {
	select {
	case b.writing <- struct{}{}:
		defer func() { <-b.writing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	b.mu.Lock()
	left := len(b.records)
	w := &writer{b: b, ctx: ctx, failing: b.err != nil}
	b.mu.Unlock()
	for left > 0 && !w.isDown() {
		n := min(left, b.size)
		if w.isTrying() {
			n = 1
		}
		w.writeBatch(n)
		left -= n
	}
	complete := b.noteResult(w)
	w.writeRefused()
	b.mu.Lock()
	defer b.mu.Unlock()
	if complete && len(b.refused) == 0 {
		return nil
	}
	return w.err
}

// noteResult sets when the next try is, and what Err returns, after w has written what it could. It
// reports whether that is all but records that the store refuses alone.
func (b *Buffer) noteResult(w *writer) (complete bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	complete = w.err == nil || w.accepted && !w.isDown()
	gaveUp := w.ctx.Err() != nil // if the caller gave up, the store has not failed
	switch {
	case complete, w.accepted && gaveUp:
		b.backoff, b.err = 0, nil
	case !gaveUp:
		b.err = w.err
		b.backoff = min(max(2*b.backoff, b.delay, time.Millisecond), maxBackoff)
	}
	if !w.accepted { // nothing says that these records are the reason
		for i := range b.refused {
			if r := &b.refused[i]; r.refusals == 0 {
				b.records = append(b.records, r.UsageRecord)
			}
		}
		b.refused = slices.DeleteFunc(b.refused, func(r refusedRecord) bool { return r.refusals == 0 })
	}
	if len(b.records) == 0 && cap(b.records) > 4*b.size {
		b.records = nil // gives back the memory of a long outage
	}
	if b.err == nil && b.timer != nil && b.timer.Stop() { // its time may be that of the backoff
		b.timer = nil
		b.schedule()
	}
	return complete
}

// Waiting returns how many records are in the buffer.
func (b *Buffer) Waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.records) + len(b.refused)
}

// Dropped returns how many records were dropped because the buffer was full or
// the store did not take them.
func (b *Buffer) Dropped() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dropped
}

// Check returns nil if the store took the last write, apart from records that it refuses alone,
// or if there was none. Otherwise it tries to write what waits, without regard to the time of the
// next try, and returns an error if the store still takes nothing or ctx is done first. So a
// readiness check that calls it passes as soon as the store works again.
func (b *Buffer) Check(ctx context.Context) error {
	if b.lastErr() == nil {
		return nil
	}
	_ = b.writeAll(ctx)
	return b.lastErr()
}

// lastErr returns the error of the last write if the store took nothing.
func (b *Buffer) lastErr() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// Query writes the collected records and queries the store. If they cannot be
// written within half of the time that ctx allows, the sums of an account do not include
// them. Those of a Subject, which limits are compared with, do: a record that the store has
// stored although it has not confirmed that then counts twice until it is written again: see
// [llmhttp.ReportDoubtful].
func (b *Buffer) Query(ctx context.Context, q llmhttp.UsageQuery) ([]llmhttp.UsageSum, error) {
	var unwritten []llmhttp.UsageRecord
	if b.tryWriteAll(ctx) != nil && q.Subject != (llmhttp.SubjectID{}) {
		unwritten = b.unwritten(q)
	}
	sums, err := b.store.Query(ctx, q)
	if err != nil {
		return nil, err
	}
	untried := b.untried(len(unwritten))
	for i := range unwritten {
		r := &unwritten[i]
		s := r.Sum()
		s.Start = q.PeriodStart(r.Time)
		if !untried[r.ID] {
			llmhttp.ReportDoubtful(ctx, s)
		}
		at, found := slices.BinarySearchFunc(sums, s, compareSums)
		if !found {
			sums = slices.Insert(sums, at, llmhttp.UsageSum{Start: s.Start, Model: s.Model})
		}
		sums[at].Add(s)
	}
	return sums, nil
}

// ClaimQuotaEvent calls the method of the store. If that has none, the error wraps
// [errors.ErrUnsupported].
func (b *Buffer) ClaimQuotaEvent(
	ctx context.Context,
	id string,
	lease time.Duration,
	keep time.Time,
) (claimed bool, wait time.Duration, err error) {
	if s, ok := llmhttp.StoreAs[eventStore](b.store); ok {
		return s.ClaimQuotaEvent(ctx, id, lease, keep)
	}
	return false, 0, errNoQuotaEvents
}

// EndQuotaEvent calls the method of the store, as ClaimQuotaEvent does.
func (b *Buffer) EndQuotaEvent(ctx context.Context, id string, handled bool) error {
	if s, ok := llmhttp.StoreAs[eventStore](b.store); ok {
		return s.EndQuotaEvent(ctx, id, handled)
	}
	return errNoQuotaEvents
}

// An eventStore is a quotawatch.EventStore.
type eventStore interface {
	ClaimQuotaEvent(ctx context.Context, id string, lease time.Duration, keep time.Time) (claimed bool, wait time.Duration, err error)
	EndQuotaEvent(ctx context.Context, id string, handled bool) error
}

var errNoQuotaEvents = fmt.Errorf("usagebuffer: the store of the Buffer remembers no quota events: %w", errors.ErrUnsupported)

// unwritten returns the collected records that q selects.
func (b *Buffer) unwritten(q llmhttp.UsageQuery) (records []llmhttp.UsageRecord) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.records {
		if q.Includes(&b.records[i]) {
			records = append(records, b.records[i])
		}
	}
	for i := range b.refused {
		if r := &b.refused[i].UsageRecord; q.Includes(r) {
			records = append(records, *r)
		}
	}
	return records
}

// untried returns the IDs of the collected records that the store was not asked to store, if n is
// not zero.
func (b *Buffer) untried(n int) map[string]bool {
	if n == 0 {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	ids := make(map[string]bool)
	for i := range b.records {
		if id := b.records[i].ID; !b.tried[id] {
			ids[id] = true
		}
	}
	return ids
}

func compareSums(a, b llmhttp.UsageSum) int {
	return cmp.Or(a.Start.Compare(b.Start), strings.Compare(a.Model, b.Model))
}

// Delay returns [Options].Delay, zero if that is negative.
func (b *Buffer) Delay() time.Duration { return b.delay }

// Store returns the store that b writes to. It lacks what waits in b: see [Buffer.Flush].
func (b *Buffer) Store() llmhttp.UsageStore { return b.store }

// Flush writes the records that wait, without regard to the time of the next try. It returns an
// error if some of them are left because the store did not take them or ctx is done.
func (b *Buffer) Flush(ctx context.Context) error {
	if err := b.writeAll(ctx); err != nil {
		return fmt.Errorf("usagebuffer: %d usage records not stored: %w", b.Waiting(), err)
	}
	return nil
}

// tryWriteAll is like writeAll, but gives up after half of the time that ctx allows.
func (b *Buffer) tryWriteAll(ctx context.Context) error {
	if end, ok := ctx.Deadline(); ok {
		half, cancel := context.WithTimeout(ctx, time.Until(end)/2)
		defer cancel()
		ctx = half
	}
	return b.writeAll(ctx)
}

// Close writes the records that are left. [llmhttp.Serve] calls it. Otherwise call it after
// [llmhttp.Handler.Shutdown], with a context of its own. If the store fails or ctx is done
// first, it returns an error that tells how many records are not stored, and may be
// called again.
func (b *Buffer) Close(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
	b.mu.Unlock()
	return b.Flush(ctx)
}
