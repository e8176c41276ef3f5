package jsonwire

import (
	"encoding/base64"
	"math"
	"strconv"
	"strings"
)

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
		return d.detachedText()
	case !d.lenient:
		d.Mismatch("a string")
	case !d.Null():
		return detach(d.doc, d.View())
	}
	return ""
}

// Base64 reads a string in base64.
func (d *Decoder) Base64() []byte {
	if d.Kind() != '"' {
		d.Mismatch("a string")
		return nil
	}
	text := d.text()
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil || strings.ContainsAny(text, "\r\n") {
		d.MismatchGot("base64", "another string")
	}
	return data
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
		d.failRange(text, false, math.MaxFloat64)
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
		d.failRange(text, true, MaxInteger)
		return 0
	case f != math.Trunc(f):
		d.MismatchGot("an integer", "a decimal number")
		return 0
	}
	return int64(f)
}

// failRange fails because a number is above limit, or below -limit.
func (d *Decoder) failRange(text string, integer bool, limit float64) {
	above := text[0] != '-'
	if !above {
		limit = -limit
	}
	d.failHere(&Error{Kind: OutOfRange, Integer: integer, Above: above, Limit: limit, Got: Clip(text, 24)})
}

// lenientInt reads an integer as a lenient Decoder does. It reports false if the
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
