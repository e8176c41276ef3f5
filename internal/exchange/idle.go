package exchange

import "time"

// startDelay is how long a call may be silent before a stream that starts early
// begins. Most errors come sooner, and have their HTTP status.
const startDelay = time.Second

// An idleTimer ends a request if a call for it is silent for longer than
// Options.Timeout, and writes Framing.KeepAlive to a stream that is silent for longer than
// Options.KeepAlive. The first write to a stream that starts early is its start, after
// startDelay. It runs from the first BeginCall to StopTimer.
//
// Progress only sets lastProgress. When the timer fires, it is set again for the time that is
// left, so that a chunk costs no timer operation.
type idleTimer struct {
	timer        *time.Timer   // nil until BeginCall has set it
	running      bool          // BeginCall was called
	timeout      time.Duration // zero for none
	keepAlive    time.Duration // zero for none
	silence      error         // ends the request after timeout
	lastProgress time.Time     // of the call
	lastWrite    time.Time     // to keep a stream alive, or of the start of one that starts early
}

// BeginCall must be called before each call to which Options.Timeout applies. From then on
// other goroutines may end the request, and each call has the whole timeout, after which
// silence, which must be comparable, ends the request. BeginCall returns the time, or why the
// request has ended. The goroutine of ServeHTTP calls it.
func (x *Exchange) BeginCall(silence error) (time.Time, error) {
	if err := x.Cause(); err != nil {
		return time.Time{}, err
	}
	now, ok := x.beginWaiting(silence)
	if !ok { // another goroutine has ended the request, or stopped the reading of it
		return now, x.CauseOr(x.opts.Shutdown)
	}
	return now, nil
}

// beginWaiting moves from reading to waiting, and starts the idle timer. It reports false if
// the request has ended in the meantime.
func (x *Exchange) beginWaiting(silence error) (now time.Time, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.state == stateDone || x.readingStopped {
		return now, false
	}
	x.callRuns = true
	if x.state == stateReading {
		x.setState(stateWaiting)
		if !x.isHTTP1() || x.opts.WriteTimeout == 0 {
			// On HTTP/2 a deadline that passes resets the stream, even if
			// nothing is being written. Without Options.WriteTimeout, a deadline of the
			// http.Server must not cut a long reply.
			x.conn.setWriteDeadline(time.Time{})
		}
	}
	now = time.Now()
	x.startTimer(now, silence)
	return now, true
}

// startTimer starts the timer, or restarts the timeout if it is running.
func (x *Exchange) startTimer(now time.Time, silence error) {
	t := &x.idle
	t.lastProgress, t.silence = now, silence
	if t.running {
		return
	}
	t.running, t.timeout = true, x.opts.Timeout
	if x.stream != nil {
		t.keepAlive = x.opts.KeepAlive
	}
	if d, ok := x.untilNext(now); ok {
		t.timer = time.AfterFunc(d, x.fire)
	}
}

// CallReturned notes that what was called has returned, so that the connection can serve the
// next request at once.
func (x *Exchange) CallReturned() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.callRuns = false
}

// StopTimeout ends Options.Timeout when no more calls follow.
func (x *Exchange) StopTimeout() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.idle.timeout = 0
}

// StopTimer stops the idle timer at the end of the request. The goroutine of ServeHTTP calls
// it.
func (x *Exchange) StopTimer() {
	if x.idle.timer != nil {
		x.idle.timer.Stop()
	}
}

// untilNext returns how long from now the next action is due, if there is one.
func (x *Exchange) untilNext(now time.Time) (d time.Duration, ok bool) {
	t := &x.idle
	if t.timeout > 0 {
		d, ok = t.timeout-now.Sub(t.lastProgress), true
	}
	if silence := x.maxSilence(); silence > 0 {
		if k := silence - now.Sub(t.lastActivity()); !ok || k < d {
			d, ok = k, true
		}
	}
	return max(d, time.Millisecond), ok
}

// maxSilence returns how long the client may be sent nothing; zero for any time.
func (x *Exchange) maxSilence() time.Duration {
	keepAlive := x.idle.keepAlive
	switch {
	case keepAlive == 0:
		return 0
	case x.stream.startIsDue():
		return min(startDelay, keepAlive)
	case x.stream.framing.KeepAlive == "":
		return 0
	}
	return keepAlive
}

// lastActivity returns when there was progress or the timer wrote something.
func (t *idleTimer) lastActivity() time.Time {
	if t.lastWrite.After(t.lastProgress) {
		return t.lastWrite
	}
	return t.lastProgress
}

// fire ends the request or keeps its stream alive, if it is time to, and sets the timer again.
// It runs on its own goroutine, where a panic of a ResponseWriter or a Source would end the
// process.
func (x *Exchange) fire() {
	defer func() {
		if p := recover(); p != nil {
			x.responder.Recovered(TimerPanicked, p)
			x.life.stop(ErrClientLeft) // the timer no longer ends the request
		}
	}()
	cause := x.Cause()
	x.mu.Lock()
	defer x.mu.Unlock()
	t := &x.idle
	if !x.isInterruptible() {
		return
	}
	now := time.Now()
	if t.timeout > 0 && now.Sub(t.lastProgress) >= t.timeout {
		x.life.stop(t.silence)
		x.fail(t.silence, cause, nil) // the call still runs
		return
	}
	if silence := x.maxSilence(); silence > 0 && now.Sub(t.lastActivity()) >= silence {
		if x.writeKeepAlive() != nil {
			return
		}
		now = time.Now()
		t.lastWrite = now
	}
	if d, ok := x.untilNext(now); ok {
		t.timer.Reset(d)
	}
}
