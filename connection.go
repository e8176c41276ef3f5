package llmhttp

import (
	"net/http"
	"time"
)

// A connection sets the deadlines of the client's connection. Errors are ignored,
// because some wrappers of a ResponseWriter do not support deadlines.
//
// Setting a deadline takes time. So a deadline is set for one and a half times its
// timeout, and again when less than the timeout is left, instead of before each read
// and write (budget: CPU of a stream with a flush per chunk).
type connection struct {
	ctl          http.ResponseController
	readTimeout  time.Duration // zero for none
	writeTimeout time.Duration // zero for none
	read, write  time.Time     // as last set; zero if not set
}

// extendRead gives the client at least readTimeout from now to send more of the body.
func (c *connection) extendRead(now time.Time) {
	if next, due := extend(c.read, now, c.readTimeout); due {
		c.setRead(next)
	}
}

// extendWrite gives the next write at least writeTimeout from now.
func (c *connection) extendWrite(now time.Time) {
	if next, due := extend(c.write, now, c.writeTimeout); due {
		c.setWrite(next)
	}
}

// extend returns the deadline that takes the place of old, if it is time to set one.
func extend(old, now time.Time, timeout time.Duration) (next time.Time, due bool) {
	if timeout == 0 {
		return old, false
	}
	return now.Add(timeout + timeout/2), old.Sub(now) < timeout
}

func (c *connection) setRead(t time.Time) {
	c.read = t
	c.ctl.SetReadDeadline(t)
}

func (c *connection) setWrite(t time.Time) {
	c.write = t
	c.ctl.SetWriteDeadline(t)
}
