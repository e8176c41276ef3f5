package route

import (
	"context"
	"sync"

	"github.com/llmhttp/llmhttp"
)

// Chat implements [llmhttp.Backend].
//
// Each try gets a copy of the request, which the target may change. The copies
// share strings and raw JSON, which must not be written to.
func (r *Router) Chat(ctx context.Context, req *llmhttp.ChatRequest) llmhttp.ChatStream {
	return func(yield func(*llmhttp.ChatChunk, error) bool) {
		c, err := r.newCall(ctx, req.Model, llmhttp.EndpointChat)
		if err != nil {
			yield(nil, err)
			return
		}
		send := (&chat{req: req, yield: yield}).send
		if err := c.run(send); err != nil && err != errClientLeft {
			yield(nil, err)
		}
	}
}

// A chat is a chat request, and what gets its reply.
type chat struct {
	req   *llmhttp.ChatRequest // nil when the reply has begun, so that a long stream does not retain it
	yield func(*llmhttp.ChatChunk, error) bool
}

// send is the [sendFunc] of a chat.
func (c *chat) send(ctx context.Context, t *try) error {
	s := &stream{chat: c, try: t}
	defer s.stop()
	req, model := clone(c.req), t.call.subject.model
	req.Model = t.target.backendModel(model)
	if req.Model != model {
		s.model = model
	}
	t.target.backend.Chat(ctx, req)(s.receive)
	return s.end(ctx)
}

// A stream is the reply to one try of a chat. A target calls receive on the
// goroutine of the client: no channel or goroutine lies between the two.
type stream struct {
	chat  *chat
	try   *try
	model string // to set in chunks; empty if the target has the same name for it

	// mu keeps a target that calls receive late, or from several goroutines,
	// from adding to the reply of another try. It guards the fields below.
	mu     sync.Mutex
	held   []*llmhttp.ChatChunk // chunks without content, before the reply begins
	closed bool                 // no more chunks are accepted from the target
	err    error                // why the stream was closed; nil at the end of a complete reply
}

// maxHeld limits the chunks that are held back. It is more than the number of
// choices of most requests, whose roles arrive in a chunk each.
const maxHeld = 16

// receive takes a chunk or an error from the target. It reports whether the
// target should go on.
func (s *stream) receive(chunk *llmhttp.ChatChunk, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return false
	case err != nil:
		return s.close(err)
	case chunk == nil:
		return true
	case !s.try.stopTimeout():
		return s.close(errTryTimeout)
	}
	if s.model != "" {
		chunk.Model = s.model
	}
	if !s.try.started {
		if len(s.held) < maxHeld && !hasContent(chunk) {
			s.held = append(s.held, chunk)
			return true
		}
		s.start()
	}
	return s.pass(chunk)
}

// end ends the stream when the target has returned. It returns the result of the
// [sendFunc]; ctx is that of the try.
func (s *stream) end(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch client := s.try.call.ctx; {
	case s.err != nil:
	case client.Err() != nil:
		return context.Cause(client)
	case ctx.Err() != nil:
		return context.Cause(ctx) // the try's timeout
	case !s.try.started:
		s.start() // a reply without content is complete as well
	}
	return s.err
}

// stop makes the stream ignore what the target sends after it has returned or
// panicked.
func (s *stream) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// close makes the stream ignore what the target sends after this. It returns
// false.
func (s *stream) close(err error) bool {
	s.closed, s.err = true, err
	return false
}

// start begins the reply to the client with the chunks that were held back.
func (s *stream) start() {
	s.try.start()
	held := s.held
	s.held, s.chat.req = nil, nil
	for _, chunk := range held {
		s.pass(chunk)
	}
}

// pass passes a chunk on to the client, unless the client has left. It reports
// whether the client wants more.
func (s *stream) pass(chunk *llmhttp.ChatChunk) bool {
	if s.err != nil {
		return false
	}
	s.try.inClient = true
	more := s.chat.yield(chunk, nil)
	s.try.inClient = false
	return more || s.close(errClientLeft)
}

// hasContent reports whether a chunk has more than the announcement of a role.
func hasContent(c *llmhttp.ChatChunk) bool {
	if c.Usage != nil {
		return true
	}
	for i := range c.Choices {
		choice := &c.Choices[i]
		d := &choice.Delta
		if d.Content != "" || d.Reasoning != "" || d.Refusal != "" || len(d.ToolCalls) > 0 || len(d.ReasoningDetails) > 0 || choice.FinishReason != "" ||
			hasValue(choice.Extra) || hasValue(d.Extra) {
			return true
		}
	}
	return false
}

// hasValue reports whether e has a member that is not null.
func hasValue(e llmhttp.Extra) bool {
	for _, v := range e {
		if string(v) != "null" {
			return true
		}
	}
	return false
}
