package llmhttp

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"
)

// A failureHandler ends a request that failed: by an error reply, or by the end
// of the stream if it has begun.
type failureHandler struct{ q *request }

// handle ends the request with err. It does nothing if the request has ended already.
// The client gets its reply even if a step before that calls runtime.Goexit.
func (f *failureHandler) handle(err error) {
	defer f.end(err)
	defer f.q.account.peek()
	defer f.q.account.returnDraw()
	f.q.account.release() // before the client can know
}

// end replies to the client, on the request's own goroutine.
func (f *failureHandler) end(err error) {
	q := f.q
	q.res.mu.Lock()
	defer q.res.mu.Unlock()
	// After runtime.Goexit, net/http closes the connection.
	q.res.backendRuns = err == errGoexit
	f.handleLocked(err)
}

// interrupt ends the request from another goroutine than its own.
func (f *failureHandler) interrupt(err error) {
	q := f.q
	q.res.mu.Lock()
	defer q.res.mu.Unlock()
	switch q.res.state {
	case stateReading:
		// The request's own goroutine replies when it notices.
		q.life.cancel(err)
		q.res.stopReading()
	case stateWaiting, stateStreaming:
		f.handleLocked(err)
	}
}

// handleLocked is like handle. It is called with res.mu held.
func (f *failureHandler) handleLocked(err error) {
	q := f.q
	res := &q.res
	if res.err != nil {
		return
	}
	if isNilError(err) {
		err = errNilError // an Observer that finds the Error may use it
	}
	cause := q.life.ended() // before cancel, which would be the cause from then on
	q.life.cancel(err)
	switch {
	case err == errGone || cause == errGone && !isReadTimeout(err):
		// err is a consequence of the client's departure.
		f.clientLeft(err)
	case res.state == stateDone:
		q.log.print(slog.LevelError, "failed after the reply", err)
	default:
		f.reply(err)
	}
	res.err = err
}

// statusGone is the status of a request whose client left before it was sent
// one. nginx has the same.
const statusGone = 499

func (f *failureHandler) clientLeft(err error) {
	res := &f.q.res
	res.clientLeft = true
	switch res.state {
	case stateReading, stateWaiting:
		res.status = statusGone
		res.w.WriteHeader(statusGone) // for the host's access log
	case stateStreaming:
		res.aborted = true
	}
	res.state = stateDone
	f.q.log.print(slog.LevelDebug, "client left", err)
}

// reply tells the client of err.
func (f *failureHandler) reply(err error) {
	q := f.q
	e := f.clientError(err)
	switch {
	case err == errShutdown:
		q.log.print(slog.LevelInfo, "shutting down", err)
	case e.Status >= 500:
		q.log.print(slog.LevelError, "request failed", err)
	}
	if q.res.state == stateStreaming {
		q.chat.stream.fail(e)
		q.res.state, q.res.aborted = stateDone, true
		return
	}
	now := time.Now()
	q.setHeaders(now)
	setErrorHeaders(q.res.w.Header(), e)
	body, status := q.protocol.AppendError(nil, e, q.account.record.ID)
	q.res.replyLocked(status, body, now)
}

// cause returns the error with which another goroutine has ended the request.
func (f *failureHandler) cause() error {
	q := f.q
	q.res.mu.Lock()
	defer q.res.mu.Unlock()
	if q.res.err != nil {
		return q.res.err
	}
	return q.life.endedOr(errShutdown) // only Shutdown stops a request that is still being read
}

// clientError returns what the client is told of err: an Error whose Status,
// Type and Message are set, and in which the request's API key is redacted.
func (f *failureHandler) clientError(err error) *Error {
	return f.q.cred.redactor().error(completeError(f.q.r, err))
}

var (
	errGoexit   = errors.New("llmhttp: runtime.Goexit was called")
	errNilError = errors.New("llmhttp: a nil *Error was returned as an error")
)

// A panicError is a recovered panic.
type panicError struct {
	value any
	stack []byte
}

func newPanicError(p any) *panicError { return &panicError{p, debug.Stack()} }

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

func (e *panicError) Unwrap() error {
	err, _ := e.value.(error)
	return err
}

// isNilError reports whether err is or wraps a nil *Error. It is not if a method of
// err, such as Unwrap, panics.
func isNilError(err error) bool {
	defer func() { _ = recover() }()
	e, ok := errors.AsType[*Error](err)
	return ok && e == nil
}
