// Which function serves which path. Options.Prefix is removed here.

package llmhttp

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp/internal/option"
	"github.com/llmhttp/llmhttp/internal/param"
	"github.com/llmhttp/llmhttp/internal/routing"
	"github.com/llmhttp/llmhttp/llm"
)

// addProtocol adds the routes of a Protocol. It panics if the Protocol has no name.
func (h *Handler) addProtocol(p Protocol) {
	checkNamed(p)
	for _, rt := range p.Routes() {
		h.addRoute(p, rt, describeProtocol(p))
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
	routed, inside := h.prefix.Strip(r)
	var found *routing.Entry[*boundRoute]
	var allowed []string
	if inside {
		found, allowed = h.routes.Find(routed)
	}
	switch {
	case found != nil:
		return found.Value, routed, nil
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

// A boundRoute is a Route of a Protocol.
type boundRoute struct {
	pattern  string // with Options.Prefix
	protocol Protocol
	binding  Binding
}

// addRoute adds a Route. It panics if the pattern is malformed, if there is no Binding, if its Protocol is a
// nil pointer or has no name, or if another Route serves the same requests. p is the Protocol of a Route that
// names none, and origin the one of a Route that NewRoute has not made.
func (h *Handler) addRoute(p Protocol, rt Route, origin string) {
	if rt.Protocol != nil {
		if p = rt.Protocol; option.IsNil(p) {
			panic("llmhttp: the Protocol of a route is nil: " + rt.Pattern)
		}
		checkNamed(p)
	}
	pattern, err := routing.Parse(rt.Pattern)
	switch {
	case err != nil:
		panic("llmhttp: " + err.Error() + ": " + rt.Pattern)
	case rt.Bind.op == nil:
		panic("llmhttp: a route must have a Binding: " + rt.Pattern)
	}
	if rt.Bind.pkg != "" {
		origin = "package " + rt.Bind.pkg
	}
	err = h.routes.Add(&routing.Entry[*boundRoute]{Pattern: pattern, Match: rt.Match, Origin: origin, Value: &boundRoute{
		pattern: pattern.Method + " " + h.opts.Prefix + pattern.Path(), protocol: p, binding: rt.Bind,
	}})
	if err != nil {
		panic("llmhttp: " + err.Error())
	}
}
