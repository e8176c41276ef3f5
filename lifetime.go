package llmhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// A lifetime is the context of a request, which ends with a cause.
type lifetime struct {
	client context.Context // of the http.Request; done when the client has left
	ctx    context.Context // for the stores and the Backend
	cancel context.CancelCauseFunc
}

// start sets the context, from which requestFrom returns q.
func (l *lifetime) start(client context.Context, q *request) {
	l.client = client
	l.ctx, l.cancel = context.WithCancelCause(context.WithValue(client, requestKey{}, q))
}

// derive replaces the context by one that derives from ctx, which derives from
// the present one.
func (l *lifetime) derive(ctx context.Context) {
	if ctx == l.ctx {
		return
	}
	outer := l.cancel
	inner, cancel := context.WithCancelCause(ctx)
	l.ctx, l.cancel = inner, func(cause error) {
		cancel(cause)
		outer(cause)
	}
}

// ended returns why the request has ended, or nil if it has not.
func (l *lifetime) ended() error {
	if l.ctx.Err() == nil {
		return nil
	}
	cause := context.Cause(l.ctx)
	switch {
	case cause == errGone, cause == errShutdown, cause == errSilent:
		return cause
	case errors.Is(l.client.Err(), context.Canceled):
		return errGone
	}
	return cause // such as a deadline that the host set
}

// endedOr returns why the request has ended if it has, and otherwise err. If it
// has, err is a consequence.
func (l *lifetime) endedOr(err error) error {
	if cause := l.ended(); cause != nil {
		return cause
	}
	return err
}

// storeError returns what the client is told when a store that the request needs
// fails: the store's own Error, or a 503 with message.
func (l *lifetime) storeError(err error, message string) error {
	if cause := l.ended(); cause != nil {
		return cause
	}
	if e, ok := errors.AsType[*Error](err); ok && e != nil {
		return err
	}
	return &Error{Status: http.StatusServiceUnavailable, RetryAfter: time.Second, Message: message, Err: err}
}

// Errors that end a request before its Backend does. As causes of the context
// they tell the Backend why.
var (
	errShutdown = &Error{Status: http.StatusServiceUnavailable, RetryAfter: time.Second, Message: "The server is shutting down. Please try again."}
	errSilent   = &Error{Status: http.StatusGatewayTimeout, Message: messageTimeout, Err: context.DeadlineExceeded}
	errGone     = fmt.Errorf("llmhttp: client left: %w", context.Canceled)
)
