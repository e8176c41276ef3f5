package llmhttp

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"mime"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/lend"
)

// An exchange is a request being served.
//
// It is served on one goroutine. Others may write to it, or end it, while the
// Backend works: the watch over its silence, the one that writes what a burst
// has brought, and Shutdown. So once the Backend was called, mu is held for
// each write, and guards what they share: from phase to sse, but for streamed,
// and target, tries, err, status and headers.
type exchange struct {
	// What each chunk needs is together, so that it is soon found in memory.
	mu        sync.Mutex
	arrived   time.Time // by the real clock, for durations
	w         http.ResponseWriter
	h         *Handler
	r         *http.Request
	phase     phase
	receiving bool // the body
	dead      bool // it has failed: nothing more is written
	abort     bool // cut the connection
	streamed  bool
	stopped   error // why the Backend's stream was to stop, once it was
	watch     watch
	chunks    int
	first     time.Duration
	sse       *sseWriter
	shape     shaper                      // of a chat
	lent      atomic.Pointer[lend.Memory] // the request's, if it is to come back
	tookBack  bool                        // our hold on it has ended

	next, prev *exchange                // in the list of those active; guarded by h.mu
	entered    bool                     // is in that list
	rc         *http.ResponseController // made when it is first needed
	ctx        requestContext
	end        func(*Exchange) // the Observer's, or nil

	key     *Key
	secret  string
	record  *UsageRecord // of records, as stores take a list
	records [1]UsageRecord
	grant   grant

	reached  bool   // the Backend was called, so usage is recorded
	settled  bool   // it was
	target   string // of a Backend that picks, with which try it is; guarded by mu
	tries    int
	reported *Usage      // of anything but a chat, as the Backend has it
	prompt   int         // tokens, estimated
	late     lateContext // for the record, which is due after the request

	err     error
	status  int
	headers headerValues
}

// A phase is how far the reply got.
type phase int

const (
	reading   phase = iota // the request; nobody but the exchange's goroutine may reply
	working                // the Backend is; nothing is written
	streaming              // the head of a stream is written
	replied                // the whole reply is
)

func newExchange(h *Handler, w http.ResponseWriter, r *http.Request) *exchange {
	x := &exchange{h: h, w: w, r: r, arrived: time.Now()}
	x.record = &x.records[0]
	x.record.Time = x.arrived.Round(0) // without the monotonic clock
	x.ctx.parent, x.ctx.x = r.Context(), x
	x.watch.due.Store(notDue)
	return x
}

// setWriteDeadline sets the deadline of writes, best effort: not every wrapper
// of a ResponseWriter can. It is called with mu held.
func (x *exchange) setWriteDeadline(t time.Time) {
	if w, ok := x.w.(interface{ SetWriteDeadline(time.Time) error }); ok {
		w.SetWriteDeadline(t) // net/http's own needs no controller
		return
	}
	x.control().SetWriteDeadline(t)
}

// identify gives the request its ID and time.
func (x *exchange) identify() {
	// Should a host's func panic, there is an ID and a time all the same.
	defer func() {
		if x.record.ID == "" {
			x.record.ID = newID("req_")
		}
	}()
	if x.h.opts.RequestID != nil {
		x.record.ID = x.h.opts.RequestID(x.r)
	}
	if x.h.opts.Now != nil {
		x.record.Time = x.h.opts.Now()
	}
}

// flush sends what was written. It is called with mu held.
func (x *exchange) flush() error {
	if w, ok := x.w.(interface{ FlushError() error }); ok {
		return w.FlushError() // net/http's own needs no controller
	}
	return x.control().Flush()
}

// control returns what flushes and sets deadlines. It is called with mu held.
func (x *exchange) control() *http.ResponseController {
	if x.rc == nil {
		x.rc = http.NewResponseController(x.w)
	}
	return x.rc
}

// observe tells the Observer of the request.
func (x *exchange) observe() {
	if x.h.opts.Observe == nil {
		return
	}
	ctx, end := x.h.opts.Observe(&valueContext{x.ctx.parent, x}, x.r)
	if ctx != nil {
		x.ctx.parent = ctx
	}
	x.end = end
}

// finish does what is due however the request ended.
func (x *exchange) finish() {
	x.stopWatch()
	x.settle()
	x.release()
	x.ctx.end(nil)
	x.tellObserver()
	if !x.reached {
		x.takeBack()
	}
	x.allowLastWrite()
	x.h.leave(x)
	if x.abort {
		panic(http.ErrAbortHandler)
	}
}

func (x *exchange) tellObserver() {
	if x.end == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			x.log(slog.LevelError, "observer panicked", newPanicError(p))
		}
	}()
	x.mu.Lock()
	e := &Exchange{
		UsageRecord: *x.record, Status: x.status, Err: x.err, Streamed: x.streamed,
		Chunks: x.chunks, FirstChunk: x.first, Duration: time.Since(x.arrived),
		Target: x.target, Tries: x.tries,
	}
	x.mu.Unlock()
	if e.Err != nil {
		e.Err = scrubError(x.r, e.Err)
	}
	x.end(e)
}

// fail ends the request with err, in the way that is left: a status, an error
// event, or nothing where nobody listens any more.
func (x *exchange) fail(err error) {
	x.release() // before the client can know
	x.peek()
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.dead {
		return
	}
	x.failLocked(err)
}

func (x *exchange) failLocked(err error) {
	if e, ok := err.(*Error); ok && e == nil {
		err = errNil
	}
	gone := err == errGone || x.cause() == errGone
	x.dead = true
	x.err = err
	defer func() { x.abort = x.phase == streaming }()
	x.ctx.end(err)
	if gone {
		// err is only what came of it.
		if x.phase == reading || x.phase == working {
			x.status = statusGone
			x.w.WriteHeader(statusGone) // for logs of a host
		}
		x.log(slog.LevelDebug, "client left", err)
		return
	}
	if x.phase == replied {
		x.log(slog.LevelError, "failed after the reply", err)
		return
	}
	told := tell(x.r, err)
	switch {
	case err == errShutdown:
		x.log(slog.LevelInfo, "shutting down", err)
	case told.Status >= 500:
		x.log(slog.LevelError, "request failed", err)
	}
	if x.phase == streaming {
		x.sse.fail(told)
		return
	}
	x.status = told.Status
	x.writeHeaders()
	x.allowWrite(time.Since(x.arrived))
	writeError(x.w, x.r, told, &x.headers)
	x.phase = replied
}

// interrupt ends the request from another goroutine than its own.
func (x *exchange) interrupt(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.interruptLocked(err)
}

func (x *exchange) interruptLocked(err error) {
	if x.dead || x.phase == replied {
		return
	}
	if x.phase == reading {
		// Its own goroutine will notice, if need be because it cannot read on.
		x.ctx.end(err)
		if x.receiving {
			x.control().SetReadDeadline(time.Now())
		}
		return
	}
	x.failLocked(err)
	x.flush()
}

// cause returns why the request was ended, or nil if it was not.
func (x *exchange) cause() error {
	cause := x.ctx.why()
	switch {
	case cause == nil, cause == errGone, cause == errShutdown, cause == errSilent:
		return cause
	case errors.Is(x.r.Context().Err(), context.Canceled):
		return errGone
	}
	return cause // such as a deadline that a host has set
}

// work marks that the Backend is to answer the request now, and will be billed
// for. It returns an error if the request was ended in the meantime.
func (x *exchange) work() error {
	if err := x.wait(); err != nil {
		return err
	}
	x.reached = true
	return nil
}

// wait marks that the Backend, or what stands beside it, is called now, and
// watches how long it takes.
func (x *exchange) wait() error {
	if err := x.cause(); err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.dead {
		return x.err
	}
	switch x.phase {
	case working:
		x.watch.spoke = time.Since(x.arrived)
	case reading:
		x.phase = working
		x.startWatch()
		if x.r.ProtoMajor >= 2 {
			// There a deadline that passes ends the stream, even if nothing is
			// being written.
			x.setWriteDeadline(time.Time{})
		}
	}
	return nil
}

// backendError returns why a Backend failed: a request that was ended has
// failed for that reason, whatever its Backend says.
func (x *exchange) backendError(err error) error {
	if cause := x.cause(); cause != nil {
		return cause
	}
	return err
}

// stayingText is from where on a text is not copied from the body if it can stay
// there.
const stayingText = 16 << 10

// readJSON reads the body, decodes it into v and lets go of it, unless v has
// texts that stay there: with a Backend that gives the memory back, all that
// are long; with others, which may keep it, only one that is most of it.
func (x *exchange) readJSON(v decoder) error {
	if err := checkMediaType(x.r); err != nil {
		return err
	}
	buf, err := x.readBody()
	if err != nil {
		return err
	}
	share := max(stayingText, (cap(buf.b)+1)/2)
	if x.h.borrows && cap(buf.b) <= 2*len(buf.b) {
		share = stayingText
	}
	shared, err := decodeBody(buf.b, v, share)
	switch {
	case !shared:
		putBuffer(buf)
	case err == nil && x.h.borrows:
		x.lent.Store(lend.New(func() { putBuffer(buf) }))
	}
	return err
}

func checkMediaType(r *http.Request) error {
	if enc := r.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return Errorf(http.StatusUnsupportedMediaType, "unsupported_content_encoding", "The request body must not be compressed.")
	}
	t := r.Header.Get("Content-Type")
	if t == "" || t == "application/json" {
		return nil
	}
	if media, _, err := mime.ParseMediaType(t); err != nil || media != "application/json" {
		return Errorf(http.StatusUnsupportedMediaType, "unsupported_media_type",
			"Unsupported content type: '%s'. This API only accepts 'application/json'.", echo(t))
	}
	return nil
}

func (x *exchange) errTooLarge(limit int64) error {
	if x.r.ProtoMajor == 1 {
		x.w.Header().Set("Connection", "close") // rather than read what is left
	}
	return Errorf(http.StatusRequestEntityTooLarge, "request_too_large",
		"The request body is too large. The limit is %d bytes.", limit)
}

// receive marks that the body is being read.
func (x *exchange) receive(on bool) {
	x.mu.Lock()
	x.receiving = on
	x.mu.Unlock()
}

// trustedLength is up to which size a body's declared length is believed
// before its bytes have come.
const trustedLength = 2 << 20

// readBody reads the body to its end: net/http notices that a client has left
// only after that.
func (x *exchange) readBody() (*buffer, error) {
	limit := x.h.opts.MaxBody
	length := x.r.ContentLength
	if length > limit {
		return nil, x.errTooLarge(limit)
	}
	size := 1 << 10
	if length >= 0 {
		size = int(min(length, trustedLength)) + 1 // a byte more, to see the end
	}
	buf := getBuffer(size)
	if x.r.Body == nil {
		return buf, nil
	}
	x.receive(true)
	defer x.receive(false)
	for {
		n, err := x.r.Body.Read(buf.b[len(buf.b):cap(buf.b)])
		buf.b = buf.b[:len(buf.b)+n]
		switch {
		case int64(len(buf.b)) > limit:
			putBuffer(buf)
			return nil, x.errTooLarge(limit)
		case err == io.EOF:
			return buf, nil
		case err != nil:
			putBuffer(buf)
			if cause := x.cause(); cause != nil {
				return nil, cause
			}
			if bound, ok := errors.AsType[*http.MaxBytesError](err); ok {
				return nil, x.errTooLarge(bound.Limit)
			}
			return nil, &Error{Status: http.StatusBadRequest, Message: "We could not read the body of your request.", Err: err}
		case len(buf.b) == cap(buf.b):
			grown := min(2*cap(buf.b), int(limit)+1)
			if length >= 0 {
				grown = min(grown, int(length)+1)
			}
			if grown <= cap(buf.b) {
				grown = cap(buf.b) + 1
			}
			larger := getBuffer(grown)
			larger.b = append(larger.b, buf.b...)
			putBuffer(buf)
			buf = larger
		}
	}
}

// An encoderFunc is an encoder that calls itself.
type encoderFunc func(*jsonwire.Encoder)

func (f encoderFunc) encode(e *jsonwire.Encoder) { f(e) }

// reply writes a whole reply.
func (x *exchange) reply(v encoder) error {
	x.release() // before the client can know
	buf := getBuffer(1 << 10)
	defer putBuffer(buf)
	e := &buf.encoder
	*e = jsonwire.Encoder{Buf: buf.b}
	v.encode(e)
	buf.b, e.Buf = e.Buf, nil
	if e.Err != nil {
		return e.Err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.dead {
		return nil
	}
	if x.cause() == errGone {
		return errGone
	}
	x.phase, x.status = replied, http.StatusOK
	x.writeHeaders()
	if len(buf.b) < netBuffer {
		writeHead(x.w, http.StatusOK, -1, &x.headers)
		if !x.hasDeadline() {
			if _, err := x.w.Write(buf.b); err != nil {
				return errGone
			}
			return nil
		}
	} else {
		writeHead(x.w, http.StatusOK, len(buf.b), &x.headers)
	}
	if err := x.write(buf.b, time.Since(x.arrived)); err != nil {
		return errGone
	}
	return nil
}

// netBuffer is how much of a reply net/http keeps until the handler has
// returned. Of a shorter one it tells the length itself, and a deadline would
// have to stay when the Handler has returned.
const netBuffer = 2 << 10

// hasDeadline reports whether the server may have set a deadline of writes when
// the request came.
func (x *exchange) hasDeadline() bool {
	s := x.server()
	return s == nil || s.WriteTimeout > 0
}

// server returns the server that the request came to, or nil if it is not one
// of net/http's.
func (x *exchange) server() *http.Server {
	s, _ := x.r.Context().Value(http.ServerContextKey).(*http.Server)
	return s
}

// pieceSize is how much is written at once: a large reply is given its time
// piece by piece, so that a client may be slow, but not stand still.
const pieceSize = 32 << 10

// write writes p. It is called with mu held.
func (x *exchange) write(p []byte, now time.Duration) error {
	for {
		x.allowWrite(now)
		piece := p[:min(len(p), pieceSize)]
		if _, err := x.w.Write(piece); err != nil {
			return err
		}
		if p = p[len(piece):]; len(p) == 0 {
			return nil
		}
		now = time.Since(x.arrived)
	}
}

// allowWrite gives a write its time: at least WriteTimeout, and at most half as
// much again, since setting a deadline costs as much as a tenth of a write.
func (x *exchange) allowWrite(now time.Duration) {
	d := x.h.opts.WriteTimeout
	if x.r.ProtoMajor < 2 && x.watch.until >= now+d {
		return
	}
	x.watch.until = time.Since(x.arrived) + d + d/2
	x.setWriteDeadline(x.arrived.Add(x.watch.until))
}

// allowLastWrite sets the deadline of what net/http writes when the Handler has
// returned, if there is one of ours. On HTTP/2 it is the stream's own, and what
// was written may still be on its way.
func (x *exchange) allowLastWrite() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.watch.until == 0 || x.abort || x.r.ProtoMajor >= 2 {
		return
	}
	var last time.Time
	if s := x.server(); s != nil && s.WriteTimeout > 0 {
		// The next request of the connection gets another. Without, ours would
		// be that of other handlers.
		last = time.Now().Add(x.h.opts.WriteTimeout)
	}
	x.setWriteDeadline(last)
}

// newID returns prefix and 128 random bits in hexadecimal.
func newID(prefix string) string {
	var raw [16]byte
	binary.LittleEndian.PutUint64(raw[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(raw[8:], rand.Uint64())
	var text [48]byte
	n := copy(text[:], prefix)
	n += hex.Encode(text[n:], raw[:])
	return string(text[:n])
}
