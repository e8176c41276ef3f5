package jsonwire

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	lows  = 0x0101010101010101
	highs = 0x8080808080808080
)

// special has the high bit set in each byte of x that is a quote, a backslash
// or a control character. Bytes above the first such one may be wrong.
func special(x uint64) uint64 {
	return ((x - lows*0x20) | ((x ^ lows*'"') - lows) | ((x ^ lows*'\\') - lows)) &^ x & highs
}

// scanString checks the string that begins at d.pos and returns what is
// between its quotes.
func (d *Decoder) scanString() (raw []byte, escaped bool) {
	b := d.buf
	start := d.pos + 1
	i := start
	var wide uint64 // has a high bit if any byte was not ASCII
	for {
		// Images come as strings of a megabyte: those go four words at a time.
		for len(b)-i >= 32 {
			p := b[i : i+32 : i+32]
			x0, x1 := binary.LittleEndian.Uint64(p), binary.LittleEndian.Uint64(p[8:])
			x2, x3 := binary.LittleEndian.Uint64(p[16:]), binary.LittleEndian.Uint64(p[24:])
			if special(x0)|special(x1)|special(x2)|special(x3) != 0 {
				break
			}
			wide |= x0 | x1 | x2 | x3
			i += 32
		}
		for len(b)-i >= 8 {
			x := binary.LittleEndian.Uint64(b[i:])
			wide |= x
			if s := special(x); s != 0 {
				// Bytes behind the closing quote may set wide for nothing: that
				// only costs a second look.
				i += bits.TrailingZeros64(s) >> 3
				goto found
			}
			i += 8
		}
		for i < len(b) && b[i] >= ' ' && b[i] != '"' && b[i] != '\\' {
			wide |= uint64(b[i])
			i++
		}
		if i >= len(b) {
			d.syntax()
			return nil, false
		}
	found:
		switch b[i] {
		case '"':
			raw = b[start:i]
			d.pos = i + 1
			if wide&highs != 0 && !utf8.Valid(raw) {
				d.syntax()
				return nil, false
			}
			return raw, escaped
		case '\\':
			escaped = true
			n := escapeLen(b[i:])
			if n == 0 {
				d.syntax()
				return nil, false
			}
			i += n
		default:
			d.syntax()
			return nil, false
		}
	}
}

// escapeLen returns the length of the escape sequence, a pair of surrogates
// being one, that b begins with, or 0 if it is broken.
func escapeLen(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		r := hex4(b)
		if r < 0 {
			return 0
		}
		if !utf16.IsSurrogate(r) {
			return 6
		}
		if len(b) >= 12 && utf16.DecodeRune(r, hex4(b[6:])) != utf8.RuneError {
			return 12
		}
	}
	return 0
}

// hex4 returns the code unit of the \uXXXX that b begins with, or -1.
func hex4(b []byte) rune {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return -1
	}
	var r rune
	for _, c := range b[2:6] {
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

// unescape resolves the escapes of raw, which scanString has checked.
func unescape(raw []byte) []byte {
	out := make([]byte, 0, len(raw))
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			return append(out, raw...)
		}
		out = append(out, raw[:i]...)
		raw = raw[i:]
		n := 2
		switch c := raw[1]; c {
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r := hex4(raw)
			n = 6
			if utf16.IsSurrogate(r) {
				r = utf16.DecodeRune(r, hex4(raw[6:]))
				n = 12
			}
			out = utf8.AppendRune(out, r)
		default:
			out = append(out, c)
		}
		raw = raw[n:]
	}
}
