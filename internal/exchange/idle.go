package exchange

import (
	"cmp"
	"time"
)

// startDelay is how long a call may be silent before a stream that starts early
// begins. Most errors come sooner, and have their HTTP status.
const startDelay = time.Second

// An idleTimer ends a request if a call for it is silent for longer than
// Options.Bounds.Timeout, and writes Framing.KeepAlive to a stream that is silent for longer than
// Options.Bounds.KeepAlive. The first write to a stream that starts early is its start, after
// startDelay. It runs from the first BeginCall on.
type idleTimer struct {
	running      bool          // BeginCall was called
	timeout      time.Duration // zero for none
	keepAlive    time.Duration // zero for none
	silence      error         // ends the request after timeout
	lastProgress moment        // of the call
	lastWrite    moment        // to keep a stream alive, or of the start of one that starts early
}

// BeginCall must be called before each call to which Options.Bounds.Timeout applies. From then on
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
		x.conn.lift(&x.conn.write) // which must not cut a reply that takes long
	}
	now = time.Now()
	x.startTimer(now, silence)
	return now, true
}

// startTimer starts the timer, or restarts the timeout if it is running.
func (x *Exchange) startTimer(now time.Time, silence error) {
	t := &x.idle
	t.lastProgress, t.silence = x.conn.timer.at(now), silence
	if t.running {
		return
	}
	t.running, t.timeout = true, x.opts.Timeout
	if x.stream != nil {
		t.keepAlive = x.opts.KeepAlive
	}
	x.conn.timer.arm(x.nextAction(), t.lastProgress)
}

// noteProgress notes that a call has made progress, and returns how long it had not.
func (x *Exchange) noteProgress(now time.Time) (silent time.Duration) {
	t, at := &x.idle, x.conn.timer.at(now)
	silent = time.Duration(at - t.lastProgress)
	t.lastProgress = at
	return silent
}

// CallReturned notes that what was called has returned, so that the connection can serve the
// next request at once.
func (x *Exchange) CallReturned() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.callRuns = false
}

// StopTimeout ends Options.Bounds.Timeout when no more calls follow.
func (x *Exchange) StopTimeout() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.idle.timeout = 0
}

// armRetry sets the timer for another call of fire, which could not lock mu. After a write a silence
// only begins.
func (x *Exchange) armRetry() {
	c := &x.conn
	d := time.Millisecond
	if c.write.late.Load() != noMoment {
		d = min(cmp.Or(x.opts.Timeout, maxDuration), cmp.Or(x.opts.KeepAlive, maxDuration))
	}
	now := c.timer.at(time.Now())
	c.timer.arm(now+moment(d), now)
}

// nextAction returns when the timer has something to do next, or never.
func (x *Exchange) nextAction() moment {
	t, next := &x.idle, never
	if t.timeout > 0 {
		next = t.lastProgress + moment(t.timeout)
	}
	if silence := x.maxSilence(); silence > 0 {
		next = min(next, t.lastActivity()+moment(silence))
	}
	return next
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
func (t *idleTimer) lastActivity() moment { return max(t.lastProgress, t.lastWrite) }

// fire ends a read or a write that takes too long, ends the request or keeps its stream alive, if it
// is time to, and sets the timer again. It runs on its own goroutine, where a panic of a
// ResponseWriter or a Source would end the process. It never waits for another goroutine that
// writes, and so may be called again while it writes itself.
func (x *Exchange) fire() {
	defer func() {
		if p := recover(); p != nil {
			x.responder.Recovered(TimerPanicked, p)
			x.life.stop(ErrClientLeft) // the timer no longer ends the request
		}
	}()
	timer := &x.conn.timer
	timer.due.Store(never) // what is noted from here on sets the timer
	now := timer.at(time.Now())
	timer.arm(x.conn.expire(now), now)
	cause := x.Cause()
	if !x.mu.TryLock() {
		x.armRetry()
		return
	}
	defer x.mu.Unlock()
	t := &x.idle
	if !x.isInterruptible() {
		return
	}
	now = timer.at(time.Now())
	if t.timeout > 0 && now >= t.lastProgress+moment(t.timeout) {
		x.life.stop(t.silence)
		x.fail(t.silence, cause, nil) // the call still runs
		return
	}
	if silence := x.maxSilence(); silence > 0 && now >= t.lastActivity()+moment(silence) {
		if x.writeKeepAlive() != nil {
			return
		}
		now = timer.at(time.Now())
		t.lastWrite = now
	}
	timer.arm(x.nextAction(), now)
}
