// Package routing finds what serves a request by its method and its path, below a prefix.
package routing

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"
)

// A Pattern is a method and a path, such as "GET /v1/models/{id...}".
type Pattern struct {
	Method   string
	segments []string // of the path; the first is empty
}

// Parse parses a pattern. The error, which has no prefix, tells why it is malformed.
func Parse(pattern string) (Pattern, error) {
	method, path, _ := strings.Cut(pattern, " ")
	p := Pattern{method, strings.Split(path, "/")}
	switch {
	case !isMethod(method) || !strings.HasPrefix(path, "/"):
		return p, errors.New("the pattern of a route must be a method in capital letters and a path")
	case !areWildcardsValid(p.segments):
		return p, errors.New("the wildcards of a pattern must be whole segments with different names, and only the last may end in three dots")
	case needsEscaping(p.segments):
		return p, errors.New("the path of a pattern must need no escaping")
	}
	return p, nil
}

// MustParse is Parse for patterns of this module.
func MustParse(pattern string) Pattern {
	p, err := Parse(pattern)
	if err != nil {
		panic(err)
	}
	return p
}

// Path returns the path.
func (p *Pattern) Path() string { return strings.Join(p.segments, "/") }

func (p *Pattern) String() string { return p.Method + " " + p.Path() }

// HasWildcards reports whether the path stands for several.
func (p *Pattern) HasWildcards() bool { return slices.ContainsFunc(p.segments, isWildcard) }

// Allows reports whether requests with a method have the pattern.
func (p *Pattern) Allows(method string) bool {
	return method == p.Method || method == http.MethodHead && p.Method == http.MethodGet
}

// MatchesPath reports whether the path of r has the pattern.
func (p *Pattern) MatchesPath(r *http.Request) bool {
	_, ok := p.matchPath(r.URL.EscapedPath())
	return ok
}

// An Entry is what serves the requests with a Pattern.
type Entry[V any] struct {
	Pattern
	Match  func(r *http.Request) bool // nil if it serves every request
	Origin string                     // whose it is, for errors
	Value  V
}

// matches reports whether e is there for r.
func (e *Entry[V]) matches(r *http.Request) bool { return e.Match == nil || e.Match(r) }

// A Table finds the Entry of a request. The zero Table is empty. It may be used concurrently when all are
// added.
type Table[V any] struct {
	exact     map[string][]*Entry[V] // those without wildcards, by path
	wildcards []*Entry[V]
}

// Add adds an Entry. It returns an error if another one serves the same requests. A path without
// wildcards may be one of those that a path with wildcards stands for, and comes before it.
func (t *Table[V]) Add(e *Entry[V]) error {
	if e.HasWildcards() {
		if err := e.checkConflict(t.wildcards); err != nil {
			return err
		}
		t.wildcards = insert(t.wildcards, e)
		return nil
	}
	path := e.Path()
	if err := e.checkConflict(t.exact[path]); err != nil {
		return err
	}
	if t.exact == nil {
		t.exact = make(map[string][]*Entry[V])
	}
	t.exact[path] = insert(t.exact[path], e)
	return nil
}

// checkConflict returns an error if one of others serves a request that e serves too. Those with a
// Match decide for themselves.
func (e *Entry[V]) checkConflict(others []*Entry[V]) error {
	for _, other := range others {
		sameMethod := e.Allows(other.Method) || other.Allows(e.Method)
		if sameMethod && other.Match == nil && e.Match == nil && overlap(other.segments, e.segments) {
			return fmt.Errorf("two routes serve one path: %s of %s, and %s of %s", &other.Pattern, other.Origin, &e.Pattern, e.Origin)
		}
	}
	return nil
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

// insert adds an Entry. Those with a Match come before the others.
func insert[V any](entries []*Entry[V], e *Entry[V]) []*Entry[V] {
	if e.Match == nil {
		return append(entries, e)
	}
	return append([]*Entry[V]{e}, entries...)
}

// Find returns the Entry for the method and the path of r, and sets the path values of r. If the path has
// only those for other methods, it returns nil and these methods.
func (t *Table[V]) Find(r *http.Request) (e *Entry[V], allowed []string) {
	path := r.URL.Path
	if strings.Contains(r.URL.RawPath, "%2F") || strings.Contains(r.URL.RawPath, "%2f") {
		path = r.URL.RawPath // an escaped slash belongs to a model ID
	}
	for _, e := range t.exact[path] {
		switch {
		case !e.matches(r):
		case e.Allows(r.Method):
			return e, nil
		default:
			allowed = append(allowed, e.Method)
		}
	}
	for _, e := range t.wildcards {
		values, ok := e.matchPath(r.URL.EscapedPath())
		switch {
		case !ok || !e.matches(r):
		case e.Allows(r.Method):
			e.setPathValues(r, values)
			return e, nil
		default:
			allowed = append(allowed, e.Method)
		}
	}
	return nil, allowed
}

// All returns all entries, in no order.
func (t *Table[V]) All() iter.Seq[*Entry[V]] {
	return func(yield func(*Entry[V]) bool) {
		for _, entries := range t.exact {
			for _, e := range entries {
				if !yield(e) {
					return
				}
			}
		}
		for _, e := range t.wildcards {
			if !yield(e) {
				return
			}
		}
	}
}

// Nearest returns the Entry whose path, up to its wildcards, is the longest beginning of the path of r. If
// there is none, it returns the first, in the order of patterns, that has a Match which reports true, or nil.
func (t *Table[V]) Nearest(r *http.Request) (nearest *Entry[V]) {
	var known *Entry[V]
	length := 0
	for e := range t.All() {
		prefix, _, _ := strings.Cut(e.Path(), "/{")
		below := r.URL.Path == prefix || strings.HasPrefix(r.URL.Path, prefix+"/")
		isNearer := nearest == nil || len(prefix) > length || len(prefix) == length && e.Match != nil && nearest.Match == nil
		if below && isNearer && e.matches(r) {
			nearest, length = e, len(prefix)
		}
		if e.Match != nil && e.Match(r) && (known == nil || e.String() < known.String()) {
			known = e
		}
	}
	return cmp.Or(nearest, known)
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

// matchPath reports whether an escaped path has the pattern, and returns the
// unescaped values of its wildcards in their order.
func (p *Pattern) matchPath(path string) (values []string, ok bool) {
	last := len(p.segments) - 1
	for i, segment := range p.segments {
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
func (p *Pattern) setPathValues(r *http.Request, values []string) {
	for _, segment := range p.segments {
		if name, ok := strings.CutPrefix(segment, "{"); ok {
			name = strings.TrimSuffix(strings.TrimSuffix(name, "}"), "...")
			r.SetPathValue(name, values[0])
			values = values[1:]
		}
	}
}
