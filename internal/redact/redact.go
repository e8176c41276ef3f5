// Package redact removes secrets from text, such as error messages that are
// logged or sent to clients.
package redact

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/llmhttp/llmhttp/internal/ascii"
)

const (
	// Placeholder replaces each secret.
	Placeholder = "[redacted]"

	// MinSecret is the length of the shortest secret that is removed, in bytes. A shorter one would
	// be found in ordinary words.
	MinSecret = 8

	// MaxText is the length of the longest text that is kept whole, in bytes.
	MaxText = 64 << 10

	// clipMark ends a text that was cut short, or a secret in it that was.
	clipMark = "..."
)

// A Redactor removes secrets from text. Its methods may be called concurrently. A nil Redactor
// removes nothing.
type Redactor struct{ patterns []pattern }

// A pattern is a string to remove.
type pattern struct {
	text     string // in lower case if anyCase is true
	anyCase  bool   // ASCII letters match in either case
	minMatch int    // the length of a prefix of text that, before a clipMark, is a match too
}

// New returns a Redactor that removes secrets. A secret is also found
//
//   - as encoding/json, encoding/base64 and strconv.Quote write it;
//   - as url.QueryEscape and url.PathEscape write it or its base64;
//   - if "..." replaces all but its first [MinSecret] or more bytes.
//
// Secrets shorter than MinSecret are ignored.
func New(secrets ...string) *Redactor {
	return (*Redactor)(nil).WithSecrets(secrets...)
}

// WithSecrets returns a Redactor that removes what r does, and secrets, as
// described at [New].
func (r *Redactor) WithSecrets(secrets ...string) *Redactor {
	out := r.clone()
	for _, secret := range secrets {
		if len(secret) < MinSecret {
			continue
		}
		for _, form := range encodings(secret) {
			out.add(pattern{form, false, MinSecret})
		}
	}
	return out
}

// WithNames returns a Redactor that removes what r does, and names, such as those of hosts: of any
// length, in upper or lower case, and only where they are complete. Empty names are ignored.
func (r *Redactor) WithNames(names ...string) *Redactor {
	out := r.clone()
	for _, name := range names {
		if name != "" {
			out.add(pattern{ascii.ToLower(name), true, len(name)})
		}
	}
	return out
}

func (r *Redactor) clone() *Redactor {
	if r == nil {
		return new(Redactor)
	}
	return &Redactor{slices.Clone(r.patterns)}
}

func (r *Redactor) add(p pattern) {
	if !slices.Contains(r.patterns, p) {
		r.patterns = append(r.patterns, p)
	}
}

// encodings returns the forms in which a secret may appear in a text.
func encodings(secret string) []string {
	quoted := strconv.Quote(secret)
	escaped, _ := json.Marshal(secret) // cannot fail
	forms := []string{quoted[1 : len(quoted)-1], string(escaped[1 : len(escaped)-1])}
	for _, s := range []string{
		secret,
		base64.RawStdEncoding.EncodeToString([]byte(secret)),
		base64.RawURLEncoding.EncodeToString([]byte(secret)),
	} {
		query, path := url.QueryEscape(s), url.PathEscape(s)
		forms = append(forms, s, query, lowerEscapes(query), path, lowerEscapes(path))
	}
	return forms
}

var escapePattern = regexp.MustCompile(`%[0-9A-F]{2}`)

// lowerEscapes returns an escaped text with the digits of its escapes in lower
// case, as some servers write them.
func lowerEscapes(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	return escapePattern.ReplaceAllStringFunc(s, strings.ToLower)
}

// Text returns s with each secret replaced by [Placeholder]. If s is longer than
// [MaxText], "..." replaces the rest. The time that Text takes grows linearly with
// the lengths of s and of the secrets.
func (r *Redactor) Text(s string) string {
	s = clip(s)
	if r == nil {
		return s
	}
	var (
		spans   []span
		lowered string // s in lower case, if a pattern needs it
	)
	for i := range r.patterns {
		text := s
		if r.patterns[i].anyCase {
			if lowered == "" {
				lowered = ascii.ToLower(s)
			}
			text = lowered
		}
		spans = r.patterns[i].find(spans, text)
	}
	return replace(s, spans)
}

// clip cuts s to MaxText bytes, at the beginning of a character.
func clip(s string) string {
	if len(s) <= MaxText {
		return s
	}
	n := MaxText
	for n > MaxText-utf8.UTFMax && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + clipMark
}

// A span is a part of a text, from start up to but not including end.
type span struct{ start, end int }

// find appends the spans of text that match p. It uses the algorithm of Knuth,
// Morris and Pratt, because clients choose some of the texts and secrets: for those
// that repeat themselves, a simple search takes time in the product of the lengths.
func (p *pattern) find(spans []span, text string) []span {
	if !strings.Contains(text, p.text[:p.minMatch]) {
		return spans // most texts have no secret
	}
	borders := p.borders()
	n := 0 // p.text[:n] is the longest prefix of p.text that ends before text[i]
	for i := range len(text) {
		for n > 0 && (n == len(p.text) || text[i] != p.text[n]) {
			n = borders[n-1]
		}
		if text[i] == p.text[n] {
			n++
		}
		end := i + 1
		switch {
		case n == len(p.text):
			spans = append(spans, span{end - n, end})
		case n >= p.minMatch && strings.HasPrefix(text[end:], clipMark):
			spans = append(spans, span{end - n, end + len(clipMark)})
		}
	}
	return spans
}

// borders returns, for each prefix of p.text, the length of the longest shorter
// prefix that is also its suffix.
func (p *pattern) borders() []int {
	borders := make([]int, len(p.text))
	n := 0
	for i := 1; i < len(p.text); i++ {
		for n > 0 && p.text[i] != p.text[n] {
			n = borders[n-1]
		}
		if p.text[i] == p.text[n] {
			n++
		}
		borders[i] = n
	}
	return borders
}

// replace returns s with a Placeholder for each span, and one for several that
// overlap.
func replace(s string, spans []span) string {
	if len(spans) == 0 {
		return s
	}
	slices.SortFunc(spans, func(a, b span) int { return a.start - b.start })
	var b strings.Builder
	last := 0 // s[:last] has been copied or replaced
	for i := 0; i < len(spans); {
		start, end := spans[i].start, spans[i].end
		for i++; i < len(spans) && spans[i].start < end; i++ {
			end = max(end, spans[i].end)
		}
		b.WriteString(s[last:start])
		b.WriteString(Placeholder)
		last = end
	}
	b.WriteString(s[last:])
	return b.String()
}
