package routing

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"
)

// A Prefix is the path below which a server is mounted, such as "/llm". If empty, it is the root.
type Prefix string

// Check returns an error if p is malformed, which has no prefix.
func (p Prefix) Check() error {
	s := string(p)
	if s == "" {
		return nil
	}
	u := url.URL{Path: s}
	if s[0] != '/' || s == "/" || path.Clean(s) != s || u.EscapedPath() != s {
		return errors.New("must begin with a slash, must not end with one, and must need no escaping: " + s)
	}
	if rest, ok := strings.CutSuffix(s, "/v1"); ok {
		return fmt.Errorf("must not end in /v1, with which the paths of the Handler begin: %q instead of %q", rest, s)
	}
	return nil
}

// Strip returns r as routes and protocols see it: without p in the path of its URL. r does
// not change. It returns r itself if p is empty. If the path of r is outside of p, ok is
// false.
func (p Prefix) Strip(r *http.Request) (stripped *http.Request, ok bool) {
	if p == "" {
		return r, true
	}
	rest, ok := p.cut(r.URL.Path)
	if !ok {
		return r, false
	}
	raw := r.URL.RawPath
	if raw != "" {
		if raw, ok = p.cutEscaped(raw); !ok {
			return r, false
		}
	}
	copied := &struct {
		r http.Request
		u url.URL
	}{*r, *r.URL}
	copied.u.Path, copied.u.RawPath = rest, raw
	copied.r.URL = &copied.u
	return &copied.r, true
}

// cut returns what follows p in a path, and whether the path is that of p or below it.
func (p Prefix) cut(s string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(s, string(p))
	return rest, ok && (rest == "" || rest[0] == '/')
}

// cutEscaped is like cut for an escaped path. Its slashes are those of s: %2F is not one.
func (p Prefix) cutEscaped(s string) (rest string, ok bool) {
	end := 0
	for range strings.Count(string(p), "/") {
		next := strings.IndexByte(s[min(end+1, len(s)):], '/')
		if next < 0 {
			end = len(s)
			break
		}
		end += 1 + next
	}
	first, err := url.PathUnescape(s[:end])
	return s[end:], err == nil && first == string(p)
}
