package llmhttp

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

	"github.com/llmhttp/llmhttp/internal/option"
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

	// maxFailures is how many writes fail in a row until the store seems to be down.
	maxFailures = 10

	// maxRefusals is how often the store refuses a record alone, while it takes others, until the
	// record is dropped.
	maxRefusals = 5
)

// A UsageBuffer is a [UsageStore] that collects records and writes them to
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
type UsageBuffer struct {
	store    UsageStore
	size     int           // of a batch
	delay    time.Duration // after which an incomplete batch is written
	logger   *slog.Logger
	capacity int

	// writing is a semaphore: it holds a value while records are written. Only its holder
	// removes records.
	writing chan struct{}

	mu      sync.Mutex // guards the fields below
	records []UsageRecord
	refused []refusedRecord // not in records
	tried   map[string]bool // the IDs of records that the store may have: a write of them is in progress or has failed
	timer   *time.Timer     // set while there are records and no goroutine writes them in the background
	busy    bool            // a background goroutine writes or is about to
	backoff time.Duration   // before the next try; zero if the last one succeeded
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
	if option.IsNil(s) {
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
	room := min(len(records), max(b.capacity-len(b.records)-len(b.refused), 0))
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
func (b *UsageBuffer) writeAll(ctx context.Context) error {
	select {
	case b.writing <- struct{}{}:
		defer func() { <-b.writing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	b.mu.Lock()
	left := len(b.records)
	w := &usageWriter{b: b, ctx: ctx, failing: b.err != nil}
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

// noteResult sets when the next try is, and what Err returns, after w has written what it could. It
// reports whether that is all but records that the store refuses alone.
func (b *UsageBuffer) noteResult(w *usageWriter) (complete bool) {
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

// markTried adds records to tried. It is called with mu held.
func (b *UsageBuffer) markTried(records []UsageRecord) {
	if b.tried == nil {
		b.tried = make(map[string]bool)
	}
	for i := range records {
		b.tried[records[i].ID] = true
	}
}

// markWritten removes records from tried, because the store has them. It is called with mu held.
func (b *UsageBuffer) markWritten(records []UsageRecord) {
	for i := range records {
		delete(b.tried, records[i].ID)
	}
}

// Waiting returns how many records are in the buffer.
func (b *UsageBuffer) Waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.records) + len(b.refused)
}

// Dropped returns how many records were dropped because the buffer was full or
// the store did not take them.
func (b *UsageBuffer) Dropped() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dropped
}

// Check returns nil if the store took the last write, apart from records that it refuses alone,
// or if there was none. Otherwise it tries to write what waits, without regard to the time of the
// next try, and returns an error if the store still takes nothing or ctx is done first. So a
// readiness check that calls it passes as soon as the store works again.
func (b *UsageBuffer) Check(ctx context.Context) error {
	if b.lastErr() == nil {
		return nil
	}
	_ = b.writeAll(ctx)
	return b.lastErr()
}

// lastErr returns the error of the last write if the store took nothing.
func (b *UsageBuffer) lastErr() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// Query writes the collected records and queries the store. If they cannot be
// written within half of the time that ctx allows, the sums of an account do not include
// them. Those of a Subject, which limits are compared with, do: a record that the store has
// stored although it has not confirmed that then counts twice until it is written again. The
// Handler takes such usage for reserved and not for used.
func (b *UsageBuffer) Query(ctx context.Context, q UsageQuery) ([]UsageSum, error) {
	sums, _, err := b.query(ctx, q)
	return sums, err
}

// query is Query. It returns a part of the sums that counts twice if the store has stored what it
// has not confirmed.
func (b *UsageBuffer) query(ctx context.Context, q UsageQuery) (sums, twice []UsageSum, err error) {
	var unwritten []UsageRecord
	if b.tryWriteAll(ctx) != nil && q.Subject != (SubjectID{}) {
		unwritten = b.unwritten(q)
	}
	if sums, err = b.store.Query(ctx, q); err != nil {
		return nil, nil, err
	}
	untried := b.untried(len(unwritten))
	for i := range unwritten {
		r := &unwritten[i]
		s := r.Sum()
		s.Start = q.PeriodStart(r.Time)
		if !untried[r.ID] {
			twice = append(twice, s)
		}
		at, found := slices.BinarySearchFunc(sums, s, compareSums)
		if !found {
			sums = slices.Insert(sums, at, UsageSum{Start: s.Start, Model: s.Model})
		}
		sums[at].Add(s)
	}
	return sums, twice, nil
}

// ClaimQuotaEvent calls the method of the store. If that is no [QuotaEventStore], the error wraps
// [errors.ErrUnsupported].
func (b *UsageBuffer) ClaimQuotaEvent(
	ctx context.Context,
	id string,
	lease time.Duration,
	keep time.Time,
) (claimed bool, wait time.Duration, err error) {
	if s, ok := StoreAs[QuotaEventStore](b.store); ok {
		return s.ClaimQuotaEvent(ctx, id, lease, keep)
	}
	return false, 0, errNoQuotaEvents
}

// EndQuotaEvent calls the method of the store, as ClaimQuotaEvent does.
func (b *UsageBuffer) EndQuotaEvent(ctx context.Context, id string, handled bool) error {
	if s, ok := StoreAs[QuotaEventStore](b.store); ok {
		return s.EndQuotaEvent(ctx, id, handled)
	}
	return errNoQuotaEvents
}

var errNoQuotaEvents = fmt.Errorf("llmhttp: the store of the UsageBuffer is no QuotaEventStore: %w", errors.ErrUnsupported)

// unwritten returns the collected records that q selects.
func (b *UsageBuffer) unwritten(q UsageQuery) (records []UsageRecord) {
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
func (b *UsageBuffer) untried(n int) map[string]bool {
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

func compareSums(a, b UsageSum) int {
	return cmp.Or(a.Start.Compare(b.Start), strings.Compare(a.Model, b.Model))
}

// Store returns the store that b writes to. It lacks what waits in b: see [UsageBuffer.Flush].
func (b *UsageBuffer) Store() UsageStore { return b.store }

// Flush writes the records that wait, without regard to the time of the next try. It returns an
// error if some of them are left because the store did not take them or ctx is done.
func (b *UsageBuffer) Flush(ctx context.Context) error {
	if err := b.writeAll(ctx); err != nil {
		return fmt.Errorf("llmhttp: %d usage records not stored: %w", b.Waiting(), err)
	}
	return nil
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
	return b.Flush(ctx)
}

// A refusedRecord is one that the store refused when it was written alone.
type refusedRecord struct {
	UsageRecord
	refusals int // while the store took others
}

// A usageWriter writes records for one call of writeAll. It is used by the goroutine that
// holds UsageBuffer.writing.
type usageWriter struct {
	b        *UsageBuffer
	ctx      context.Context
	failing  bool // the last call of writeAll failed
	accepted bool // the store took something
	timedOut bool // the store did not answer
	failures int  // in a row
	err      error
}

// isDown reports whether the store seems to be down.
func (w *usageWriter) isDown() bool {
	return w.timedOut || w.failures >= maxFailures || w.isTrying() && w.failures > 0
}

// isTrying reports whether the store was failing, and has taken nothing yet. It then gets one
// record, so that a store that is down gets one call.
func (w *usageWriter) isTrying() bool { return w.failing && !w.accepted }

// writeBatch writes the n oldest records. If the store refuses them, it writes them one by one.
func (w *usageWriter) writeBatch(n int) {
	if w.writeOldest(n) || n == 1 {
		return
	}
	for ; n > 0 && !w.isDown(); n-- {
		w.writeOldest(1)
	}
}

// writeOldest writes the n oldest records in one call and reports whether the store took them.
func (w *usageWriter) writeOldest(n int) bool {
	b := w.b
	b.mu.Lock()
	batch := slices.Clone(b.records[:n])
	b.markTried(batch)
	b.mu.Unlock()
	ok := w.write(batch)
	if !ok && (n > 1 || w.timedOut) {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.records = slices.Delete(b.records, 0, n)
	if ok {
		b.markWritten(batch)
	} else {
		b.refused = append(b.refused, refusedRecord{UsageRecord: batch[0]})
	}
	return ok
}

// writeRefused writes the records that were refused alone once more, and drops those that were
// refused too often.
func (w *usageWriter) writeRefused() {
	b := w.b
	b.mu.Lock()
	refused := slices.Clone(b.refused)
	b.mu.Unlock()
	var left []refusedRecord
	var written []UsageRecord
	for i := range refused {
		r := refused[i]
		if w.isDown() {
			left = append(refused[i:], left...) // begins with the others the next time
			break
		}
		if w.write([]UsageRecord{r.UsageRecord}) {
			written = append(written, r.UsageRecord)
			continue
		}
		if w.accepted && !w.timedOut {
			r.refusals++
		}
		if r.refusals < maxRefusals {
			left = append(left, r)
		} else {
			b.drop(&r.UsageRecord, w.err)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refused = left
	b.markWritten(written)
}

// write writes records in one call and reports whether the store took them.
func (w *usageWriter) write(records []UsageRecord) bool {
	if err := w.b.write(w.ctx, records); err != nil {
		w.err = err
		w.failures++
		w.timedOut = w.ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded)
		return false
	}
	w.failures, w.accepted = 0, true
	return true
}

// drop logs a record that is dropped because of err.
func (b *UsageBuffer) drop(r *UsageRecord, err error) {
	b.mu.Lock()
	b.dropped++
	delete(b.tried, r.ID)
	b.mu.Unlock()
	b.logger.Error(
		"usage record dropped: the store does not take it",
		"id", r.ID,
		"request_id", r.RequestID,
		"account", r.Account,
		"key_id", r.KeyID,
		"operation", string(r.Operation),
		"error", errorText(err),
	)
}
