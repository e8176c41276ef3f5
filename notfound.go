// What a 404 says that the server serves, from the routes and from internal/endpoints.

package llmhttp

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp/internal/endpoints"
	"github.com/llmhttp/llmhttp/internal/param"
	"github.com/llmhttp/llmhttp/internal/routing"
	"github.com/llmhttp/llmhttp/llm"
)

// errNoRoute returns the error for a request that no route serves. It says what the server serves, if
// clients may expect the path of servers of this kind, and otherwise what may be wrong with the URL.
// routed is r without Options.Prefix, and inside whether r has that.
func (h *Handler) errNoRoute(r, routed *http.Request, inside bool) error {
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
	return e
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
			p := routing.MustParse(pattern)
			if p.MatchesPath(r) && p.Allows(r.Method) && !h.mounts(e) {
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
	meant, lead, hasVersion := "", "", false
	for e := range h.routes.All() {
		rest, versioned := strings.CutPrefix(e.Path(), "/v1/")
		if !versioned || e.HasWildcards() || !e.Allows(r.Method) || !h.serves(r.Context(), e) {
			continue
		}
		before, ok := strings.CutSuffix(path, "/"+rest)
		if ok && (meant == "" || len(before) < len(lead)) {
			meant = e.Path()
			lead, hasVersion = strings.CutSuffix(before, "/v1")
		}
	}
	if meant == "" {
		return ""
	}
	hint := fmt.Sprintf("Did you mean %s %s%s?", param.Echo(r.Method), prefix, meant)
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
func (h *Handler) serves(ctx context.Context, e *routing.Entry[*boundRoute]) bool {
	return e.Match == nil && e.Value.binding.op.isSupported(ctx, h.backend)
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
			p := routing.MustParse(pattern)
			return firstBelowV1(p.Path()) == name
		})
	})
	return isOfPackage || h.hasRoute(func(e *routing.Entry[*boundRoute]) bool {
		op := e.Value.binding.op
		return op.name != "" && op.supportedBy != nil && firstBelowV1(e.Path()) == name
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
	for e := range h.routes.All() {
		if !e.HasWildcards() && h.serves(ctx, e) && !slices.Contains(patterns, e.Value.pattern) {
			patterns = append(patterns, e.Value.pattern)
		}
	}
	slices.Sort(patterns)
	return patterns
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
	return h.hasRoute(func(rt *routing.Entry[*boundRoute]) bool {
		name := string(rt.Value.binding.op.name)
		return rt.Value.binding.pkg != "" && name != "" && name == e.Operation || slices.Contains(e.Patterns, rt.String())
	})
}

// hasRoute reports whether there is a route for which f returns true.
func (h *Handler) hasRoute(f func(e *routing.Entry[*boundRoute]) bool) bool {
	for e := range h.routes.All() {
		if f(e) {
			return true
		}
	}
	return false
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
