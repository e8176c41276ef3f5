package llmhttp

import (
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

// A response is the state machine that writes the reply to one request. It is
// the only part of a request that several goroutines use: that of ServeHTTP,
// the idle timer, the goroutine that flushes bursts, those that Shutdown starts,
// and goroutines of a Backend that call yield or [StartTry].
type response struct {
	w            http.ResponseWriter
	r            *http.Request
	ctl          http.ResponseController
	writeTimeout time.Duration // zero for none
	readTimeout  time.Duration // zero for none

	// mu guards the fields below, and every use of w and ctl.
	mu             sync.Mutex
	state          responseState
	status         int       // that was written, or 499
	err            error     // why the request failed
	writeDeadline  time.Time // as last set; zero if it was not
	readDeadline   time.Time
	bodyRead       bool // the body was read to its end
	readingStopped bool // by stopReading
	backendRuns    bool // the Backend was called and has not returned
	aborted        bool // the connection must be cut
	firstWrite     time.Time
	clientLeft     bool      // before there was a reply
	cannotFlush    bool      // w does not support it
	contentLength  [1]string // the memory of a header (budget: allocations of a whole request)
}

func (res *response) init(w http.ResponseWriter, r *http.Request, o *Options) {
	res.w, res.r, res.ctl = w, r, *http.NewResponseController(w)
	res.writeTimeout, res.readTimeout = max(o.WriteTimeout, 0), max(o.ReadTimeout, 0)
	res.bodyRead = r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0
}

// isHTTP1 reports whether the connection serves one request at a time.
func (res *response) isHTTP1() bool { return res.r.ProtoMajor < 2 }

// beginWaiting moves from reading to waiting: the Backend is about to be called. It reports false if the request
// has ended in the meantime.
func (res *response) beginWaiting() bool {
	res.mu.Lock()
	defer res.mu.Unlock()
	if res.state == stateDone || res.readingStopped {
		return false
	}
	res.backendRuns = true
	if res.state == stateReading {
		res.state = stateWaiting
		if !res.isHTTP1() || res.writeTimeout == 0 {
			// On HTTP/2 a deadline that passes resets the stream, even if
			// nothing is being written.
			res.ctl.SetWriteDeadline(time.Time{})
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

var contentTypeJSON = []string{"application/json"}

// replyLocked writes a reply of JSON whose other headers are set, and sends it.
func (res *response) replyLocked(status int, body []byte) error {
	res.state, res.status, res.firstWrite = stateDone, status, time.Now()
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
	return res.writeLocked(body)
}

// startStream writes the header of an event stream.
func (res *response) startStream() {
	res.state, res.status, res.firstWrite = stateStreaming, http.StatusOK, time.Now()
	h := res.w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	// nginx heeds X-Accel-Buffering, other proxies Cache-Control.
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
}

// maxWrite is how many bytes are written at once. Each piece of a large reply
// has the whole WriteTimeout, so a client may be slow but must not stall.
const maxWrite = 32 << 10

// writeLocked writes and flushes p. It returns errGone if that fails.
func (res *response) writeLocked(p []byte) error {
	for len(p) > 0 {
		res.extendWriteDeadline()
		n := min(len(p), maxWrite)
		if _, err := res.w.Write(p[:n]); err != nil {
			return errGone
		}
		p = p[n:]
	}
	// net/http reports a write that missed its deadline only when it flushes.
	err := res.ctl.Flush()
	if errors.Is(err, http.ErrNotSupported) {
		res.cannotFlush, err = true, nil
	}
	if err != nil {
		return errGone
	}
	if !res.isHTTP1() {
		res.setWriteDeadline(time.Time{})
	}
	return nil
}

// extendWriteDeadline gives the next write at least WriteTimeout, and at most
// half as much again: setting a deadline takes time, so it is not
// done for each chunk (budget: CPU of a stream with a flush per chunk).
func (res *response) extendWriteDeadline() {
	if res.writeTimeout == 0 {
		return
	}
	now := time.Now()
	if res.writeDeadline.Sub(now) < res.writeTimeout {
		res.setWriteDeadline(now.Add(res.writeTimeout + res.writeTimeout/2))
	}
}

// setWriteDeadline is best effort: some wrappers of a ResponseWriter do not
// support deadlines.
func (res *response) setWriteDeadline(t time.Time) {
	res.writeDeadline = t
	res.ctl.SetWriteDeadline(t)
}

// finish ends the use of the ResponseWriter. No goroutine writes after it.
func (res *response) finish() {
	res.mu.Lock()
	defer res.mu.Unlock()
	res.state = stateDone
	if res.aborted || !res.isHTTP1() || res.writeDeadline.IsZero() {
		return
	}
	var deadline time.Time
	if s, ok := res.r.Context().Value(http.ServerContextKey).(*http.Server); ok && s.WriteTimeout > 0 {
		// net/http still writes the end of a stream. It sets a new deadline for
		// the next request of the connection.
		deadline = time.Now().Add(res.writeTimeout)
	}
	// Without WriteTimeout, net/http never sets a deadline, and ours would
	// remain for the next request, which may be another handler's.
	res.setWriteDeadline(deadline)
}

// stopReading makes a Read of the request's body return, now or at its next
// call.
func (res *response) stopReading() {
	res.readingStopped = true
	res.ctl.SetReadDeadline(time.Now())
}

// extendReadDeadline gives the client ReadTimeout to send more of the body.
// Like extendWriteDeadline it does not set a deadline each time.
func (res *response) extendReadDeadline() {
	res.mu.Lock()
	defer res.mu.Unlock()
	if res.readingStopped || res.readTimeout == 0 {
		return
	}
	now := time.Now()
	if res.readDeadline.Sub(now) < res.readTimeout {
		res.readDeadline = now.Add(res.readTimeout + res.readTimeout/2)
		res.ctl.SetReadDeadline(res.readDeadline)
	}
}

// finishReading marks the body as read to its end. It lifts the read deadline:
// when one passes later, net/http cancels the request's context.
func (res *response) finishReading() {
	res.mu.Lock()
	defer res.mu.Unlock()
	res.bodyRead = true
	if !res.readingStopped {
		res.ctl.SetReadDeadline(time.Time{})
	}
}

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

// A bodyReader reads the body of a request. Each Read has ReadTimeout.
type bodyReader struct{ res *response }

func (r bodyReader) Read(p []byte) (int, error) {
	r.res.extendReadDeadline()
	return r.res.r.Body.Read(p)
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
