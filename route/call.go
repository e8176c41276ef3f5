package route

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"github.com/llmhttp/llmhttp"
)

// A call is a request on its way through the targets of its route. It runs on
// one goroutine.
type call struct {
	router *Router
	route  *route
	kind   kind
	ctx    context.Context
	model  string // as the client named it

	tries int
	marks []mark // of the targets; nil until one has failed

	rank    rank  // of err
	err     error // what the client is told if nothing else comes of it
	blocked bool  // breakers kept it from targets

	timer    *time.Timer // of the try, if it has one
	yielding bool        // what runs is the client's and not the target's
	left     bool        // the client wants no more
}

// An attempt is a try to answer a request with a target. It reports whether
// err, which may be nil, is the end, whatever it is.
type attempt func(ctx context.Context, t *target, tk *ticket) (final bool, err error)

// begin returns the call of a request, or an error if nobody answers it.
func (r *Router) begin(ctx context.Context, model string, k kind) (call, error) {
	rt, err := r.routeFor(model, k)
	return call{router: r, route: rt, kind: k, ctx: ctx, model: model}, err
}

func (r *Router) routeFor(model string, k kind) (*route, error) {
	if r.kinds&k == 0 {
		return nil, errUnsupported(k)
	}
	rt := r.find(model)
	if rt == nil {
		return nil, llmhttp.ModelNotFound(model)
	}
	return rt, nil
}

func errUnsupported(k kind) error {
	return fmt.Errorf("route: no target %v: %w", k, errors.ErrUnsupported)
}

// run tries targets until one has answered or there is none left to try.
func (c *call) run(try attempt) error {
	for round := 1; ; round++ {
		for c.tries < c.router.opts.Tries {
			if c.ctx.Err() != nil {
				return context.Cause(c.ctx)
			}
			i, tk, blocked := c.route.pick(time.Now(), round, c.marks, c.kind)
			if i < 0 {
				c.blocked = blocked
				break
			}
			c.tries++
			t := c.route.targets[i]
			v, err := c.once(t, tk, try)
			if v.final {
				return err
			}
			c.note(v, &targetError{t.name, err})
			if c.marks == nil {
				c.marks = make([]mark, len(c.route.targets))
			}
			c.marks[i] = mark{round: round, out: !v.again}
		}
		if !c.pause(round) {
			if c.ctx.Err() != nil {
				return context.Cause(c.ctx)
			}
			return c.failure()
		}
	}
}

// last reports whether there will be no try after the present one, as far as
// that is known.
func (c *call) last() bool {
	o := &c.router.opts
	return c.tries >= o.Tries || (o.Rounds == 1 && len(c.route.targets) == 1)
}

// errSlow is the cause of a try's context when it has taken too long.
var errSlow = &llmhttp.Error{Status: http.StatusGatewayTimeout, Message: "The model did not answer in time.", Err: context.DeadlineExceeded}

// once tries a target. The error is what the client is told, if that is final.
func (c *call) once(t *target, tk ticket, try attempt) (v verdict, err error) {
	v = verdict{outcome: failed, what: "panic"}
	defer func() {
		if c.yielding {
			v = verdict{} // the panic is not the target's
		}
		c.settle(t, tk, v)
	}()
	llmhttp.ReportTry(c.ctx, t.name, c.tries)
	ctx, cancel := context.WithCancelCause(c.ctx)
	defer cancel(nil)
	c.timer = nil
	if d := c.router.opts.TryTimeout; d > 0 {
		c.timer = time.AfterFunc(d, func() { cancel(errSlow) })
		defer c.timer.Stop()
	}
	final, err := try(ctx, t, &tk)
	err = t.translate(err, c.model)
	switch {
	case err == nil:
		v = verdict{outcome: worked, final: true}
		if c.left {
			v.outcome = neutral
		}
		return v, nil
	case c.ctx.Err() != nil:
		v = verdict{final: true}
		if isSilence(c.ctx) {
			v.outcome, v.what = failed, "504"
		}
		return v, context.Cause(c.ctx)
	case context.Cause(ctx) == errSlow:
		err = errSlow
	}
	v = judge(err)
	if final || v.final {
		v.final = true
		err = &targetError{t.name, err}
	}
	return v, err
}

// isSilence reports whether ctx, which is done, was ended because nothing had
// come for too long. A deadline that was set before says nothing of a target.
func isSilence(ctx context.Context) bool {
	return ctx.Err() == context.Canceled && errors.Is(context.Cause(ctx), context.DeadlineExceeded)
}

// A verdict is what the end of a try means.
type verdict struct {
	outcome outcome
	final   bool          // no other try can do better
	again   bool          // the same target might
	rank    rank          // of the error, if it is not final
	rest    time.Duration // for how long the target wants to be left alone
	what    string        // the error in short; empty if the target is not to blame
}

// A rank says which of several errors the client is told: the highest.
type rank int

const (
	rankUnsupported rank = iota + 1
	rankNotFound
	rankFailure
	rankLimit
)

// judge tells what an error means with which a target has ended a try.
func judge(err error) verdict {
	e, _ := errors.AsType[*llmhttp.Error](err)
	switch {
	case e != nil:
	case errors.Is(err, errors.ErrUnsupported):
		return verdict{rank: rankUnsupported}
	default:
		return verdict{outcome: failed, again: true, rank: rankFailure, what: brief(err)}
	}
	switch status := statusOf(e); {
	case status == http.StatusTooManyRequests:
		return verdict{outcome: worked, rank: rankLimit, rest: e.RetryAfter, what: brief(err),
			again: !e.NoRetry && e.Code != codeQuota}
	case status == http.StatusRequestTimeout, status >= 500:
		return verdict{outcome: failed, rank: rankFailure, rest: e.RetryAfter, what: brief(err),
			again: !e.NoRetry && status != http.StatusNotImplemented}
	case status == http.StatusNotFound && e.Code == codeModelNotFound:
		return verdict{outcome: worked, rank: rankNotFound}
	}
	return verdict{outcome: worked, final: true}
}

// statusOf returns the status that a Handler would reply with.
func statusOf(e *llmhttp.Error) int {
	if e.Status < 400 || e.Status > 599 {
		return http.StatusInternalServerError
	}
	return e.Status
}

// brief returns what can be told of an error without its text, which may have
// addresses and secrets.
func brief(err error) string {
	e, _ := errors.AsType[*llmhttp.Error](err)
	var s string
	switch {
	case e != nil:
		s = strconv.Itoa(statusOf(e))
	case errors.Is(err, context.DeadlineExceeded):
		s = "504"
	default:
		s = "500"
	}
	if e != nil && isCode(e.Code) {
		return s + " " + e.Code
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return s + " " + errno.Error() // such as "connection refused"
	}
	return s
}

// isCode reports whether s is a code and not a text that took its place.
func isCode(s string) bool {
	for _, c := range s {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return s != "" && len(s) <= 64
}

const (
	codeQuota         = "insufficient_quota"
	codeModelNotFound = "model_not_found"
)

// note keeps err if it is worth more to the client than what it would be told
// so far.
func (c *call) note(v verdict, err error) {
	if v.rank == rankLimit && c.rank == rankLimit {
		was, is := retryAfter(c.err), retryAfter(err)
		if is <= 0 || (was > 0 && was <= is) {
			return
		}
	}
	if v.rank >= c.rank {
		c.rank, c.err = v.rank, err
	}
}

func retryAfter(err error) time.Duration {
	if e, _ := errors.AsType[*llmhttp.Error](err); e != nil {
		return e.RetryAfter
	}
	return 0
}

// failure returns what the client is told when nobody has answered.
func (c *call) failure() error {
	switch {
	case c.rank >= rankFailure:
		return c.err
	case c.blocked:
		// One that was not asked might have known the model.
		return &llmhttp.Error{
			Status:     http.StatusServiceUnavailable,
			Message:    "The model is not available at the moment. Please try again.",
			RetryAfter: c.route.reopening(time.Now(), c.kind),
			Err:        errors.New("route: left alone are all targets that might answer"),
		}
	case c.rank == rankNotFound:
		return c.notFound(c.err)
	case c.rank == rankUnsupported:
		return c.err
	}
	return c.notFound(errUnsupported(c.kind))
}

// notFound returns the error for a model that no target knows by the name that
// the client used, and not by those it has elsewhere.
func (c *call) notFound(cause error) error {
	e := llmhttp.ModelNotFound(c.model)
	e.Err = cause
	return e
}

// pause waits for the next round. It reports whether there is to be one.
func (c *call) pause(round int) bool {
	o := &c.router.opts
	if c.tries == 0 || c.tries >= o.Tries || round >= o.Rounds {
		return false
	}
	now := time.Now()
	wait := min(o.Backoff, o.MaxWait)
	for range round - 1 {
		wait = min(2*wait, o.MaxWait)
	}
	wait -= time.Duration(c.router.random() * float64(wait/2))
	recovery, ok := c.route.recovery(now, round, c.marks, c.kind)
	if !ok || recovery > o.MaxWait {
		return false
	}
	wait = max(wait, recovery)
	if deadline, ok := c.ctx.Deadline(); ok && now.Add(wait).After(deadline) {
		return false
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.ctx.Done():
		return false
	}
}

// settle ends a try, and tells the Logger what it has shown.
func (c *call) settle(t *target, tk ticket, v verdict) {
	rt, o := c.route, &c.router.opts
	now := time.Now()
	jitter := c.router.random()
	rt.mu.Lock()
	t.inFlight--
	if v.outcome == failed {
		t.failures++
	}
	if v.what != "" {
		t.lastErr = v.what
	}
	if v.rest > 0 {
		if until := now.Add(min(v.rest, max(maxRest, o.MaxWait))); until.After(t.rested) {
			t.rested = until
		}
	}
	was := t.breaker.is()
	t.breaker.settle(tk, v.outcome, now, o.Failures, o.OpenFor, jitter)
	is, until := t.breaker.is(), t.breaker.until
	rt.mu.Unlock()
	if v.what != "" {
		c.log(slog.LevelInfo, "target failed", t, slog.Int("try", c.tries), slog.String("error", v.what))
	}
	c.logState(t, was, is, until.Sub(now), v.what)
}

// alive notes that what a ticket let through has shown that its target works,
// while it goes on.
func (c *call) alive(t *target, tk *ticket) {
	if !tk.probe {
		return
	}
	o := &c.router.opts
	c.route.mu.Lock()
	was := t.breaker.is()
	t.breaker.settle(*tk, worked, time.Now(), o.Failures, o.OpenFor, 0)
	is := t.breaker.is()
	*tk = ticket{epoch: t.breaker.epoch}
	c.route.mu.Unlock()
	c.logState(t, was, is, 0, "")
}

func (c *call) logState(t *target, was, is State, wait time.Duration, what string) {
	switch {
	case was == is:
	case is == StateOpen:
		c.log(slog.LevelWarn, "target left alone", t, slog.Duration("retry_after", wait), slog.String("error", what))
	case is == StateClosed:
		c.log(slog.LevelInfo, "target works again", t)
	}
}

func (c *call) log(level slog.Level, msg string, t *target, attrs ...slog.Attr) {
	l := c.router.opts.Logger
	if !l.Enabled(c.ctx, level) {
		return
	}
	attrs = append([]slog.Attr{
		slog.String("request_id", llmhttp.RequestIDFrom(c.ctx)),
		slog.String("route", t.route.model),
		slog.String("target", t.name),
	}, attrs...)
	l.LogAttrs(c.ctx, level, msg, attrs...)
}

// A targetError is a target's error. The target's name is for logs: the client
// is told of an [llmhttp.Error] alone.
type targetError struct {
	target string
	err    error
}

func (e *targetError) Error() string { return fmt.Sprintf("route: target %q: %v", e.target, e.err) }

func (e *targetError) Unwrap() error { return e.err }
