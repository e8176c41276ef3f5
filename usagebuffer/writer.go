// One write of what waits: in batches, or one by one after a failure, and which records are dropped.

package usagebuffer

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/panics"
)

const (
	// batchTimeout is how long the store may take for one batch.
	batchTimeout = 30 * time.Second

	// maxFailures is how many writes fail in a row until the store seems to be down.
	maxFailures = 10

	// maxRefusals is how often the store refuses a record alone, while it takes others, until the
	// record is dropped.
	maxRefusals = 5
)

// A refusedRecord is one that the store refused when it was written alone.
type refusedRecord struct {
	llmhttp.UsageRecord
	refusals int // while the store took others
}

// A writer writes records for one call of writeAll. It is used by the goroutine that
// holds Buffer.writing.
type writer struct {
	b        *Buffer
	ctx      context.Context
	failing  bool // the last call of writeAll failed
	accepted bool // the store took something
	timedOut bool // the store did not answer
	failures int  // in a row
	err      error
}

// isDown reports whether the store seems to be down.
func (w *writer) isDown() bool {
	return w.timedOut || w.failures >= maxFailures || w.isTrying() && w.failures > 0
}

// isTrying reports whether the store was failing, and has taken nothing yet. It then gets one
// record, so that a store that is down gets one call.
func (w *writer) isTrying() bool { return w.failing && !w.accepted }

// writeBatch writes the n oldest records. If the store refuses them, it writes them one by one.
func (w *writer) writeBatch(n int) {
	if w.writeOldest(n) || n == 1 {
		return
	}
	for ; n > 0 && !w.isDown(); n-- {
		w.writeOldest(1)
	}
}

// writeOldest writes the n oldest records in one call and reports whether the store took them.
func (w *writer) writeOldest(n int) bool {
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
func (w *writer) writeRefused() {
	b := w.b
	b.mu.Lock()
	refused := slices.Clone(b.refused)
	b.mu.Unlock()
	var left []refusedRecord
	var written []llmhttp.UsageRecord
	for i := range refused {
		r := refused[i]
		if w.isDown() {
			left = append(refused[i:], left...) // begins with the others the next time
			break
		}
		if w.write([]llmhttp.UsageRecord{r.UsageRecord}) {
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
func (w *writer) write(records []llmhttp.UsageRecord) bool {
	if err := w.call(records); err != nil {
		w.err = err
		w.failures++
		w.timedOut = w.ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded)
		return false
	}
	w.failures, w.accepted = 0, true
	return true
}

// call calls Record of the store. A panic is an error.
func (w *writer) call(records []llmhttp.UsageRecord) (err error) {
	ctx, cancel := context.WithTimeout(w.ctx, batchTimeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = panics.New(p)
		}
	}()
	return w.b.store.Record(ctx, records...)
}

// drop logs a record that is dropped because of err.
func (b *Buffer) drop(r *llmhttp.UsageRecord, err error) {
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
		"error", panics.Text(err),
	)
}

// markTried adds records to tried. It is called with mu held.
func (b *Buffer) markTried(records []llmhttp.UsageRecord) {
	if b.tried == nil {
		b.tried = make(map[string]bool)
	}
	for i := range records {
		b.tried[records[i].ID] = true
	}
}

// markWritten removes records from tried, because the store has them. It is called with mu held.
func (b *Buffer) markWritten(records []llmhttp.UsageRecord) {
	for i := range records {
		delete(b.tried, records[i].ID)
	}
}
