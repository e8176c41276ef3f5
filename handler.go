// Handler, NewHandler, Shutdown and WriteError.

package llmhttp

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp/internal/budget"
	"github.com/llmhttp/llmhttp/internal/exchange"
	"github.com/llmhttp/llmhttp/internal/option"
	"github.com/llmhttp/llmhttp/internal/origin"
	"github.com/llmhttp/llmhttp/internal/outage"
	"github.com/llmhttp/llmhttp/internal/randomid"
	"github.com/llmhttp/llmhttp/internal/routing"
)

// A Handler serves the API. Its paths begin with /v1, except for a few such as /v2/rerank; Options.Prefix puts them below
// another path. Its methods may be called concurrently.
//
// A Handler answers every request itself, in the format of the API, and never
// redirects: unknown paths get a 404 in JSON. It serves a request in this order:
//
//  1. It gets an ID, which the client sees as x-request-id. The Observer is called.
//  2. The route is found by method and path (else 404 or 405), and the key by the secret that the
//     request presents (401). The key must have the scope of the operation (403), and the Backend,
//     or what it wraps, its method (404).
//  3. The request is counted as one in progress, and one request is taken from the limits of the
//     key and of its Subjects (429).
//  4. The body is read, decoded and validated (400). The key must allow the model (404). The same is
//     then taken from the limits of the end user, if the key has PerUser.
//  5. An estimate of the tokens is reserved from the limits of all of them (429). A request that is
//     refused by any of the checks so far takes nothing from any limit.
//  6. The Backend is called. Its chunks are put in valid order, encoded and sent.
//  7. The tokens that were reserved are corrected to those used, and the usage is recorded. A
//     successful reply ends only after that.
//  8. The Ended function of the Observation is called.
type Handler struct {
	backend   Backend
	keys      KeyStore
	opts      Options
	prefix    routing.Prefix
	routes    routing.Table[*boundRoute]
	exchange  exchange.Options
	books     books
	origins   *origin.Policy
	anonymous anonymousCache
	outages   outage.Log

	mu      sync.Mutex // guards the fields below
	active  map[*request]struct{}
	closing bool
	drained chan struct{} // closed when closing is set and active is empty
}

// NewHandler returns a Handler that answers requests with b, for the keys in
// keys. The Handler keeps a copy of opts; nil means the zero Options.
//
// It logs a line at Info if b has methods of endpoints of this module that the host does not mount. For
// that it calls the Unwrap of wrappers with a context that belongs to no request.
//
// NewHandler panics if b, keys or a Protocol is nil, if an interface in opts holds a nil pointer, if
// the Prefix or one of the TrustedOrigins is malformed, if a Protocol has no name, if a Route has no Binding
// or a malformed Pattern, or if two Routes serve the same requests. Use [AllowAll] to serve without keys.
func NewHandler(b Backend, keys KeyStore, opts *Options) *Handler {
	if option.IsNil(b) {
		panic("llmhttp: nil Backend")
	}
	if option.IsNil(keys) {
		panic("llmhttp: nil KeyStore")
	}
	if err := option.CheckInterfaces(opts); err != nil {
		panic("llmhttp: " + err.Error())
	}
	h := &Handler{
		backend: b,
		keys:    keys,
		opts:    opts.withDefaults(),
		active:  make(map[*request]struct{}),
	}
	h.exchange = exchange.Options{
		ReadTimeout: max(h.opts.Bounds.ReadTimeout, 0), WriteTimeout: max(h.opts.Bounds.WriteTimeout, 0),
		KeepAlive: max(h.opts.Bounds.KeepAlive, 0), Timeout: max(h.opts.Bounds.Timeout, 0), Shutdown: errShutdown,
	}
	h.prefix = routing.Prefix(h.opts.Prefix)
	if err := h.prefix.Check(); err != nil {
		panic("llmhttp: Options.Prefix " + err.Error())
	}
	var err error
	if h.origins, err = origin.NewPolicy(h.opts.Accept.TrustedOrigins); err != nil {
		panic("llmhttp: Options.Accept.TrustedOrigins " + err.Error())
	}
	if err := h.opts.Limits.Validate(); err != nil {
		panic("llmhttp: Options." + err.Error())
	}
	h.books = books{
		limiter: h.opts.Limiter, keyLimits: h.opts.Limits, store: h.opts.Usage, price: h.opts.Price, countTokens: h.opts.Estimates.TextTokens,
	}
	h.books.quotas = budget.NewCache(h.books.sumQuota)
	h.addProtocol(chatCompletions{})
	for i, rt := range h.opts.Routes {
		h.addRoute(chatCompletions{}, rt, fmt.Sprintf("Options.Routes[%d]", i))
	}
	for i, p := range h.opts.Protocols {
		if option.IsNil(p) {
			panic(fmt.Sprintf("llmhttp: Options.Protocols[%d] is nil", i))
		}
		h.addProtocol(p)
	}
	h.logUnmounted()
	return h
}

// ServeHTTP serves one request. It sets the Pattern of r to that of the route, with
// Options.Prefix, such as "POST /v1/chat/completions".
//
// If a stream fails after it began, ServeHTTP panics with
// [http.ErrAbortHandler], so that net/http cuts the connection: clients take a
// clean end for a complete reply. Middleware that recovers from panics must let
// that value pass: if it does not, the client gets the error event and no [DONE], and the connection
// ends normally. In formats whose Framing.EndsCleanly is set, the stream ends cleanly unless its client
// has left. If Shutdown or a timeout interrupts a Backend that ignores its context, the client gets
// the error event at once, and the end of the stream when the Backend returns. ServeHTTP recovers
// from every panic of the Backend, the stores and the Observer.
//
// ServeHTTP flushes each chunk by an [http.ResponseController]. It cannot know whether middleware
// buffers the reply, which delays streams.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := newRequest(h, w, r)
	defer q.finish()
	q.run(q.serve)
}

// WriteError replies to r with err, as ServeHTTP does if a request fails before its body is
// read: in the format of the protocol that serves the path of r, or of the nearest one, with
// an ID of Options.RequestID and with the headers of the protocol. It is for middleware in
// front of the Handler that refuses requests. Nothing may have been written to w. A header
// X-Request-Id that w has is the ID if Options.RequestID is nil.
//
// As with the errors of a [Backend], the client sees the text of an [*llm.Error] only, and
// Options.Logger gets the cause of a 5xx. A nil err is a 500. Observers are not called.
// Like ServeHTTP, WriteError sets the Pattern of r, and closes an HTTP/1 connection if r has a
// body, because it may not have been read.
func (h *Handler) WriteError(w http.ResponseWriter, r *http.Request, err error) {
	q := newRequest(h, w, r)
	defer q.finish()
	q.run(func() error {
		q.identify(cmp.Or(w.Header().Get(headerRequestID), randomid.New("req_")))
		q.findRoute() // only for the protocol
		q.cred.set(q.protocol().Secret(q.routed))
		return cmp.Or(err, errNoError)
	})
}

// enter adds q to the active requests. It reports false and adds nothing if the Handler
// is shutting down.
func (h *Handler) enter(q *request) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closing {
		return false
	}
	h.active[q] = struct{}{}
	return true
}

// leave removes q from the active requests.
func (h *Handler) leave(q *request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.active[q]; !ok {
		return
	}
	delete(h.active, q)
	if h.closing && len(h.active) == 0 {
		close(h.drained)
	}
}

// interruptGrace is how long Shutdown waits for requests that it interrupted.
const interruptGrace = time.Second

// Shutdown refuses new requests with 503 and waits until the active ones have
// ended and their usage is recorded. When ctx is done it interrupts those that
// remain: streams end with an error event, other requests get a 503. It then
// gives their Backends a second to return, and returns ctx's error.
//
// [Serve] calls it in the right order with what else a server must stop. A host that
// stops its server in another way calls Shutdown itself: before
// [http.Server.Shutdown] has returned, which waits for streams without interrupting
// them, and before closing Options.Usage, which needs another context, because ctx may be
// done. It may be called several times.
//
// A host that cancels the context of its requests, such as a BaseContext from
// [os/signal.NotifyContext], ends them at once: their Backends see the
// cancellation, and clients that are still there get the same replies.
func (h *Handler) Shutdown(ctx context.Context) error {
	_, err := h.drain(ctx)
	return err
}

// drain is Shutdown. It also returns how many requests it has interrupted.
func (h *Handler) drain(ctx context.Context) (interrupted int, err error) {
	drained := h.refuseRequests()
	if awaitClosed(ctx, drained) {
		return 0, nil
	}
	interrupted = h.interruptActive()
	grace, cancel := context.WithTimeout(context.Background(), interruptGrace)
	defer cancel()
	awaitClosed(grace, drained)
	return interrupted, ctx.Err()
}

// awaitClosed waits until c is closed or ctx is done, and reports whether c is closed.
func awaitClosed(ctx context.Context, c <-chan struct{}) bool {
	select {
	case <-c:
	case <-ctx.Done():
	}
	return isClosed(c)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// awaitDrained waits until no request is active or ctx is done, and returns how many are
// active. The Handler must be refusing requests.
func (h *Handler) awaitDrained(ctx context.Context) int {
	select {
	case <-h.refuseRequests():
	case <-ctx.Done():
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.active)
}

// refuseRequests makes the Handler refuse new requests, and returns a channel that is closed
// when none is active.
func (h *Handler) refuseRequests() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closing {
		h.closing = true
		h.drained = make(chan struct{})
		if len(h.active) == 0 {
			close(h.drained)
		}
	}
	return h.drained
}

// interruptActive interrupts each active request on a goroutine of its own, as
// one may be stuck in a write to a slow client. It returns their number.
func (h *Handler) interruptActive() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	for q := range h.active {
		go func() {
			defer q.log.recoverAndLog("interrupting a request failed")
			q.client.Interrupt()
		}()
	}
	return len(h.active)
}
