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

// plain skips what is most often found in long strings, such as images: ASCII
// above the quote, without a backslash. It stops within 64 bytes of anything
// else, and does little where strings are short.
func plain(b []byte, i int) int {
	begin := i
	for blocks := true; len(b)-i >= 64; {
		if blocks && i-begin >= plainBlock && len(b)-i >= plainBlock {
			if blocks = plainThroughout(b[i : i+plainBlock]); blocks {
				i += plainBlock
				continue
			}
		}
		p := b[i : i+64 : i+64]
		var found uint64
		for k := 0; k < 64; k += 16 {
			x, y := binary.LittleEndian.Uint64(p[k:]), binary.LittleEndian.Uint64(p[k+8:])
			found |= (x - lows*('"'+1)) | ((x ^ lows*'\\') - lows) | x
			found |= (y - lows*('"'+1)) | ((y ^ lows*'\\') - lows) | y
		}
		if found&highs != 0 {
			break
		}
		i += 64
	}
	return i
}

const plainBlock = 1024

// plainThroughout reports whether a block is what plain skips. It is faster, as
// most machines look for the backslash in many bytes at a time.
func plainThroughout(block []byte) bool {
	if bytes.IndexByte(block, '\\') >= 0 {
		return false
	}
	var found uint64
	for ; len(block) >= 32; block = block[32:] {
		x0, x1 := binary.LittleEndian.Uint64(block), binary.LittleEndian.Uint64(block[8:])
		x2, x3 := binary.LittleEndian.Uint64(block[16:]), binary.LittleEndian.Uint64(block[24:])
		found |= (x0 - lows*('"'+1)) | x0 | (x1 - lows*('"'+1)) | x1
		found |= (x2 - lows*('"'+1)) | x2 | (x3 - lows*('"'+1)) | x3
	}
	return found&highs == 0
}

// scanString checks the string that begins at d.pos and returns what is
// between its quotes.
func (d *Decoder) scanString() (raw []byte, escaped bool) {
	b := d.buf
	start := d.pos + 1
	i := plain(b, start)
	var wide uint64 // has a high bit if any byte was not ASCII
	for {
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
			if i+1 < len(b) && escapes[b[i+1]] != 0 {
				i += 2
				continue
			}
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

// escapes has what a backslash and one other byte stand for.
var escapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escapeLen returns the length of the escape sequence of \u, a pair of
// surrogates being one, that b begins with, or 0 if it is none or broken.
func escapeLen(b []byte) int {
	r := hex4(b)
	switch {
	case r < 0:
		return 0
	case !utf16.IsSurrogate(r):
		return 6
	case len(b) >= 12 && utf16.DecodeRune(r, hex4(b[6:])) != utf8.RuneError:
		return 12
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

// unescape resolves the escapes of raw, which scanString has checked, into out,
// which is at least as long, and returns how much of it is used.
func unescape(out, raw []byte) int {
	n := 0
	for i := 0; i < len(raw); {
		if len(raw)-i >= 8 {
			// What is written behind a backslash is written again.
			x := binary.LittleEndian.Uint64(raw[i:])
			binary.LittleEndian.PutUint64(out[n:], x)
			y := x ^ lows*'\\'
			found := (y - lows) &^ y & highs
			if found == 0 {
				i, n = i+8, n+8
				continue
			}
			k := bits.TrailingZeros64(found) >> 3
			i, n = i+k, n+k
		} else if raw[i] != '\\' {
			out[n] = raw[i]
			i, n = i+1, n+1
			continue
		}
		if c := escapes[raw[i+1]]; c != 0 {
			out[n] = c
			i, n = i+2, n+1
			continue
		}
		r := hex4(raw[i:])
		i += 6
		if utf16.IsSurrogate(r) {
			r = utf16.DecodeRune(r, hex4(raw[i:]))
			i += 6
		}
		n += utf8.EncodeRune(out[n:], r)
	}
	return n
}
