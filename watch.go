package llmhttp

import "time"

// A watch is over a Backend's silence, and over that of a stream. Its fields
// are guarded by the exchange's mu, which is held where it is started.
type watch struct {
	timer  *time.Timer
	spoke  time.Duration // since arrival: when the Backend was last heard, and allowed to go on
	wrote  time.Duration // since arrival: when a comment was last written
	waived bool          // the Backend has done its work
	over   bool
	until  time.Duration // since arrival: the write deadline, to be lifted; zero for none
}

func (x *exchange) startWatch() {
	x.watch.spoke = time.Since(x.arrived)
	x.watch.timer = time.AfterFunc(x.patience(x.watch.spoke), x.look)
}

// patience returns for how long nothing needs to be done.
func (x *exchange) patience(now time.Duration) time.Duration {
	left := x.watch.spoke + x.h.opts.Timeout - now
	if x.sse != nil && x.h.opts.KeepAlive > 0 {
		if d := max(x.watch.spoke, x.watch.wrote) + x.h.opts.KeepAlive - now; d < left || x.watch.waived {
			left = d
		}
	}
	return left
}

// look is called when the watch's timer fires.
func (x *exchange) look() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.watch.over || x.dead {
		return
	}
	now := time.Since(x.arrived)
	if !x.watch.waived && now-x.watch.spoke >= x.h.opts.Timeout {
		x.interruptLocked(errSilent)
		return
	}
	if x.sse != nil && x.h.opts.KeepAlive > 0 && now-max(x.watch.spoke, x.watch.wrote) >= x.h.opts.KeepAlive {
		x.sse.comment(now)
		if x.sse.err != nil {
			return
		}
		now = time.Since(x.arrived)
		x.watch.wrote = now
	}
	if left := x.patience(now); left > 0 || !x.watch.waived {
		x.watch.timer.Reset(max(left, time.Millisecond))
	}
}

// stopWatch ends the watch. Nothing but the exchange's own goroutine touches
// the ResponseWriter after it.
func (x *exchange) stopWatch() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.watch.over = true
	if x.watch.timer != nil {
		x.watch.timer.Stop()
	}
	// On HTTP/2 the deadline is the stream's own, and what was written may still
	// be on its way.
	if x.watch.until > 0 && !x.abort && x.r.ProtoMajor < 2 {
		x.setWriteDeadline(time.Time{})
	}
}
