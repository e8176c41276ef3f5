// Package replacer replaces strings in the texts of requests and replies, such as secrets by
// placeholders. It is part of an example, to copy from.
package replacer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp/textfilter"
)

// A Replacer replaces strings. It finds a string wherever the stream of a reply divides it. Its
// methods are functions for a [textfilter.Filter], and may be called concurrently.
//
// It compares bytes. Where several strings match, the longest is replaced, and what has replaced it
// is not looked at again. In [textfilter.Arguments], which are JSON, strings are found however the
// model has escaped them, and inserted as JSON escapes them.
type Replacer struct{ plain, inJSON replacements }

// New returns a Replacer of pairs: each string that is replaced, and what replaces it. It panics if
// their number is odd, or if a string that is replaced is empty or is given twice.
func New(oldnew ...string) *Replacer {
	if len(oldnew)%2 != 0 {
		panic("replacer: odd number of arguments")
	}
	r := new(Replacer)
	r.inJSON.json = true
	for i := 0; i < len(oldnew); i += 2 {
		from, to := oldnew[i], oldnew[i+1]
		if from == "" {
			panic(fmt.Sprintf("replacer: argument %d is empty", i))
		}
		if r.plain.has(from) {
			panic(fmt.Sprintf("replacer: argument %d is a string that is replaced already", i))
		}
		r.plain.add(from, to)
		r.inJSON.add(escapeJSON(from), escapeJSON(to))
	}
	for _, p := range r.plain.pairs { // a model may write what is not JSON
		if !r.inJSON.has(p.from) {
			r.inJSON.add(p.from, escapeJSON(p.to))
		}
	}
	return r
}

// Request is a [textfilter.Filter.Request]. Arguments in which nothing is replaced stay as they are.
func (r *Replacer) Request(kind textfilter.Kind, text string) (string, error) {
	out, _ := r.replace(kind, text, true)
	if plain, rest := Unescape(text); kind == textfilter.Arguments && out == plain+rest {
		return text, nil
	}
	return out, nil
}

// Reply is a [textfilter.Filter.Reply]. It holds back an end of a text that may be the beginning of
// one of the strings.
func (r *Replacer) Reply(t *textfilter.ReplyText) (release, hold string, err error) {
	release, hold = r.replace(t.Kind, t.Text, t.End)
	return release, hold, nil
}

// replace returns what to release of a text, and what to hold back.
func (r *Replacer) replace(kind textfilter.Kind, text string, end bool) (release, hold string) {
	if kind != textfilter.Arguments {
		return r.plain.replace(text, end)
	}
	text, escape := Unescape(text)
	if end {
		text, escape = text+escape, ""
	}
	release, hold = r.inJSON.replace(text, end)
	return release, hold + escape
}

// replacements are strings and what replaces them, the longest strings first.
type replacements struct {
	pairs  []replacement
	starts [256]bool // the bytes with which a string begins
	json   bool      // texts are JSON, in which no string begins within an escape
}

type replacement struct{ from, to string }

func (r *replacements) has(from string) bool {
	return slices.ContainsFunc(r.pairs, func(p replacement) bool { return p.from == from })
}

func (r *replacements) add(from, to string) {
	i := slices.IndexFunc(r.pairs, func(p replacement) bool { return len(p.from) < len(from) })
	if i < 0 {
		i = len(r.pairs)
	}
	r.pairs = slices.Insert(r.pairs, i, replacement{from, to})
	r.starts[from[0]] = true
}

// replace returns text with its strings replaced, up to what may be the beginning of a longer match
// unless end is set. It decides from left to right and only about what cannot change any more, so the
// result does not depend on how a text is divided.
func (r *replacements) replace(text string, end bool) (out, rest string) {
	var b strings.Builder
	copied := 0
	for i := 0; i < len(text); {
		if !r.starts[text[i]] {
			i += r.skip(text[i:])
			continue
		}
		match, open := r.match(text[i:])
		switch {
		case open && !end:
			b.WriteString(text[copied:i])
			return b.String(), text[i:]
		case match == nil:
			i += r.skip(text[i:])
		default:
			b.WriteString(text[copied:i])
			b.WriteString(match.to)
			i += len(match.from)
			copied = i
		}
	}
	if copied == 0 {
		return text, ""
	}
	b.WriteString(text[copied:])
	return b.String(), ""
}

// skip returns the number of bytes at the beginning of text at the second of which a string may begin.
func (r *replacements) skip(text string) int {
	if r.json && text[0] == '\\' {
		return min(2, len(text))
	}
	return 1
}

// match returns the longest string with which text begins, or nil. open tells that text is the
// beginning of a longer one.
func (r *replacements) match(text string) (match *replacement, open bool) {
	for i := range r.pairs {
		p := &r.pairs[i]
		switch {
		case len(p.from) > len(text):
			open = open || strings.HasPrefix(p.from, text)
		case strings.HasPrefix(text, p.from):
			return p, open
		}
	}
	return nil, open
}
