package llmhttp

import (
	"context"
	"errors"
	"math/bits"
)

// maxRefusals is how often the store refuses a record alone, and takes others in
// between, until the record is dropped.
const maxRefusals = 3

// A recordRefusal is what is known of a record that the store has refused alone.
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

	rest    []UsageRecord // were not written, because the store is down
	refused []UsageRecord // were refused alone
}

// write writes a batch. After failures of earlier writes it begins with a single
// record, so that a store that is down gets one call. If the store takes the
// record, the others are divided to find those that it does not take.
func (w *batchWriter) write(batch []UsageRecord, failures int) {
	w.maxFailures = bits.Len(uint(len(batch))) + 1
	switch {
	case len(batch) == 1:
		w.divide(batch)
	case failures == 0:
		if !w.writeOnce(batch) {
			w.rest = batch
		}
	default:
		w.divide(batch[:1])
		if !w.accepted && w.err != nil {
			w.rest = append(w.rest, batch[1:]...)
			return
		}
		w.divide(batch[1:])
	}
}

// divide writes records in as few calls as possible.
func (w *batchWriter) divide(records []UsageRecord) {
	switch {
	case !w.isDown() && w.writeOnce(records):
	case w.isDown():
		w.rest = append(w.rest, records...)
	case len(records) == 1:
		w.refuse(&records[0])
	default:
		half := len(records) / 2
		w.divide(records[:half])
		w.divide(records[half:])
	}
}

// isComplete reports whether nothing is to be tried again.
func (w *batchWriter) isComplete() bool { return len(w.rest)+len(w.refused) == 0 }

// isUp reports whether the store took everything but records that it refused
// alone.
func (w *batchWriter) isUp() bool { return w.accepted && len(w.rest) == 0 }

// isDown reports whether the store seems to be down.
func (w *batchWriter) isDown() bool { return w.failures > w.maxFailures }

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

// refuse notes that the store refused a record alone. The record is dropped if
// that has happened often enough, and is not counted if the store took nothing
// since the last time.
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
	b.logger().Error("usage record dropped: the store does not take it",
		"request_id", r.ID, "account", r.Account, "key_id", r.KeyID, "endpoint", string(r.Endpoint), "error", errorText(w.err))
}
