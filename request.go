package llmhttp

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"log/slog"
	"math/rand/v2"
	"mime"
	"net/http"
	"strings"
	"time"
	"unicode"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// A request serves one HTTP request. Variables of this type are named q, because r is an
// *http.Request and req a decoded body. Its methods are in the order in which they are
// first called: run calls serve, which authenticates and calls the function
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
	routed   *http.Request // r without Options.Prefix in its URL, for the functions of routes and protocols
	arrived  time.Time     // with a monotonic clock, for durations
	protocol Protocol      // of the route, or of the nearest one; chat completions if there is none
	cred     credential
	route    *route // nil until it was found
	key      *Key   // nil until it was found

	life       lifetime
	log        requestLog
	accounting accounting
	res        response
	idle       idleTimer
	chat       chatCall // used if the request is a chat
	failures   failureHandler
	observer   requestObserver
	info       requestInfo
}

func newRequest(h *Handler, w http.ResponseWriter, r *http.Request) *request {
	q := &request{h: h, r: r, routed: r, arrived: time.Now(), protocol: chatCompletions{}}
	q.log.q, q.accounting.q, q.idle.q, q.chat.q, q.failures.q, q.observer.q = q, q, q, q, q, q
	q.cred.r = r
	q.accounting.record = &q.accounting.records[0]
	q.observer.stepClass = ClassInternal
	q.res.init(w, r, &h.opts)
	q.life.start(w, r.Context(), q)
	return q
}

// run calls serve, and replies with its error. The client gets a reply even if serve ends by a
// panic or by runtime.Goexit.
func (q *request) run(serve func() error) {
	err := errGoexit
	defer func() {
		if p := recover(); p != nil {
			err = newPanicError(p)
		}
		if err != nil {
			q.failures.handle(err)
		}
	}()
	err = serve()
}

func (q *request) serve() error {
	q.identify(newID("req_"))
	q.observer.start()
	err := q.findRoute()
	q.accounting.record.Protocol = q.protocol.Name()
	if !q.h.enter(q) {
		return errShutdown
	}
	if err != nil {
		return err
	}
	if err := q.authenticate(); err != nil {
		return err
	}
	rt := q.route
	q.accounting.record.Endpoint = rt.endpoint
	if !q.key.AllowsEndpoint(rt.endpoint) {
		return Errorf(http.StatusForbidden, "missing_scope",
			"You have insufficient permissions for this operation. Missing scope: %s.", rt.endpoint)
	}
	q.observer.stepClass = ClassLimiter
	if err := q.accounting.admit(); err != nil {
		return err
	}
	q.observer.stepClass = ClassInternal
	return rt.serve(q)
}

// identify sets the ID and the time of the request. The ID is id unless Options.RequestID
// returns one.
func (q *request) identify(id string) {
	rec := q.accounting.record
	rec.Time = q.arrived.Round(0) // without the monotonic clock
	rec.ID = id                   // remains if RequestID panics
	if f := q.h.opts.RequestID; f != nil {
		rec.ID = cmp.Or(f(q.r), rec.ID)
	}
	if f := q.h.opts.Now; f != nil {
		rec.Time = f()
	}
}

// findRoute sets the route and the protocol of the request. If no route serves it, the error
// is in the form of the nearest protocol.
func (q *request) findRoute() (err error) {
	q.route, q.routed, err = q.h.findRoute(q.r)
	if rt := q.route; rt != nil {
		q.protocol = rt.protocol
		q.r.Pattern, q.routed.Pattern = rt.pattern, rt.pattern // for middleware around the Handler, as ServeMux sets it
	} else if p := q.h.routes.nearestProtocol(q.routed); p != nil {
		q.protocol = p
	}
	return err
}

// readJSON reads the body, decodes it into v and checks it with check, which also gets the
// body. extra has the members of v without a field.
func readJSON[T any](q *request, t jsonwire.Type[T], v *T, extra *Extra, check func(body []byte) error) error {
	body, err := q.readBody()
	if err != nil {
		return err
	}
	defer putBuffer(body)
	if err := decodeRequest(body.b, t, v); err != nil {
		return err
	}
	if err := checkUnknownMembers(q.life.ctx, *extra); err != nil {
		return err
	}
	return check(body.b)
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
		if isReadTimeout(err) && q.life.endCause() == errClientLeft {
			return nil, err // net/http cancels the context when a read fails
		}
		return nil, q.life.endCauseOr(err)
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

// maxModelID is the maximum length of a model ID in bytes.
const maxModelID = 512

// authorizeModel sets the model of the request. It returns the same error for a model that
// does not exist, one that the key may not use, and an ID that must not be recorded: one
// that contains the API key, or control characters, which some stores do not take.
func (q *request) authorizeModel(id string) error {
	q.observer.requestedModel = id
	if !q.allowsModel(id) {
		return ModelNotFound(id)
	}
	q.accounting.record.Model = id
	return nil
}

// allowsModel reports whether authorizeModel accepts a model.
func (q *request) allowsModel(id string) bool {
	return len(id) <= maxModelID && !strings.ContainsFunc(id, unicode.IsControl) && q.key.AllowsModel(id) && !q.cred.isIn(id)
}

// beginBackendCall must be called before each call to the Backend, or to anything
// else to which Options.Timeout applies. From then on other goroutines may end the request, the
// request that admit took is not refunded, and the idle timer runs.
func (q *request) beginBackendCall() error {
	if err := q.life.endCause(); err != nil {
		return err
	}
	if !q.res.beginWaiting() { // another goroutine has ended the request, or stopped the reading of it
		return q.life.endCauseOr(errShutdown)
	}
	q.accounting.commitRequest()
	q.idle.start()
	q.observer.stepClass = ClassBackend
	return nil
}

// beginStep notes what is called next during a call for which the idle timer runs: the class
// of its failures, and whose silence it is if Options.Timeout passes.
func (q *request) beginStep(class ErrorClass) {
	q.observer.stepClass = class
	q.idle.expect(class == ClassBackend)
}

// callUnrecorded calls a function of the host that uses no model, such as ListModels of the
// Backend. There is no record of the call, and the Observer is not told. Options.Timeout
// applies to it.
func callUnrecorded[T any](q *request, call func(ctx context.Context) (T, error)) (v T, err error) {
	if err := q.beginBackendCall(); err != nil {
		return v, err
	}
	v, err = call(q.life.ctx)
	q.res.backendReturned()
	if err != nil {
		return v, q.life.endCauseOr(err)
	}
	return v, nil
}

// callRecorded calls the Backend for images or embeddings. From here on the
// request is recorded, even if the client leaves. count notes what was used; it is not
// called if the Backend returns nil, which is not an error of callRecorded.
func callRecorded[T any](q *request, req describer, call func(ctx context.Context) (*T, error), count func(*T)) (*T, error) {
	if err := q.beginBackendCall(); err != nil {
		return nil, err
	}
	q.notifyStarted(req)
	q.accounting.recordable = true
	reply, err := call(q.life.backendCtx)
	q.res.backendReturned()
	q.accounting.notSent = errors.Is(err, ErrNotSent)
	if err != nil {
		return nil, q.life.endCauseOr(err)
	}
	if reply != nil {
		count(reply)
	}
	return reply, q.life.endCause()
}

// notifyStarted is called before the Backend is called with req. It sets the RequestInfo and
// tells the Observer.
func (q *request) notifyStarted(req describer) {
	d := &q.info.own
	if q.observer.data != nil {
		d = &q.observer.data.description
	}
	q.info.set(q, req, d)
	q.observer.notifyStarted(&d.info)
}

// replyJSON writes v, which may be of any type, as the whole reply.
func (q *request) replyJSON(v any) error {
	return q.reply(func(b []byte) ([]byte, error) { return appendJSON(b, v) })
}

// replyTyped writes v as the whole reply.
func replyTyped[T any](q *request, t jsonwire.Type[T], v *T) error {
	return q.reply(func(b []byte) ([]byte, error) { return t.Append(b, v) })
}

// reply writes what encode appends as the whole reply.
func (q *request) reply(encode func(b []byte) ([]byte, error)) error {
	buf := getBuffer(1 << 10)
	defer putBuffer(buf)
	b, err := encode(buf.b)
	if err != nil {
		return err
	}
	buf.b = b
	if len(b) <= maxWrite { // there is nothing to write before it
		q.accounting.releaseSlot()
	}
	if err := q.life.endCause(); err == errClientLeft {
		return err
	}
	q.res.mu.Lock()
	defer q.res.mu.Unlock()
	if q.res.state == stateDone {
		return nil
	}
	now := time.Now()
	q.setHeadersLocked(now)
	return q.res.writeReplyLocked(http.StatusOK, buf, now, q.accounting.slotRelease())
}

// setHeadersLocked sets the headers that do not depend on what the reply is. q.res.mu is held.
func (q *request) setHeadersLocked(now time.Time) {
	info := ReplyInfo{RequestID: q.accounting.record.ID, Processing: now.Sub(q.arrived)}
	q.accounting.reportLimits(&info)
	q.protocol.SetHeaders(q.res.w.Header(), info)
}

// finish ends the request, whether it succeeded or not.
func (q *request) finish() {
	runAll(
		q.idle.stop,
		q.accounting.settle,
		q.accounting.releaseSlot,
		q.life.finish,
		q.observer.notifyEnded,
		q.res.finish,
		func() { q.h.leave(q) },
		func() {
			if q.res.aborted { // does not change after res.finish
				panic(http.ErrAbortHandler)
			}
		},
	)
}

// runAll calls each step, even if a step before it panics or calls runtime.Goexit.
func runAll(steps ...func()) {
	if len(steps) > 0 {
		defer runAll(steps[1:]...)
		steps[0]()
	}
}

// A failureHandler ends a request that failed: by an error reply, or by the end
// of the stream if it has begun.
type failureHandler struct{ q *request }

// handle ends the request with err, on the goroutine of ServeHTTP, after the Backend has
// returned. If the request has ended already, only the limits are updated.
func (f *failureHandler) handle(err error) {
	q := f.q
	runAll(
		q.idle.stopTimeout, // which is the Backend's and not that of the Limiter
		func() {
			if !q.res.isStreaming() { // an error reply is short, but the end of a stream may repeat the reply
				q.accounting.releaseSlot()
			}
		},
		q.accounting.refundRequest,
		q.accounting.ensureLimitsKnown,
		func() {
			cause := q.life.endCause()
			q.res.mu.Lock()
			defer q.res.mu.Unlock()
			q.res.backendRuns = err == errGoexit // after runtime.Goexit, net/http closes the connection
			f.endLocked(err, cause, q.accounting.slotRelease())
		},
		q.accounting.releaseSlot,
	)
}

// interrupt ends the request with err, on another goroutine than that of ServeHTTP.
func (f *failureHandler) interrupt(err error) {
	q := f.q
	cause := q.life.endCause()
	q.res.mu.Lock()
	defer q.res.mu.Unlock()
	switch q.res.state {
	case stateReading:
		// The goroutine of ServeHTTP replies when it notices.
		q.life.cancel(err)
		q.res.stopReadingLocked()
	case stateWaiting, stateStreaming:
		f.endLocked(err, cause, nil) // the Backend still runs
	}
}

// endLocked ends the request with err, unless it has ended already. It writes what the
// client gets, and leaves the limits alone, except that it calls release as writeEndLocked
// does. q.res.mu is held. cause is what lifetime.endCause returned before it was locked,
// because endCause may wait.
func (f *failureHandler) endLocked(err, cause error, release func()) {
	q := f.q
	res := &q.res
	if res.err != nil {
		return
	}
	if isNilError(err) {
		err = errNilError // an Observer that finds the Error may use it
	}
	q.life.end(err)
	switch {
	case err == errClientLeft || cause == errClientLeft && !isReadTimeout(err):
		// err is a consequence of the client's departure.
		f.endWithoutReplyLocked(err)
	case res.state == stateDone:
		q.log.print(slog.LevelError, "failed after the reply", err)
	default:
		f.replyErrorLocked(err, release)
	}
	res.err = err
}

// statusClientClosed is the status of a request whose client left before it was sent
// one. nginx has the same.
const statusClientClosed = 499

// endWithoutReplyLocked ends a request whose client has left. q.res.mu is held.
func (f *failureHandler) endWithoutReplyLocked(err error) {
	res := &f.q.res
	res.clientLeft = true
	switch res.state {
	case stateReading, stateWaiting:
		res.status = statusClientClosed
		f.q.setHeadersLocked(time.Now())      // a client that has only closed its half of the connection reads them
		res.w.WriteHeader(statusClientClosed) // for the host's access log
	case stateStreaming:
		res.aborted = true
	}
	res.state = stateDone
	f.q.log.print(slog.LevelDebug, "client left", err)
}

// replyErrorLocked writes an error reply, or the end of a stream that has begun. q.res.mu is held.
func (f *failureHandler) replyErrorLocked(err error, release func()) {
	q := f.q
	e := f.clientError(err)
	switch {
	case err == errShutdown:
		q.log.print(slog.LevelInfo, "shutting down", err)
	case e.Status >= 500:
		q.log.print(slog.LevelError, "request failed", err)
	}
	if q.res.state == stateStreaming {
		written := q.chat.stream.fail(e, release) == nil
		q.res.state = stateDone
		q.res.aborted = !written || !q.route.failsCleanly || err == errGoexit // net/http closes its connection
		return
	}
	now := time.Now()
	q.setHeadersLocked(now)
	setErrorHeaders(q.res.w.Header(), e)
	body, status := q.protocol.AppendError(nil, e, q.accounting.record.ID)
	q.res.writeReplyLocked(status, &buffer{body}, now, release)
}

// clientError returns the Error that the client gets for err. Its Status, Type and Message
// are set, and the API key of the request is redacted.
func (f *failureHandler) clientError(err error) *Error {
	return f.q.cred.redactor().errorInPlace(completeError(f.q.r, err))
}

// newID returns prefix and 128 random bits in hexadecimal.
func newID(prefix string) string {
	var raw [16]byte
	binary.LittleEndian.PutUint64(raw[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(raw[8:], rand.Uint64())
	var id [48]byte
	return string(hex.AppendEncode(append(id[:0], prefix...), raw[:]))
}
