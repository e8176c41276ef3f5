// Package pattern knows the names of models: it matches them, and finds them in
// texts.
package pattern

import "strings"

// Match reports whether s is pattern, in which each * stands for any text.
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
