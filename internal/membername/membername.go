// Package membername compares the names of JSON members with those that a program knows.
package membername

import (
	"strings"
	"unicode"
)

// The values of the member "object".
const (
	ObjectChunk      = "chat.completion.chunk"
	ObjectCompletion = "chat.completion"
	ObjectModel      = "model"
	ObjectList       = "list"
	ObjectError      = "error"
)

const Logprobs = "logprobs"

// ContentParts is the member of the Extra of a Delta for parts of its content that are not texts.
const ContentParts = "content_parts"

// ReasoningAlias is the other name of the member "reasoning_content".
const ReasoningAlias = "reasoning"

// Folded returns the known name that name equals under [strings.EqualFold] without being
// identical to it, or "". Decoders that ignore case, such as encoding/json, take such a
// member for the known one.
//
// All known names must be [Plain]. No two of them may be equal under strings.EqualFold.
func Folded(name string, known []string) string {
	if Plain(name) { // most names; saves the comparisons (BenchmarkDecodeRequest)
		return ""
	}
	for _, k := range known {
		if strings.EqualFold(k, name) {
			return k
		}
	}
	return ""
}

// Plain reports whether name has neither upper-case letters nor characters outside of
// ASCII, of which some fold to ASCII letters: U+017F to s, and U+212A to k. Two names that
// are plain are equal under [strings.EqualFold] only if they are identical.
func Plain[S string | []byte](name S) bool {
	for i := range len(name) {
		if c := name[i]; c >= 0x80 || 'A' <= c && c <= 'Z' {
			return false
		}
	}
	return true
}

// Lower returns the form of name in lower case that all names have in common that are
// equal under [strings.EqualFold]. It is [Plain] if one of them is.
func Lower(name string) string {
	if Plain(name) {
		return name
	}
	return strings.Map(lowerRune, name)
}

// lowerRune returns the letter in lower case of the letters that differ from r only in
// case. Unlike unicode.ToLower it turns U+017F into s, and leaves U+0130, which equals no
// other letter.
func lowerRune(r rune) rune {
	if unicode.SimpleFold(r) == r {
		return r
	}
	first := r
	for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
		first = min(first, other)
	}
	return unicode.ToLower(first)
}
