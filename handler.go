package llmhttp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"sync"
	"time"
)

// A Handler serves the API under /v1. To serve it elsewhere, use
// [http.StripPrefix]. Its methods may be called concurrently.
//
// A Handler answers every request itself, in the form of the API, and never
// redirects: what it does not know is a 404. A mux in front of it may.
type Handler struct {
	backend Forwarder
	keys    KeyStore
	keyless bool
	opts    Options
	inUse   gauge
	clock   clock

	mu      sync.Mutex
	active  *exchange // the first of a list
	closing bool
	drained chan struct{} // closed when closing and nothing is active
}

// Options configure a [Handler], which keeps a copy. The zero value is ready
// to use.
type Options struct {
	// Usage records what was used, and reports it; if nil, nobody does and
	// that endpoint is not found. A client has its whole reply only when Record
	// has returned, so a store that is not quick is best wrapped by
	// [NewUsageBuffer].
	Usage UsageStore

	// Limiter enforces Key.Limits; if nil, NewLimiter() does.
	Limiter Limiter

	// Cost tells what usage costs in US dollars, for the usage endpoint; if
	// nil, everything is free.
	Cost func(UsageSum) float64

	// ImageURL puts an image that a client wants by address somewhere, and
	// returns where. If nil, the client gets a data: URL. The mediaType is of
	// the form "image/png"; data must not be changed.
	ImageURL func(ctx context.Context, data []byte, mediaType string) (string, error)

	// CountTokens counts the tokens of a text, to estimate what a request will
	// use, before the Backend has it, and what it used where the Backend
	// reports no Usage. If nil, four bytes count as a token.
	CountTokens func(model, text string) int

	// Observe is told of every request. See also [Observers].
	Observe Observer

	// Logger gets what clients are not told; if nil, slog.Default() does. No
	// secret and nothing of a request's body is logged.
	Logger *slog.Logger

	// MaxBody bounds a request's body, in bytes; zero or negative means 16 MiB.
	MaxBody int64

	// Timeout is how long a Backend may be silent: until the first chunk, from
	// one to the next, or until a whole answer of images or vectors. Zero or
	// negative means 5 minutes.
	Timeout time.Duration

	// KeepAlive is how long a stream is silent before it gets a line of comment,
	// which keeps proxies from closing it. Zero means 15 s, negative never.
	KeepAlive time.Duration

	// WriteTimeout bounds each write to a client, in the place of http.Server's,
	// which would cut streams. That is to be set all the same: without it, short
	// replies have no bound, as net/http writes them when the Handler has
	// returned. A write gets at least this and at most half as much again. Zero
	// or negative means 30 s.
	WriteTimeout time.Duration

	// RequestID names a request; the name must be unique for all time, as it is
	// the UsageRecord's ID too. If nil, or if it returns "", the name is random.
	RequestID func(*http.Request) string

	// Now tells the time for records, replies and the expiry of keys; if nil,
	// time.Now does.
	Now func() time.Time
}

// NewHandler returns a Handler that answers the requests keys admits with b.
// If opts is nil, it is as if it were zero.
//
// It panics if b or keys is nil: serving without keys takes [AllowAll].
func NewHandler(b Backend, keys KeyStore, opts *Options) *Handler {
	if b == nil {
		panic("llmhttp: nil Backend")
	}
	if keys == nil {
		panic("llmhttp: nil KeyStore")
	}
	h := &Handler{backend: Forwarder{b}, keys: keys}
	_, h.keyless = keys.(*allowAll)
	if opts != nil {
		h.opts = *opts
	}
	o := &h.opts
	if o.Limiter == nil {
		o.Limiter = NewLimiter()
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.MaxBody <= 0 {
		o.MaxBody = 16 << 20
	}
	if o.Timeout <= 0 {
		o.Timeout = 5 * time.Minute
	}
	if o.KeepAlive == 0 {
		o.KeepAlive = 15 * time.Second
	}
	if o.WriteTimeout <= 0 {
		o.WriteTimeout = 30 * time.Second
	}
	for _, d := range []*time.Duration{&o.Timeout, &o.KeepAlive, &o.WriteTimeout} {
		*d = min(*d, forever)
	}
	h.clock.start(o)
	return h
}

// forever is longer than any process runs, and can be added to any time.
const forever = 100 * 365 * 24 * time.Hour

// ServeHTTP serves a request of the API.
//
// If a stream fails after it began, ServeHTTP panics with
// [http.ErrAbortHandler], which is how net/http cuts a connection: a clean end
// would pass for a complete reply. It recovers from every panic of the
// Backend, the stores and the Observer's end.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := newExchange(h, w, r)
	defer x.finish()
	if err := x.serve(); err != nil {
		x.fail(err)
	}
}

// serve takes a request from its arrival to the reply's last byte, or to what
// went wrong.
func (x *exchange) serve() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = newPanicError(p)
		}
	}()
	x.identify()
	x.observe()
	if !x.h.enter(x) {
		return errShutdown
	}
	endpoint, serve, err := route(x.r)
	if err != nil {
		return err
	}
	if err := x.authenticate(); err != nil {
		return err
	}
	x.record.Endpoint = endpoint
	if !x.key.AllowsEndpoint(endpoint) {
		return Errorf(http.StatusForbidden, "missing_scope",
			"You have insufficient permissions for this operation. Missing scope: %s.", endpoint)
	}
	return serve(x)
}

const (
	pathUsage  = "/v1/dashboard/billing/usage"
	pathModels = "/v1/models"
)

// route finds what serves r. It looks at the path as it was sent, since a
// model's ID may have an escaped slash.
func route(r *http.Request) (Endpoint, func(*exchange) error, error) {
	var endpoint Endpoint
	var serve func(*exchange) error
	method := http.MethodGet
	p := r.URL.Path
	if raw := r.URL.RawPath; strings.Contains(raw, "%2F") || strings.Contains(raw, "%2f") {
		p = raw // an escaped slash is none
	}
	switch p {
	case "/v1/chat/completions":
		endpoint, serve, method = EndpointChat, (*exchange).chat, http.MethodPost
	case "/v1/images/generations":
		endpoint, serve, method = EndpointImages, (*exchange).images, http.MethodPost
	case "/v1/embeddings":
		endpoint, serve, method = EndpointEmbeddings, (*exchange).embeddings, http.MethodPost
	case pathModels:
		endpoint, serve = EndpointModels, (*exchange).models
	case pathUsage, strings.TrimPrefix(pathUsage, "/v1"):
		endpoint, serve = EndpointUsage, (*exchange).usage
	default:
		if _, ok := modelID(r.URL); !ok {
			return "", nil, errUnknownURL(r)
		}
		endpoint, serve = EndpointModels, (*exchange).model
	}
	if r.Method != method && (method != http.MethodGet || r.Method != http.MethodHead) {
		e := Errorf(http.StatusMethodNotAllowed, "",
			"Not allowed to %s on %s. (HINT: Perhaps you meant to use a different HTTP method?)", echo(r.Method), echo(r.URL.Path))
		e.Err = &wrongMethod{allow: method}
		return "", nil, e
	}
	return endpoint, serve, nil
}

// modelID returns the ID in the path of a model, which may have slashes.
func modelID(u *url.URL) (string, bool) {
	escaped, ok := strings.CutPrefix(u.EscapedPath(), pathModels+"/")
	if !ok || escaped == "" {
		return "", false
	}
	id, err := url.PathUnescape(escaped)
	return id, err == nil
}

// A wrongMethod is the cause of a 405, whose reply says what is allowed.
type wrongMethod struct{ allow string }

func (e *wrongMethod) allows() string {
	if e.allow == http.MethodGet {
		return "GET, HEAD"
	}
	return e.allow
}

func (e *wrongMethod) Error() string { return "allowed: " + e.allows() }

func errUnknownURL(r *http.Request) *Error {
	return Errorf(http.StatusNotFound, "", "Invalid URL (%s %s)", echo(r.Method), echo(r.URL.Path))
}

// enter admits x as active, unless the Handler is shutting down.
func (h *Handler) enter(x *exchange) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closing {
		return false
	}
	x.entered = true
	if x.next = h.active; x.next != nil {
		x.next.prev = x
	}
	h.active = x
	return true
}

func (h *Handler) leave(x *exchange) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !x.entered {
		return
	}
	if x.next != nil {
		x.next.prev = x.prev
	}
	if x.prev != nil {
		x.prev.next = x.next
	} else {
		h.active = x.next
	}
	x.next, x.prev = nil, nil
	if h.closing && h.active == nil {
		close(h.drained)
	}
}

// shutdownGrace is how long Shutdown waits for requests that it has ended.
const shutdownGrace = time.Second

// Shutdown refuses new requests with 503 and waits for those in progress,
// including the recording of their usage. When ctx is done it ends the streams
// still open with an error event, answers the rest with 503, gives their
// Backends a second to return and returns ctx's error. Call it before
// [http.Server.Shutdown], which never interrupts a stream. It may be called
// again.
func (h *Handler) Shutdown(ctx context.Context) error {
	h.mu.Lock()
	if !h.closing {
		h.closing = true
		h.drained = make(chan struct{})
		if h.active == nil {
			close(h.drained)
		}
	}
	h.mu.Unlock()
	select {
	case <-h.drained:
		return nil
	default:
	}
	select {
	case <-h.drained:
		return nil
	case <-ctx.Done():
	}
	h.mu.Lock()
	for x := h.active; x != nil; x = x.next {
		// Each on its own: one may be stuck in a write to a slow client.
		go x.interrupt(errShutdown)
	}
	h.mu.Unlock()
	grace := time.NewTimer(shutdownGrace)
	defer grace.Stop()
	select {
	case <-h.drained:
	case <-grace.C:
	}
	return ctx.Err()
}

// What ends a request before its Backend does. As causes of the context they
// tell Backends why.
var (
	errShutdown = &Error{Status: http.StatusServiceUnavailable, RetryAfter: time.Second, Message: "The server is shutting down. Please try again."}
	errSilent   = &Error{Status: http.StatusGatewayTimeout, Message: "The model did not answer in time.", Err: context.DeadlineExceeded}
	errGone     = fmt.Errorf("llmhttp: client left: %w", context.Canceled)
)

// statusGone is what an RequestSummary has for a client that left before it was told
// a status. Nobody receives it.
const statusGone = 499

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

// log tells the Logger of what a client is not told.
func (x *exchange) log(level slog.Level, msg string, err error) {
	l := x.h.opts.Logger
	if !l.Enabled(&x.ctx, level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("request_id", x.record.ID),
		slog.String("endpoint", string(x.record.Endpoint)),
		slog.String("key_id", x.record.KeyID),
		slog.String("error", scrub(x.r, errorText(err))),
	}
	if p, ok := errors.AsType[*panicError](err); ok {
		attrs = append(attrs, slog.String("stack", scrub(x.r, string(p.stack))))
	}
	l.LogAttrs(&x.ctx, level, msg, attrs...)
}
