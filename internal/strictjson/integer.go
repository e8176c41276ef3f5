package strictjson

import (
	"math"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// An Integer may be written with an exponent or with a fraction of zero, as in requests of
// chat completions. Its bound is [jsonwire.MaxInteger].
type Integer int

// UnmarshalJSONFrom decodes a number.
func (n *Integer) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	v, err := dec.ReadValue()
	f, _ := strconv.ParseFloat(string(v), 64) // infinite if it is too large
	switch {
	case err != nil:
		return err
	case v.Kind() != '0':
		return strconv.ErrSyntax
	case math.Abs(f) > jsonwire.MaxInteger:
		return &Error{Kind: OutOfRange, Want: "an integer", Got: string(v)}
	case f != math.Trunc(f):
		return strconv.ErrSyntax
	}
	*n = Integer(f)
	return nil
}
