package jsonwire

import (
	"math"
	"strconv"
	"strings"
)

func (d *Decoder) literal(s string) bool {
	if !strings.HasPrefix(d.doc[d.pos:], s) {
		d.syntax()
		return false
	}
	d.pos += len(s)
	return true
}

// Null reads the next value if it is null, and reports whether it was.
func (d *Decoder) Null() bool { return d.peek() == 'n' && d.literal("null") }

// Bool reads a boolean.
func (d *Decoder) Bool() bool {
	switch kind := d.peek(); {
	case kind == 't':
		return d.literal("true")
	case kind == 'f':
		d.literal("false")
	case d.lenient:
		d.Skip()
	default:
		d.Mismatch("a boolean")
	}
	return false
}

// String reads a string.
func (d *Decoder) String() string {
	switch {
	case d.peek() == '"':
		raw, cooked := d.scanString()
		if cooked {
			return unescape(raw)
		}
		return d.own(raw)
	case !d.lenient:
		d.Mismatch("a string")
	case !d.Null():
		return d.own(d.View())
	}
	return ""
}

// number reads a number and returns its text. The next value is a number.
func (d *Decoder) number() string {
	start := d.pos
	d.accept("-")
	if !d.accept("0") {
		d.digits()
	}
	if d.accept(".") {
		d.digits()
	}
	if d.accept("eE") {
		d.accept("+-")
		d.digits()
	}
	return d.doc[start:d.pos]
}

// accept reads one byte if it is one of set.
func (d *Decoder) accept(set string) bool {
	if d.pos < len(d.doc) && strings.IndexByte(set, d.doc[d.pos]) >= 0 {
		d.pos++
		return true
	}
	return false
}

func (d *Decoder) digits() {
	start := d.pos
	for d.pos < len(d.doc) && '0' <= d.doc[d.pos] && d.doc[d.pos] <= '9' {
		d.pos++
	}
	if d.pos == start {
		d.syntax()
	}
}

// Float reads a number, with the precision of 32 or 64 bits.
func (d *Decoder) Float(bits int) float64 {
	if d.Kind() != '0' {
		d.Mismatch("a number")
		return 0
	}
	text := d.number()
	if d.err != nil {
		return 0
	}
	f, err := strconv.ParseFloat(text, bits)
	if err != nil {
		d.outOfRange(text, false, math.MaxFloat64)
		return 0
	}
	return f
}

// Int reads an integer, which may have an exponent or a fraction of zero.
func (d *Decoder) Int() int64 {
	if d.Kind() != '0' {
		d.Mismatch("an integer")
		return 0
	}
	text := d.number()
	if d.err != nil {
		return 0
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && -MaxInteger <= n && n <= MaxInteger {
		return n
	}
	f, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || math.Abs(f) > MaxInteger:
		d.outOfRange(text, true, MaxInteger)
		return 0
	case f != math.Trunc(f):
		d.Unwanted("an integer", "a decimal number")
		return 0
	}
	return int64(f)
}

// outOfRange fails because a number cannot be held.
func (d *Decoder) outOfRange(text string, integer bool, limit float64) {
	above := text[0] != '-'
	if !above {
		limit = -limit
	}
	d.fail(&Error{Kind: OutOfRange, Path: d.Path(), Integer: integer, Above: above, Limit: limit, Got: Clip(text, 24)})
}

// lenientInt reads an integer as a lenient decoder does. It reports false if the
// value is neither a number nor a string.
func (d *Decoder) lenientInt() (n int64, ok bool) {
	kind := d.Kind()
	text := d.View()
	if kind == '"' {
		text = strings.Trim(text, `"`)
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && -MaxInteger <= n && n <= MaxInteger {
		return n, true
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil && math.Abs(f) <= MaxInteger {
		return int64(f), true
	}
	return 0, kind == '0' || kind == '"'
}
