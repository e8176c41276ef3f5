package llmhttp

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"time"

	"github.com/llmhttp/llmhttp/internal/exchange"
	"github.com/llmhttp/llmhttp/llm"
)

// A streaming is an operation that calls a model whose reply comes in chunks, which are encoded
// one by one, as they come. Req and Chunk are structs.
type streaming[Req, Chunk any] struct {
	*operation

	estimate func(c *Call, req *Req) Estimate
	call     func(ctx context.Context, b Backend, req *Req) iter.Seq2[*Chunk, error]
	facts    func(c *Chunk) chunkFacts

	// audioRate returns how many bytes a second of the audio in the facts has, or zero if it has the
	// header of a format. Nil returns zero.
	audioRate func(req *Req) int64
}

// serve decodes the request, reserves what it needs, calls the Backend, settles and replies.
func (op *streaming[Req, Chunk]) serve(q *request, decode func(q *request) (*Req, replyEncoder[Chunk], error)) error {
	c := &Call{q: q}
	req, p, err := op.begin(c, decode)
	if err != nil {
		return err
	}
	return q.inCall(ClassBackend, func() error { return op.reply(c, req, p) })
}

// begin decodes the request, reserves what it is expected to use, and prepares its reply. It is
// not a part of serve, for the reason of request.begin.
func (op *streaming[Req, Chunk]) begin(
	c *Call,
	decode func(q *request) (*Req, replyEncoder[Chunk], error),
) (*Req, *streamPipeline[Chunk], error) {
	q := c.q
	req, encoder, err := decode(q)
	switch {
	case err != nil:
		return nil, nil, err
	case req == nil || encoder == nil:
		return nil, nil, errNothingDecoded
	}
	framing := encoder.Framing()
	if framing.ContentType == "" {
		return nil, nil, errNoContentType
	}
	if err := c.Reserve(op.estimate(c, req)); err != nil {
		return nil, nil, err
	}
	p := &streamPipeline[Chunk]{
		cred: &q.cred, encoder: encoder, maxReply: q.h.opts.MaxReply, asked: q.ledger.expected.units, output: &q.chat.order.Output,
	}
	p.output.KeepText = q.h.opts.TextTokens != nil
	if op.audioRate != nil {
		p.audio.meter.BytesPerSecond = op.audioRate(req)
	}
	q.beginFraming(framing, p)
	return req, p, nil
}

// reply answers with the reply of the Backend. Its usage is recorded before its end is sent.
func (op *streaming[Req, Chunk]) reply(c *Call, req *Req, p *streamPipeline[Chunk]) error {
	q := c.q
	if err := op.callBackend(c, req, p); err != nil {
		return err
	}
	if err := p.complete(); err != nil {
		return err
	}
	if p.asked != nil && int64(p.images) < p.asked.Images {
		q.log.warn(misuseFewerImages)
	}
	q.settle()
	return q.sendEnd(p, nil)
}

// callBackend calls the Backend, which yields the chunks of the reply.
func (op *streaming[Req, Chunk]) callBackend(c *Call, req *Req, p *streamPipeline[Chunk]) error {
	q := c.q
	if err := q.beginChunks(&c.told); err != nil {
		return err
	}
	defer q.endChunks() // also if the Backend panics
	stream := op.call(q.backendCtx, q.h.backend, req)
	if stream == nil {
		return errNilStream
	}
	stream(func(c *Chunk, err error) bool {
		var f chunkFacts
		if c != nil && err == nil {
			f = op.facts(c)
		}
		return q.admitChunk(f.usage, err, func() error { return receiveChunk(q, p, c, f) })
	})
	return q.closeChunks()
}

// receiveChunk adds a chunk, of which f tells, to the reply.
func receiveChunk[Chunk any](q *request, p *streamPipeline[Chunk], c *Chunk, f chunkFacts) error {
	stats, arrived := &q.chunks.stats, q.arrived
	err := q.client.Receive(func(now time.Time, out *exchange.Buffer) error {
		if c == nil {
			return nil
		}
		stats.add(f.hasOutput, now.Sub(arrived))
		return p.receive(c, f, out)
	})
	q.backend.units, q.backend.estimated = p.units, p.estimated
	return err
}

// beginChunks calls what comes before the call of a Backend that yields the reply to req in chunks.
// If it returns no error, endChunks must be called.
func (q *request) beginChunks(req describer) error {
	began, err := q.beginCall(ClassBackend)
	if err != nil {
		return err
	}
	q.notifyStarted(req, began)
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
		err = errNoChunk
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
	g := &q.chunks
	g.mu.Lock()
	defer g.mu.Unlock()
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

// sendEnd sends the end of the reply of p, or all of a whole reply. The request is settled.
func (q *request) sendEnd(p pipeline, extra llm.Extra) error {
	usage := &q.ledger.usage
	if !q.streamed {
		return q.replyAs(http.StatusOK, q.contentType, func(b []byte) ([]byte, error) { return p.appendEnd(b, usage, extra) })
	}
	return q.client.EndStream(func(out *exchange.Buffer) (err error) {
		out.B, err = p.appendEnd(out.B, usage, extra)
		return err
	}, q.ledger.slots.releaser())
}
