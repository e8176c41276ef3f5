package jsonwire

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
)

// A Type describes how values of a Go type are written in JSON.
type Type[V any] interface {
	// Decode reads the next value into *v.
	Decode(d *Decoder, v *V)

	// Append appends *v.
	Append(b []byte, v *V) ([]byte, error)

	// IsZero reports whether a member may be left out.
	IsZero(v *V) bool
}

// A stringType is the Type of strings. Empty is how "" is written.
type stringType[S ~string] struct{ empty string }

func (stringType[S]) Decode(d *Decoder, s *S) { *s = S(d.String()) }
func (stringType[S]) IsZero(s *S) bool        { return *s == "" }

func (t stringType[S]) Append(b []byte, s *S) ([]byte, error) {
	if *s == "" {
		return append(b, t.empty...), nil
	}
	return AppendString(b, string(*s)), nil
}

// A plainStringType is the Type of strings where another value counts as "".
type plainStringType struct{ stringType[string] }

func (plainStringType) Decode(d *Decoder, s *string) {
	if *s = ""; d.Kind() == '"' {
		*s = d.String()
	} else {
		d.Skip()
	}
}

type boolType struct{}

func (boolType) Decode(d *Decoder, v *bool)               { *v = d.Bool() }
func (boolType) Append(b []byte, v *bool) ([]byte, error) { return strconv.AppendBool(b, *v), nil }
func (boolType) IsZero(v *bool) bool                      { return !*v }

type intType[I ~int | ~int64] struct{}

func (intType[I]) Append(b []byte, n *I) ([]byte, error) {
	return strconv.AppendInt(b, int64(*n), 10), nil
}
func (intType[I]) IsZero(n *I) bool { return *n == 0 }

func (intType[I]) Decode(d *Decoder, n *I) {
	if !d.lenient {
		*n = I(d.Int())
	} else if i, ok := d.lenientInt(); ok {
		*n = I(i)
	}
}

type floatType struct{}

func (floatType) Decode(d *Decoder, f *float64)               { *f = d.Float(64) }
func (floatType) Append(b []byte, f *float64) ([]byte, error) { return AppendFloat(b, *f, 64) }
func (floatType) IsZero(f *float64) bool                      { return *f == 0 }

// A rawType is the Type of values that are kept as they are. Null is nil.
type rawType struct{}

func (rawType) Decode(d *Decoder, raw *json.RawMessage)               { *raw = d.Raw() }
func (rawType) Append(b []byte, raw *json.RawMessage) ([]byte, error) { return AppendRaw(b, *raw) }
func (rawType) IsZero(raw *json.RawMessage) bool                      { return *raw == nil }

// A base64Type is the Type of bytes that are written in base64.
type base64Type struct{}

func (base64Type) IsZero(v *[]byte) bool { return *v == nil }

func (base64Type) Decode(d *Decoder, v *[]byte) { *v = d.Base64() }

func (base64Type) Append(b []byte, v *[]byte) ([]byte, error) {
	return append(base64.StdEncoding.AppendEncode(append(b, '"'), *v), '"'), nil
}

// A pointerType is the Type of values that may be missing. Null is nil.
type pointerType[V any] struct{ to Type[V] }

func (pointerType[V]) IsZero(v **V) bool { return *v == nil }

func (t pointerType[V]) Decode(d *Decoder, v **V) {
	if *v == nil {
		*v = new(V)
	}
	t.to.Decode(d, *v)
}

func (t pointerType[V]) Append(b []byte, v **V) ([]byte, error) {
	if *v == nil {
		return append(b, "null"...), nil
	}
	return t.to.Append(b, *v)
}

// A listType is the Type of arrays of objects.
type listType[V any] struct {
	of   *Object[V]
	most int // the maximum number of elements in a strict document; 0 is no bound
}

// ListOf returns the Type of arrays of objects. A strict decoder refuses arrays of
// more than most elements; 0 is no bound. A lenient one skips elements that are not
// objects.
func ListOf[V any](of *Object[V], most int) Type[[]V] { return listType[V]{of, most} }

func (listType[V]) IsZero(v *[]V) bool { return len(*v) == 0 }

func (t listType[V]) Decode(d *Decoder, v *[]V) {
	var list []V
	ok := d.Array(t.most, func(int) {
		if d.peek() != '{' {
			if d.lenient {
				d.Skip()
			} else {
				d.Mismatch("an object")
			}
			return
		}
		if list == nil && !d.lenient {
			list = make([]V, 0, 2) // requests have several messages, replies mostly one choice
		}
		var zero V
		list = append(list, zero)
		last := &list[len(list)-1]
		if t.of.initElement != nil {
			t.of.initElement(last, len(list)-1)
		}
		t.of.Decode(d, last)
	})
	if ok && list == nil {
		list = []V{}
	}
	if ok {
		*v = list
	}
}

func (t listType[V]) Append(b []byte, v *[]V) ([]byte, error) { return appendElements(b, t.of, *v) }

// An arrayType is the Type of arrays whose elements have a Type of their own.
type arrayType[V any] struct {
	of   Type[V]
	most int // as in a listType
}

func (arrayType[V]) IsZero(v *[]V) bool { return len(*v) == 0 }

func (t arrayType[V]) Decode(d *Decoder, v *[]V) {
	list := []V{}
	ok := d.Array(t.most, func(int) {
		var element V
		t.of.Decode(d, &element)
		list = append(list, element)
	})
	if ok {
		*v = list
	}
}

func (t arrayType[V]) Append(b []byte, v *[]V) ([]byte, error) { return appendElements(b, t.of, *v) }

// appendElements appends an array.
func appendElements[V any](b []byte, of Type[V], list []V) ([]byte, error) {
	b = append(b, '[')
	for i := range list {
		if i > 0 {
			b = append(b, ',')
		}
		var err error
		if b, err = of.Append(b, &list[i]); err != nil {
			return b, err
		}
	}
	return append(b, ']'), nil
}
