package llmhttp

import (
	"context"
	"sync"
	"time"
)

type exchangeKey struct{}

// A valueContext is a request's own context, in which its exchange is found.
type valueContext struct {
	context.Context
	x *exchange
}

func (c *valueContext) Value(key any) any {
	if key == (exchangeKey{}) {
		return c.x
	}
	return c.Context.Value(key)
}

// A requestContext is what [context.WithCancelCause] would make of its parent,
// and makes it as soon as somebody waits for its end. Most requests are over
// before that.
type requestContext struct {
	parent context.Context // which knows the exchange, or is the request's own
	x      *exchange

	mu     sync.Mutex
	inner  context.Context // nil if nobody waits
	cancel context.CancelCauseFunc
	ended  bool
	cause  error // of the end, if there is no inner
}

func (c *requestContext) Deadline() (time.Time, bool) { return c.parent.Deadline() }

func (c *requestContext) Done() <-chan struct{} { return c.wait().Done() }

// wait returns the context that can be waited for.
func (c *requestContext) wait() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inner == nil {
		parent := c.parent
		if c.ended {
			parent = context.WithoutCancel(parent) // it may have ended since, for another reason
		}
		c.inner, c.cancel = context.WithCancelCause(parent)
		if c.ended {
			c.cancel(c.cause)
		}
	}
	return c.inner
}

// look returns the context that can be waited for, if there is one, and
// whether c was ended.
func (c *requestContext) look() (inner context.Context, ended bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inner, c.ended
}

func (c *requestContext) Err() error {
	inner, ended := c.look()
	switch {
	case inner != nil:
		return inner.Err()
	case ended:
		return context.Canceled
	}
	return c.parent.Err()
}

func (c *requestContext) Value(key any) any {
	if key == (exchangeKey{}) {
		return c.x
	}
	inner, ended := c.look()
	if ended {
		inner = c.wait() // context.Cause asks for what knows it
	}
	if inner != nil {
		return inner.Value(key)
	}
	return c.parent.Value(key)
}

// end ends c for the reason cause, unless it has ended.
func (c *requestContext) end(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	switch c.ended = true; {
	case c.cancel != nil:
		c.cancel(cause)
	case c.parent.Err() != nil:
		c.inner = c.parent // which was first
	default:
		c.cause = cause
	}
}

// why returns why c has ended, or nil if it has not.
func (c *requestContext) why() error {
	if c.Err() == nil {
		return nil
	}
	return context.Cause(c)
}

// A lateContext is for what is to be done after a request, of which it has the
// values. It ends recordGrace after somebody has first asked for its end, so
// that a store in memory, which does not, costs no timer.
type lateContext struct {
	context.Context // of values only

	once   sync.Once
	inner  context.Context
	cancel context.CancelFunc // nil if nobody asked
}

func (c *lateContext) start() {
	c.once.Do(func() {
		c.inner, c.cancel = context.WithTimeout(context.WithoutCancel(c.Context), recordGrace)
	})
}

func (c *lateContext) stop() {
	c.once.Do(func() { c.inner = ended })
	if c.cancel != nil {
		c.cancel()
	}
}

// ended is a context that is done.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

func (c *lateContext) Deadline() (time.Time, bool) { c.start(); return c.inner.Deadline() }
func (c *lateContext) Done() <-chan struct{}       { c.start(); return c.inner.Done() }
func (c *lateContext) Err() error                  { c.start(); return c.inner.Err() }
