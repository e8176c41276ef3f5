package route

import (
	"context"

	"github.com/llmhttp/llmhttp"
)

// Chat implements [llmhttp.Backend].
//
// Each try has a copy of the request, so that a target may change it as it
// may any other. Texts and raw JSON are shared by the copies, and must not be
// written to.
func (r *Router) Chat(ctx context.Context, req *llmhttp.ChatRequest) llmhttp.ChatStream {
	return func(yield func(*llmhttp.ChatChunk, error) bool) {
		base, err := r.begin(ctx, req.Model, kindChat)
		if err != nil {
			yield(nil, err)
			return
		}
		c := &chat{call: base, req: req, out: yield}
		if err := c.run(c.try); err != nil && !c.left {
			yield(nil, err)
		}
	}
}

// A chat is the call of a chat. What a target yields is passed on as it comes,
// without a goroutine or a channel in between.
type chat struct {
	call
	req *llmhttp.ChatRequest // nil once the reply has begun: it may take long
	out func(*llmhttp.ChatChunk, error) bool

	begun bool // something was passed on

	// Of the present try.

	target  *target
	ticket  *ticket
	renamed bool // the target calls the model otherwise
	heard   bool // a chunk came
	ended   bool // nothing that the target still yields counts
	err     error
	held    []*llmhttp.ChatChunk // those that say nothing yet
}

// maxHeld is how many chunks that say nothing are kept back: more than there
// are choices in most requests, whose roles are announced one by one.
const maxHeld = 16

func (c *chat) try(ctx context.Context, t *target, tk *ticket) (final bool, err error) {
	c.target, c.ticket = t, tk
	c.heard, c.ended, c.err, c.held = false, false, nil, nil
	req := cloneChat(c.req, !c.last())
	req.Model = t.modelFor(c.model)
	c.renamed = req.Model != c.model
	t.backend.Chat(ctx, req)(c.accept)
	c.ended = true
	switch {
	case c.left, c.err != nil:
		return c.begun, c.err
	case c.ctx.Err() != nil:
		return c.begun, context.Cause(c.ctx)
	case !c.heard && context.Cause(ctx) == errSlow:
		return false, errSlow
	case !c.begun:
		c.commit() // the reply is empty
	}
	return true, nil
}

// accept is the yield of the target's stream.
func (c *chat) accept(chunk *llmhttp.ChatChunk, err error) bool {
	switch {
	case c.ended:
		return false
	case err != nil:
		c.ended, c.err = true, err
		return false
	case chunk == nil:
		return true
	}
	if !c.heard {
		if c.timer != nil && !c.timer.Stop() {
			c.ended, c.err = true, errSlow
			return false
		}
		c.heard = true
	}
	if c.renamed {
		chunk.Model = c.model
	}
	if c.begun {
		return c.pass(chunk)
	}
	if len(c.held) < maxHeld && !says(chunk) {
		c.held = append(c.held, chunk)
		return true
	}
	return c.commit() && c.pass(chunk)
}

// commit passes on what was kept back: from here on the reply is the target's.
func (c *chat) commit() bool {
	c.begun = true
	c.alive(c.target, c.ticket)
	held := c.held
	c.req, c.held = nil, nil
	for _, chunk := range held {
		if !c.pass(chunk) {
			return false
		}
	}
	return true
}

func (c *chat) pass(chunk *llmhttp.ChatChunk) bool {
	c.yielding = true
	more := c.out(chunk, nil)
	c.yielding = false
	if !more {
		c.left, c.ended = true, true
	}
	return more
}

// says reports whether a chunk is more than the announcement of a reply.
func says(c *llmhttp.ChatChunk) bool {
	if c.Usage != nil {
		return true
	}
	for i := range c.Choices {
		choice := &c.Choices[i]
		d := &choice.Delta
		if d.Content != "" || d.Reasoning != "" || len(d.ToolCalls) > 0 || choice.FinishReason != "" ||
			isSignificant(choice.Extra) || isSignificant(d.Extra) {
			return true
		}
	}
	return false
}

// isSignificant reports whether e has a member that is not null.
func isSignificant(e llmhttp.Extra) bool {
	for _, v := range e {
		if string(v) != "null" {
			return true
		}
	}
	return false
}
