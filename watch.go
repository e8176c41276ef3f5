package llmhttp

import (
	"math"
	"sync/atomic"
	"time"
)

// A watch is over a Backend's silence, and over that of a stream. Its fields
// are guarded by the exchange's mu, but for due.
type watch struct {
	due    atomic.Int64  // when to look, as a duration since the Handler's epoch; set and read by the clock
	spoke  time.Duration // since arrival: when the Backend was last heard, and allowed to go on
	wrote  time.Duration // since arrival: when a comment was last written
	until  time.Duration // since arrival: the write deadline; zero for none of ours
	waived bool          // the Backend has done its work
	over   bool
}

// A clock tells the exchanges of a Handler when it is time to look. One timer
// for all of them costs a request nothing.
type clock struct {
	epoch time.Time
	gap   time.Duration // that lies between two looks at all of them, at least
	next  atomic.Int64  // when the timer goes off, since epoch
	timer *time.Timer   // guarded by the Handler's mu
}

const notDue = math.MaxInt64

func (c *clock) start(o *Options) {
	shortest := o.Timeout
	if o.KeepAlive > 0 {
		shortest = min(shortest, o.KeepAlive)
	}
	c.epoch = time.Now()
	c.gap = min(max(shortest/128, time.Millisecond), 100*time.Millisecond)
	c.next.Store(notDue)
}

// look looks at x when d has passed. It is called with x.mu held.
func (h *Handler) look(x *exchange, d time.Duration) {
	due := int64(time.Since(h.clock.epoch) + d)
	x.watch.due.Store(due)
	if due >= h.clock.next.Load() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if due < h.clock.next.Load() {
		h.wake(due, d)
	}
}

// wake sets the timer. It is called with h.mu held.
func (h *Handler) wake(due int64, d time.Duration) {
	c := &h.clock
	c.next.Store(due)
	if c.timer == nil {
		c.timer = time.AfterFunc(d, h.lookAround)
	} else {
		c.timer.Reset(d)
	}
}

// lookAround looks at the exchanges that are due.
func (h *Handler) lookAround() {
	h.mu.Lock()
	defer h.mu.Unlock()
	// Who sets its time from now on waits for mu, and those who have set it
	// before are seen.
	h.clock.next.Store(notDue)
	now := int64(time.Since(h.clock.epoch))
	next := int64(notDue)
	for x := h.active; x != nil; x = x.next {
		due := x.watch.due.Load()
		if due > now {
			next = min(next, due)
			continue
		}
		x.watch.due.Store(notDue)
		go x.look() // it may write, and that to a slow client
	}
	if next != notDue {
		next = max(next, now+int64(h.clock.gap))
		h.wake(next, time.Duration(next-now))
	}
}

// startWatch begins the watch. It is called with mu held.
func (x *exchange) startWatch() {
	x.watch.spoke = time.Since(x.arrived)
	x.h.look(x, x.patience(x.watch.spoke))
}

// waive marks that the Backend has done its work: whoever is slow from now on,
// it is not the Backend that is silent.
func (x *exchange) waive() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.watch.waived = true
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

// look does what is due.
func (x *exchange) look() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.watch.over || x.dead || x.phase == replied {
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
		x.h.look(x, max(left, time.Millisecond))
	}
}

// stopWatch ends the watch. Nothing but the exchange's own goroutine touches
// the ResponseWriter after it.
func (x *exchange) stopWatch() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.watch.over = true
}
