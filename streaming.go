package llmhttp

import (
	"errors"

	"github.com/llmhttp/llmhttp/internal/callctx"
	"github.com/llmhttp/llmhttp/internal/exchange"
	"github.com/llmhttp/llmhttp/llm"
)

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
	if q.streamed = !f.Whole; q.streamed {
		q.client.BeginStream(exchange.StreamFormat{
			ContentType: f.ContentType, KeepAlive: f.KeepAlive, StartsEarly: f.StartsEarly, EndsCleanly: f.EndsCleanly,
		}, source)
	}
}
