package llmhttp

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// A vector is a vector on the wire: an array of numbers, or the base64 of its
// little-endian float32s, for which openai-python and openai-node ask by default.
type vector struct {
	numbers []float32
	base64  bool
}

var vectorJSON jsonwire.Type[vector] = vectorType{}

type vectorType struct{}

func (vectorType) IsZero(v *vector) bool { return v.numbers == nil }

func (vectorType) Append(b []byte, v *vector) ([]byte, error) {
	if v.base64 {
		return v.appendBase64(b)
	}
	return appendArray(b, v.numbers, func(b []byte, f float32) ([]byte, error) { return jsonwire.AppendFloat(b, float64(f), 32) })
}

func (v *vector) appendBase64(b []byte) ([]byte, error) {
	raw := make([]byte, 0, 4*len(v.numbers))
	for _, f := range v.numbers {
		if f != f || math.IsInf(float64(f), 0) {
			return b, errors.New("a number is not finite")
		}
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(f))
	}
	b = base64.StdEncoding.AppendEncode(append(b, '"'), raw)
	return append(b, '"'), nil
}

func (vectorType) Decode(d *jsonwire.Decoder, v *vector) {
	switch d.Kind() {
	case '"':
		raw := d.Base64()
		if len(raw)%4 != 0 {
			d.Fail(errors.New("a vector is not base64 of 32-bit numbers"))
			return
		}
		v.numbers = make([]float32, len(raw)/4)
		for i := range v.numbers {
			v.numbers[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
		}
	case '[':
		v.numbers = []float32{}
		d.UnboundedArray(func(int) {
			var f float64 // 0 for null
			if !d.Null() {
				f = d.Float(32)
			}
			v.numbers = append(v.numbers, float32(f))
		})
	default:
		d.Mismatch("an array of numbers")
	}
}
