package llmhttp

import (
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"unicode"

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
	return nil, routed, h.errNoRoute(r, routed, inside)
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
	binding  Binding
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
