package llmhttp

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"mime"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/llmhttp/llmhttp/internal/bounded"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// A request is the life of one HTTP request. Its methods are in the order in
// which it happens: run calls serve, which authenticates and calls the function
// of the route; that reads and decodes the body, reserves tokens, calls the
// Backend, settles the usage and replies. If anything fails, the failureHandler
// replies. finish settles the usage, calls the Observer and ends the use of the
// ResponseWriter.
//
// All of it happens on the goroutine of ServeHTTP, except for what others do
// through res: see response.
type request struct {
	h        *Handler
	r        *http.Request
	arrived  time.Time // with a monotonic clock, for durations
	protocol Protocol  // of the route; chat completions for unknown paths
	cred     credential
	route    *route // nil until it was found
	key      *Key   // nil until it was found

	life     lifetime
	log      requestLog
	account  account
	res      response
	idle     idleTimer
	chat     chatCall // of a chat request
	failures failureHandler
	recorder recorder
}

func newRequest(h *Handler, w http.ResponseWriter, r *http.Request) *request {
	q := &request{h: h, r: r, arrived: time.Now(), protocol: chatCompletions{}}
	q.cred.r = r
	q.res.init(w, r, &h.opts)
	q.account.q, q.failures.q, q.chat.q = q, q, q
	q.account.record = &q.account.records[0]
	q.life.start(w, r.Context(), q)
	q.recorder.q, q.recorder.serverError = q, ClassInternal
	q.log = requestLog{logger: h.opts.Logger, life: &q.life, cred: &q.cred, record: q.account.record}
	return q
}

// run serves the request. The client gets a reply even if serve ends by a panic or
// by runtime.Goexit.
func (q *request) run() {
	err := errGoexit
	defer func() {
		if p := recover(); p != nil {
			err = newPanicError(p)
		}
		if err != nil {
			q.failures.handle(err)
		}
	}()
	err = q.serve()
}

func (q *request) serve() error {
	q.identify()
	q.recorder.observe()
	rt, err := q.h.findRoute(q.r)
	if rt != nil {
		q.route, q.protocol = rt, rt.protocol // before any error, which has the form of the protocol
		q.r.Pattern = rt.pattern              // for middleware around the Handler, as ServeMux sets it
	}
	q.account.record.Protocol = q.protocol.Name()
	if !q.h.enter(q) {
		return errShutdown
	}
	if err != nil {
		return err
	}
	if err := q.authenticate(); err != nil {
		return err
	}
	q.account.record.Endpoint = rt.endpoint
	if !q.key.AllowsEndpoint(rt.endpoint) {
		return Errorf(http.StatusForbidden, "missing_scope",
			"You have insufficient permissions for this operation. Missing scope: %s.", rt.endpoint)
	}
	q.recorder.serverError = ClassLimiter
	if err := q.account.admit(); err != nil {
		return err
	}
	q.recorder.serverError = ClassInternal
	return rt.serve(q)
}

// identify sets the ID and the time of the request.
func (q *request) identify() {
	rec := q.account.record
	rec.Time = q.arrived.Round(0) // without the monotonic clock
	defer func() {
		if rec.ID == "" { // also if RequestID panics
			rec.ID = newID("req_")
		}
	}()
	if f := q.h.opts.RequestID; f != nil {
		rec.ID = f(q.r)
	}
	rec.Time = q.h.opts.Now()
}

// maxModelID is the maximum length of a model ID in bytes.
const maxModelID = 512

// authorizeModel sets the model. One that the key may not use is refused as if it did
// not exist, and so is one that must not be recorded: it contains the key, or
// control characters, which some stores do not take.
func (q *request) authorizeModel(id string) error {
	if len(id) > maxModelID || strings.ContainsFunc(id, unicode.IsControl) || !q.key.AllowsModel(id) || q.cred.isIn(id) {
		return ModelNotFound(id)
	}
	q.account.record.Model = id
	return nil
}

// beginBackendCall must be called before each call to the Backend, or to anything
// else that has Options.Timeout.
func (q *request) beginBackendCall() error {
	if err := q.life.ended(); err != nil {
		return err
	}
	if !q.res.beginWaiting() {
		return q.failures.cause()
	}
	q.account.keepDraw()
	q.idle.start(q)
	q.recorder.serverError = ClassBackend
	return nil
}

// callHost calls a function of the host, such as ListModels of the Backend, and records
// no usage. The function has Options.Timeout.
func callHost[T any](q *request, call func(ctx context.Context) (T, error)) (v T, err error) {
	if err := q.beginBackendCall(); err != nil {
		return v, err
	}
	v, err = call(q.life.ctx)
	q.res.backendReturned()
	if err != nil {
		return v, q.life.endedOr(err)
	}
	return v, nil
}

// callModel calls the Backend for a request that is not a chat. From here on the
// request is recorded, even if the client leaves. count notes what was used; it is not
// called if the Backend returns nil, which is not an error of callModel.
func callModel[T any](q *request, req describer, call func(ctx context.Context) (*T, error), count func(*T)) (*T, error) {
	if err := q.beginBackendCall(); err != nil {
		return nil, err
	}
	q.recorder.start(req)
	q.account.markBackendCalled()
	reply, err := call(q.life.backend)
	q.res.backendReturned()
	q.account.noteBackendError(err)
	if err != nil {
		return nil, q.life.endedOr(err)
	}
	if reply != nil {
		count(reply)
	}
	return reply, q.life.ended()
}

// replyJSON writes v, which may be of any type, as the whole reply.
func (q *request) replyJSON(v any) error {
	return q.reply(func(b []byte) ([]byte, error) { return appendJSON(b, v) })
}

// replyTyped writes v as the whole reply.
func replyTyped[T any](q *request, t jsonwire.Type[T], v *T) error {
	return q.reply(func(b []byte) ([]byte, error) { return t.Append(b, v) })
}

// reply writes what encode appends as the whole reply. The request gives up its
// place among the concurrent ones before the client can know that it ended.
func (q *request) reply(encode func(b []byte) ([]byte, error)) error {
	q.account.release()
	buf := getBuffer(1 << 10)
	defer putBuffer(buf)
	b, err := encode(buf.b)
	if err != nil {
		return err
	}
	buf.b = b
	if err := q.life.ended(); err == errGone {
		return err
	}
	q.res.mu.Lock()
	defer q.res.mu.Unlock()
	if q.res.state == stateDone {
		return nil
	}
	now := time.Now()
	q.setHeaders(now)
	return q.res.replyLocked(http.StatusOK, buf.b, now)
}

// setHeaders sets the headers that do not depend on what the reply is. q.res.mu is held.
func (q *request) setHeaders(now time.Time) {
	info := ReplyInfo{RequestID: q.account.record.ID, Processing: now.Sub(q.arrived)}
	q.account.addLimits(&info)
	q.protocol.SetHeaders(q.res.w.Header(), info)
}

// finish ends the request, whether it succeeded or not. Each step runs even if
// the one before it panics or calls runtime.Goexit.
func (q *request) finish() {
	defer func() {
		if q.res.aborted { // does not change after res.finish
			panic(http.ErrAbortHandler)
		}
	}()
	defer q.h.leave(q)
	defer q.res.finish()
	defer q.recorder.end()
	defer q.life.cancel(nil)
	defer q.account.release()
	defer q.account.settle()
	q.idle.stop()
}

// newID returns prefix and 128 random bits in hexadecimal.
func newID(prefix string) string {
	var raw [16]byte
	binary.LittleEndian.PutUint64(raw[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(raw[8:], rand.Uint64())
	var id [48]byte
	return string(hex.AppendEncode(append(id[:0], prefix...), raw[:]))
}

// readJSON reads the body and decodes it into v.
func readJSON[T any](q *request, t jsonwire.Type[T], v *T) error {
	body, err := q.readBody()
	if err != nil {
		return err
	}
	defer putBuffer(body)
	return decodeRequest(body.b, t, v)
}

// readBody reads the body. The caller returns the buffer with putBuffer.
func (q *request) readBody() (*buffer, error) {
	if err := checkMediaType(q.r); err != nil {
		return nil, err
	}
	buf := getBuffer(0)
	var err error
	if buf.b, err = q.res.readBody(buf.b, q.h.opts.MaxBody); err != nil {
		putBuffer(buf)
		if isReadTimeout(err) && q.life.ended() == errGone {
			return nil, err // net/http cancels the context when a read fails
		}
		return nil, q.life.endedOr(err)
	}
	return buf, nil
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
		res.conn.setRead(time.Time{})
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
