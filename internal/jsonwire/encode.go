package jsonwire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"unicode/utf8"
	"unsafe"
)

// An Encoder appends JSON to Buf. It writes no needless space, and escapes
// what some readers take for the end of a line: control characters, U+0085,
// U+2028 and U+2029.
type Encoder struct {
	Buf []byte
	Err error // the first error; what was written then is of no use

	// Plain are strings that are known to need no escapes: the very ones, not
	// others of the same text. If Cut is set, they are not copied: what comes
	// before one is moved from Buf to Pieces, and so is the string itself.
	Plain  []string
	Cut    bool
	Pieces [][]byte
}

// Token appends punctuation as it is.
func (e *Encoder) Token(c byte) { e.Buf = append(e.Buf, c) }

// Literal appends JSON text as it is.
func (e *Encoder) Literal(s string) { e.Buf = append(e.Buf, s...) }

// Element writes the comma between two elements of an array, if it is due.
func (e *Encoder) Element() {
	if n := len(e.Buf); n > 0 && e.Buf[n-1] != '[' {
		e.Buf = append(e.Buf, ',')
	}
}

// Name writes a member's name, which needs no escapes, and the comma before
// it, if it is due.
func (e *Encoder) Name(name string) {
	if n := len(e.Buf); n > 0 && e.Buf[n-1] != '{' {
		e.Buf = append(e.Buf, ',')
	}
	e.Buf = append(e.Buf, '"')
	e.Buf = append(e.Buf, name...)
	e.Buf = append(e.Buf, '"', ':')
}

// String writes s. Bytes that are not UTF-8 become U+FFFD.
func (e *Encoder) String(s string) {
	for _, p := range e.Plain {
		if len(s) == len(p) && unsafe.StringData(s) == unsafe.StringData(p) {
			e.plain(s)
			return
		}
	}
	e.Buf = AppendString(e.Buf, s)
}

func (e *Encoder) plain(s string) {
	e.Buf = append(e.Buf, '"')
	if e.Cut {
		e.Pieces = append(e.Pieces, e.Buf, unsafe.Slice(unsafe.StringData(s), len(s)))
		e.Buf = nil
	} else {
		e.Buf = append(e.Buf, s...)
	}
	e.Buf = append(e.Buf, '"')
}

// Int writes n.
func (e *Encoder) Int(n int64) { e.Buf = strconv.AppendInt(e.Buf, n, 10) }

// Bool writes b.
func (e *Encoder) Bool(b bool) { e.Buf = strconv.AppendBool(e.Buf, b) }

// Float writes f, which must be finite, as encoding/json does.
func (e *Encoder) Float(f float64, bits int) {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		e.fail(errors.New("a number is not finite"))
		f = 0
	}
	format := byte('f')
	if abs := math.Abs(f); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	e.Buf = strconv.AppendFloat(e.Buf, f, format, -1, bits)
}

// StringMember writes a member unless s is empty.
func (e *Encoder) StringMember(name, s string) {
	if s != "" {
		e.Name(name)
		e.String(s)
	}
}

// IntMember writes a member unless n is nil.
func (e *Encoder) IntMember(name string, n *int) {
	if n != nil {
		e.Name(name)
		e.Int(int64(*n))
	}
}

// FloatMember writes a member unless f is nil.
func (e *Encoder) FloatMember(name string, f *float64) {
	if f != nil {
		e.Name(name)
		e.Float(*f, 64)
	}
}

// RawMember writes a member unless raw is empty.
func (e *Encoder) RawMember(name string, raw json.RawMessage) {
	if len(raw) > 0 {
		e.Name(name)
		e.Raw(raw)
	}
}

// Raw writes raw without its space, and fails if it is not one valid value.
func (e *Encoder) Raw(raw json.RawMessage) {
	start := len(e.Buf)
	var ok bool
	if e.Buf, ok = appendCompact(e.Buf, raw); !ok {
		e.Buf = append(e.Buf[:start], "null"...)
		e.fail(errors.New("a raw JSON value is not valid JSON"))
	}
}

// Extra writes the members of extra in the order of their names, except those
// that are known to have another place.
func (e *Encoder) Extra(extra map[string]json.RawMessage, known ...string) {
	if len(extra) == 0 {
		return
	}
	names := make([]string, 0, len(extra))
	for name := range extra {
		if !slices.Contains(known, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if !utf8.ValidString(name) {
			e.fail(errors.New("a member's name is not UTF-8")) // two might become the same
		}
		if n := len(e.Buf); n > 0 && e.Buf[n-1] != '{' {
			e.Buf = append(e.Buf, ',')
		}
		e.String(name)
		e.Buf = append(e.Buf, ':')
		e.Raw(extra[name])
	}
}

func (e *Encoder) fail(err error) {
	if e.Err == nil {
		e.Err = err
	}
}

// AppendString appends s as a JSON string.
func AppendString(b []byte, s string) []byte {
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		if len(s)-i >= 8 {
			x := load64(s, i)
			if (special(x)|x)&highs == 0 {
				i += 8
				continue
			}
			i += bits.TrailingZeros64((special(x)|x)&highs) >> 3
		}
		c := s[i]
		if c < utf8.RuneSelf {
			if c >= ' ' && c != '"' && c != '\\' {
				i++
				continue
			}
			b = append(b, s[start:i]...)
			b = appendEscaped(b, rune(c))
			i++
			start = i
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if (r == utf8.RuneError && size == 1) || breaksLine(r) {
			b = append(b, s[start:i]...)
			b = appendEscaped(b, r)
			start = i + size
		}
		i += size
	}
	b = append(b, s[start:]...)
	return append(b, '"')
}

// breaksLine reports whether some line readers, such as Python's splitlines,
// end a line at r, a character that JSON does not escape.
func breaksLine(r rune) bool { return r == 0x85 || r == 0x2028 || r == 0x2029 }

const hexDigits = "0123456789abcdef"

func appendEscaped(b []byte, r rune) []byte {
	switch r {
	case '"', '\\':
		return append(b, '\\', byte(r))
	case '\n':
		return append(b, '\\', 'n')
	case '\r':
		return append(b, '\\', 'r')
	case '\t':
		return append(b, '\\', 't')
	}
	return append(b, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
}

func load64(s string, i int) uint64 {
	_ = s[i+7]
	return binary.LittleEndian.Uint64([]byte(s[i : i+8]))
}

// appendCompact appends raw without its space, and reports whether it is one
// valid value.
func appendCompact(b []byte, raw []byte) ([]byte, bool) {
	d := Decoder{buf: raw}
	d.skip()
	if d.Finish() != nil {
		return b, false
	}
	for i := 0; i < len(raw); {
		switch c := raw[i]; c {
		case ' ', '\t', '\n', '\r':
			i++
		case '"':
			// The text is valid, so a line break is the only thing to escape.
			start := i
			for i++; raw[i] != '"'; {
				if raw[i] == '\\' {
					i += 2
					continue
				}
				if raw[i] < utf8.RuneSelf {
					i++
					continue
				}
				r, size := utf8.DecodeRune(raw[i:])
				if breaksLine(r) {
					b = append(b, raw[start:i]...)
					b = appendEscaped(b, r)
					start = i + size
				}
				i += size
			}
			i++
			b = append(b, raw[start:i]...)
		default:
			b = append(b, c)
			i++
		}
	}
	return b, true
}
