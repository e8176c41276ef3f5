package llmhttp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// A lifetime is the context of a request, which ends with a cause. ctx is for calls of the
// host's functions, and backendCtx for calls of a model.
type lifetime struct {
	w          http.ResponseWriter
	clientCtx  requestContext  // of the http.Request; done when the client has left, or when the host cancels it
	ctx        context.Context // for the stores and the Backend
	backendCtx context.Context // ctx, or the context of Observation.Started, which derives from it; only used on the goroutine of ServeHTTP
	cancel     context.CancelCauseFunc

	mu                sync.Mutex              // guards the fields below
	departure         *departureCheck         // nil until canceledByHost was called
	over              bool                    // the request is over: w must not be used
	ended             bool                    // end was called with another error than errClientLeft
	afterClient       context.Context         // ends with ended; nil until ClientLeft was called
	cancelAfterClient context.CancelCauseFunc // of afterClient
}

// start sets the context, from which requestFrom returns q.
func (l *lifetime) start(w http.ResponseWriter, client context.Context, q *request) {
	l.w, l.clientCtx = w, requestContext{client, q}
	l.ctx, l.cancel = context.WithCancelCause(&l.clientCtx)
	l.backendCtx = l.ctx
}

// A requestContext is a context that has the request as a value. It is part of a
// lifetime, where context.WithValue would allocate (budget: allocations of a whole
// request).
type requestContext struct {
	context.Context
	q *request
}

type requestKey struct{}

func (c *requestContext) Value(key any) any {
	if key == (requestKey{}) {
		return c.q
	}
	return c.Context.Value(key)
}

// requestFrom returns the request that ctx belongs to, or nil.
func requestFrom(ctx context.Context) *request {
	q, _ := ctx.Value(requestKey{}).(*request)
	return q
}

// setContext replaces the context by one that derives from ctx, which derives from
// the present one.
func (l *lifetime) setContext(ctx context.Context) {
	if ctx == l.ctx {
		return
	}
	outer := l.cancel
	inner, cancel := context.WithCancelCause(ctx)
	l.ctx, l.cancel = inner, func(cause error) {
		cancel(cause)
		outer(cause)
	}
	l.backendCtx = inner
}

// end ends the request with err, also for what goes on after the client has left.
func (l *lifetime) end(err error) {
	l.cancel(err)
	if err == errClientLeft {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	if l.cancelAfterClient != nil {
		l.cancelAfterClient(err)
	}
}

// finish ends the request before ServeHTTP returns.
func (l *lifetime) finish() {
	l.mu.Lock()
	l.over = true
	if l.departure != nil {
		close(l.departure.over)
	}
	l.mu.Unlock()
	l.end(nil)
}

// ClientLeft reports whether ctx, which a Handler passed to a Backend, has ended because the
// client of the request left. If so, it returns a context for what the Backend still has to
// do, such as finding out what the request has used for [ReportUsage]. That context has the
// values of ctx. It ends with the request, and when the Handler ends the request for another
// reason: Options.Timeout, or Shutdown with a context that is done. A host that cancels the
// context of its requests ends it only if it does so before the client leaves. A
// Backend should set a deadline of its own: while it runs, the request holds its place in
// Limits.Concurrent, and both Handler.Shutdown and [http.Server.Shutdown] wait for it.
//
// It reports false while the client is there, if the request has ended for another
// reason or is over, and if ctx does not belong to a request of a Handler: then the caller
// that canceled ctx may be waiting for the Backend. ClientLeft may be called concurrently.
func ClientLeft(ctx context.Context) (context.Context, bool) {
	q := requestFrom(ctx)
	if q == nil || q.life.endCause() != errClientLeft {
		return ctx, false
	}
	l := &q.life
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return ctx, false
	}
	if l.afterClient == nil {
		l.afterClient, l.cancelAfterClient = context.WithCancelCause(context.Background())
	}
	return &detachedContext{l.afterClient, ctx}, true
}

// endCause returns why the request has ended, or nil if it has not. It may wait for
// departureGrace, so no lock may be held.
func (l *lifetime) endCause() error {
	if l.ctx.Err() == nil {
		return nil
	}
	cause := context.Cause(l.ctx)
	switch {
	case cause == errClientLeft, cause == errShutdown, cause == errSilent, cause == errStoreSilent:
		return cause
	case errors.Is(l.clientCtx.Err(), context.Canceled):
		if l.canceledByHost() {
			return errShutdown
		}
		return errClientLeft
	}
	return cause // such as a deadline that the host set
}

// departureGrace is how long net/http may take to report that the client has left,
// after it has cancelled the context because a write failed. On a busy machine that
// can be tens of milliseconds.
const departureGrace = 200 * time.Millisecond

// canceledByHost reports whether the host has cancelled the context of the
// http.Request, as with a signal's context as http.Server.BaseContext, while the
// client is still connected. When ServeHTTP has returned, it reports what is known.
//
// A departed client cancels the context without a cause, as the host may do too.
// Only CloseNotify tells one from the other: it does not depend on the context.
func (l *lifetime) canceledByHost() bool {
	c, departed := l.checkDeparture()
	if departed != nil {
		c.run(departed)
	}
	return c.await()
}

// checkDeparture returns the departureCheck of the request, or nil if there was none before
// ServeHTTP returned. If departed is not nil, the caller must call run.
func (l *lifetime) checkDeparture() (c *departureCheck, departed <-chan bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.departure != nil || l.over {
		return l.departure, nil
	}
	c = &departureCheck{done: make(chan struct{}), over: make(chan struct{})}
	l.departure = c
	defer func() { // also if CloseNotify panics
		if departed == nil {
			close(c.done)
		}
	}()
	if context.Cause(&l.clientCtx) != context.Canceled {
		c.byHost = true
		return c, nil
	}
	return c, closeNotify(l.w)
}

// A departureCheck finds out whether the client of a cancelled request is still connected.
// It waits without a lock.
type departureCheck struct {
	byHost bool          // the host cancelled the context; does not change after done
	done   chan struct{} // closed when byHost is known
	over   chan struct{} // closed when ServeHTTP is about to return
}

// run waits for departed, on which a value arrives when the client has left.
func (c *departureCheck) run(departed <-chan bool) {
	defer close(c.done)
	grace := time.NewTimer(departureGrace)
	defer grace.Stop()
	select {
	case <-departed:
	case <-c.over:
	case <-grace.C:
		c.byHost = true
	}
}

// await returns the result, which another goroutine may still wait for. That of a nil check
// is false.
func (c *departureCheck) await() bool {
	if c == nil {
		return false
	}
	<-c.done
	return c.byHost
}

// closeNotify returns a channel on which a value arrives when the client has
// left, or nil if w has none.
func closeNotify(w http.ResponseWriter) <-chan bool {
	for w != nil {
		//lint:ignore SA1019 its replacement, the request's context, is what is examined here
		if n, ok := w.(http.CloseNotifier); ok {
			return n.CloseNotify()
		}
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return nil
		}
		w = u.Unwrap()
	}
	return nil
}

// endCauseOr returns why the request has ended if it has, and otherwise err. If it
// has, err is a consequence.
func (l *lifetime) endCauseOr(err error) error {
	if cause := l.endCause(); cause != nil {
		return cause
	}
	return err
}

// storeError returns the error of a request that needs a store, such as a KeyStore or a
// Limiter, that failed with err: why the request has ended, if it has, or else the *Error
// in err, or else a 503 with message.
func (l *lifetime) storeError(err error, message string) error {
	if e, ok := errors.AsType[*Error](err); !ok || e == nil {
		err = &Error{Status: http.StatusServiceUnavailable, RetryAfter: time.Second, Message: message, Err: err}
	}
	return l.endCauseOr(err)
}

// Errors that end a request before its Backend does. As causes of the context
// they tell the Backend why.
var (
	errShutdown   = &Error{Status: http.StatusServiceUnavailable, RetryAfter: time.Second, Message: "The server is shutting down. Please try again."}
	errSilent     = &Error{Status: http.StatusGatewayTimeout, Message: messageTimeout, Err: context.DeadlineExceeded}
	errClientLeft = fmt.Errorf("llmhttp: client left: %w", context.Canceled)
)

// errStoreSilent is errSilent for a call of another part of the host, such as a store.
var errStoreSilent = &Error{Status: http.StatusServiceUnavailable, RetryAfter: time.Second,
	Message: "The server could not get what it needs in time. Please try again.", Err: context.DeadlineExceeded}

// startDelay is how long a Backend may be silent before a stream of a route that
// starts early begins. Most errors come sooner, and have their HTTP status.
const startDelay = time.Second

// An idleTimer ends a request whose Backend is silent for longer than
// Options.Timeout, and writes comments to a stream that is silent for longer
// than Options.KeepAlive. The first write to a stream that starts early is its
// start, after startDelay. It runs from the first call to the Backend to the end of
// the request.
//
// A chunk only sets lastProgress. When the timer fires, it is set again for the time that is
// left, so that a chunk costs no timer operation.
type idleTimer struct {
	q         *request
	keepAlive time.Duration // zero for none
	timer     *time.Timer

	// The fields below are guarded by q.res.mu.
	running      bool          // start was called
	timeout      time.Duration // zero for none
	silence      error         // ends the request after timeout
	lastProgress time.Time     // of the Backend
	lastWrite    time.Time     // of a comment, or of the start of a stream that starts early
}

// start starts the timer, or restarts the timeout if it is running: each call
// to the Backend has the whole of it. q.res.mu must not be held.
func (t *idleTimer) start() {
	q := t.q
	q.res.mu.Lock()
	defer q.res.mu.Unlock()
	t.lastProgress, t.silence = time.Now(), errSilent
	if t.running {
		return
	}
	t.running = true
	t.timeout = max(q.h.opts.Timeout, 0)
	if q.chat.stream != nil {
		t.keepAlive = max(q.h.opts.KeepAlive, 0)
	}
	if d, ok := t.untilNext(t.lastProgress); ok {
		t.timer = time.AfterFunc(d, t.fire)
	}
}

// expect sets whose silence ends the request: that of the Backend, or of another part of the
// host. q.res.mu must not be held.
func (t *idleTimer) expect(backend bool) {
	t.q.res.mu.Lock()
	defer t.q.res.mu.Unlock()
	if t.silence = errStoreSilent; backend {
		t.silence = errSilent
	}
}

// noteProgress notes that the Backend made progress. q.res.mu is held.
func (t *idleTimer) noteProgress(now time.Time) { t.lastProgress = now }

// stopTimeout is called when the Backend is done. Time after that does not count toward
// Options.Timeout.
func (t *idleTimer) stopTimeout() {
	t.q.res.mu.Lock()
	defer t.q.res.mu.Unlock()
	t.timeout = 0
}

// stop stops the timer at the end of the request.
func (t *idleTimer) stop() {
	if t.timer != nil {
		t.timer.Stop()
	}
}

// untilNext returns how long from now the next action is due, if there is one.
func (t *idleTimer) untilNext(now time.Time) (d time.Duration, ok bool) {
	if t.timeout > 0 {
		d, ok = t.timeout-now.Sub(t.lastProgress), true
	}
	if silence := t.maxSilence(); silence > 0 {
		if k := silence - now.Sub(t.lastActivity()); !ok || k < d {
			d, ok = k, true
		}
	}
	return max(d, time.Millisecond), ok
}

// maxSilence returns how long the client may be sent nothing; zero for any time.
func (t *idleTimer) maxSilence() time.Duration {
	if t.keepAlive > 0 && t.q.chat.stream.startIsDue() {
		return min(startDelay, t.keepAlive)
	}
	return t.keepAlive
}

// lastActivity returns when the Backend made progress or the timer wrote something.
func (t *idleTimer) lastActivity() time.Time {
	if t.lastWrite.After(t.lastProgress) {
		return t.lastWrite
	}
	return t.lastProgress
}

// fire ends the request or writes a comment, if it is time to, and sets the timer again. It
// runs on its own goroutine, where a panic of a ResponseWriter or a log handler would end
// the process.
func (t *idleTimer) fire() {
	q := t.q
	defer func() {
		if p := recover(); p != nil {
			q.log.print(slog.LevelError, "idle timer panicked", newPanicError(p))
			q.life.cancel(errClientLeft) // the timer no longer ends the request
		}
	}()
	cause := q.life.endCause()
	q.res.mu.Lock()
	defer q.res.mu.Unlock()
	if q.res.state != stateWaiting && q.res.state != stateStreaming {
		return
	}
	now := time.Now()
	if t.timeout > 0 && now.Sub(t.lastProgress) >= t.timeout {
		q.failures.endLocked(t.silence, cause, nil) // the Backend still runs
		return
	}
	if silence := t.maxSilence(); silence > 0 && now.Sub(t.lastActivity()) >= silence {
		if q.chat.stream.writeKeepAlive() != nil {
			return
		}
		now = time.Now()
		t.lastWrite = now
	}
	if d, ok := t.untilNext(now); ok {
		t.timer.Reset(d)
	}
}
