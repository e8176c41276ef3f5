package jsonwire

import "encoding/json"

// A Field describes a member of an object whose Go type is T.
type Field[T any] struct {
	name   string
	quoted string // the name as it is encoded, with the colon
	decode func(v *T, d *Decoder)
	append func(v *T, b []byte) ([]byte, error) // nil: the member is never encoded
	zero   func(v *T) bool                      // the member has its zero value; nil if it has no Go field
	omit   func(v *T) bool                      // leave the member out; nil: never
	when   func(v *T) bool                      // v has the member; nil: always

	required bool

	number      func(v *T) (float64, bool) // nil unless it is a number
	integer     bool
	least, most float64 // bounds of the number unless they are equal

	extra    func(v *T) map[string]json.RawMessage
	setExtra func(v *T, members map[string]json.RawMessage)
}

// Always encodes the member even if it has its zero value.
func (f Field[T]) Always() Field[T] {
	f.omit = nil
	return f
}

// AlwaysIf encodes the member even if it has its zero value, where keep reports true.
func (f Field[T]) AlwaysIf(keep func(v *T) bool) Field[T] {
	zero := f.zero
	f.omit = func(v *T) bool { return zero(v) && !keep(v) }
	return f
}

// ZeroIf leaves the member of a [Func] out where zero reports true.
func (f Field[T]) ZeroIf(zero func(v *T) bool) Field[T] {
	f.zero, f.omit = zero, zero
	return f
}

// When restricts the field to values for which condition reports true. Of others it
// is an unknown member.
func (f Field[T]) When(condition func(v *T) bool) Field[T] {
	f.when = condition
	return f
}

// Required makes a strict decoder refuse objects without the member, or where it is
// null.
func (f Field[T]) Required() Field[T] {
	f.required = true
	return f
}

// Between sets the bounds of a number that is checked by [Object.Check].
func (f Field[T]) Between(least, most float64) Field[T] {
	if f.number == nil || least >= most {
		panic("jsonwire: no bounds for " + f.name)
	}
	f.least, f.most = least, most
	return f
}

// DecodeWith sets another function that decodes the member. It is not called for null.
func (f Field[T]) DecodeWith(decode func(v *T, d *Decoder)) Field[T] {
	f.decode = decode
	return f
}

// AppendWith sets another function that appends the value of the member.
func (f Field[T]) AppendWith(append func(v *T, b []byte) ([]byte, error)) Field[T] {
	f.append = append
	return f
}

// Member returns a field with a Type of its own. At returns where a struct has it.
func Member[T, V any](name string, at func(v *T) *V, t Type[V]) Field[T] {
	f := Func(name,
		func(v *T, d *Decoder) { t.Decode(d, at(v)) },
		func(v *T, b []byte) ([]byte, error) { return t.Append(b, at(v)) })
	f.zero = func(v *T) bool { return t.IsZero(at(v)) }
	f.omit = f.zero
	return f
}

// Func returns a field that is decoded and encoded by functions. It is always
// encoded; if append is nil, never. Decode is not called for null.
func Func[T any](name string, decode func(v *T, d *Decoder), append func(v *T, b []byte) ([]byte, error)) Field[T] {
	return Field[T]{name: name, quoted: string(AppendString(nil, name)) + ":", decode: decode, append: append}
}

// String returns a field that is a string.
func String[T any, S ~string](name string, at func(v *T) *S) Field[T] {
	return Member(name, at, Type[S](stringType[S]{empty: `""`}))
}

// StringOr returns a field that is a string and always encoded. The JSON text empty
// stands for "".
func StringOr[T any, S ~string](name string, at func(v *T) *S, empty string) Field[T] {
	return Member(name, at, Type[S](stringType[S]{empty: empty})).Always()
}

// PlainString returns a field that is a string. A lenient decoder takes other values
// for "".
func PlainString[T any](name string, at func(v *T) *string) Field[T] {
	return Member(name, at, Type[string](plainStringType{stringType[string]{empty: `""`}}))
}

// Bool returns a field that is a boolean.
func Bool[T any](name string, at func(v *T) *bool) Field[T] {
	return Member(name, at, Type[bool](boolType{}))
}

// Int returns a field that is an integer.
func Int[T any, I ~int | ~int64](name string, at func(v *T) *I) Field[T] {
	f := Member(name, at, Type[I](intType[I]{}))
	f.integer, f.number = true, func(v *T) (float64, bool) { return float64(*at(v)), true }
	return f
}

// Float returns a field that is a number.
func Float[T any](name string, at func(v *T) *float64) Field[T] {
	return Member(name, at, Type[float64](floatType{}))
}

// OptionalBool returns a field that is a boolean or nil.
func OptionalBool[T any](name string, at func(v *T) **bool) Field[T] {
	return Member(name, at, Type[*bool](pointerType[bool]{boolType{}}))
}

// OptionalInt returns a field that is an integer or nil.
func OptionalInt[T any](name string, at func(v *T) **int) Field[T] {
	f := Member(name, at, Type[*int](pointerType[int]{intType[int]{}}))
	f.integer = true
	f.number = func(v *T) (float64, bool) {
		if n := *at(v); n != nil {
			return float64(*n), true
		}
		return 0, false
	}
	return f
}

// OptionalFloat returns a field that is a number or nil.
func OptionalFloat[T any](name string, at func(v *T) **float64) Field[T] {
	f := Member(name, at, Type[*float64](pointerType[float64]{floatType{}}))
	f.number = func(v *T) (float64, bool) {
		if n := *at(v); n != nil {
			return *n, true
		}
		return 0, false
	}
	return f
}

// Raw returns a field that is any JSON value. Null is nil.
func Raw[T any](name string, at func(v *T) *json.RawMessage) Field[T] {
	return Member(name, at, Type[json.RawMessage](rawType{}))
}

// Base64 returns a field of bytes.
func Base64[T any](name string, at func(v *T) *[]byte) Field[T] {
	return Member(name, at, Type[[]byte](base64Type{}))
}

// Struct returns a field that is an object.
func Struct[T, V any](name string, at func(v *T) *V, o *Object[V]) Field[T] {
	return Member(name, at, Type[V](o))
}

// Pointer returns a field with a Type of its own, usually an [Object], or nil.
func Pointer[T, V any](name string, at func(v *T) **V, t Type[V]) Field[T] {
	return Member(name, at, Type[*V](pointerType[V]{t}))
}

// List returns a field that is an array of objects: see [ListOf].
func List[T, V any](name string, at func(v *T) *[]V, of *Object[V], most int) Field[T] {
	return Member(name, at, ListOf(of, most))
}

// Array returns a field that is an array of values with a Type of their own, which a strict
// decoder bounds as [ListOf] does.
func Array[T, V any](name string, at func(v *T) *[]V, of Type[V], most int) Field[T] {
	return Member(name, at, Type[[]V](arrayType[V]{of, most}))
}

// Extra returns the place of the members without a field.
func Extra[T any, M ~map[string]json.RawMessage](at func(v *T) *M) Field[T] {
	return Field[T]{
		extra:    func(v *T) map[string]json.RawMessage { return *at(v) },
		setExtra: func(v *T, members map[string]json.RawMessage) { *at(v) = members },
	}
}
