package jsonwire

import (
	"encoding/binary"
	"math/bits"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// plainLength returns the length of the longest prefix of s that consists of
// printable ASCII without quotes and backslashes (budgets: gateway 1 MB, and an agent's
// request of 150 KB; BenchmarkDecodeRequest). Source code has an escape sequence in most
// lines, and an image has none, so it looks at 8 bytes at a time and later at 32.
func plainLength(s string) int {
	i := 0
	for ; len(s)-i >= 8; i += 8 {
		if i == 64 {
			if i += plainBlocks(s[i:]); len(s)-i < 8 {
				break
			}
		}
		if found := special(word(s[i : i+8])); found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
	}
	for i < len(s) && isPlain(s[i]) {
		i++
	}
	return i
}

// plainBlocks returns the length of a prefix of whole blocks of 32 bytes that are plain.
func plainBlocks(s string) int {
	i := 0
	for ; len(s)-i >= 32; i += 32 {
		p := s[i : i+32]
		if special(word(p[:8]))|special(word(p[8:16]))|special(word(p[16:24]))|special(word(p[24:])) != 0 {
			break
		}
	}
	return i
}

// word returns the first 8 bytes of s. The compiler makes it a single load.
func word(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// special sets the high bit of the bytes of x that are not plain. Borrows may set it in
// bytes behind such a byte, but not before it.
func special(x uint64) uint64 {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	// Of all bytes, exactly the quote and the control characters are below 0x21 when
	// bit 1 is flipped.
	controlOrQuote := (x ^ ones*2) - ones*0x21
	backslash := (x ^ ones*'\\') - ones
	return (controlOrQuote | backslash | x) & highs
}

func isPlain(c byte) bool { return c >= ' ' && c < utf8.RuneSelf && c != '"' && c != '\\' }

// scanString reads the string that begins at l.pos and returns what is between
// its quotes. If escaped is true it must be unescaped: it has escape sequences or,
// for a lenient lexer, is not UTF-8.
func (l *lexer) scanString() (raw string, escaped bool) {
	start := l.pos + 1
	wide := false // there are bytes that are not ASCII
	for i := start; ; {
		i += plainLength(l.doc[i:])
		if i == len(l.doc) {
			l.failSyntax()
			return "", false
		}
		switch c := l.doc[i]; {
		case c == '"':
			raw, l.pos = l.doc[start:i], i+1
			if wide && !utf8.ValidString(raw) {
				l.foundInvalidText()
				escaped = true
			}
			return raw, escaped
		case c >= utf8.RuneSelf:
			wide, l.wide = true, true
			for i < len(l.doc) && l.doc[i] >= utf8.RuneSelf {
				i++
			}
		case c == '\\':
			escaped = true
			if i+1 < len(l.doc) && escapes[l.doc[i+1]] != 0 {
				i += 2
				continue
			}
			r, n := unescapeCodeUnits(l.doc[i:])
			if n == 0 {
				l.failSyntax()
				return "", false
			}
			if utf16.IsSurrogate(r) {
				l.foundInvalidText()
			}
			i += n
		default:
			l.failSyntax()
			return "", false
		}
	}
}

// foundInvalidText is called for text that is not Unicode.
func (l *lexer) foundInvalidText() {
	l.notStrict = true
	if !l.lenient {
		l.failSyntax()
	}
}

// text reads the string that begins at l.pos. Its memory may be that of the document.
func (l *lexer) text() string {
	raw, escaped := l.scanString()
	if escaped {
		return unescape(nil, raw)
	}
	return raw
}

// maxScratch is the number of bytes of a string that detachedText reads in one pass.
const maxScratch = 16 << 10

// detachedText reads the string that begins at d.pos, for use after decoding. Most strings are
// read once, and copied twice if they have escape sequences (budget: gateway, an agent's request).
func (d *Decoder) detachedText() string {
	s := d.doc[d.pos+1:]
	if n := plainLength(s); n < len(s) && s[n] == '"' {
		d.pos += n + len(`""`)
		return detach(d.doc, s[:n])
	}
	text, n := appendText(d.scratch[:0], s[:min(len(s), maxScratch)])
	d.scratch = text
	if n < len(s) && s[n] == '"' {
		d.pos += n + len(`""`)
		return string(text)
	}
	d.pos += n // the rest is read like another string
	rest, _ := d.scanString()
	return unescape(text, rest)
}

// appendText appends the text of a prefix of s, which is what follows the quote of a string, and
// returns the length of the prefix. It stops before the next quote and before what is not valid.
func appendText(b []byte, s string) (_ []byte, n int) {
	for {
		var size int
		b, size = appendPlain(b, s[n:])
		if n += size; len(s)-n < 2 {
			return b, n
		}
		switch c := s[n]; {
		case c == '\\' && escapes[s[n+1]] != 0:
			b = append(b, escapes[s[n+1]])
			n += 2
		case c == '\\':
			r, size := unescapeCodeUnits(s[n:])
			if size == 0 || utf16.IsSurrogate(r) {
				return b, n
			}
			b = utf8.AppendRune(b, r)
			n += size
		case c >= utf8.RuneSelf:
			end := n
			for end < len(s) && s[end] >= utf8.RuneSelf {
				end++
			}
			if !utf8.ValidString(s[n:end]) {
				return b, n
			}
			b = append(b, s[n:end]...)
			n = end
		default:
			return b, n
		}
	}
}

// unescape returns the text of the end of a string, which scanString has checked, after what
// was unescaped before. What is not Unicode becomes U+FFFD.
func unescape(before []byte, raw string) string {
	var b strings.Builder
	b.Grow(len(before) + len(raw))
	b.Write(before)
	valid := utf8.ValidString(raw)
	for raw != "" {
		n := strings.IndexByte(raw, '\\')
		switch {
		case n == 0:
			if c := escapes[raw[1]]; c != 0 {
				b.WriteByte(c)
				raw = raw[2:]
				continue
			}
			var r rune
			r, n = unescapeCodeUnits(raw)
			b.WriteRune(r) // U+FFFD for a surrogate
			raw = raw[n:]
			continue
		case n < 0:
			n = len(raw)
		}
		if valid {
			b.WriteString(raw[:n])
		} else {
			for _, r := range raw[:n] {
				b.WriteRune(r)
			}
		}
		raw = raw[n:]
	}
	return b.String()
}

// unescapeCodeUnits returns the character of the sequence \uXXXX, or of two of them,
// that s begins with, and the length of what it has read. The character of half a
// surrogate pair is a surrogate. The length of another sequence is 0.
func unescapeCodeUnits(s string) (r rune, n int) {
	r = hex4(s)
	if r < 0 {
		return 0, 0
	}
	if utf16.IsSurrogate(r) {
		if pair := utf16.DecodeRune(r, hex4(s[6:])); pair != utf8.RuneError {
			return pair, 12
		}
	}
	return r, 6
}

// escapes has the characters that are written as a backslash and a letter.
var escapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// hex4 returns the code unit of the sequence \uXXXX that s begins with, or -1.
func hex4(s string) rune {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return -1
	}
	var r rune
	for _, c := range []byte(s[2:6]) {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// AppendString appends s as a JSON string. Bytes that are not UTF-8 become U+FFFD.
// It escapes U+0085, U+2028 and U+2029, where some clients of streams end a line,
// as Python's splitlines does.
func AppendString(b []byte, s string) []byte {
	b = append(b, '"')
	for {
		var n int
		b, n = appendPlain(b, s)
		if s = s[n:]; s == "" {
			return append(b, '"')
		}
		if c := escapeLetters[s[0]]; c != 0 {
			b = append(b, '\\', c)
			s = s[1:]
			continue
		}
		r, size := utf8.DecodeRuneInString(s)
		b = appendRune(b, r)
		s = s[size:]
	}
}

// appendPlain appends the prefix of s of which plainLength returns the length.
func appendPlain(b []byte, s string) (_ []byte, n int) {
	for ; len(s)-n >= 8; n += 8 {
		if n == 64 {
			m := plainLength(s[n:])
			return append(b, s[n:n+m]...), n + m
		}
		w := word(s[n : n+8])
		b = binary.LittleEndian.AppendUint64(b, w)
		if found := special(w); found != 0 {
			m := bits.TrailingZeros64(found) / 8
			return b[:len(b)-8+m], n + m
		}
	}
	for ; n < len(s) && isPlain(s[n]); n++ {
		b = append(b, s[n])
	}
	return b, n
}

// escapeLetters has the letters that escapes has.
var escapeLetters = [256]byte{'"': '"', '\\': '\\', '\b': 'b', '\f': 'f', '\n': 'n', '\r': 'r', '\t': 't'}

// appendRune appends a character of a string, escaped if necessary.
func appendRune(b []byte, r rune) []byte {
	switch r {
	case '"', '\\':
		return append(b, '\\', byte(r))
	case '\b':
		return append(b, `\b`...)
	case '\f':
		return append(b, `\f`...)
	case '\n':
		return append(b, `\n`...)
	case '\r':
		return append(b, `\r`...)
	case '\t':
		return append(b, `\t`...)
	}
	if r >= ' ' && !isLineBreak(r) {
		return utf8.AppendRune(b, r)
	}
	const digits = "0123456789abcdef"
	return append(b, '\\', 'u', digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15])
}

// isLineBreak reports whether some readers end a line at r, which JSON does not
// escape.
func isLineBreak(r rune) bool { return r == 0x85 || r == 0x2028 || r == 0x2029 }
