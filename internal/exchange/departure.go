package exchange

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// departureGrace is how long net/http may take to report that the client has left,
// after it has cancelled the context because a write failed. On a busy machine that
// can be tens of milliseconds.
const departureGrace = 200 * time.Millisecond

// A departureWait finds out whether a cancelled request was cancelled by the host, as with a
// signal's context as http.Server.BaseContext, while the client is still connected.
//
// A departed client cancels the context without a cause, as the host may do too. Only
// CloseNotify tells one from the other: it does not depend on the context.
type departureWait struct {
	mu    sync.Mutex      // guards the fields below
	check *departureCheck // nil until isByHost was called
	over  bool            // ServeHTTP is about to return: w must not be used
}

// isByHost reports whether the host has cancelled client, which is done. w is the ResponseWriter
// of its request. After stop, isByHost reports what is known.
func (d *departureWait) isByHost(client context.Context, w http.ResponseWriter) bool {
	c, departed := d.begin(client, w)
	if departed != nil {
		c.run(departed)
	}
	return c.await()
}

// begin returns the departureCheck of the request, or nil if there was none before stop. If
// departed is not nil, the caller must call run.
func (d *departureWait) begin(client context.Context, w http.ResponseWriter) (c *departureCheck, departed <-chan bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.check != nil || d.over {
		return d.check, nil
	}
	c = &departureCheck{done: make(chan struct{}), over: make(chan struct{})}
	d.check = c
	defer func() { // also if CloseNotify panics
		if departed == nil {
			close(c.done)
		}
	}()
	if context.Cause(client) != context.Canceled {
		c.byHost = true
		return c, nil
	}
	return c, closeNotify(w)
}

// stop ends the use of w, and the waiting for it.
func (d *departureWait) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over = true
	if d.check != nil {
		close(d.check.over)
	}
}

// A departureCheck finds out whether the client of a cancelled request is still connected.
// It waits without a lock.
type departureCheck struct {
	byHost bool          // the host cancelled the context; does not change after done
	done   chan struct{} // closed when byHost is known
	over   chan struct{} // closed when ServeHTTP is about to return
}

// run waits for departed, on which a value arrives when the client has left.
func (c *departureCheck) run(departed <-chan bool) {
	defer close(c.done)
	grace := time.NewTimer(departureGrace)
	defer grace.Stop()
	select {
	case <-departed:
	case <-c.over:
	case <-grace.C:
		c.byHost = true
	}
}

// await returns the result, which another goroutine may still wait for. That of a nil check
// is false.
func (c *departureCheck) await() bool {
	if c == nil {
		return false
	}
	<-c.done
	return c.byHost
}

// closeNotify returns a channel on which a value arrives when the client has
// left, or nil if w has none.
func closeNotify(w http.ResponseWriter) <-chan bool {
	for w != nil {
		//lint:ignore SA1019 its replacement, the request's context, is what is examined here
		if n, ok := w.(http.CloseNotifier); ok {
			return n.CloseNotify()
		}
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return nil
		}
		w = u.Unwrap()
	}
	return nil
}
