// The context of a request to a server and its reply, also after the client has left.

package reply

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"

	"github.com/llmhttp/llmhttp/internal/bounded"
	"github.com/llmhttp/llmhttp/llm"
)

// A callContext is the context of a call. It tells why it has ended, and whether the
// request had been sent by then.
type callContext struct {
	callerCtx context.Context // of the method of Backend
	ctx       context.Context // of the HTTP request
	cancel    context.CancelCauseFunc
	detach    func() bool // stops callerCtx from canceling ctx; returns false if callerCtx already has ended, or at the second call
	idle      *bounded.IdleTimer

	transportCalled bool
	connecting      atomic.Bool // the transport supports httptrace and has begun to get a connection
	sent            atomic.Bool // a part of the request was sent

	readOn readOn
}

// A readOn says whether a reply is read on when the client has left, because the usage may
// follow.
type readOn struct {
	timeout    time.Duration // since the client has left; zero or negative for none
	unfinished bool          // also before the usage is due
	due        atomic.Bool   // the usage may be next: see Sender
	once       sync.Once     // starts the timeout
}

// errIdle is the cause of a call's context if the server was silent for too long.
var errIdle = errors.New("the server sent nothing for too long")

// begin sets ctx, which has the values of callerCtx and ends with it. It is not a child of
// callerCtx, because the rest of the body may still be read when the reply is complete
// and callerCtx has ended.
func (c *callContext) begin(callerCtx context.Context) {
	c.callerCtx = callerCtx
	c.ctx, c.cancel = context.WithCancelCause(context.WithoutCancel(callerCtx))
	c.ctx = httptrace.WithClientTrace(c.ctx, &httptrace.ClientTrace{
		GetConn:      func(string) { c.connecting.Store(true) },
		WroteHeaders: func() { c.sent.Store(true) },
	})
	c.detach = context.AfterFunc(callerCtx, func() {
		if !c.startReadOn() {
			c.cancel(context.Cause(callerCtx))
		}
	})
	c.idle = bounded.NewIdleTimer(func() { c.cancel(errIdle) })
}

// startReadOn reports whether the reply is to be read on, because its client has left and
// the usage may follow. If so, ctx ends after the timeout, or when the Handler ends the
// request for another reason. It may be called several times and concurrently.
func (c *callContext) startReadOn() bool {
	expected := c.readOn.due.Load() || c.readOn.unfinished && c.sent.Load()
	if c.readOn.timeout <= 0 || !expected {
		return false
	}
	after, left := llm.ClientLeft(c.callerCtx)
	if !left {
		return false
	}
	c.readOn.once.Do(func() {
		context.AfterFunc(after, func() { c.cancel(context.Cause(after)) })
		timer := c.endAfter(c.readOn.timeout)
		context.AfterFunc(c.ctx, func() { timer.Stop() })
	})
	return true
}

// endAfter makes the context end after d with the cause errIdle, unless the timer is
// stopped before.
func (c *callContext) endAfter(d time.Duration) *time.Timer {
	return time.AfterFunc(d, func() { c.cancel(errIdle) })
}

// end ends ctx and stops the timer.
func (c *callContext) end() {
	c.detach()
	c.idle.Stop()
	c.cancel(nil)
}

// CallerCause returns the reason why callerCtx has ended, or nil if it has not ended.
func (c *callContext) CallerCause() error {
	if c.callerCtx.Err() == nil {
		return nil
	}
	cause := context.Cause(c.callerCtx)
	if c.notSent() {
		return fmt.Errorf("%w: %w", llm.ErrNotSent, cause)
	}
	return cause
}

// notSent reports whether it is certain that the server got no part of the request.
func (c *callContext) notSent() bool {
	return !c.sent.Load() && (!c.transportCalled || c.connecting.Load())
}
