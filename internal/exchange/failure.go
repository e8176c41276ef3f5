package exchange

import "time"

// StatusClientClosed is the status of a request whose client left before it was sent
// one. nginx has the same.
const StatusClientClosed = 499

// Fail ends the request with err, after every call has returned, with an error reply or with
// the end of a stream that has begun. release is called as by Reply. If the request has ended
// already, Fail does nothing. The goroutine of ServeHTTP calls it.
func (x *Exchange) Fail(err error, release func()) {
	cause := x.Cause()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.callRuns = false
	x.fail(err, cause, release)
}

// FailExiting is Fail for a goroutine of ServeHTTP that ends by runtime.Goexit: net/http then
// closes the connection.
func (x *Exchange) FailExiting(err error, release func()) {
	cause := x.Cause()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.exiting = true
	x.fail(err, cause, release)
}

// Interrupt ends the request with Options.Shutdown, on another goroutine than that of
// ServeHTTP.
func (x *Exchange) Interrupt() {
	cause := x.Cause()
	x.mu.Lock()
	defer x.mu.Unlock()
	switch x.state {
	case stateReading:
		// The goroutine of ServeHTTP replies when it notices.
		x.life.stop(x.opts.Shutdown)
		x.stopReading()
	case stateWaiting, stateStreaming:
		x.life.stop(x.opts.Shutdown)
		x.fail(x.opts.Shutdown, cause, nil) // the call still runs
	}
}

// fail ends the request with err, unless it has failed already, and tells the client. release
// is called as by writeEnd. cause is what Cause returned before mu was locked, because it may
// wait.
func (x *Exchange) fail(err, cause error, release func()) {
	if x.err != nil {
		return
	}
	x.life.end(err)
	switch {
	case err == ErrClientLeft || cause == ErrClientLeft && !x.readTimedOut:
		// err is a consequence of the client's departure.
		x.endWithoutReply(err)
	case x.state == stateDone:
		x.responder.Log(FailedLate, err)
	default:
		x.responder.Log(Failed, err)
		x.tellFailure(err, release)
	}
	x.err = err
}

// endWithoutReply ends a request whose client has left.
func (x *Exchange) endWithoutReply(err error) {
	x.clientLeft = true
	switch x.state {
	case stateReading, stateWaiting:
		x.status = StatusClientClosed
		x.responder.SetHeaders(x.w.Header(), time.Now()) // a client that has only closed its half of the connection reads them
		x.w.WriteHeader(StatusClientClosed)              // for the host's access log
	case stateStreaming:
		x.aborted = true
	}
	x.setState(stateDone)
	x.responder.Log(Left, err)
}

// tellFailure writes an error reply, or the end of a stream that has begun.
func (x *Exchange) tellFailure(err error, release func()) {
	if x.state == stateStreaming {
		written := x.failStream(err, release) == nil
		x.setState(stateDone)
		x.aborted = !written || !x.stream.framing.EndsCleanly || x.exiting
		return
	}
	now := time.Now()
	h := x.w.Header()
	x.responder.SetHeaders(h, now)
	status, body := x.responder.ErrorReply(h, err)
	x.writeReply(status, "application/json", &Buffer{body}, now, release)
}
