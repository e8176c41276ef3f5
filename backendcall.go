// A call of the Backend: from when on other goroutines may end a request, what it is recorded for, how
// chunks are admitted, and what a Backend did wrong.

package llmhttp

import (
	"context"
	"errors"
	"time"

	"github.com/llmhttp/llmhttp/internal/callctx"
	"github.com/llmhttp/llmhttp/internal/exchange"
	"github.com/llmhttp/llmhttp/llm"
)

// beginCall must be called before each call to the Backend, or to anything else to which
// Options.Bounds.Timeout applies. class is that of its failures. From then on other goroutines may end
// the request, the request that admit took is not refunded, and the idle timer runs. It
// returns the time.
func (q *request) beginCall(class ErrorClass) (time.Time, error) {
	now, err := q.client.BeginCall(silenceOf(class))
	if err != nil {
		return now, err
	}
	q.usage.setOpen(true)
	q.ledger.commit()
	return now, nil
}

// callReturned is called when what beginCall was called for has returned.
func (q *request) callReturned() {
	q.usage.setOpen(false)
	q.client.CallReturned()
}

// callUnrecorded calls a function of the host that uses no model, such as ListModels of the
// Backend. There is no record of the call, and the Observer is not told. Options.Bounds.Timeout
// applies to it, and class is that of its failures.
func callUnrecorded[T any](q *request, class ErrorClass, call func(ctx context.Context) (T, error)) (v T, err error) {
	err = q.inCall(class, func() error {
		if _, err := q.beginCall(class); err != nil {
			return err
		}
		defer q.callReturned() // also if call panics
		if v, err = call(q.client.Context()); err != nil {
			return q.client.CauseOr(err)
		}
		return nil
	})
	return v, err
}

// A backendCall is what a call of the Backend for an operation that calls a model has told
// besides the chunks of a chat.
type backendCall struct {
	began     time.Time // zero if it was not called
	notSent   bool      // its error wraps ErrNotSent
	estimated bool      // some of units are an estimate
	streamed  bool      // the reply is a stream
	units     *Units    // of the reply, besides tokens; nil if there is nothing else
	model     string    // that Used tells; may be empty
}

// description returns what the request is described in before notifyStarted is called. The Backend may
// change the request afterwards, so the description must not refer to its parameters.
func (q *request) description() *description {
	if observed := q.observer.infoStorage(); observed != nil {
		return &observed.description
	}
	return &q.info.own
}

// notifyStarted is called before the Backend is called, after beginCall at a time. It
// sets the RequestInfo and tells the Observer. From then on the request is recorded.
func (q *request) notifyStarted(began time.Time) {
	q.info.set(q.record, &q.arrived, q.observer.infoStorage())
	q.backendCtx = q.observer.notifyStarted(q.client.Context())
	q.backend.began = began
}

// beginChunks calls what comes before the call of a Backend that yields a reply in chunks. The request
// must be described. If beginChunks returns no error, endChunks must be called.
func (q *request) beginChunks() error {
	began, err := q.beginCall(ClassBackend)
	if err != nil {
		return err
	}
	q.notifyStarted(began)
	return nil
}

// endChunks calls what comes after the call of a Backend, in any case. It accepts no more chunks.
func (q *request) endChunks() {
	q.chunks.close()
	q.callReturned()
}

// closeChunks accepts no more chunks after the Backend has returned, and returns why it has ended
// the reply: nil if that is complete.
func (q *request) closeChunks() error {
	err := q.chunks.close()
	if err == nil && q.chunks.stats.count == 0 {
		err = callctx.ErrNoChunk
	}
	q.backend.notSent = errors.Is(err, llm.ErrNotSent)
	// A Backend may return without an error when its context is done. That is not the end of a
	// reply.
	return q.client.CauseOr(err)
}

// admitChunk is what the yield function of a Backend's stream does with a chunk that has the given
// usage, or with err, and returns what that returns. receive adds the chunk to the reply; if it
// returns an error, the Backend must stop. When admitChunk returns, the chunk was written, or is
// queued for a write with the next chunks or for the whole reply.
func (q *request) admitChunk(usage *llm.Usage, err error, receive func() error) bool {
	q.chunks.mu.Lock()
	defer q.chunks.mu.Unlock()
	return q.admitLocked(usage, err, receive)
}

// admitLocked is admitChunk with the mutex of the chunkGate held.
func (q *request) admitLocked(usage *llm.Usage, err error, receive func() error) bool {
	g := &q.chunks
	if g.err == errStreamOver {
		q.log.warn(misuseYieldAfterReturn)
		return false
	}
	if err == nil {
		q.usage.set(usage) // also if nobody reads the reply any more
	}
	if g.err != nil {
		return false
	}
	if g.err = err; err == nil {
		g.err = receive()
	}
	return g.err == nil
}

// beginFraming prepares a reply that is sent as f tells. source makes its bytes if it is a stream.
func (q *request) beginFraming(f Framing, source exchange.Source) {
	q.contentType = f.ContentType
	if q.backend.streamed = !f.Whole; q.backend.streamed {
		q.client.BeginStream(exchange.StreamFormat{
			ContentType: f.ContentType, KeepAlive: f.KeepAlive, StartsEarly: f.StartsEarly, EndsCleanly: f.EndsCleanly,
		}, source)
	}
}
