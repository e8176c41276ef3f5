package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/bounded"
)

// A callContext is the context of a call. It tells why it has ended, and whether the
// request had been sent by then.
type callContext struct {
	callerCtx context.Context // of the method of Backend
	ctx       context.Context // of the HTTP request
	cancel    context.CancelCauseFunc
	detach    func() bool // stops callerCtx from canceling ctx; returns false if callerCtx already has, or at the second call
	idle      *bounded.IdleTimer

	transportCalled bool
	connecting      atomic.Bool // the transport supports httptrace and has begun to get a connection
	sent            atomic.Bool // a part of the request was sent
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
	c.detach = context.AfterFunc(callerCtx, func() { c.cancel(context.Cause(callerCtx)) })
	c.idle = bounded.NewIdleTimer(func() { c.cancel(errIdle) })
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

// callerCause returns the reason why callerCtx has ended, or nil if it has not ended.
func (c *callContext) callerCause() error {
	if c.callerCtx.Err() == nil {
		return nil
	}
	cause := context.Cause(c.callerCtx)
	if c.notSent() {
		return fmt.Errorf("%w: %w", llmhttp.ErrNotSent, cause)
	}
	return cause
}

// notSent reports whether it is certain that the server got no part of the request.
func (c *callContext) notSent() bool {
	return !c.sent.Load() && (!c.transportCalled || c.connecting.Load())
}
