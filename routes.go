package llmhttp

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

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
