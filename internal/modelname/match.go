// Package modelname matches names of models with patterns, and replaces them in
// texts.
package modelname

import "strings"

// Match reports whether s matches pattern, in which each * matches any text,
// including the empty one. All other characters match themselves.
func Match(pattern, s string) bool {
	prefix, rest, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == s
	}
	s, ok := strings.CutPrefix(s, prefix)
	if !ok {
		return false
	}
	for {
		part, after, more := strings.Cut(rest, "*")
		if !more {
			return strings.HasSuffix(s, part)
		}
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s, rest = s[i+len(part):], after
	}
}

// Wildcard returns the text in s that the only * of pattern matches. It reports
// false if s does not match.
func Wildcard(pattern, s string) (string, bool) {
	prefix, suffix, _ := strings.Cut(pattern, "*")
	rest, hasPrefix := strings.CutPrefix(s, prefix)
	text, hasSuffix := strings.CutSuffix(rest, suffix)
	if !hasPrefix || !hasSuffix {
		return "", false
	}
	return text, true
}
