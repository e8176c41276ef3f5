// How an operation whose reply comes in chunks is tried at a target.

package route

import (
	"context"
	"iter"
	"sync"

	"github.com/llmhttp/llmhttp"
)

// A streaming is an operation whose reply comes in chunks.
type streaming[Req, Chunk any] struct {
	name  llmhttp.Operation
	model func(req *Req) *string
	clone func(req *Req) *Req
	call  func(ctx context.Context, b llmhttp.Backend, req *Req) iter.Seq2[*Chunk, error]

	// hasContent reports whether the reply begins with a chunk. Chunks before it are held back, so
	// that another target can be tried if the target then fails.
	hasContent func(c *Chunk) bool

	setModel func(c *Chunk, model string) // nil if chunks do not tell the model
}

// serve tries targets until one begins its reply. Each try gets a copy of req, which the target may
// change, with the target's name of the model.
func (op *streaming[Req, Chunk]) serve(ctx context.Context, r *Router, req *Req) iter.Seq2[*Chunk, error] {
	return func(yield func(*Chunk, error) bool) {
		c, err := r.newCall(ctx, Request{op.name, *op.model(req), req})
		if err != nil {
			yield(nil, err)
			return
		}
		f := &forwarder[Req, Chunk]{op: op, req: req, yield: yield}
		if err := c.run(f.send); err != nil && err != errClientLeft {
			yield(nil, err)
		}
	}
}

// A forwarder sends a request to targets and their replies to the client.
type forwarder[Req, Chunk any] struct {
	op    *streaming[Req, Chunk]
	req   *Req // nil when the reply has begun, so that a long stream does not retain it
	yield func(*Chunk, error) bool
}

// send implements [sendFunc].
func (f *forwarder[Req, Chunk]) send(ctx context.Context, t *try) error {
	s := &stream[Req, Chunk]{forwarder: f, try: t}
	defer s.ignoreRest()
	req, model := f.op.clone(f.req), t.call.info.Model
	name := t.target.backendModel(model)
	if *f.op.model(req) = name; name != model && f.op.setModel != nil {
		s.model = model
	}
	if err := t.changeParams(ctx, req); err != nil {
		return err
	}
	f.op.call(ctx, t.target.backend, req)(s.receive)
	return s.finish(ctx)
}

// A stream passes the reply to one try from the target to the client. The target
// calls receive, which calls the client's yield function on the same goroutine.
type stream[Req, Chunk any] struct {
	forwarder *forwarder[Req, Chunk]
	try       *try
	model     string // the client's name of the model, to set in chunks; empty if the target uses the same name

	// mu keeps a target that calls receive late, or from several goroutines, from adding to the
	// reply of another try. It guards the fields below.
	mu     sync.Mutex
	held   []*Chunk // chunks without content, before the reply begins
	closed bool     // no more chunks are accepted from the target
	err    error    // why the stream was closed; nil at the end of a complete reply
}

// maxHeld limits the chunks that are held back. It is more than the number of
// choices of most requests, whose roles arrive in a chunk each.
const maxHeld = 16

// receive takes a chunk or an error from the target. It reports whether the
// target should go on.
func (s *stream[Req, Chunk]) receive(chunk *Chunk, err error) bool {
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
		s.forwarder.op.setModel(chunk, s.model)
	}
	if !s.try.started {
		if len(s.held) < maxHeld && !s.forwarder.op.hasContent(chunk) {
			s.held = append(s.held, chunk)
			return true
		}
		s.startReply()
	}
	return s.forward(chunk)
}

// finish ends the stream after the target has returned. It returns the result for
// [sendFunc]. ctx is the context of the try.
func (s *stream[Req, Chunk]) finish(ctx context.Context) error {
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
func (s *stream[Req, Chunk]) ignoreRest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// fail ends the stream with an error. It returns false, for receive to return.
func (s *stream[Req, Chunk]) fail(err error) bool {
	s.closed, s.err = true, err
	return false
}

// startReply begins the reply to the client with the chunks that were held back.
func (s *stream[Req, Chunk]) startReply() {
	s.try.markStarted()
	held := s.held
	s.held, s.forwarder.req = nil, nil
	for _, chunk := range held {
		s.forward(chunk)
	}
}

// forward passes a chunk on to the client, unless the client has left. It reports
// whether the client wants more.
func (s *stream[Req, Chunk]) forward(chunk *Chunk) bool {
	if s.err != nil {
		return false
	}
	s.try.inHost = true
	more := s.forwarder.yield(chunk, nil)
	s.try.inHost = false
	return more || s.fail(errClientLeft)
}
