package llmhttp

import (
	"strconv"
	"strings"
	"unicode/utf16"
)

// A jsonUnescaper removes escapes that JSON does not need from a JSON text that arrives in pieces:
// \u0041 becomes A, and \/ becomes a slash. A filter that looks for a text in arguments finds it
// however the model has written it. What is not JSON stays as it is.
type jsonUnescaper struct{ held string } // the beginning of an escape

// add returns what was held back and s, up to the last complete escape.
func (u *jsonUnescaper) add(s string) string {
	if u.held == "" && strings.IndexByte(s, '\\') < 0 {
		return s
	}
	s, u.held = u.held+s, ""
	var out strings.Builder
	for s != "" {
		n := strings.IndexByte(s, '\\')
		if n < 0 {
			n = len(s)
		}
		out.WriteString(s[:n])
		if s = s[n:]; s == "" {
			break
		}
		plain, n := unescape(s)
		if n == 0 {
			u.held = s
			break
		}
		out.WriteString(plain)
		s = s[n:]
	}
	return out.String()
}

// flush returns what is held back.
func (u *jsonUnescaper) flush() string {
	held := u.held
	u.held = ""
	return held
}

// unescapeJSON removes the escapes of a whole text.
func unescapeJSON(s string) string {
	var u jsonUnescaper
	return u.add(s) + u.flush()
}

// unescape returns the shortest form of the escape with which s begins, and its length, which is 0
// if more of it may follow.
func unescape(s string) (plain string, n int) {
	switch {
	case len(s) < 2:
		return "", 0
	case s[1] == '/':
		return "/", 2
	case s[1] != 'u':
		return s[:2], 2
	}
	first, n := codeUnit(s)
	if n <= 0 {
		return s[:-n], -n
	}
	if !utf16.IsSurrogate(first) {
		return escapeJSON(string(first)), n
	}
	second, m := codeUnit(s[n:])
	pair := utf16.DecodeRune(first, second)
	switch {
	case first < 0xDC00 && m == 0:
		return "", 0
	case m <= 0 || pair == '\uFFFD':
		return s[:n], n
	}
	return escapeJSON(string(pair)), n + m
}

// codeUnit returns the code unit of the sequence \uXXXX with which s begins, and its length. n is 0
// if s ends within it, and the negative length of what is to be left alone if s begins with something
// else.
func codeUnit(s string) (r rune, n int) {
	for i := range min(len(s), 6) {
		switch c := s[i]; {
		case i == 0 && c == '\\', i == 1 && c == 'u':
		case i < 2, !strings.ContainsRune("0123456789abcdefABCDEF", rune(c)):
			return 0, -max(i, 1)
		}
	}
	if len(s) < 6 {
		return 0, 0
	}
	unit, _ := strconv.ParseUint(s[2:6], 16, 16) // of four digits
	return rune(unit), 6
}

// escapeJSON returns s as it is in a JSON string.
func escapeJSON(s string) string {
	b := appendString(nil, s)
	return string(b[1 : len(b)-1])
}
