package exchange

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// ErrClientLeft is why a request ends whose client leaves before it has the whole reply.
var ErrClientLeft = fmt.Errorf("llmhttp: client left: %w", context.Canceled)

// A lifetime is the context of a request, which ends with a cause.
type lifetime struct {
	clientCtx context.Context // done when the client has left, or when the host cancels it
	departure departureWait   // tells the two apart

	writeFailed atomic.Bool // the client has left, or reads too slowly; net/http cancels clientCtx then too

	current atomic.Pointer[endable] // other goroutines may use it while SetContext replaces it
	first   endable                 // the storage of the first one

	mu                sync.Mutex              // guards the fields below
	reason            error                   // that stop was called with
	ended             bool                    // end was called with another error than ErrClientLeft
	afterClient       context.Context         // ends with ended; nil until AfterClient was called
	cancelAfterClient context.CancelCauseFunc // of afterClient
}

// An endable is a context with the function that ends it.
type endable struct {
	context.Context
	end context.CancelCauseFunc
}

func (l *lifetime) start(client context.Context) {
	l.clientCtx = client
	l.first.Context, l.first.end = context.WithCancelCause(client)
	l.current.Store(&l.first)
}

// Context returns the context of the request. It ends when the request does, and its cause
// tells why.
func (x *Exchange) Context() context.Context { return x.life.current.Load().Context }

// SetContext replaces the context by one that derives from ctx, which derives from the
// present one. The goroutine of ServeHTTP calls it, before it calls BeginCall. Others may use the
// present one meanwhile.
func (x *Exchange) SetContext(ctx context.Context) {
	l := &x.life
	outer := l.current.Load()
	if ctx == outer.Context {
		return
	}
	inner, cancel := context.WithCancelCause(ctx)
	l.current.Store(&endable{inner, func(cause error) {
		cancel(cause)
		outer.end(cause)
	}})
}

// EndContext ends the context before ServeHTTP returns, on its goroutine. The ResponseWriter
// is no longer asked whether the client has left.
func (x *Exchange) EndContext() {
	x.life.departure.stop()
	x.life.end(nil)
}

// end ends the context with err, also for what goes on after the client has left.
func (l *lifetime) end(err error) {
	l.current.Load().end(err)
	if err == ErrClientLeft {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	if l.cancelAfterClient != nil {
		l.cancelAfterClient(err)
	}
}

// stop ends the context with a comparable reason of the Exchange's own, which Cause then
// returns, even if the client leaves later.
func (l *lifetime) stop(reason error) {
	l.mu.Lock()
	if l.reason == nil {
		l.reason = reason
	}
	l.mu.Unlock()
	l.current.Load().end(reason)
}

// Cause returns why the request has ended, or nil if it has not. While it is not known whether
// the client has left or the host has cancelled the context, it waits for departureGrace:
// no lock may be held.
func (x *Exchange) Cause() error {
	l := &x.life
	ctx := l.current.Load()
	if ctx.Err() == nil {
		return nil
	}
	cause := context.Cause(ctx)
	switch {
	case l.hasStopped(cause):
		return cause
	case errors.Is(l.clientCtx.Err(), context.Canceled):
		if l.writeFailed.Load() || !l.departure.isByHost(l.clientCtx, x.w) || l.writeFailed.Load() {
			return ErrClientLeft
		}
		return x.opts.Shutdown
	}
	return cause // such as a deadline that the host set
}

// CauseOr returns why the request has ended if it has, and otherwise err. If it
// has, err is a consequence.
func (x *Exchange) CauseOr(err error) error {
	if cause := x.Cause(); cause != nil {
		return cause
	}
	return err
}

// hasStopped reports whether cause is that which stop was called with.
func (l *lifetime) hasStopped(cause error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reason != nil && cause == l.reason
}

// AfterClient returns a context for what goes on after the client has left, and reports false
// if the client is there or the request has ended for another reason. The context has no
// values. It ends with the request, or when that is ended for another reason.
func (x *Exchange) AfterClient() (context.Context, bool) {
	l := &x.life
	if x.Cause() != ErrClientLeft {
		return nil, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return nil, false
	}
	if l.afterClient == nil {
		l.afterClient, l.cancelAfterClient = context.WithCancelCause(context.Background())
	}
	return l.afterClient, true
}
