package exchange

import (
	"net/http"
	"time"
)

// A connection bounds how long reads from the client and writes to it take. Errors of deadlines
// are ignored, because some wrappers of a ResponseWriter do not support them.
//
// Setting a deadline takes time. So before a read or a write it is only noted when it is late,
// and the timer sets a deadline then, which makes it fail (budget: whole 0.5 KB, of bare with the
// same headers).
type connection struct {
	ctl         http.ResponseController
	opts        *Options
	timer       timer
	read, write transfer
	lastWrite   moment // no write may end later; noMoment for no bound
}

// A transfer is reading from the client, or writing to it.
type transfer struct {
	late   atomicMoment // when the read or write in progress is late; noMoment if none is in progress
	lifted bool         // the deadline of the http.Server was removed
}

// maxDuration can be added to any time without overflow.
const maxDuration = 100 * 365 * 24 * time.Hour

// beginRead gives the client ReadTimeout from now to send more of the body.
func (c *connection) beginRead(now time.Time) {
	if c.opts.ReadTimeout > 0 {
		c.begin(&c.read, c.timer.at(now), c.opts.ReadTimeout)
	}
}

// endReads is called when the body was read to its end. If a deadline passed later, net/http
// would cancel the context of the request.
func (c *connection) endReads() {
	c.end(&c.read)
	c.lift(&c.read)
}

// beginWrite gives the next write WriteTimeout from now, as far as boundWrites permits.
func (c *connection) beginWrite(now time.Time) {
	if c.opts.WriteTimeout == 0 {
		c.write.late.Store(never)
		return
	}
	began, timeout := c.timer.at(now), c.opts.WriteTimeout
	if c.lastWrite != noMoment {
		timeout = min(timeout, time.Duration(c.lastWrite-began))
	}
	c.begin(&c.write, began, timeout)
}

// endWrite is called after each write.
func (c *connection) endWrite() { c.end(&c.write) }

// minWriteRate is how many bytes a second a client must read of a large reply.
const minWriteRate = 64 << 10

// boundWrites bounds the time of all further writes, of size bytes, to writeTimeout and
// the time that they take at minWriteRate. now is the current time.
func (c *connection) boundWrites(now time.Time, size int) {
	if c.opts.WriteTimeout > 0 {
		atMinRate := time.Duration(size/minWriteRate)*time.Second + time.Duration(size%minWriteRate)*time.Second/minWriteRate
		c.lastWrite = c.timer.at(now) + moment(min(c.opts.WriteTimeout, maxDuration-atMinRate)+atMinRate)
	}
}

// postponeBound moves the bound by d, if there is one.
func (c *connection) postponeBound(d time.Duration) {
	if c.lastWrite != noMoment {
		c.lastWrite += moment(d)
	}
}

// begin notes that a read or a write begins now, and is late after timeout.
func (c *connection) begin(t *transfer, now moment, timeout time.Duration) {
	late := max(now+moment(timeout), 1)
	c.lift(t)
	c.replace(t, late)
	c.timer.arm(late, now)
}

// end notes that no read or write is in progress.
func (c *connection) end(t *transfer) { c.replace(t, noMoment) }

func (c *connection) replace(t *transfer, late moment) {
	if t.late.Swap(late) == hasPassed { // the read or write before was late, and may have succeeded nevertheless
		c.timer.mu.Lock() // expire has set its deadline
		defer c.timer.mu.Unlock()
		c.setDeadline(t, time.Time{})
	}
}

// lift removes the deadline of the http.Server, which bounds a whole request.
func (c *connection) lift(t *transfer) {
	if !t.lifted {
		t.lifted = true
		c.setDeadline(t, time.Time{})
	}
}

func (c *connection) setDeadline(t *transfer, deadline time.Time) {
	if t == &c.read {
		c.ctl.SetReadDeadline(deadline)
	} else {
		c.ctl.SetWriteDeadline(deadline)
	}
}

// expire makes a read or a write fail that is late now. It returns when the next one is, or never.
func (c *connection) expire(now moment) moment {
	c.timer.mu.Lock()
	defer c.timer.mu.Unlock()
	next := never
	for _, t := range [...]*transfer{&c.read, &c.write} {
		switch late := t.late.Load(); {
		case late <= noMoment || c.timer.closed:
		case late > now:
			next = min(next, late)
		case t.late.CompareAndSwap(late, hasPassed): // if not, it has just ended
			c.setDeadline(t, time.Now())
		}
	}
	return next
}
