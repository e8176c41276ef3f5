package route

import (
	"context"
	"sync"

	"github.com/llmhttp/llmhttp"
)

// Chat implements [llmhttp.Backend].
//
// Each try gets a copy of the request, which the target may change.
func (r *Router) Chat(ctx context.Context, req *llmhttp.ChatRequest) llmhttp.ChatStream {
	return func(yield func(*llmhttp.ChatChunk, error) bool) {
		c, err := r.newCall(ctx, Request{llmhttp.OperationChat, req.Model, req})
		if err != nil {
			yield(nil, err)
			return
		}
		f := &chatForwarder{req: req, yield: yield}
		if err := c.run(f.send); err != nil && err != errClientLeft {
			yield(nil, err)
		}
	}
}

// A chatForwarder sends a chat request to targets and their replies to the client.
type chatForwarder struct {
	req   *llmhttp.ChatRequest // nil when the reply has begun, so that a long stream does not retain it
	yield func(*llmhttp.ChatChunk, error) bool
}

// send implements [sendFunc].
func (f *chatForwarder) send(ctx context.Context, t *try) error {
	s := &stream{forwarder: f, try: t}
	defer s.ignoreRest()
	req, model := f.req.Clone(), t.call.info.Model
	req.Model = t.target.backendModel(model)
	if req.Model != model {
		s.model = model
	}
	if err := t.changeParams(ctx, req); err != nil {
		return err
	}
	t.target.backend.Chat(ctx, req)(s.receive)
	return s.finish(ctx)
}

// A stream passes the reply to one try from the target to the client. The target
// calls receive, which calls the client's yield function on the same goroutine.
type stream struct {
	forwarder *chatForwarder
	try       *try
	model     string // the client's name of the model, to set in chunks; empty if the target uses the same name

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
		return s.fail(err)
	case chunk == nil:
		return true
	case !s.try.stopTimeout():
		return s.fail(errTryTimeout)
	}
	if s.model != "" {
		chunk.Model = s.model
	}
	if !s.try.started {
		if len(s.held) < maxHeld && !chunk.HasContent() {
			s.held = append(s.held, chunk)
			return true
		}
		s.startReply()
	}
	return s.forward(chunk)
}

// finish ends the stream after the target has returned. It returns the result for
// [sendFunc]. ctx is the context of the try.
func (s *stream) finish(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	clientCtx := s.try.call.ctx
	switch {
	case s.err != nil:
	case clientCtx.Err() != nil:
		return context.Cause(clientCtx)
	case ctx.Err() != nil:
		return context.Cause(ctx) // the try's timeout
	case !s.try.started && len(s.held) == 0:
		return errNoChunk
	case !s.try.started:
		s.startReply() // a reply without content is complete as well
	}
	return s.err
}

// ignoreRest makes the stream ignore chunks that the target sends after Chat has
// returned or panicked.
func (s *stream) ignoreRest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// fail ends the stream with an error. It returns false, for receive to return.
func (s *stream) fail(err error) bool {
	s.closed, s.err = true, err
	return false
}

// startReply begins the reply to the client with the chunks that were held back.
func (s *stream) startReply() {
	s.try.markStarted()
	held := s.held
	s.held, s.forwarder.req = nil, nil
	for _, chunk := range held {
		s.forward(chunk)
	}
}

// forward passes a chunk on to the client, unless the client has left. It reports
// whether the client wants more.
func (s *stream) forward(chunk *llmhttp.ChatChunk) bool {
	if s.err != nil {
		return false
	}
	s.try.inHost = true
	more := s.forwarder.yield(chunk, nil)
	s.try.inHost = false
	return more || s.fail(errClientLeft)
}
