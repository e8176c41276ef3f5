package llmhttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"time"
)

// ErrUsageDropped is wrapped by the error of a [UsageBuffer] that is full.
var ErrUsageDropped = errors.New("llmhttp: usage dropped")

const (
	defaultBatchSize  = 100
	defaultBatchDelay = time.Second

	// maxBatches is how many batches a UsageBuffer holds while its store fails.
	// It holds at least minRecords records.
	maxBatches = 100
	minRecords = 10_000

	// batchTimeout is how long the store may take for one batch.
	batchTimeout = 30 * time.Second

	// maxBackoff bounds the delay between tries.
	maxBackoff = time.Minute
)

// A UsageBuffer is a [UsageStore] that collects records and writes them to
// another store in batches, in the background. It may be used concurrently.
//
// A batch that the store refuses is divided, so that a record which the store
// cannot take does not hold back the others. Such a record is dropped: it is
// logged, and counted by Dropped. A store that takes nothing is tried again with
// exponential backoff of at most a minute. Meanwhile the buffer holds up to 100
// batches, or 10,000 records if that is more; further records are dropped, and
// Record returns an error. If the process ends without Close, the records in the
// buffer are lost.
type UsageBuffer struct {
	store    UsageStore
	size     int           // of a batch
	delay    time.Duration // after which an incomplete batch is written
	logger   *slog.Logger
	capacity int

	// writing is a semaphore that guards the fields below it: it holds a value while
	// records are written.
	writing  chan struct{}
	accepted int                      // writes that the store took
	refusals map[string]recordRefusal // by the ID of the record

	mu      sync.Mutex // guards the fields below
	records []UsageRecord
	timer   *time.Timer   // set while there are records and no goroutine writes them
	busy    bool          // a background goroutine writes or is about to
	backoff time.Duration // before the next try; zero if the last one succeeded
	dropped int64
	err     error // of the last batch; nil if it was written
	closed  bool
}

// UsageBufferOptions configure a [UsageBuffer]. The zero value is ready to use.
type UsageBufferOptions struct {
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

// NewUsageBuffer returns a UsageBuffer that writes to s. Nil opts mean the zero
// UsageBufferOptions. NewUsageBuffer panics if s is nil.
func NewUsageBuffer(s UsageStore, opts *UsageBufferOptions) *UsageBuffer {
	if s == nil {
		panic("llmhttp: nil UsageStore")
	}
	var o UsageBufferOptions
	if opts != nil {
		o = *opts
	}
	size := max(cmp.Or(o.BatchSize, defaultBatchSize), 1)
	return &UsageBuffer{
		store:    s,
		size:     size,
		delay:    max(cmp.Or(o.Delay, defaultBatchDelay), 0),
		logger:   cmp.Or(o.Logger, slog.Default()),
		capacity: max(maxBatches*min(size, math.MaxInt/maxBatches), minRecords),
		writing:  make(chan struct{}, 1),
	}
}

// Record adds records to the buffer and returns at once. If the buffer is full,
// it returns an error wrapping [ErrUsageDropped]. After Close it writes to the
// store directly.
func (b *UsageBuffer) Record(ctx context.Context, records ...UsageRecord) error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return b.store.Record(ctx, records...)
	}
	defer b.mu.Unlock()
	room := min(len(records), b.capacity-len(b.records))
	b.records = append(b.records, records[:room]...)
	b.schedule()
	if lost := len(records) - room; lost > 0 {
		b.dropped += int64(lost)
		return fmt.Errorf("%w: %d records, %d in total: the store does not keep up", ErrUsageDropped, lost, b.dropped)
	}
	return nil
}

// schedule starts a write if one is due, or sets the timer for it. It is called
// with mu held.
func (b *UsageBuffer) schedule() {
	switch {
	case b.busy || b.closed || len(b.records) == 0:
	case b.backoff == 0 && len(b.records) >= b.size:
		b.busy = true
		go b.run()
	case b.timer == nil:
		b.timer = time.AfterFunc(max(b.delay, b.backoff), b.onTimer)
	}
}

func (b *UsageBuffer) onTimer() {
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
func (b *UsageBuffer) run() {
	err := b.writeAll(context.Background())
	b.mu.Lock()
	waiting, backoff := len(b.records), b.backoff
	b.busy = false
	b.schedule()
	b.mu.Unlock()
	if err != nil {
		b.logger.Error("usage not stored yet", "error", err, "waiting", waiting, "retry_after", backoff)
	}
}

// writeAll writes the records that are in the buffer when it is called, up to the
// first failure.
func (b *UsageBuffer) writeAll(ctx context.Context) error {
	select {
	case b.writing <- struct{}{}:
		defer func() { <-b.writing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	b.mu.Lock()
	left := len(b.records)
	b.mu.Unlock()
	var failed error
	for left > 0 {
		b.mu.Lock()
		batch, failing := slices.Clone(b.records[:min(left, b.size)]), b.err != nil
		b.mu.Unlock()
		w := batchWriter{b: b, ctx: ctx}
		w.write(batch, failing)
		b.finishBatch(len(batch), &w)
		if !w.isComplete() {
			failed = w.err
			if !w.wroteAllButRefused() {
				break
			}
		}
		left -= len(batch)
	}
	return failed
}

// write writes a batch to the store.
func (b *UsageBuffer) write(ctx context.Context, batch []UsageRecord) (err error) {
	ctx, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = newPanicError(p)
		}
	}()
	return b.store.Record(ctx, batch...)
}

// finishBatch replaces the n oldest records, a batch, by those that w did not write.
// Those that were refused alone become the newest: they do not hold back others.
func (b *UsageBuffer) finishBatch(n int, w *batchWriter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.records = append(slices.Replace(b.records, 0, n, w.unwritten...), w.refused...)
	switch {
	case w.isComplete(), w.wroteAllButRefused():
		b.backoff, b.err = 0, nil
	case w.ctx.Err() == nil: // if the caller gave up, the store has not failed
		b.err = w.err
		b.backoff = min(max(2*b.backoff, b.delay, time.Millisecond), maxBackoff)
	}
	if len(b.records) == 0 && cap(b.records) > 4*b.size {
		b.records = nil // gives back the memory of a long outage
	}
}

// Waiting returns how many records are in the buffer.
func (b *UsageBuffer) Waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.records)
}

// Dropped returns how many records were dropped because the buffer was full or
// the store did not take them.
func (b *UsageBuffer) Dropped() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dropped
}

// Err returns the error of the last write if the store did not take it, and nil if
// it did. A health check can tell by it that usage will be lost.
func (b *UsageBuffer) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// Query writes the collected records and queries the store. If they cannot be
// written within half of the time that ctx allows, the sums of an account do not include
// them. Those of a Subject, which limits are compared with, do: a record that the store has
// stored although it reported a failure then counts twice until it is written again.
func (b *UsageBuffer) Query(ctx context.Context, q UsageQuery) ([]UsageSum, error) {
	var unwritten []UsageSum
	if b.tryWriteAll(ctx) != nil && q.Subject != (SubjectID{}) {
		unwritten = b.sums(q)
	}
	sums, err := b.store.Query(ctx, q)
	if err != nil {
		return nil, err
	}
	for _, s := range unwritten {
		i, found := slices.BinarySearchFunc(sums, s, compareSums)
		if !found {
			sums = slices.Insert(sums, i, UsageSum{Start: s.Start, Model: s.Model})
		}
		sums[i].Add(s)
	}
	return sums, nil
}

// ClaimQuotaEvent calls the method of the store. If that is no [QuotaEventStore], the error wraps
// [errors.ErrUnsupported].
func (b *UsageBuffer) ClaimQuotaEvent(
	ctx context.Context,
	id string,
	lease time.Duration,
	keep time.Time,
) (claimed bool, wait time.Duration, err error) {
	if s, ok := b.store.(QuotaEventStore); ok {
		return s.ClaimQuotaEvent(ctx, id, lease, keep)
	}
	return false, 0, errNoQuotaEvents
}

// EndQuotaEvent calls the method of the store, as ClaimQuotaEvent does.
func (b *UsageBuffer) EndQuotaEvent(ctx context.Context, id string, handled bool) error {
	if s, ok := b.store.(QuotaEventStore); ok {
		return s.EndQuotaEvent(ctx, id, handled)
	}
	return errNoQuotaEvents
}

var errNoQuotaEvents = fmt.Errorf("llmhttp: the store of the UsageBuffer is no QuotaEventStore: %w", errors.ErrUnsupported)

// sums returns a sum for each of the collected records that q selects.
func (b *UsageBuffer) sums(q UsageQuery) []UsageSum {
	b.mu.Lock()
	defer b.mu.Unlock()
	var sums []UsageSum
	for i := range b.records {
		if r := &b.records[i]; q.Includes(r) {
			s := r.Sum()
			s.Start = q.PeriodStart(r.Time)
			sums = append(sums, s)
		}
	}
	return sums
}

func compareSums(a, b UsageSum) int {
	return cmp.Or(a.Start.Compare(b.Start), strings.Compare(a.Model, b.Model))
}

// tryWriteAll is like writeAll, but gives up after half of the time that ctx allows.
func (b *UsageBuffer) tryWriteAll(ctx context.Context) error {
	if end, ok := ctx.Deadline(); ok {
		half, cancel := context.WithTimeout(ctx, time.Until(end)/2)
		defer cancel()
		ctx = half
	}
	return b.writeAll(ctx)
}

// Close writes the records that are left. [Serve] calls it. Otherwise call it after
// [Handler.Shutdown], with a context of its own. If the store fails or ctx is done
// first, it returns an error that tells how many records are not stored, and may be
// called again.
func (b *UsageBuffer) Close(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
	b.mu.Unlock()
	if err := b.writeAll(ctx); err != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		return fmt.Errorf("llmhttp: %d usage records not stored: %w", len(b.records), err)
	}
	return nil
}

// maxRefusals is how often the store refuses a record alone, and takes others in
// between, until the record is dropped.
const maxRefusals = 3

// A recordRefusal counts how often the store has refused a record that was written alone.
type recordRefusal struct {
	count    int
	accepted int // what UsageBuffer.accepted was at the last count
}

// A batchWriter writes a batch of records, in parts if the store refuses it. It
// is used by the goroutine that holds UsageBuffer.writing.
type batchWriter struct {
	b           *UsageBuffer
	ctx         context.Context
	maxFailures int  // how many failures in a row do not mean that the store is down
	failures    int  // in a row
	accepted    bool // the store took something
	err         error

	unwritten []UsageRecord // were not written, because the store is down
	refused   []UsageRecord // were refused alone
}

// write writes a batch. If the store is failing, it begins with a single record, so that a
// store that is down gets one call. If the store takes the record, the others are divided to
// find those that it does not take.
func (w *batchWriter) write(batch []UsageRecord, failing bool) {
	w.maxFailures = bits.Len(uint(len(batch))) + 1
	switch {
	case len(batch) == 1:
		w.divide(batch)
	case !failing:
		if !w.writeOnce(batch) {
			w.unwritten = batch
		}
	default:
		w.divide(batch[:1])
		if !w.accepted && w.err != nil {
			w.unwritten = append(w.unwritten, batch[1:]...)
			return
		}
		w.divide(batch[1:])
	}
}

// divide writes records in as few calls as possible.
func (w *batchWriter) divide(records []UsageRecord) {
	switch {
	case !w.storeSeemsDown() && w.writeOnce(records):
	case w.storeSeemsDown():
		w.unwritten = append(w.unwritten, records...)
	case len(records) == 1:
		w.refuse(&records[0])
	default:
		half := len(records) / 2
		w.divide(records[:half])
		w.divide(records[half:])
	}
}

// isComplete reports whether nothing is to be tried again.
func (w *batchWriter) isComplete() bool { return len(w.unwritten)+len(w.refused) == 0 }

// wroteAllButRefused reports whether the store took records, and refused the others one by
// one.
func (w *batchWriter) wroteAllButRefused() bool { return w.accepted && len(w.unwritten) == 0 }

// storeSeemsDown reports whether the store seems to be down.
func (w *batchWriter) storeSeemsDown() bool { return w.failures > w.maxFailures }

// writeOnce writes records and reports whether the store took them. A store that does
// not answer is down.
func (w *batchWriter) writeOnce(records []UsageRecord) bool {
	if err := w.b.write(w.ctx, records); err != nil {
		w.err = err
		w.failures++
		if w.ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) {
			w.failures = w.maxFailures + 1
		}
		return false
	}
	w.failures, w.accepted = 0, true
	w.b.accepted++
	for i := range records {
		delete(w.b.refusals, records[i].ID)
	}
	return true
}

// refuse notes that the store refused a record alone. After the first time, this counts
// only if the store has taken something since it was last counted. A record whose count is
// maxRefusals is dropped.
func (w *batchWriter) refuse(r *UsageRecord) {
	b := w.b
	known := b.refusals[r.ID]
	if known.count == 0 || b.accepted > known.accepted {
		known = recordRefusal{known.count + 1, b.accepted}
	}
	if known.count < maxRefusals {
		if b.refusals == nil {
			b.refusals = make(map[string]recordRefusal)
		}
		b.refusals[r.ID] = known
		w.refused = append(w.refused, *r)
		return
	}
	delete(b.refusals, r.ID)
	b.mu.Lock()
	b.dropped++
	b.mu.Unlock()
	b.logger.Error(
		"usage record dropped: the store does not take it",
		"id",
		r.ID,
		"request_id",
		r.RequestID,
		"account",
		r.Account,
		"key_id",
		r.KeyID,
		"operation",
		string(r.Operation),
		"error",
		errorText(w.err),
	)
}
