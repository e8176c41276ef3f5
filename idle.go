package llmhttp

import (
	"log/slog"
	"time"
)

// startDelay is how long a Backend may be silent before a stream of a route that
// starts early begins. Most errors come sooner, and have their HTTP status.
const startDelay = time.Second

// An idleTimer ends a request whose Backend is silent for longer than
// Options.Timeout, and writes comments to a stream that is silent for longer
// than Options.KeepAlive. The first write to a stream that starts early is its
// start, after startDelay. It runs from the first call to the Backend to the end of
// the request.
//
// Chunks only note the time. The timer looks at it when it fires, and is set
// again for what is left, so that a chunk costs no timer operation.
type idleTimer struct {
	q         *request
	keepAlive time.Duration // zero for none
	timer     *time.Timer

	// The fields below are guarded by q.res.mu.
	timeout   time.Duration // zero for none
	active    time.Time     // when the Backend last made progress
	commented time.Time     // when the last comment, or the start, was written
}

// start starts the timer, or restarts the timeout if it is running: each call
// to the Backend has the whole of it. q.res.mu must not be held.
func (t *idleTimer) start(q *request) {
	q.res.mu.Lock()
	defer q.res.mu.Unlock()
	t.active = time.Now()
	if t.q != nil {
		return
	}
	t.q = q
	t.timeout, t.keepAlive = max(q.h.opts.Timeout, 0), 0
	if q.chat.stream != nil {
		t.keepAlive = max(q.h.opts.KeepAlive, 0)
	}
	if d, ok := t.next(t.active); ok {
		t.timer = time.AfterFunc(d, t.fire)
	}
}

// touch notes that the Backend made progress. q.res.mu is held.
func (t *idleTimer) touch(now time.Time) { t.active = now }

// stopTimeout is called when the Backend is done. Time after that does not count toward
// Options.Timeout.
func (t *idleTimer) stopTimeout(q *request) {
	q.res.mu.Lock()
	defer q.res.mu.Unlock()
	t.timeout = 0
}

func (t *idleTimer) stop() {
	if t.timer != nil {
		t.timer.Stop()
	}
}

// next returns how long from now the next action is due, if there is one.
func (t *idleTimer) next(now time.Time) (d time.Duration, ok bool) {
	if t.timeout > 0 {
		d, ok = t.timeout-now.Sub(t.active), true
	}
	if silence := t.maxSilence(); silence > 0 {
		if k := silence - now.Sub(t.lastWrite()); !ok || k < d {
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

// lastWrite returns when the client was last sent something.
func (t *idleTimer) lastWrite() time.Time {
	if t.commented.After(t.active) {
		return t.commented
	}
	return t.active
}

// fire does what is due. It runs on its own goroutine, where a panic of a
// ResponseWriter or a log handler would end the process.
func (t *idleTimer) fire() {
	q := t.q
	defer func() {
		if p := recover(); p != nil {
			q.log.print(slog.LevelError, "idle timer panicked", newPanicError(p))
			q.life.cancel(errGone) // the timer no longer ends the request
		}
	}()
	q.res.mu.Lock()
	defer q.res.mu.Unlock()
	if q.res.state != stateWaiting && q.res.state != stateStreaming {
		return
	}
	now := time.Now()
	if t.timeout > 0 && now.Sub(t.active) >= t.timeout {
		q.failures.handleLocked(errSilent)
		return
	}
	if silence := t.maxSilence(); silence > 0 && now.Sub(t.lastWrite()) >= silence {
		if q.chat.stream.keepAlive() != nil {
			return
		}
		now = time.Now()
		t.commented = now
	}
	if d, ok := t.next(now); ok {
		t.timer.Reset(d)
	}
}
