// Makes the bytes of the reply to a chat: the orderer puts chunks in valid order, and the ChatEncoder
// of the format encodes them. It is the Source of the exchange.

package llmhttp

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp/internal/bounds"
	"github.com/llmhttp/llmhttp/internal/exchange"
	"github.com/llmhttp/llmhttp/internal/invalid"
	"github.com/llmhttp/llmhttp/internal/order"
	"github.com/llmhttp/llmhttp/internal/texts"
	"github.com/llmhttp/llmhttp/llm"
)

// A chatPipeline makes the reply to a chat from the chunks of the Backend: the orderer puts
// them in valid order and passes them back to the pipeline, whose encoder appends them to the
// reply. That of a stream is sent as it is made: the pipeline is its [exchange.Source].
//
// Goroutines of the Backend call receive, through the exchange and the chunkGate. All else is
// called by the exchange, or by the goroutine of ServeHTTP while the Backend does not run.
type chatPipeline struct {
	cred     *credential // is removed from the errors that the client gets
	encoder  ChatEncoder // nil when the end of the reply was encoded
	whole    bool        // the reply is sent when it is complete
	started  bool        // AppendStart of the encoder was called
	order    order.Orderer
	start    ReplyStart          // the identity of the reply; until completeStart, that which the Handler gives it
	maxReply int64               // bounds size
	size     int                 // approximate size of the chunks so far, in bytes
	reasons  [1]llm.FinishReason // the storage of what finishReasons returns

	out        *exchange.Buffer // what Add appends to
	body       exchange.Buffer  // of a whole reply: what the encoder has appended so far
	encoderErr error            // the encoder failed
}

// chunkStats are the number of chunks that the Backend has yielded, and how long after the
// arrival of the request. Durations are zero if there was none.
type chunkStats struct {
	count                        int
	first, firstToken, lastToken time.Duration
}

// add counts a chunk, which the Backend has yielded after a duration.
func (s *chunkStats) add(hasToken bool, after time.Duration) {
	if s.count++; s.count == 1 {
		s.first = after
	}
	if hasToken {
		s.lastToken = after
		if s.firstToken == 0 {
			s.firstToken = after
		}
	}
}

// A chunkGate admits the chunks of a Backend one by one, and counts them: one that wrongly calls
// yield on several goroutines must not corrupt buffers that other requests get later.
type chunkGate struct {
	mu    sync.Mutex // guards the fields below
	err   error      // why the Backend must stop; errStreamOver if it has returned
	stats chunkStats
}

var (
	errStreamOver    = errors.New("llmhttp: the stream's function has returned")
	errReplyComplete = errors.New("llmhttp: the reply has all the tokens that it may have")
)

// open admits chunks.
func (g *chunkGate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.err = nil
}

// close refuses further chunks, and returns the error that ended the stream.
func (g *chunkGate) close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch g.err {
	case nil, errReplyComplete:
		g.err = errStreamOver
		return nil
	case errStreamOver:
		return nil
	}
	return g.err
}

// receive emits what a chunk adds to the reply. If the reply is a stream, it is appended to out.
func (p *chatPipeline) receive(c *llm.ChatChunk, out *exchange.Buffer) error {
	if c != nil {
		if p.size += texts.Size(c); int64(p.size) > p.maxReply {
			return invalid.ReplyTooLarge(p.maxReply)
		}
	}
	p.setOut(out)
	p.order.Add(c)
	p.out = nil
	if p.order.Err != nil {
		return p.order.Err
	}
	return p.encoderErr
}

// setOut makes Add append to out. If that is nil, the reply is whole, and nothing of it is
// sent yet.
func (p *chatPipeline) setOut(out *exchange.Buffer) {
	if p.out = out; out == nil {
		p.out = &p.body
	}
}

// complete ends the choices of the reply after the Backend has returned.
func (p *chatPipeline) complete(out *exchange.Buffer) error {
	p.setOut(out)
	p.order.Complete()
	p.out = nil
	return p.encoderErr
}

// Add encodes a chunk that the orderer emits.
func (p *chatPipeline) Add(c *llm.ChatChunk) {
	choice := &c.Choices[0]
	for !p.whole && texts.Len(&choice.Delta) > bounds.DeltaText {
		rest := texts.Split(&choice.Delta, bounds.DeltaText)
		p.appendChunk(c)
		choice.Delta, choice.Extra, c.Extra = rest, nil, nil
	}
	p.appendChunk(c)
}

func (p *chatPipeline) appendChunk(c *llm.ChatChunk) {
	if p.encoderErr != nil {
		return
	}
	p.out.B = p.AppendStart(p.out.B)
	b, err := p.encoder.AppendChunk(p.out.B, c)
	if err != nil {
		p.encoderErr = err
		return
	}
	p.out.B = b
}

// AppendStart implements [exchange.Source].
func (p *chatPipeline) AppendStart(b []byte) []byte {
	if p.started {
		return b
	}
	p.started = true
	return p.encoder.AppendStart(b, p.completeStart())
}

// HasStarted implements [exchange.Source].
func (p *chatPipeline) HasStarted() bool { return p.started }

// AppendFailure implements [exchange.Source].
func (p *chatPipeline) AppendFailure(b []byte, err error) []byte {
	if p.encoder == nil {
		return b
	}
	return p.encoder.AppendFailure(b, p.cred.clientError(err))
}

// appendEnd implements [pipeline].
func (p *chatPipeline) appendEnd(b []byte, u *llm.Usage, extra llm.Extra) ([]byte, error) {
	if p.encoderErr != nil {
		return b, p.encoderErr
	}
	b = p.AppendStart(append(b, p.body.B...)) // that of an empty reply
	end, err := p.encoder.AppendEnd(b, u, extra)
	if err != nil {
		p.encoderErr = err
		return b, err
	}
	p.drop()
	return end, nil
}

// drop lets the reply be garbage-collected. It is called when the end of the reply is encoded.
func (p *chatPipeline) drop() { p.order.Sink, p.encoder, p.body.B = nil, nil, nil }

// completeStart sets what the Backend has left out of the identity of the reply, and
// returns it.
func (p *chatPipeline) completeStart() *ReplyStart {
	s, start := &p.start, &p.order.Start
	s.ID = start.ID
	s.Created = cmp.Or(start.Created, s.Created)
	s.Model = cmp.Or(start.Model, s.Model)
	return s
}

// finishReasons returns those of the choices in the order of their indices; empty for one that
// did not end.
func (p *chatPipeline) finishReasons() []llm.FinishReason {
	var reasons []llm.FinishReason
	if len(p.order.Choices) == 1 {
		reasons = p.reasons[:0]
	}
	for i := range p.order.Choices {
		reasons = append(reasons, p.order.Choices[i].Reason)
	}
	return reasons
}

// saveFunc returns the function that stores the complete reply, or nil if there is nothing to
// store.
func (p *chatPipeline) saveFunc(u *llm.Usage, extra llm.Extra) func(context.Context) error {
	if saver, ok := p.encoder.(ReplySaver); ok {
		return saver.SaveReply(u, extra)
	}
	return nil
}
