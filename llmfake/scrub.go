// Which secrets are removed from a recording.

package llmfake

import (
	"cmp"
	"net/http"
	"net/url"
	"regexp"
	"slices"
)

// A scrubber removes secrets from texts. Those of a recording and of its replays must come out
// equal, so it works in a fixed order.
type scrubber struct {
	secrets []secret // the longest first, because a host is a part of a host with a port
	more    func(text []byte) []byte
}

// A secret is a text that is replaced.
type secret struct {
	text string
	re   *regexp.Regexp
	to   []byte
}

// minKey is the length of the shortest API key that is removed. A shorter one, such as "test", would
// be removed from words, too.
const minKey = 8

// addKey makes s remove an API key.
func (s *scrubber) addKey(key string) {
	if len(key) >= minKey {
		s.add(key, regexp.MustCompile(regexp.QuoteMeta(key)), "REDACTED")
	}
}

// addHost makes s remove the name of a server, with and without its port.
func (s *scrubber) addHost(u *url.URL) {
	for _, host := range []string{u.Host, u.Hostname()} {
		s.add(host, regexp.MustCompile("(?i)"+regexp.QuoteMeta(host)), "server.invalid")
	}
}

func (s *scrubber) add(text string, re *regexp.Regexp, to string) {
	isKnown := func(other secret) bool { return other.text == text }
	if slices.ContainsFunc(s.secrets, isKnown) {
		return
	}
	s.secrets = append(s.secrets, secret{text, re, []byte(to)})
	slices.SortFunc(s.secrets, func(a, b secret) int {
		return cmp.Or(len(b.text)-len(a.text), cmp.Compare(a.text, b.text))
	})
}

// secretPatterns match keys and the names of accounts, also where error messages show a part
// of them.
var secretPatterns = []struct {
	re *regexp.Regexp
	to string
}{
	{regexp.MustCompile(`\b(sk|pk|rk|gsk|xai)-[A-Za-z0-9_*-]{6,}`), "$1-REDACTED"},
	{regexp.MustCompile(`\bAIza[A-Za-z0-9_-]{20,}`), "REDACTED"},
	{regexp.MustCompile(`\b(org-|proj_)[A-Za-z0-9]{8,}`), "${1}REDACTED"},
}

func (s *scrubber) scrub(text []byte) []byte {
	for _, secret := range s.secrets {
		text = secret.re.ReplaceAllLiteral(text, secret.to)
	}
	for _, p := range secretPatterns {
		text = p.re.ReplaceAll(text, []byte(p.to))
	}
	if s.more != nil {
		text = s.more(text)
	}
	return text
}

// keyParameters are the parameters of a query that have keys.
var keyParameters = []string{"key", "api_key", "api-key", "apikey", "token", "access_token", "sig", "code"}

// scrubURL removes secrets from the path and the query of u, also where they are escaped.
func (s *scrubber) scrubURL(u *url.URL) string {
	path := string(s.scrub([]byte(u.EscapedPath())))
	if plain := string(s.scrub([]byte(u.Path))); plain != u.Path {
		path = (&url.URL{Path: plain}).EscapedPath()
	}
	values := u.Query()
	for _, name := range keyParameters {
		values.Del(name)
	}
	for _, list := range values {
		for i, value := range list {
			list[i] = string(s.scrub([]byte(value)))
		}
	}
	if len(values) == 0 {
		return path
	}
	return path + "?" + string(s.scrub([]byte(values.Encode())))
}

// scrubHeader removes secrets from the values of h.
func (s *scrubber) scrubHeader(h http.Header) http.Header {
	for _, values := range h {
		for i, value := range values {
			values[i] = string(s.scrub([]byte(value)))
		}
	}
	return h
}
