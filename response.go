package llmhttp

import (
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// A responseState is how far the reply to a request has got.
type responseState int

const (
	// stateReading: the request is being read and admitted. Only the request's
	// goroutine may reply.
	stateReading responseState = iota

	// stateWaiting: the Backend was called and nothing was written. The idle
	// timer and Shutdown may reply while the Backend still runs.
	stateWaiting

	// stateStreaming: the header of an event stream was written. Other
	// goroutines may write comments, or end the stream with a failure.
	stateStreaming

	// stateDone: the reply is complete or has failed, or ServeHTTP is about to
	// return. Nothing more is written.
	stateDone
)

// A response is the state machine that writes the reply to one request. Several
// goroutines use it: that of ServeHTTP, the idle timer, the goroutine that writes
// bursts, those that Shutdown starts, and those of a Backend that call yield or
// [StartTry]. Its mu also guards what these share in other parts of the request:
// chatCall, orderer, eventStream, and some fields of idleTimer, recorder, account and
// requestLog, which say so.
type response struct {
	w http.ResponseWriter
	r *http.Request

	// mu guards the fields below, and every use of w.
	mu             sync.Mutex
	conn           connection
	state          responseState
	status         int   // that was written, or 499
	err            error // why the request failed
	bodyRead       bool  // the body was read to its end
	readingStopped bool  // by stopReading
	backendRuns    bool  // the Backend was called and has not returned
	aborted        bool  // the connection must be cut
	firstWrite     time.Time
	clientLeft     bool      // the client left before it had the whole reply
	cannotFlush    bool      // w does not support it
	contentLength  [1]string // the storage of a header (budget: allocations of a whole request)
}

func (res *response) init(w http.ResponseWriter, r *http.Request, o *Options) {
	res.w, res.r = w, r
	res.conn = connection{ctl: *http.NewResponseController(w), writeTimeout: max(o.WriteTimeout, 0), readTimeout: max(o.ReadTimeout, 0)}
	res.bodyRead = r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0
}

// isHTTP1 reports whether the connection serves one request at a time.
func (res *response) isHTTP1() bool { return res.r.ProtoMajor < 2 }

// beginWaiting moves from reading to waiting: the Backend is about to be called. It
// reports false if the request has ended in the meantime.
func (res *response) beginWaiting() bool {
	res.mu.Lock()
	defer res.mu.Unlock()
	if res.state == stateDone || res.readingStopped {
		return false
	}
	res.backendRuns = true
	if res.state == stateReading {
		res.state = stateWaiting
		if !res.isHTTP1() || res.conn.writeTimeout == 0 {
			// On HTTP/2 a deadline that passes resets the stream, even if
			// nothing is being written. Without WriteTimeout, a deadline of the
			// http.Server must not cut a long reply.
			res.conn.setWrite(time.Time{})
		}
	}
	return true
}

// backendReturned marks that the Backend has returned, so that the connection
// can serve the next request at once.
func (res *response) backendReturned() {
	res.mu.Lock()
	defer res.mu.Unlock()
	res.backendRuns = false
}

// Values of headers, which replies share.
var (
	contentTypeJSON   = []string{"application/json"}
	contentTypeStream = []string{"text/event-stream; charset=utf-8"}
	noCache           = []string{"no-cache, no-transform"}
	noBuffering       = []string{"no"}
)

// replyLocked writes a reply of JSON whose other headers are set, and sends it. mu is
// held; now is the current time.
func (res *response) replyLocked(status int, body []byte, now time.Time) error {
	res.state, res.status, res.firstWrite = stateDone, status, now
	h := res.w.Header()
	h["Content-Type"] = contentTypeJSON
	res.contentLength[0] = strconv.Itoa(len(body))
	h["Content-Length"] = res.contentLength[:]
	if res.isHTTP1() && (!res.bodyRead || res.backendRuns) {
		// Otherwise net/http would read the rest of the body before it sends
		// the reply, or the client's next request on this connection would wait
		// until the Backend returns.
		h.Set("Connection", "close")
	}
	res.w.WriteHeader(status)
	return res.writeLocked(body, now)
}

// startStream sets the header of an event stream, which is sent with the first write. mu
// is held.
func (res *response) startStream(now time.Time) {
	res.state, res.status, res.firstWrite = stateStreaming, http.StatusOK, now
	h := res.w.Header()
	h["Content-Type"] = contentTypeStream
	// nginx heeds X-Accel-Buffering, other proxies Cache-Control.
	h["Cache-Control"] = noCache
	h["X-Accel-Buffering"] = noBuffering
}

// maxWrite is how many bytes are written at once. Each piece of a large reply
// has the whole WriteTimeout, so a client may be slow but must not stall.
const maxWrite = 32 << 10

// writeLocked writes and flushes p. It returns errGone if that fails. mu is held; now is
// the current time.
func (res *response) writeLocked(p []byte, now time.Time) error {
	for len(p) > 0 {
		res.conn.extendWrite(now)
		n := min(len(p), maxWrite)
		if _, err := res.w.Write(p[:n]); err != nil {
			return errGone
		}
		if p = p[n:]; len(p) > 0 {
			now = time.Now()
		}
	}
	// net/http reports a write that missed its deadline only when it flushes.
	err := res.conn.ctl.Flush()
	if errors.Is(err, http.ErrNotSupported) {
		res.cannotFlush, err = true, nil
	}
	if err != nil {
		return errGone
	}
	if !res.isHTTP1() {
		res.conn.setWrite(time.Time{})
	}
	return nil
}

// finish ends the use of the ResponseWriter. No goroutine writes after it.
func (res *response) finish() {
	res.mu.Lock()
	defer res.mu.Unlock()
	res.state = stateDone
	if res.aborted || !res.isHTTP1() || res.conn.write.IsZero() {
		return
	}
	var deadline time.Time
	if s, ok := res.r.Context().Value(http.ServerContextKey).(*http.Server); ok && s.WriteTimeout > 0 {
		// net/http still writes the end of a stream. It sets a new deadline for
		// the next request of the connection.
		deadline = time.Now().Add(res.conn.writeTimeout)
	}
	// Without WriteTimeout, net/http never sets a deadline, and ours would
	// remain for the next request, which may be another handler's.
	res.conn.setWrite(deadline)
}

// stopReading makes a Read of the request's body return, now or at its next call. mu is
// held.
func (res *response) stopReading() {
	res.readingStopped = true
	res.conn.setRead(time.Now())
}

// A connection sets the deadlines of the client's connection. Errors are ignored,
// because some wrappers of a ResponseWriter do not support deadlines.
//
// Setting a deadline takes time. So a deadline is set for one and a half times its
// timeout, and again when less than the timeout is left, instead of before each read
// and write (budget: stream, a flush per chunk).
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
