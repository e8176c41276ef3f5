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
	client context.Context // the context of the caller
	ctx    context.Context // the context of the HTTP request
	cancel context.CancelCauseFunc
	detach func() bool // stops client from canceling ctx; returns false if client already has
	idle   *bounded.IdleTimer

	transportCalled bool
	connecting      atomic.Bool // the transport supports httptrace and has begun to get a connection
	sent            atomic.Bool // a part of the request was sent
}

// errIdle is the cause of a call's context if the server was silent for too long.
var errIdle = errors.New("the server sent nothing for too long")

// begin sets the context, which has the values of client and ends with it. It is not a
// child of client, because the rest of the body may still be read when the reply is
// complete and client has ended.
func (c *callContext) begin(client context.Context) {
	c.client = client
	c.ctx, c.cancel = context.WithCancelCause(context.WithoutCancel(client))
	c.ctx = httptrace.WithClientTrace(c.ctx, &httptrace.ClientTrace{
		GetConn:      func(string) { c.connecting.Store(true) },
		WroteHeaders: func() { c.sent.Store(true) },
	})
	c.detach = context.AfterFunc(client, func() { c.cancel(context.Cause(client)) })
	c.idle = bounded.NewIdleTimer(func() { c.cancel(errIdle) })
}

// endAfter makes the context end after d with the cause errIdle, unless the timer is
// stopped before.
func (c *callContext) endAfter(d time.Duration) *time.Timer {
	return time.AfterFunc(d, func() { c.cancel(errIdle) })
}

func (c *callContext) end() {
	c.detach()
	c.idle.Stop()
	c.cancel(nil)
}

// clientCause returns the reason why the context of the caller has ended, or nil if it
// has not ended.
func (c *callContext) clientCause() error {
	if c.client.Err() == nil {
		return nil
	}
	cause := context.Cause(c.client)
	if c.notSent() {
		return fmt.Errorf("%w: %w", llmhttp.ErrNotSent, cause)
	}
	return cause
}

// notSent reports whether it is certain that the server got no part of the request.
func (c *callContext) notSent() bool {
	return !c.sent.Load() && (!c.transportCalled || c.connecting.Load())
}
