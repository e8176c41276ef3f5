package llmhttp

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Handler serves the API. Its paths begin with /v1; Options.Prefix puts them below
// another path. Its methods may be called concurrently.
//
// A Handler answers every request itself, in the format of the API, and never
// redirects: unknown paths get a 404 in JSON.
type Handler struct {
	backend        Forwarder
	keys           KeyStore
	opts           Options
	prefix         pathPrefix
	routes         routeTable
	concurrent     concurrencyCounter
	quotas         quotaCache
	settleContexts settleContexts
	origins        originPolicy
	anonymous      anonymousCache

	mu      sync.Mutex // guards the fields below
	active  map[*request]struct{}
	closing bool
	drained chan struct{} // closed when closing is set and active is empty
}

// Options configures a [Handler]. The zero value is ready to use.
//
// For durations, zero means the default and a negative value means none: no
// timeout, or no keep-alive.
type Options struct {
	// Prefix is the path below which the host mounts the Handler, such as "/llm" or
	// "/api/llm": clients then use a base URL that ends in /llm/v1. It begins with a
	// slash and does not end with one. Paths outside of it get a 404. If empty, the paths
	// of the Handler begin with /v1.
	//
	// The Pattern of requests, [RequestSummary].Route, log lines and the texts of errors have
	// the Prefix. The requests that a [Protocol] gets have URLs without it.
	Prefix string

	// Usage records what requests used, and answers the usage endpoint within
	// 10 seconds. If nil, usage is not recorded and the endpoint answers 404. A
	// [KeyUsageStore] also answers how much of its [Quota] a key has used. A
	// successful reply is sent only after Record has returned; wrap a slow store
	// with [NewUsageBuffer].
	Usage UsageStore

	// Limiter enforces Key.Limits; if nil, [NewLimiter] does.
	Limiter Limiter

	// Protocols are wire formats for chat to serve besides chat completions.
	Protocols []Protocol

	// Cost returns the cost of usage in US dollars, for the usage endpoint and
	// for Quota.Cost. It must be additive: the costs of several requests are the
	// cost of their sum. If nil, all costs are zero.
	//
	// The Model of a UsageSum is the name that clients use. Where the Backend gives
	// models other names, as routes of package route and the Models of package
	// upstream do, that is the alias and not the model that serves it, so Cost must
	// know the aliases. If the Backend is an [Aliaser], NewHandler logs an error for
	// each alias that seems to have no price: it costs nothing, or what a made-up name
	// costs, and a model that serves it costs something else. Aliases with a "*" are
	// not compared, because Cost gets the names that they stand for.
	Cost func(UsageSum) float64

	// UnknownMembers reports whether a request may have a top-level member for which
	// its format has no field. The Backend gets it in Extra. If the function returns
	// false, the client gets a 400 that names the member. It is also called for
	// parameters that are documented and have no field, such as seed.
	//
	// The function gets names in lower case, because servers may ignore case: Models as
	// models, and topK as topk. U+212A counts as k and U+017F as s. Members that differ
	// from a field only in case never pass, at no level. The function must be safe for
	// concurrent use. If nil, [DefaultUnknownMembers] is used.
	UnknownMembers func(name string) bool

	// TrustedOrigins are the origins of web pages that may use the server without a
	// key, such as "https://app.example.com", and so the names of the server itself:
	// "https://llm.example.com". They only matter for requests that the KeyStore
	// admits without a secret, or with any secret, as [AllowAll] does. Of these, the
	// Handler refuses with a 403 or 415 those that a page of another site may have sent:
	// with another Origin, to another host (by DNS rebinding), or without
	// Content-Type. Pages of the host that the request is for are always trusted, and
	// on loopback those of loopback. Addresses, localhost, and the name of the machine
	// are always known hosts. "*" trusts every page and knows every host. A browser
	// shows replies to pages of other origins only if middleware for CORS allows it.
	TrustedOrigins []string

	// ImageURL stores an image for a client that asked for a URL, and returns the
	// URL. It must not modify data; mediaType is, for example, "image/png". If
	// nil, clients get a data: URL.
	ImageURL func(ctx context.Context, data []byte, mediaType string) (string, error)

	// CountTokens returns the number of tokens of a text. The Handler uses it to
	// reserve tokens before it calls the Backend, and to estimate the usage if
	// the Backend reports none. If nil, four bytes count as one token. Images, audio
	// and files are estimated by their size in any case.
	CountTokens func(model, text string) int

	// ReserveCompletion is how many tokens are reserved from the limits of a key
	// for each choice of a chat whose client sets no max_tokens, and at most what
	// the bucket can hold. What a reply uses beyond it is taken when it has ended,
	// so concurrent requests can together overrun a limit by that much. The default
	// is 512; negative reserves the prompt only.
	ReserveCompletion int

	// Observe is called for every request. Use [Observers] to set several.
	Observe Observer

	// Logger receives what clients do not see: causes of 5xx replies at level
	// Error, mistakes of the Backend at Warn, requests that Shutdown interrupts
	// at Info, and disconnected clients at Debug. The texts of errors can quote
	// requests, but not their API keys. If nil, slog.Default() is used.
	Logger *slog.Logger

	// MaxBody is the maximum size of a request body in bytes. Zero or negative
	// means 16 MiB.
	MaxBody int64

	// MaxReply is the maximum size of a reply of the Backend in bytes: of the texts
	// of a chat, of images or of vectors, all together. A larger one fails with a
	// 502, a stream with an error event. Zero or negative means 64 MiB.
	MaxReply int

	// Timeout is how long the Backend may be silent: until the first chunk,
	// between two chunks, or until a whole response of images or embeddings.
	// The request then fails with a 504. It also limits calls of ImageURL, of the
	// UsageStore for the usage endpoints, and of [Route].Serve, which fail with a 503.
	// The default is 5 minutes.
	Timeout time.Duration

	// KeepAlive is how long a stream may be silent before a comment is written
	// to it, so that proxies do not close it. The default is 15 seconds. If it is
	// negative, nothing is written before the first chunk, so that every error
	// before it has its HTTP status: see Route.StartsEarly.
	KeepAlive time.Duration

	// ReadTimeout is how long a client may pause while it sends a request
	// body. The actual timeout is between one and one and a half times this
	// value. The default is 1 minute. It takes the place of
	// http.Server.ReadTimeout, which limits the duration of the whole upload.
	ReadTimeout time.Duration

	// WriteTimeout is the timeout of each write to a client; a large reply is
	// written in pieces of 32 KiB. The actual timeout is between one and one and
	// a half times this value. A whole reply, and the end of a stream, has this
	// time in all, and in addition the time that it takes at 64 KiB a second. The
	// default is 30 seconds. If it is negative, there is no timeout. It overrides
	// http.Server.WriteTimeout, which is not needed.
	//
	// On HTTP/2, net/http can end a stream only while its connection accepts
	// data. For clients that do not read from their connections,
	// http.HTTP2Config.WriteByteTimeout of the server must be set as well, as [Serve]
	// does.
	WriteTimeout time.Duration

	// RequestID returns the ID of a request, which must be unique for all time:
	// it is also the ID of the UsageRecord. Do not take it from a header that
	// clients control. If nil, or if it returns "", the ID is random.
	RequestID func(*http.Request) string

	// Now returns the time for records, replies and the expiry of keys. If nil,
	// [time.Now] is used.
	Now func() time.Time
}

// The defaults of [Options].
const (
	defaultMaxBody      = 16 << 20
	defaultMaxReply     = 64 << 20
	defaultTimeout      = 5 * time.Minute
	defaultKeepAlive    = 15 * time.Second
	defaultReadTimeout  = time.Minute
	defaultWriteTimeout = 30 * time.Second

	defaultReserveCompletion = 512
)

// maxDuration can be added to any time without overflow.
const maxDuration = 100 * 365 * 24 * time.Hour

// withDefaults returns o with its defaults filled in.
func (o *Options) withDefaults() Options {
	n := Options{}
	if o != nil {
		n = *o
	}
	if n.Limiter == nil {
		n.Limiter = NewLimiter()
	}
	n.Logger = cmp.Or(n.Logger, slog.Default())
	if n.UnknownMembers == nil {
		n.UnknownMembers = DefaultUnknownMembers
	}
	if n.MaxBody <= 0 {
		n.MaxBody = defaultMaxBody
	}
	n.MaxBody = min(n.MaxBody, 1<<40)
	if n.MaxReply <= 0 {
		n.MaxReply = defaultMaxReply
	}
	n.ReserveCompletion = max(cmp.Or(n.ReserveCompletion, defaultReserveCompletion), 0)
	n.Timeout = min(cmp.Or(n.Timeout, defaultTimeout), maxDuration)
	n.KeepAlive = min(cmp.Or(n.KeepAlive, defaultKeepAlive), maxDuration)
	n.ReadTimeout = min(cmp.Or(n.ReadTimeout, defaultReadTimeout), maxDuration)
	n.WriteTimeout = min(cmp.Or(n.WriteTimeout, defaultWriteTimeout), maxDuration)
	return n
}

// NewHandler returns a Handler that answers requests with b, for the keys in
// keys. The Handler keeps a copy of opts; nil means the zero Options.
//
// NewHandler panics if b, keys or a Protocol is nil, if the Prefix or one of the
// TrustedOrigins is malformed, if a Route has not exactly one of Chat and Serve, or if two Routes
// serve the same path. Use [AllowAll] to serve without keys.
func NewHandler(b Backend, keys KeyStore, opts *Options) *Handler {
	if b == nil {
		panic("llmhttp: nil Backend")
	}
	if keys == nil {
		panic("llmhttp: nil KeyStore")
	}
	h := &Handler{
		backend: Forwarder{b},
		keys:    keys,
		opts:    opts.withDefaults(),
		active:  make(map[*request]struct{}),
	}
	h.prefix = pathPrefix(h.opts.Prefix)
	h.prefix.check()
	h.origins = newOriginPolicy(h.opts.TrustedOrigins)
	h.quotas = quotaCache{store: h.opts.Usage, cost: h.opts.Cost, entries: make(map[quotaID]*quotaEntry)}
	h.addEndpoints()
	for _, p := range h.opts.Protocols {
		if p == nil {
			panic("llmhttp: nil Protocol")
		}
		h.addProtocol(p)
	}
	h.checkAliases()
	return h
}

// checkAliases logs the aliases of models that Options.Cost seems not to know. It skips
// patterns.
func (h *Handler) checkAliases() {
	if h.opts.Cost == nil {
		return
	}
	aliases := h.backend.Aliases()
	if len(aliases) == 0 {
		return
	}
	free, unknown := prices{}, h.prices("a model that does not exist")
	for _, alias := range slices.Sorted(maps.Keys(aliases)) {
		p := h.prices(alias)
		if strings.Contains(alias, "*") || p != free && p != unknown {
			continue
		}
		for _, model := range aliases[alias] {
			if h.prices(model) != p {
				h.opts.Logger.Error("an alias costs nothing or a default price, and not what the model that serves it costs: Options.Cost gets the name of the alias", "alias", alias, "model", model)
			}
		}
	}
}

// prices are what a million tokens of a prompt, a million of a completion, and an image
// cost, each with a request.
type prices [3]float64

// prices returns the prices of a model by Options.Cost.
func (h *Handler) prices(model string) prices {
	const million = 1_000_000
	return prices{
		h.opts.Cost(UsageSum{Model: model, Requests: 1, PromptTokens: million}),
		h.opts.Cost(UsageSum{Model: model, Requests: 1, CompletionTokens: million}),
		h.opts.Cost(UsageSum{Model: model, Requests: 1, Images: 1}),
	}
}

// ServeHTTP serves one request. It sets the Pattern of r to that of the route, with
// Options.Prefix, such as "POST /v1/chat/completions".
//
// If a stream fails after it began, ServeHTTP panics with
// [http.ErrAbortHandler], so that net/http cuts the connection: clients take a
// clean end for a complete reply. Middleware that recovers from panics must let
// that value pass. In formats whose Route.FailsCleanly is set, the stream ends
// cleanly unless its client has left. ServeHTTP recovers from every panic of the
// Backend, the stores and the Observer.
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
// As with the errors of a [Backend], the client sees the text of an [*Error] only, and
// Options.Logger gets the cause of a 5xx. A nil err is a 500. Observers are not called.
// Like ServeHTTP, WriteError sets the Pattern of r, and closes an HTTP/1 connection if r has a
// body, because it may not have been read.
func (h *Handler) WriteError(w http.ResponseWriter, r *http.Request, err error) {
	q := newRequest(h, w, r)
	defer q.finish()
	q.run(func() error {
		q.identify(cmp.Or(w.Header().Get(headerRequestID), newID("req_")))
		q.findRoute() // only for the protocol
		q.cred.secret = q.protocol.Secret(q.routed)
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
// them, and before [UsageBuffer.Close], which needs another context, because ctx may be
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
	select {
	case <-drained:
		return 0, nil
	default:
	}
	select {
	case <-drained:
		return 0, nil
	case <-ctx.Done():
	}
	interrupted = h.interruptActive()
	grace := time.NewTimer(interruptGrace)
	defer grace.Stop()
	select {
	case <-drained:
	case <-grace.C:
	}
	return interrupted, ctx.Err()
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
			q.failures.interrupt(errShutdown)
		}()
	}
	return len(h.active)
}

// addEndpoints adds the endpoints that every Handler serves.
func (h *Handler) addEndpoints() {
	chat := chatCompletions{}
	h.addProtocol(chat)
	for _, rt := range []*route{
		h.newRoute(chat, "POST /v1/images/generations", EndpointImages, OperationImages, serveImages),
		h.newRoute(chat, "POST /v1/embeddings", EndpointEmbeddings, OperationEmbeddings, serveEmbeddings),
		h.newRoute(chat, "GET /v1/models", EndpointModels, "", serveModels),
		h.newRoute(chat, "GET /v1/models/{id...}", EndpointModels, "", serveModel),
		h.newRoute(chat, "GET /v1/dashboard/billing/usage", EndpointUsage, "", serveUsage),
		h.newRoute(chat, "GET /dashboard/billing/usage", EndpointUsage, "", serveUsage),
		h.newRoute(chat, "GET /v1/dashboard/billing/subscription", EndpointUsage, "", serveSubscription),
		h.newRoute(chat, "GET /dashboard/billing/subscription", EndpointUsage, "", serveSubscription),
	} {
		h.routes.add(rt)
	}
}

// addProtocol adds the routes of a Protocol.
func (h *Handler) addProtocol(p Protocol) {
	for _, rt := range p.Routes() {
		if (rt.Chat == nil) == (rt.Serve == nil) {
			panic("llmhttp: a route must have either Chat or Serve: " + rt.Pattern)
		}
		op, serve := OperationChat, func(q *request) error { return q.chat.serve(rt.Chat) }
		if rt.Chat == nil {
			op, serve = "", func(q *request) error { return serveOther(q, rt.Serve) }
		}
		added := h.newRoute(p, rt.Pattern, rt.Endpoint, op, serve)
		added.match, added.startsEarly, added.failsCleanly, added.countsTokens = rt.Match, rt.StartsEarly, rt.FailsCleanly, rt.CountsTokens
		h.routes.add(added)
	}
}

// findRoute returns the route that serves r, and r as the route sees it. If no route does, the
// error is the one that the client gets: 405 for a path that has other methods, and otherwise
// 404.
func (h *Handler) findRoute(r *http.Request) (rt *route, routed *http.Request, err error) {
	routed, inside := h.prefix.strip(r)
	var allowed []string
	if inside {
		rt, allowed = h.routes.find(routed)
	}
	switch {
	case rt != nil:
		return rt, routed, nil
	case allowed != nil:
		e := Errorf(http.StatusMethodNotAllowed, "", "Not allowed to %s on %s. (HINT: Perhaps you meant to use a different HTTP method?)",
			echo(r.Method), echo(r.URL.Path))
		e.Err = allowedMethods(allowed)
		return nil, routed, e
	}
	e := errUnknownURL(r)
	if isKnownPath(routed.URL.Path) || !inside && strings.HasPrefix(r.URL.Path, "/v1/") {
		e.Message += ". This server does not serve it. It serves " + strings.Join(h.servedPatterns(), ", ") + "."
	}
	return nil, routed, e
}

func errUnknownURL(r *http.Request) *Error {
	return Errorf(http.StatusNotFound, "", "Invalid URL (%s %s)", echo(r.Method), echo(r.URL.Path))
}

// knownPaths are the paths below /v1/ of APIs that clients may expect of any
// server of this kind. A path below one of them is known too.
var knownPaths = []string{
	"assistants", "audio", "batches", "completions", "containers", "conversations", "embeddings", "evals", "files", "fine_tuning",
	"images", "messages", "moderations", "organization", "realtime", "rerank", "responses", "threads", "uploads", "vector_stores", "videos",
}

func isKnownPath(path string) bool {
	rest, ok := strings.CutPrefix(path, "/v1/")
	if !ok {
		return false
	}
	first, _, _ := strings.Cut(rest, "/")
	return slices.Contains(knownPaths, first)
}

// servedPatterns returns the patterns of the routes, except those of optional methods that
// the Backend does not have, and those that exist only for some requests.
func (h *Handler) servedPatterns() []string {
	_, images := h.backend.Backend.(ImageGenerator)
	_, embeddings := h.backend.Backend.(Embedder)
	_, models := h.backend.Backend.(ModelLister)
	lacks := map[Endpoint]bool{EndpointImages: !images, EndpointEmbeddings: !embeddings, EndpointModels: !models}
	var patterns []string
	for _, list := range h.routes.exact {
		for _, rt := range list {
			if !lacks[rt.endpoint] && rt.match == nil && !slices.Contains(patterns, rt.pattern) {
				patterns = append(patterns, rt.pattern)
			}
		}
	}
	slices.Sort(patterns)
	return patterns
}

// allowedMethods is the cause of a 405. Its text is the value of the header Allow.
type allowedMethods []string

func (e allowedMethods) Error() string {
	methods := slices.Clone(e)
	slices.Sort(methods)
	s := strings.Join(slices.Compact(methods), ", ")
	return strings.Replace(s, http.MethodGet, "GET, HEAD", 1)
}

// A routeTable finds the route of a request.
type routeTable struct {
	exact     map[string][]*route // routes without wildcards, by path
	wildcards []*route
}

// add adds a route. It panics if another one serves the same requests. A path without
// wildcards may be one of those that a path with wildcards stands for, and comes before it.
func (t *routeTable) add(rt *route) {
	path := strings.Join(rt.segments, "/")
	if strings.Contains(path, "{") {
		rt.checkConflict(t.wildcards)
		t.wildcards = insertRoute(t.wildcards, rt)
		return
	}
	rt.checkConflict(t.exact[path])
	if t.exact == nil {
		t.exact = make(map[string][]*route)
	}
	t.exact[path] = insertRoute(t.exact[path], rt)
}

// checkConflict panics if one of others serves a request that rt serves too. Routes with a
// match decide for themselves.
func (rt *route) checkConflict(others []*route) {
	for _, other := range others {
		if other.method == rt.method && other.match == nil && rt.match == nil && overlap(other.segments, rt.segments) {
			panic(fmt.Sprintf("llmhttp: two routes serve one path: %s and %s", other.pattern, rt.pattern))
		}
	}
}

// overlap reports whether there is a path that matches both a and b.
func overlap(a, b []string) bool {
	for i := range min(len(a), len(b)) {
		switch x, y := a[i], b[i]; {
		case strings.HasSuffix(x, "...}") || strings.HasSuffix(y, "...}"):
			return true // each of them has a segment here
		case isWildcard(x) && y != "" || isWildcard(y) && x != "":
		case x != y:
			return false
		}
	}
	return len(a) == len(b)
}

func isWildcard(segment string) bool { return strings.HasPrefix(segment, "{") }

// insertRoute adds a route. Those with a match come before the others.
func insertRoute(routes []*route, rt *route) []*route {
	if rt.match == nil {
		return append(routes, rt)
	}
	return append([]*route{rt}, routes...)
}

// find returns the route for the method and the path of r. If the path has only routes
// for other methods, it returns nil and these methods.
func (t *routeTable) find(r *http.Request) (rt *route, allowed []string) {
	path := r.URL.Path
	if strings.Contains(r.URL.RawPath, "%2F") || strings.Contains(r.URL.RawPath, "%2f") {
		path = r.URL.RawPath // an escaped slash belongs to a model ID
	}
	for _, rt := range t.exact[path] {
		switch {
		case !rt.matches(r):
		case rt.allows(r.Method):
			return rt, nil
		default:
			allowed = append(allowed, rt.method)
		}
	}
	for _, rt := range t.wildcards {
		values, ok := rt.matchPath(r.URL.EscapedPath())
		switch {
		case !ok || !rt.matches(r):
		case rt.allows(r.Method):
			rt.setPathValues(r, values)
			return rt, nil
		default:
			allowed = append(allowed, rt.method)
		}
	}
	return nil, allowed
}

// nearestProtocol returns the protocol in whose form a request without a route is refused:
// that of the route whose path, up to its wildcards, is the longest beginning of the path of
// r, or nil if there is none.
func (t *routeTable) nearestProtocol(r *http.Request) Protocol {
	var nearest *route
	length := 0
	consider := func(rt *route) {
		prefix, _, _ := strings.Cut(strings.Join(rt.segments, "/"), "/{")
		below := r.URL.Path == prefix || strings.HasPrefix(r.URL.Path, prefix+"/")
		isNearer := nearest == nil || len(prefix) > length || len(prefix) == length && rt.match != nil && nearest.match == nil
		if below && isNearer && rt.matches(r) {
			nearest, length = rt, len(prefix)
		}
	}
	for _, routes := range t.exact {
		for _, rt := range routes {
			consider(rt)
		}
	}
	for _, rt := range t.wildcards {
		consider(rt)
	}
	if nearest == nil {
		return nil
	}
	return nearest.protocol
}

// A route is a Route of a Protocol, or an endpoint of the Handler itself.
type route struct {
	pattern      string // with Options.Prefix
	method       string
	segments     []string // of the path without Options.Prefix; the first is empty
	endpoint     Endpoint
	operation    Operation // empty if no model is called
	protocol     Protocol
	match        func(r *http.Request) bool // nil if it serves every request
	startsEarly  bool                       // Route.StartsEarly
	failsCleanly bool                       // Route.FailsCleanly
	countsTokens bool                       // Route.CountsTokens
	serve        func(q *request) error
}

// newRoute parses a pattern. It panics if the pattern is malformed.
func (h *Handler) newRoute(p Protocol, pattern string, e Endpoint, op Operation, serve func(q *request) error) *route {
	method, path, ok := strings.Cut(pattern, " ")
	if !ok || !strings.HasPrefix(path, "/") {
		panic("llmhttp: the pattern of a route must be a method and a path: " + pattern)
	}
	pattern = method + " " + h.opts.Prefix + path
	return &route{pattern: pattern, method: method, segments: strings.Split(path, "/"), endpoint: e, operation: op, protocol: p, serve: serve}
}

// matches reports whether the route exists for r.
func (rt *route) matches(r *http.Request) bool { return rt.match == nil || rt.match(r) }

// allows reports whether the route serves requests of the given method.
func (rt *route) allows(method string) bool {
	return method == rt.method || method == http.MethodHead && rt.method == http.MethodGet
}

// matchPath reports whether the route serves an escaped path, and returns the
// unescaped values of its wildcards in their order.
func (rt *route) matchPath(path string) (values []string, ok bool) {
	last := len(rt.segments) - 1
	for i, segment := range rt.segments {
		var got string
		if strings.HasSuffix(segment, "...}") {
			got, path = path, ""
		} else {
			var more bool
			if got, path, more = strings.Cut(path, "/"); more != (i < last) {
				return nil, false
			}
		}
		if !isWildcard(segment) {
			if got != segment {
				return nil, false
			}
			continue
		}
		value, err := url.PathUnescape(got)
		if err != nil || value == "" {
			return nil, false
		}
		values = append(values, value)
	}
	return values, true
}

// setPathValues makes the values of the wildcards available to
// [http.Request.PathValue].
func (rt *route) setPathValues(r *http.Request, values []string) {
	for _, segment := range rt.segments {
		if name, ok := strings.CutPrefix(segment, "{"); ok {
			name = strings.TrimSuffix(strings.TrimSuffix(name, "}"), "...")
			r.SetPathValue(name, values[0])
			values = values[1:]
		}
	}
}
