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

// A callContext is the context of a call, and what tells why it has ended and whether the
// request was sent before.
type callContext struct {
	client context.Context // the context of the caller
	ctx    context.Context // the context of the HTTP request
	cancel context.CancelCauseFunc
	detach func() bool // stops client from canceling ctx; false if it already has
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
func (l *callContext) begin(client context.Context) {
	l.client = client
	l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(client))
	l.ctx = httptrace.WithClientTrace(l.ctx, &httptrace.ClientTrace{
		GetConn:      func(string) { l.connecting.Store(true) },
		WroteHeaders: func() { l.sent.Store(true) },
	})
	l.detach = context.AfterFunc(client, func() { l.cancel(context.Cause(client)) })
	l.idle = bounded.NewIdleTimer(func() { l.cancel(errIdle) })
}

// endAfter makes the context end after d with the cause errIdle, unless the timer is
// stopped before.
func (l *callContext) endAfter(d time.Duration) *time.Timer {
	return time.AfterFunc(d, func() { l.cancel(errIdle) })
}

// end ends the context.
func (l *callContext) end() {
	l.detach()
	l.idle.Stop()
	l.cancel(nil)
}

// clientCause returns the reason why the context of the caller has ended, or nil if it
// has not ended.
func (l *callContext) clientCause() error {
	if l.client.Err() == nil {
		return nil
	}
	cause := context.Cause(l.client)
	if l.notSent() {
		return fmt.Errorf("%w: %w", llmhttp.ErrNotSent, cause)
	}
	return cause
}

// notSent reports whether it is certain that the server got no part of the request.
func (l *callContext) notSent() bool {
	return !l.sent.Load() && (!l.transportCalled || l.connecting.Load())
}
