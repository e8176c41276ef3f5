package llmhttp

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp/internal/bounded"
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
// chatCall, orderer, eventStream, joiner, and some fields of idleTimer, requestObserver,
// accounting and requestLog, which say so. Methods of response whose names end in Locked
// are called with mu held, the others without it.
type response struct {
	w http.ResponseWriter
	r *http.Request

	// mu guards the fields below, and every use of w.
	mu             sync.Mutex
	conn           connection
	state          responseState
	status         int   // the HTTP status that was written, or statusClientClosed
	err            error // why the request failed
	bodyRead       bool  // the body was read to its end
	readingStopped bool  // by stopReadingLocked
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

// readBody appends a request's body of at most limit bytes to buf. It reads to
// the end: net/http notices only after that when the client leaves.
func (res *response) readBody(buf []byte, limit int64) ([]byte, error) {
	if res.r.Body == nil {
		return buf, nil
	}
	buf, err := bounded.ReadAll(bodyReader{res}, buf, res.r.ContentLength, limit)
	switch {
	case errors.Is(err, bounded.ErrTooLarge):
		return buf, errTooLarge(limit)
	case err != nil:
		return buf, bodyError(err)
	}
	res.finishReading()
	return buf, nil
}

// A bodyReader reads the body of a request. Options.ReadTimeout applies to each Read.
type bodyReader struct{ res *response }

func (r bodyReader) Read(p []byte) (int, error) {
	r.res.continueReading()
	return r.res.r.Body.Read(p)
}

// continueReading gives the client more time to send the body, unless reading was
// stopped.
func (res *response) continueReading() {
	res.mu.Lock()
	defer res.mu.Unlock()
	if !res.readingStopped {
		res.conn.extendRead(time.Now())
	}
}

// finishReading marks the body as read to its end. It lifts the read deadline:
// when one passes later, net/http cancels the request's context.
func (res *response) finishReading() {
	res.mu.Lock()
	defer res.mu.Unlock()
	res.bodyRead = true
	if !res.readingStopped {
		res.conn.setReadDeadline(time.Time{})
	}
}

// bodyError returns the error for a body that could not be read.
func bodyError(err error) error {
	if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return errTooLarge(e.Limit)
	}
	e := Errorf(http.StatusBadRequest, "", "We could not read the body of your request.")
	if errors.Is(err, os.ErrDeadlineExceeded) {
		e = Errorf(http.StatusRequestTimeout, codeReadTimeout, "The body of your request did not arrive in time.")
	}
	e.Err = err
	return e
}

const codeReadTimeout = "request_timeout"

// isReadTimeout reports whether err is that of a body that did not arrive
// within ReadTimeout.
func isReadTimeout(err error) bool {
	e, ok := err.(*Error)
	return ok && e != nil && e.Code == codeReadTimeout
}

func errTooLarge(limit int64) error {
	return Errorf(http.StatusRequestEntityTooLarge, "request_too_large",
		"The request body is too large. The limit is %d bytes.", limit)
}

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
			// nothing is being written. Without Options.WriteTimeout, a deadline of the
			// http.Server must not cut a long reply.
			res.conn.setWriteDeadline(time.Time{})
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

// isStreaming reports whether an event stream was started and not ended.
func (res *response) isStreaming() bool {
	res.mu.Lock()
	defer res.mu.Unlock()
	return res.state == stateStreaming
}

// Values of headers, which replies share.
var (
	contentTypeJSON   = []string{"application/json"}
	contentTypeStream = []string{"text/event-stream; charset=utf-8"}
	noCache           = []string{"no-cache, no-transform"}
	noBuffering       = []string{"no"}
)

// writeReplyLocked writes a reply of JSON whose other headers are set, as writeEndLocked
// does. now is the current time.
func (res *response) writeReplyLocked(status int, body *buffer, now time.Time, release func()) error {
	res.state, res.status, res.firstWrite = stateDone, status, now
	h := res.w.Header()
	h["Content-Type"] = contentTypeJSON
	res.contentLength[0] = strconv.Itoa(len(body.b))
	h["Content-Length"] = res.contentLength[:]
	if res.isHTTP1() && (!res.bodyRead || res.backendRuns) {
		// Otherwise net/http would read the rest of the body before it sends
		// the reply, or the client's next request on this connection would wait
		// until the Backend returns.
		h.Set("Connection", "close")
	}
	res.w.WriteHeader(status)
	return res.writeEndLocked(body, now, release)
}

// startStreamLocked sets the header of an event stream, which is sent with the first
// write.
func (res *response) startStreamLocked(now time.Time) {
	res.state, res.status, res.firstWrite = stateStreaming, http.StatusOK, now
	h := res.w.Header()
	h["Content-Type"] = contentTypeStream
	// nginx heeds X-Accel-Buffering, other proxies Cache-Control.
	h["Cache-Control"] = noCache
	h["X-Accel-Buffering"] = noBuffering
}

const (
	// maxWrite is how many bytes are written at once. Each piece of a large reply
	// has the whole WriteTimeout, so a client must not stall.
	maxWrite = 32 << 10

	// minWriteRate is how many bytes a second a client must read of a large reply.
	minWriteRate = 64 << 10
)

// writeEndLocked writes and flushes the end of the reply, which is in buf. now is the
// current time.
//
// Before the last piece, without which the client cannot know that the request has
// ended, it calls release without mu, unless release is nil. By then buf has only that
// piece, so that a client that does not read it does not keep a large reply in memory. The
// time that release takes does not count toward the deadline.
func (res *response) writeEndLocked(buf *buffer, now time.Time, release func()) (err error) {
	state, complete := res.state, false
	res.state = stateDone // no other goroutine writes while mu is unlocked
	defer func() {
		if !complete { // also if a write panics
			res.state = state
		}
	}()
	res.conn.boundWrites(now, len(buf.b))
	if n := len(buf.b) - maxWrite; n > 0 {
		whole := &buffer{buf.b}
		buf.b = bytes.Clone(whole.b[n:])
		err := res.writePiecesLocked(whole.b[:n], now)
		putBuffer(whole)
		if err != nil {
			return err
		}
		now = time.Now()
	}
	defer func() { // also if release calls runtime.Goexit
		err = res.writeLocked(buf.b, now)
		complete = err == nil
	}()
	if release != nil {
		now = res.callUnlocked(release, now)
	}
	return nil
}

// callUnlocked calls f without mu, and without a deadline, which on HTTP/2 would end
// the stream although nothing is being written. It returns the current time; now is the time
// of the call.
func (res *response) callUnlocked(f func(), now time.Time) time.Time {
	if !res.conn.writeDeadline.IsZero() {
		res.conn.setWriteDeadline(time.Time{})
	}
	res.mu.Unlock()
	defer res.mu.Lock()
	f()
	end := time.Now()
	res.conn.postponeBound(end.Sub(now))
	return end
}

// writeLocked writes and flushes p. It returns errClientLeft if that fails. now is the
// current time.
func (res *response) writeLocked(p []byte, now time.Time) error {
	if err := res.writePiecesLocked(p, now); err != nil {
		return err
	}
	// net/http reports a write that missed its deadline only when it flushes.
	err := res.conn.ctl.Flush()
	if errors.Is(err, http.ErrNotSupported) {
		res.cannotFlush, err = true, nil
	}
	if err != nil {
		return errClientLeft
	}
	if !res.isHTTP1() {
		res.conn.setWriteDeadline(time.Time{})
	}
	return nil
}

// writePiecesLocked writes p in pieces. It returns errClientLeft if that fails. now is the
// current time.
func (res *response) writePiecesLocked(p []byte, now time.Time) error {
	for len(p) > 0 {
		res.conn.extendWrite(now)
		n := min(len(p), maxWrite)
		if _, err := res.w.Write(p[:n]); err != nil {
			return errClientLeft
		}
		if p = p[n:]; len(p) > 0 {
			now = time.Now()
		}
	}
	return nil
}

// finish ends the use of the ResponseWriter. No goroutine writes after it.
func (res *response) finish() {
	res.mu.Lock()
	defer res.mu.Unlock()
	res.state = stateDone
	if res.aborted || !res.isHTTP1() || res.conn.writeDeadline.IsZero() {
		return
	}
	var deadline time.Time
	if s, ok := res.r.Context().Value(http.ServerContextKey).(*http.Server); ok && s.WriteTimeout > 0 {
		// net/http still writes the end of a stream. It sets a new deadline for
		// the next request of the connection.
		deadline = time.Now().Add(res.conn.writeTimeout)
	}
	// Without http.Server.WriteTimeout, net/http never sets a deadline, and ours would
	// remain for the next request, which may be another handler's.
	res.conn.setWriteDeadline(deadline)
}

// stopReadingLocked makes a Read of the request's body return, now or at its next call.
func (res *response) stopReadingLocked() {
	res.readingStopped = true
	res.conn.setReadDeadline(time.Now())
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

	// The deadlines as last set; zero if not set.
	readDeadline, writeDeadline time.Time

	lastWrite time.Time // writeDeadline is not later than that, unless it is zero
}

// extendRead gives the client at least readTimeout from now to send more of the body.
func (c *connection) extendRead(now time.Time) {
	if next, due := extend(c.readDeadline, now, c.readTimeout); due {
		c.setReadDeadline(next)
	}
}

// extendWrite gives the next write at least writeTimeout from now, as far as boundWrites
// permits.
func (c *connection) extendWrite(now time.Time) {
	next, due := extend(c.writeDeadline, now, c.writeTimeout)
	if due && !c.lastWrite.IsZero() && next.After(c.lastWrite) {
		next, due = c.lastWrite, !c.writeDeadline.Equal(c.lastWrite)
	}
	if due {
		c.setWriteDeadline(next)
	}
}

// boundWrites bounds the time of all further writes, of size bytes, to writeTimeout and
// the time that they take at minWriteRate. now is the current time.
func (c *connection) boundWrites(now time.Time, size int) {
	if c.writeTimeout > 0 {
		atMinRate := time.Duration(size) * time.Second / minWriteRate
		c.lastWrite = now.Add(min(c.writeTimeout, maxDuration-atMinRate) + atMinRate)
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

// A buffer is memory for a body or for events, which is used again.
type buffer struct{ b []byte }

// maxPooledBuffer is the size of the largest buffer that is kept for reuse.
const maxPooledBuffer = 2 << 20

var buffers = sync.Pool{New: func() any { return new(buffer) }}

// getBuffer returns an empty buffer with room for size bytes.
func getBuffer(size int) *buffer {
	buf := buffers.Get().(*buffer)
	if cap(buf.b) < size {
		buf.b = make([]byte, 0, size)
	}
	buf.b = buf.b[:0]
	return buf
}

// putBuffer takes back a buffer that nothing refers to.
func putBuffer(buf *buffer) {
	if cap(buf.b) <= maxPooledBuffer {
		buffers.Put(buf)
	}
}
