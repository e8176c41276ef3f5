package llmhttp

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"mime"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp/internal/redact"
)

// A request is the life of one HTTP request. Its methods are in the order in
// which it happens: run calls serve, which authenticates and calls the function
// of the route; that reads and decodes the body, reserves tokens, calls the
// Backend, settles the usage and replies. If anything fails, fail replies.
// finish does what is due in any case.
//
// All of it happens on the goroutine of ServeHTTP, except for what others do
// through res: see response.
type request struct {
	h       *Handler
	r       *http.Request
	arrived time.Time // with a monotonic clock, for durations
	route   *route    // nil until it was found
	ctx     context.Context
	cancel  context.CancelCauseFunc
	key     *Key   // nil until it was found
	secret  string // that the request presents
	end     func(*RequestSummary)

	account account
	res     response
	idle    idleTimer
	stream  *eventStream // nil unless the reply is a stream
	order   orderer      // of a chat reply; guarded by res.mu
	chunks  chunkReceiver
	stats   requestStats
}

// requestStats is what a request has to tell its Observer. Its fields are
// guarded by res.mu.
type requestStats struct {
	chunks     int
	firstChunk time.Duration
	target     string
	tries      int
}

func newRequest(h *Handler, w http.ResponseWriter, r *http.Request) *request {
	q := &request{h: h, r: r, arrived: time.Now(), res: newResponse(w, r, &h.opts)}
	q.account.q = q
	q.ctx, q.cancel = context.WithCancelCause(context.WithValue(r.Context(), requestKey{}, q))
	return q
}

type requestKey struct{}

// requestFrom returns the request that ctx belongs to, or nil.
func requestFrom(ctx context.Context) *request {
	q, _ := ctx.Value(requestKey{}).(*request)
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
			q.fail(err)
		}
	}()
	err = q.serve()
}

func (q *request) serve() error {
	q.identify()
	q.observe()
	if !q.h.enter(q) {
		return errShutdown
	}
	rt, err := q.h.findRoute(q.r)
	if err != nil {
		return err
	}
	q.route = rt
	if err := q.authenticate(); err != nil {
		return err
	}
	q.account.record.Endpoint = rt.endpoint
	if !q.key.AllowsEndpoint(rt.endpoint) {
		return Errorf(http.StatusForbidden, "missing_scope",
			"You have insufficient permissions for this operation. Missing scope: %s.", rt.endpoint)
	}
	return rt.serve(q)
}

// identify sets the ID and the time of the request.
func (q *request) identify() {
	rec := &q.account.record
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

// observe calls the Observer. The context that it returns is the one that the
// stores and the Backend get.
func (q *request) observe() {
	if q.h.opts.Observe == nil {
		return
	}
	ctx, end := q.h.opts.Observe(q.ctx, q.r)
	q.end = end
	if ctx != nil && ctx != q.ctx {
		parentCancel := q.cancel
		inner, cancel := context.WithCancelCause(ctx)
		q.ctx, q.cancel = inner, func(cause error) {
			cancel(cause)
			parentCancel(cause)
		}
	}
}

// readJSON reads the body and decodes it into v.
func (q *request) readJSON(v any) error {
	body, err := q.readBody()
	if err != nil {
		return err
	}
	defer putBuffer(body)
	return decodeRequest(body.b, v)
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
		if isReadTimeout(err) && q.ended() == errGone {
			return nil, err // net/http cancels the context when a read fails
		}
		return nil, q.endedOr(err)
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

// useModel sets the model. One that the key may not use is refused as if it did
// not exist, and so is one that contains the key, which would be recorded.
func (q *request) useModel(id string) error {
	if len(id) > maxModelID || !q.key.AllowsModel(id) || q.presentsSecret(id) {
		return ModelNotFound(id)
	}
	q.account.record.Model = id
	return nil
}

// presentsSecret reports whether text contains the API key of the request.
func (q *request) presentsSecret(text string) bool {
	return len(q.secret) >= redact.MinSecret && strings.Contains(text, q.secret)
}

// beginBackendCall must be called before each call to the Backend, or to anything
// else that has Options.Timeout.
func (q *request) beginBackendCall() error {
	if err := q.ended(); err != nil {
		return err
	}
	if !q.res.beginWaiting() {
		return q.endedBy()
	}
	q.idle.start(q)
	return nil
}

// bill marks that the request is to be recorded from here on.
func (q *request) bill() { q.account.billed = true }

// endedBy returns the error with which another goroutine has ended the request.
func (q *request) endedBy() error {
	q.res.mu.Lock()
	defer q.res.mu.Unlock()
	if q.res.err != nil {
		return q.res.err
	}
	return q.endedOr(errShutdown) // only Shutdown stops a request that is still being read
}

// serveOther answers with what serve returns, as JSON.
func (q *request) serveOther(serve func(context.Context, *http.Request, []byte) (any, error)) error {
	body := new(buffer)
	if q.r.Method == http.MethodPost {
		var err error
		if body, err = q.readBody(); err != nil {
			return err
		}
		defer putBuffer(body)
	}
	if err := q.account.admit(0); err != nil {
		return err
	}
	if err := q.beginBackendCall(); err != nil {
		return err
	}
	v, err := serve(q.ctx, q.r, body.b)
	q.res.backendReturned()
	if err != nil {
		return q.endedOr(err)
	}
	return q.replyJSON(v)
}

// replyJSON writes v as the whole reply.
func (q *request) replyJSON(v any) error {
	return q.reply(func(b []byte) ([]byte, error) { return appendJSON(b, v) })
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
	if err := q.ended(); err == errGone {
		return err
	}
	q.res.mu.Lock()
	defer q.res.mu.Unlock()
	if q.res.state == stateDone {
		return nil
	}
	q.setHeaders()
	return q.res.replyLocked(http.StatusOK, buf.b)
}

// setHeaders sets the headers that do not depend on what the reply is.
func (q *request) setHeaders() {
	info := ReplyInfo{RequestID: q.account.record.ID, Processing: time.Since(q.arrived)}
	q.account.setLimits(&info)
	q.protocol().SetHeaders(q.res.w.Header(), info)
}

// protocol returns the protocol of the request, which is chat completions for
// unknown paths.
func (q *request) protocol() Protocol {
	if q.route == nil {
		return chatCompletions{}
	}
	return q.route.protocol
}

// fail ends the request with err: by an error reply, or by the end of the
// stream if it has begun. It does nothing if the request has ended already.
func (q *request) fail(err error) {
	q.account.release() // before the client can know
	q.account.peek()
	q.res.mu.Lock()
	defer q.res.mu.Unlock()
	// After runtime.Goexit, net/http closes the connection.
	q.res.backendRuns = err == errGoexit
	q.failLocked(err)
}

// interrupt ends the request from another goroutine than its own.
func (q *request) interrupt(err error) {
	q.res.mu.Lock()
	defer q.res.mu.Unlock()
	if q.res.state == stateReading {
		// The request's own goroutine replies when it notices.
		q.cancel(err)
		q.res.stopReading()
		return
	}
	q.failLocked(err)
}

// failLocked is called with res.mu held.
func (q *request) failLocked(err error) {
	res := &q.res
	if res.err != nil {
		return
	}
	if e, ok := err.(*Error); ok && e == nil {
		err = errNilError
	}
	cause := q.ended() // before cancel, which would be the cause from then on
	q.cancel(err)
	switch {
	case err == errGone || cause == errGone && !isReadTimeout(err):
		// err is a consequence of the client's departure.
		q.failGone(err)
	case res.state == stateDone:
		q.log(slog.LevelError, "failed after the reply", err)
	default:
		q.failReply(err)
	}
	res.err = err
}

// statusGone is the status of a request whose client left before it was sent
// one. nginx has the same.
const statusGone = 499

func (q *request) failGone(err error) {
	res := &q.res
	res.clientLeft = true
	switch res.state {
	case stateReading, stateWaiting:
		res.status = statusGone
		res.w.WriteHeader(statusGone) // for the host's access log
	case stateStreaming:
		res.aborted = true
	}
	res.state = stateDone
	q.log(slog.LevelDebug, "client left", err)
}

// failReply tells the client of err.
func (q *request) failReply(err error) {
	e := q.clientError(err)
	switch {
	case err == errShutdown:
		q.log(slog.LevelInfo, "shutting down", err)
	case e.Status >= 500:
		q.log(slog.LevelError, "request failed", err)
	}
	if q.res.state == stateStreaming {
		q.stream.fail(e)
		q.res.state, q.res.aborted = stateDone, true
		return
	}
	q.setHeaders()
	setErrorHeaders(q.res.w.Header(), e)
	body, status := q.protocol().AppendError(nil, e, q.account.record.ID)
	q.res.replyLocked(status, body)
}

// ended returns why the request has ended, or nil if it has not.
func (q *request) ended() error {
	if q.ctx.Err() == nil {
		return nil
	}
	cause := context.Cause(q.ctx)
	switch {
	case cause == errGone, cause == errShutdown, cause == errSilent:
		return cause
	case errors.Is(q.r.Context().Err(), context.Canceled):
		return errGone
	}
	return cause // such as a deadline that the host set
}

// endedOr returns why the request has ended if it has, and otherwise err. If it
// has, err is a consequence.
func (q *request) endedOr(err error) error {
	if cause := q.ended(); cause != nil {
		return cause
	}
	return err
}

// finish does what is due however the request ended. Each step runs even if
// the one before it panics or calls runtime.Goexit.
func (q *request) finish() {
	defer func() {
		if q.res.aborted {
			panic(http.ErrAbortHandler)
		}
	}()
	defer q.h.leave(q)
	defer q.res.finish()
	defer q.tellObserver()
	defer q.cancel(nil)
	defer q.account.release()
	defer q.account.settle()
	q.idle.stop()
}

func (q *request) tellObserver() {
	if q.end == nil {
		return
	}
	defer q.recoverAndLog("observer panicked")
	q.end(q.summary())
}

func (q *request) summary() *RequestSummary {
	q.res.mu.Lock()
	defer q.res.mu.Unlock()
	s := &RequestSummary{
		UsageRecord: q.account.record,
		Status:      q.res.status, Err: q.res.err, Protocol: q.protocol().Name(), Streamed: q.stream != nil,
		Chunks: q.stats.chunks, FirstChunk: q.stats.firstChunk, Duration: time.Since(q.arrived),
		Target: q.stats.target, Tries: q.stats.tries,
	}
	if s.Err != nil {
		s.Err = q.redactor().err(s.Err)
	}
	return s
}

// try calls a function of the host, and logs an error or a panic.
func (q *request) try(failure string, call func() error) {
	defer q.recoverAndLog(failure)
	if err := call(); err != nil {
		q.log(slog.LevelError, failure, err)
	}
}

// recoverAndLog is to be deferred.
func (q *request) recoverAndLog(failure string) {
	if p := recover(); p != nil {
		q.log(slog.LevelError, failure, newPanicError(p))
	}
}

// log logs what a client is not told. A log handler that panics affects nothing
// else.
func (q *request) log(level slog.Level, msg string, err error) {
	defer func() { _ = recover() }()
	l := q.h.opts.Logger
	if !l.Enabled(q.ctx, level) {
		return
	}
	redact := q.redactor()
	attrs := []slog.Attr{
		slog.String("request_id", q.account.record.ID),
		slog.String("endpoint", string(q.account.record.Endpoint)),
		slog.String("key_id", q.account.record.KeyID),
		slog.String("error", redact.text(errorText(err))),
	}
	if p, ok := errors.AsType[*panicError](err); ok {
		attrs = append(attrs, slog.String("stack", redact.text(string(p.stack))))
	}
	l.LogAttrs(q.ctx, level, msg, attrs...)
}

// Errors that end a request before its Backend does. As causes of the context
// they tell the Backend why.
var (
	errShutdown = &Error{Status: http.StatusServiceUnavailable, RetryAfter: time.Second, Message: "The server is shutting down. Please try again."}
	errSilent   = &Error{Status: http.StatusGatewayTimeout, Message: messageTimeout, Err: context.DeadlineExceeded}
	errGone     = fmt.Errorf("llmhttp: client left: %w", context.Canceled)
)

var (
	errGoexit   = errors.New("llmhttp: runtime.Goexit was called")
	errNilError = errors.New("llmhttp: a nil *Error was returned as an error")
)

// A panicError is a recovered panic.
type panicError struct {
	value any
	stack []byte
}

func newPanicError(p any) *panicError { return &panicError{p, debug.Stack()} }

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

func (e *panicError) Unwrap() error {
	err, _ := e.value.(error)
	return err
}

// newID returns prefix and 128 random bits in hexadecimal.
func newID(prefix string) string {
	var raw [16]byte
	binary.LittleEndian.PutUint64(raw[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(raw[8:], rand.Uint64())
	var id [48]byte
	return string(hex.AppendEncode(append(id[:0], prefix...), raw[:]))
}
