package llmhttp

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"github.com/llmhttp/llmhttp/internal/endpoints"
	"github.com/llmhttp/llmhttp/internal/option"
	"github.com/llmhttp/llmhttp/internal/param"
	"github.com/llmhttp/llmhttp/llm"
)

// addProtocol adds the routes of a Protocol. It panics if the Protocol has no name.
func (h *Handler) addProtocol(p Protocol) {
	checkNamed(p)
	for _, rt := range p.Routes() {
		h.routes.add(h.newRoute(p, rt, describeProtocol(p)))
	}
}

func checkNamed(p Protocol) {
	if p.Name() == "" {
		panic(fmt.Sprintf("llmhttp: a Protocol has no name: %T", p))
	}
}

// describeProtocol returns the name and the package of a Protocol, for errors.
func describeProtocol(p Protocol) string {
	t := reflect.TypeOf(p)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return fmt.Sprintf("the Protocol %s of package %s", p.Name(), t.PkgPath())
}

// logUnmounted logs which endpoints of packages are not mounted although the Backend has their
// methods.
func (h *Handler) logUnmounted() {
	var names, packages []string
	for i := range endpoints.All {
		e := &endpoints.All[i]
		if e.Supported == nil || h.mounts(e) || !h.backendSupports(e) {
			continue
		}
		names = append(names, e.Name)
		if !slices.Contains(packages, e.Package) {
			packages = append(packages, e.Package)
		}
	}
	if len(names) > 0 {
		h.opts.Logger.Info("the Backend has methods of endpoints that are not mounted", "endpoints", names, "packages", packages)
	}
}

// mounts reports whether there is a route with a pattern or with the operation of an endpoint of another
// package.
func (h *Handler) mounts(e *endpoints.Endpoint) bool {
	return h.routes.contains(func(rt *boundRoute) bool {
		name := string(rt.binding.op.name)
		return rt.binding.pkg != "" && name != "" && name == e.Operation ||
			slices.Contains(e.Patterns, rt.method+" "+strings.Join(rt.segments, "/"))
	})
}

// backendSupports reports whether the Backend has the method of an endpoint, as far as it can be told
// without a request: an Unwrap may need one, and panic.
func (h *Handler) backendSupports(e *endpoints.Endpoint) (supported bool) {
	defer func() {
		if recover() != nil {
			supported = false
		}
	}()
	return e.Supported(context.Background(), h.backend)
}

// findRoute returns the route that serves r, and r as the route sees it. If no route does, the
// error is the one that the client gets: 405 for a path that has other methods, and otherwise
// 404.
func (h *Handler) findRoute(r *http.Request) (rt *boundRoute, routed *http.Request, err error) {
	routed, inside := h.prefix.strip(r)
	var allowed []string
	if inside {
		rt, allowed = h.routes.find(routed)
	}
	switch {
	case rt != nil:
		return rt, routed, nil
	case allowed != nil:
		e := llm.Errorf(http.StatusMethodNotAllowed, "", "Not allowed to %s on %s. (HINT: Perhaps you meant to use a different HTTP method?)",
			param.Echo(r.Method), param.Echo(r.URL.Path))
		e.Err = allowedMethods(allowed)
		return nil, routed, e
	}
	e := errUnknownURL(r)
	unmounted := ""
	if inside {
		unmounted = h.unmountedPackage(routed)
	}
	served := func() string { return "It serves " + strings.Join(h.servedPatterns(r.Context()), ", ") + "." }
	switch {
	case unmounted != "":
		e.Message += ". This server does not serve it, because package " + unmounted + " is not mounted. " + served()
	case h.isKnownPath(routed.URL.Path) || !inside && strings.HasPrefix(r.URL.Path, "/v1/"):
		e.Message += ". This server does not serve it. " + served()
	default:
		if hint := h.hintURL(r); hint != "" {
			e.Message += ". " + hint
		}
	}
	return nil, routed, e
}

// unmountedPackage returns the path of the package that has an endpoint for r, which no route serves,
// and is not mounted, or "".
func (h *Handler) unmountedPackage(r *http.Request) string {
	for i := range endpoints.All {
		e := &endpoints.All[i]
		if e.Package == endpoints.Root {
			continue
		}
		for _, pattern := range e.Patterns {
			rt := new(boundRoute)
			rt.method, rt.segments = splitPattern(pattern)
			if _, ok := rt.matchPath(r.URL.EscapedPath()); ok && rt.allows(r.Method) && !h.mounts(e) {
				return e.Package
			}
		}
	}
	return ""
}

// hintURL returns what may be wrong with the URL of r, or with Options.Prefix, if the path ends as
// that of a route does, with or without /v1. Otherwise it returns "".
func (h *Handler) hintURL(r *http.Request) string {
	path, prefix := r.URL.Path, h.opts.Prefix
	if strings.Contains(path, "//") { // no prefix has that
		return ""
	}
	var meant *boundRoute
	lead, hasVersion := "", false
	for served, routes := range h.routes.exact {
		rest, versioned := strings.CutPrefix(served, "/v1/")
		if !versioned || !slices.ContainsFunc(routes, func(rt *boundRoute) bool { return h.serves(r.Context(), rt) && rt.allows(r.Method) }) {
			continue
		}
		before, ok := strings.CutSuffix(path, "/"+rest)
		if ok && (meant == nil || len(before) < len(lead)) {
			meant = routes[0]
			lead, hasVersion = strings.CutSuffix(before, "/v1")
		}
	}
	if meant == nil {
		return ""
	}
	hint := fmt.Sprintf("Did you mean %s %s%s?", param.Echo(r.Method), prefix, strings.Join(meant.segments, "/"))
	switch {
	case hasVersion && lead == prefix+"/v1":
		return hint + " The base URL of this client must not end in /v1: it adds that itself."
	case !hasVersion && lead == prefix:
		return hint + fmt.Sprintf(" The base URL of this client must end in %s/v1.", prefix)
	case prefix == "":
		return hint + fmt.Sprintf(" If the server is mounted below %[1]s, its Options.Prefix must be '%[1]s', and base URLs end in %[1]s/v1.", param.Echo(lead))
	}
	return hint
}

// serves reports whether a route is there for every request, and the Backend supports it. ctx is that
// of a request.
func (h *Handler) serves(ctx context.Context, rt *boundRoute) bool {
	return rt.match == nil && rt.binding.op.isSupported(ctx, h.backend)
}

func errUnknownURL(r *http.Request) *llm.Error {
	return llm.Errorf(http.StatusNotFound, "", "Invalid URL (%s %s)", param.Echo(r.Method), param.Echo(r.URL.Path))
}

// foreignPaths are the paths below /v1/ of APIs that clients may expect of any server of
// this kind, and for which there is no endpoint.
var foreignPaths = []string{
	"assistants", "batches", "containers", "conversations", "evals", "files", "fine_tuning",
	"organization", "realtime", "threads", "uploads", "vector_stores", "videos",
}

// isKnownPath reports whether path is below one of foreignPaths, or of the paths of
// endpoints that servers of this kind may lack, such as images.
func (h *Handler) isKnownPath(path string) bool {
	name := firstBelowV1(path)
	if name == "" || slices.Contains(foreignPaths, name) {
		return name != ""
	}
	isOfPackage := slices.ContainsFunc(endpoints.All, func(e endpoints.Endpoint) bool {
		return e.Package != endpoints.Root && slices.ContainsFunc(e.Patterns, func(pattern string) bool {
			_, segments := splitPattern(pattern)
			return firstBelowV1(strings.Join(segments, "/")) == name
		})
	})
	return isOfPackage || h.routes.contains(func(rt *boundRoute) bool {
		op := rt.binding.op
		return op.name != "" && op.supportedBy != nil && firstBelowV1(strings.Join(rt.segments, "/")) == name
	})
}

// firstBelowV1 returns the first segment of a path below /v1/, or "".
func firstBelowV1(path string) string {
	rest, _ := strings.CutPrefix(path, "/v1/")
	if len(rest) == len(path) {
		return ""
	}
	name, _, _ := strings.Cut(rest, "/")
	return name
}

// servedPatterns returns the patterns of the routes, except those of operations that the
// Backend does not support, and those that exist only for some requests.
func (h *Handler) servedPatterns(ctx context.Context) []string {
	var patterns []string
	for _, list := range h.routes.exact {
		for _, rt := range list {
			if h.serves(ctx, rt) && !slices.Contains(patterns, rt.pattern) {
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
	exact     map[string][]*boundRoute // routes without wildcards, by path
	wildcards []*boundRoute
}

// add adds a route. It panics if another one serves the same requests. A path without
// wildcards may be one of those that a path with wildcards stands for, and comes before it.
func (t *routeTable) add(rt *boundRoute) {
	path := strings.Join(rt.segments, "/")
	if strings.Contains(path, "{") {
		rt.checkConflict(t.wildcards)
		t.wildcards = insertRoute(t.wildcards, rt)
		return
	}
	rt.checkConflict(t.exact[path])
	if t.exact == nil {
		t.exact = make(map[string][]*boundRoute)
	}
	t.exact[path] = insertRoute(t.exact[path], rt)
}

// checkConflict panics if one of others serves a request that rt serves too. Routes with a
// match decide for themselves.
func (rt *boundRoute) checkConflict(others []*boundRoute) {
	for _, other := range others {
		sameMethod := rt.allows(other.method) || other.allows(rt.method)
		if sameMethod && other.match == nil && rt.match == nil && overlap(other.segments, rt.segments) {
			panic(fmt.Sprintf("llmhttp: two routes serve one path: %s of %s, and %s of %s", other.pattern, other.origin, rt.pattern, rt.origin))
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
func insertRoute(routes []*boundRoute, rt *boundRoute) []*boundRoute {
	if rt.match == nil {
		return append(routes, rt)
	}
	return append([]*boundRoute{rt}, routes...)
}

// find returns the route for the method and the path of r. If the path has only routes
// for other methods, it returns nil and these methods.
func (t *routeTable) find(r *http.Request) (rt *boundRoute, allowed []string) {
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

// contains reports whether f returns true for a route.
func (t *routeTable) contains(f func(*boundRoute) bool) bool {
	for _, routes := range t.exact {
		if slices.ContainsFunc(routes, f) {
			return true
		}
	}
	return slices.ContainsFunc(t.wildcards, f)
}

// nearestProtocol returns the protocol in whose form a request without a route is refused:
// that of the route whose path, up to its wildcards, is the longest beginning of the path of
// r, or nil if there is none.
func (t *routeTable) nearestProtocol(r *http.Request) Protocol {
	var nearest *boundRoute
	length := 0
	consider := func(rt *boundRoute) {
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

// A boundRoute is a Route of a Protocol.
type boundRoute struct {
	pattern  string // with Options.Prefix
	method   string
	segments []string // of the path without Options.Prefix; the first is empty
	origin   string   // the package or the Protocol that it is of, for errors
	protocol Protocol
	match    func(r *http.Request) bool // nil if it serves every request
	binding  Binding                    // with the kind of body that requests of the method have
}

// newRoute parses the pattern of a Route. It panics if the pattern is malformed, if there is no
// Binding, or if its Protocol is a nil pointer or has no name. p is the Protocol of a Route that names
// none, and origin the one of a Route that NewRoute has not made.
func (h *Handler) newRoute(p Protocol, rt Route, origin string) *boundRoute {
	if rt.Protocol != nil {
		if p = rt.Protocol; option.IsNil(p) {
			panic("llmhttp: the Protocol of a route is nil: " + rt.Pattern)
		}
		checkNamed(p)
	}
	method, segments := splitPattern(rt.Pattern)
	path := strings.Join(segments, "/")
	switch {
	case !isMethod(method) || !strings.HasPrefix(path, "/"):
		panic("llmhttp: the pattern of a route must be a method in capital letters and a path: " + rt.Pattern)
	case !areWildcardsValid(segments):
		panic(
			"llmhttp: the wildcards of a pattern must be whole segments with different names, and only the last may end in ...: " + rt.Pattern,
		)
	case needsEscaping(segments):
		panic("llmhttp: the path of a pattern must need no escaping: " + rt.Pattern)
	case rt.Bind.op == nil:
		panic("llmhttp: a route must have a Binding: " + rt.Pattern)
	}
	if rt.Bind.pkg != "" {
		origin = "package " + rt.Bind.pkg
	}
	return &boundRoute{
		pattern: method + " " + h.opts.Prefix + path, method: method, segments: segments, protocol: p,
		origin: origin, match: rt.Match, binding: rt.Bind,
	}
}

// splitPattern returns the method and the segments of the path of a pattern. The first segment is empty.
func splitPattern(pattern string) (method string, segments []string) {
	method, path, _ := strings.Cut(pattern, " ")
	return method, strings.Split(path, "/")
}

func isMethod(s string) bool {
	return s != "" && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") == ""
}

// areWildcardsValid reports whether each wildcard in segments is one that matchPath knows, and
// none of them hides another from PathValue.
func areWildcardsValid(segments []string) bool {
	var names []string
	for i, segment := range segments {
		if !strings.ContainsAny(segment, "{}") {
			continue
		}
		name, opened := strings.CutPrefix(segment, "{")
		name, closed := strings.CutSuffix(name, "}")
		name, takesRest := strings.CutSuffix(name, "...")
		switch {
		case !opened || !closed || !isWildcardName(name), takesRest && i < len(segments)-1, slices.Contains(names, name):
			return false
		}
		names = append(names, name)
	}
	return true
}

func isWildcardName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool { return c != '_' && !unicode.IsLetter(c) && !unicode.IsDigit(c) })
}

// needsEscaping reports whether clients send another text for one of the segments that are not
// wildcards, so that no request matches it.
func needsEscaping(segments []string) bool {
	return slices.ContainsFunc(segments, func(segment string) bool {
		u := url.URL{Path: segment}
		return !isWildcard(segment) && u.EscapedPath() != segment
	})
}

// matches reports whether the route exists for r.
func (rt *boundRoute) matches(r *http.Request) bool { return rt.match == nil || rt.match(r) }

// allows reports whether the route serves requests of the given method.
func (rt *boundRoute) allows(method string) bool {
	return method == rt.method || method == http.MethodHead && rt.method == http.MethodGet
}

// matchPath reports whether the route serves an escaped path, and returns the
// unescaped values of its wildcards in their order.
func (rt *boundRoute) matchPath(path string) (values []string, ok bool) {
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
func (rt *boundRoute) setPathValues(r *http.Request, values []string) {
	for _, segment := range rt.segments {
		if name, ok := strings.CutPrefix(segment, "{"); ok {
			name = strings.TrimSuffix(strings.TrimSuffix(name, "}"), "...")
			r.SetPathValue(name, values[0])
			values = values[1:]
		}
	}
}
