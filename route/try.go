// A request to one target.

package route

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// A try is one request to one target.
type try struct {
	call      *call
	target    *target
	admission admission
	timer     *time.Timer // of Options.TryTimeout; nil if there is none or it has been stopped

	started bool // a part of the reply was passed to the client
	inHost  bool // the client's yield function or Options.Fallback is running
}

// errTryTimeout is the cause of a try's context after Options.TryTimeout.
var errTryTimeout = &llm.Error{
	Status:  http.StatusGatewayTimeout,
	Message: "The model did not answer in time.",
	Err:     context.DeadlineExceeded,
}

var (
	errPanic    = errors.New("route: the target panicked")
	errNilError = errors.New("route: the target returned a nil *Error as an error")
	errNoChunk  = errors.New("route: the target's stream ended without a chunk or an error")
)

// run sends the request to the target and records the result, even if the target
// panics.
func (t *try) run(send sendFunc) (res result) {
	res = result{outcome: outcomeFailure, summary: "panic", err: errPanic}
	c := t.call
	ctx, end := llmhttp.StartTry(c.ctx, t.target.name)
	defer func() {
		if t.inHost {
			res = result{} // a panic of the host's code is no failure of the target
		}
		change := c.route.pool.recordResult(&t.admission, &res, time.Now(), rand.Float64())
		if res.summary != "" {
			t.logger().InfoContext(c.ctx, "target failed", "try", c.tries, "error", res.summary)
		}
		t.logChange(change, res.summary)
		end(res.err)
	}()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if d := c.router.opts.TryTimeout; d > 0 {
		t.timer = time.AfterFunc(d, func() { cancel(errTryTimeout) })
		defer t.timer.Stop()
	}
	return t.result(ctx, send(ctx, t))
}

// result returns the result of the try. Its context is ctx, and err is what the
// sendFunc returned.
func (t *try) result(ctx context.Context, err error) result {
	c := t.call
	c.sent = c.sent || !errors.Is(err, llm.ErrNotSent)
	switch {
	case err == nil:
		return result{outcome: outcomeSuccess, final: true}
	case err == errClientLeft:
		return result{final: true, err: err}
	case c.ctx.Err() != nil:
		res := result{final: true, err: c.contextError()}
		if isIdleTimeout(c.ctx) {
			res.outcome, res.summary = outcomeFailure, "504"
		}
		return res
	case context.Cause(ctx) == errTryTimeout:
		err = errTryTimeout
	}
	if e, ok := errors.AsType[*llm.Error](err); ok && e == nil {
		err = errNilError
	}
	res := classify(t.target.translateError(err, c.info.Model))
	res.err = &targetError{t.target.name, res.err}
	if decide := c.router.opts.Fallback; decide != nil {
		t.inHost = true
		decide(c.ctx, res.err).apply(&res)
		t.inHost = false
	}
	res.final = res.final || t.started
	return res
}

// isIdleTimeout reports whether ctx ended because the target was silent for too
// long: a Handler cancels the context with [context.DeadlineExceeded] as the
// cause. It returns false if the deadline of ctx has passed, because that was set
// before the try and is not the target's failure.
func isIdleTimeout(ctx context.Context) bool {
	return ctx.Err() == context.Canceled && errors.Is(context.Cause(ctx), context.DeadlineExceeded)
}

// stopTimeout stops the timeout of the try. It returns false if the timeout had
// already fired.
func (t *try) stopTimeout() bool {
	if t.timer == nil {
		return true
	}
	inTime := t.timer.Stop()
	t.timer = nil
	return inTime
}

// markStarted records that the reply has begun, so that no other target is tried. If a
// half-open breaker let the try through, it closes.
func (t *try) markStarted() {
	t.started = true
	if t.admission.ticket.probe {
		t.logChange(t.call.route.pool.confirm(&t.admission, time.Now()), "")
	}
}

// logChange logs that a breaker has opened because of a failure, or has closed.
// An empty account means that it is open for all.
func (t *try) logChange(change stateChange, summary string) {
	switch {
	case change.from == change.to:
	case change.to == StateOpen:
		t.logger().WarnContext(t.call.ctx, "circuit breaker opened",
			"model", t.call.info.Model, "account", change.account, "retry_after", change.openFor, "error", summary)
	case change.to == StateClosed:
		t.logger().InfoContext(t.call.ctx, "circuit breaker closed", "model", t.call.info.Model)
	}
}

func (t *try) logger() *slog.Logger {
	c := t.call
	return c.router.opts.Logger.With("request_id", llmhttp.RequestIDFrom(c.ctx), "route", c.route.model, "target", t.target.name)
}
