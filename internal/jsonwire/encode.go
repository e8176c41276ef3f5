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
	doc := string(raw)
	d := decoders.Get().(*Decoder)
	d.doc = doc
	d.Skip()
	d.peek() // space at the end
	compact := !d.spaced && !d.wide
	if err := d.finish(); err != nil {
		return b, fmt.Errorf("a raw value is not valid: %w", err)
	}
	if compact {
		return append(b, doc...), nil
	}
	start, inString := 0, false // doc[start:i] is to be appended as it is
	for i := 0; i < len(doc); {
		if inString {
			if i += plainLength(doc[i:]); doc[i] >= utf8.RuneSelf {
				r, size := utf8.DecodeRuneInString(doc[i:])
				if isLineBreak(r) {
					b = appendRune(append(b, doc[start:i]...), r)
					start = i + size
				}
				i += size
				continue
			}
		}
		switch doc[i] {
		case '"':
			inString = !inString
		case '\\':
			i++
		case ' ', '\t', '\r', '\n':
			b = append(b, doc[start:i]...)
			start = i + 1
		}
		i++
	}
	return append(b, doc[start:]...), nil
}
