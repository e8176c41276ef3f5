package jsonwire

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
)

// AppendFloat appends a number in as few digits as its precision, 32 or 64 bits,
// needs. It fails if the number is not finite.
func AppendFloat(b []byte, f float64, bits int) ([]byte, error) {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return b, errors.New("a number is not finite")
	}
	format := byte('f')
	if abs := math.Abs(f); abs != 0 && abs < 1e-6 || abs >= 1e21 {
		format = 'e'
	}
	return strconv.AppendFloat(b, f, format, -1, bits), nil
}

// AppendRaw appends a JSON value without its space. It fails if raw is not one
// value of strict JSON.
func AppendRaw(b, raw []byte) ([]byte, error) {
	p := parser{lexer: lexer{doc: string(raw)}}
	p.Skip()
	if err := p.end(); err != nil {
		return b, fmt.Errorf("a raw value is not valid: %w", err)
	}
	for i := 0; i < len(raw); {
		switch c := raw[i]; c {
		case ' ', '\t', '\r', '\n':
			i++
		case '"':
			n := stringLength(raw[i:])
			b = appendEscapingBreaks(b, raw[i:i+n])
			i += n
		default:
			b = append(b, c)
			i++
		}
	}
	return b, nil
}

// stringLength returns the length of the valid string that raw begins with.
func stringLength(raw []byte) int {
	for i := 1; ; i++ {
		switch raw[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
}

// appendEscapingBreaks appends the text of a JSON string, in which it escapes what
// some readers take for the end of a line.
func appendEscapingBreaks(b, text []byte) []byte {
	start := 0
	for i := 0; i < len(text); {
		if text[i] < utf8.RuneSelf {
			i++
			continue
		}
		r, size := utf8.DecodeRune(text[i:])
		if isLineBreak(r) {
			b = appendRune(append(b, text[start:i]...), r)
			start = i + size
		}
		i += size
	}
	return append(b, text[start:]...)
}
