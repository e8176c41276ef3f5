package exchange

import (
	"net/http"
	"time"
)

// A connection sets the deadlines of the client's connection. Errors are ignored,
// because some wrappers of a ResponseWriter do not support deadlines.
//
// Setting a deadline takes time. So a deadline is set for one and a half times its
// timeout, and again when less than the timeout is left, instead of before each read
// and write (budget: stream, a flush per chunk).
type connection struct {
	ctl  http.ResponseController
	opts *Options

	// The deadlines as last set; zero if not set.
	readDeadline, writeDeadline time.Time

	lastWrite time.Time // writeDeadline is not later than that, unless it is zero
}

// maxDuration can be added to any time without overflow.
const maxDuration = 100 * 365 * 24 * time.Hour

// extendRead gives the client at least readTimeout from now to send more of the body.
func (c *connection) extendRead(now time.Time) {
	if next, due := extend(c.readDeadline, now, c.opts.ReadTimeout); due {
		c.setReadDeadline(next)
	}
}

// extendWrite gives the next write at least writeTimeout from now, as far as boundWrites
// permits.
func (c *connection) extendWrite(now time.Time) {
	next, due := extend(c.writeDeadline, now, c.opts.WriteTimeout)
	if due && !c.lastWrite.IsZero() && next.After(c.lastWrite) {
		next, due = c.lastWrite, !c.writeDeadline.Equal(c.lastWrite)
	}
	if due {
		c.setWriteDeadline(next)
	}
}

// minWriteRate is how many bytes a second a client must read of a large reply.
const minWriteRate = 64 << 10

// boundWrites bounds the time of all further writes, of size bytes, to writeTimeout and
// the time that they take at minWriteRate. now is the current time.
func (c *connection) boundWrites(now time.Time, size int) {
	if c.opts.WriteTimeout > 0 {
		atMinRate := time.Duration(size/minWriteRate)*time.Second + time.Duration(size%minWriteRate)*time.Second/minWriteRate
		c.lastWrite = now.Add(min(c.opts.WriteTimeout, maxDuration-atMinRate) + atMinRate)
	}
}

// postponeBound moves the bound by d, if there is one.
func (c *connection) postponeBound(d time.Duration) {
	if !c.lastWrite.IsZero() {
		c.lastWrite = c.lastWrite.Add(d)
	}
}

// extend returns the deadline that takes the place of old, if it is time to set one.
func extend(old, now time.Time, timeout time.Duration) (next time.Time, due bool) {
	if timeout == 0 || old.Sub(now) >= timeout {
		return old, false
	}
	return now.Add(timeout + timeout/2), true
}

func (c *connection) setReadDeadline(t time.Time) {
	c.readDeadline = t
	c.ctl.SetReadDeadline(t)
}

func (c *connection) setWriteDeadline(t time.Time) {
	c.writeDeadline = t
	c.ctl.SetWriteDeadline(t)
}
