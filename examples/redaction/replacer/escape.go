package replacer

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf16"
)

// Unescape removes escapes that JSON does not need from a JSON text, of which more may follow:
// \u0041 becomes A, and \/ becomes a slash. rest is the beginning of an escape at its end. What is
// not JSON stays as it is, and so does the result of Unescape. A filter that looks for a string in
// [textfilter.Arguments] finds it so however the model has written it.
func Unescape(s string) (plain, rest string) {
	if strings.IndexByte(s, '\\') < 0 {
		return s, ""
	}
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
		unescaped, n := unescape(s)
		if n == 0 {
			break
		}
		out.WriteString(unescaped)
		s = s[n:]
	}
	return out.String(), s
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

// escapeJSON returns s as it is in a JSON string, with the escapes that JSON demands.
func escapeJSON(s string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.Encode(s) // of a string, which cannot fail
	return b.String()[1 : b.Len()-2]
}
