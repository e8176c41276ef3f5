package jsonwire

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

// An Object is the Type of structs that are objects in JSON. It has a table of their
// members.
type Object[T any] struct {
	fields   []Field[T]
	required uint64 // bit i is set if fields[i] is required

	// How unknown members are kept; nil if they are skipped.
	extra    func(v *T) map[string]json.RawMessage
	setExtra func(v *T, members map[string]json.RawMessage)

	reserved []string // names that are not encoded from extra besides those of fields

	selector string // the member that By has named, and its field
	selected func(v *T) *string

	place func(v *T, i int)
	then  func(v *T)
}

// NewObject returns an Object with the given fields, of which there may be 64.
func NewObject[T any](fields ...Field[T]) *Object[T] {
	o := new(Object[T])
	for _, f := range fields {
		if f.extra != nil {
			o.extra, o.setExtra = f.extra, f.setExtra
			continue
		}
		if f.required {
			o.required |= 1 << len(o.fields)
		}
		o.fields = append(o.fields, f)
	}
	if len(o.fields) > 64 {
		panic("jsonwire: too many fields")
	}
	return o
}

// Reserve names members that are not encoded from the Extra map, although they
// have no field.
func (o *Object[T]) Reserve(names ...string) *Object[T] {
	o.reserved = append(o.reserved, names...)
	return o
}

// By makes the conditions of fields depend on a member that is a string. It is read
// before the other members, even if they stand before it in the object.
func (o *Object[T]) By(name string, at func(v *T) *string) *Object[T] {
	o.selector, o.selected = name, at
	return o
}

// Place sets a function that is called for each element of an array before it is
// decoded, with its position.
func (o *Object[T]) Place(place func(v *T, i int)) *Object[T] {
	o.place = place
	return o
}

// Then sets a function that is called for each value that was decoded.
func (o *Object[T]) Then(then func(v *T)) *Object[T] {
	o.then = then
	return o
}

// Decode reads an object into *v.
func (o *Object[T]) Decode(d *Decoder, v *T) {
	if o.selected != nil {
		*o.selected(v) = d.peekMember(o.selector)
	}
	if len(d.path) > 0 && d.Null() || !d.begin('{', "an object") {
		return
	}
	var seen uint64
	expected := 0 // the field that comes next if members are in the order of the table
	for n := 0; ; n++ {
		name, ok := d.member(n)
		if !ok {
			break
		}
		i := o.find(name, expected, v)
		if i < 0 {
			o.decodeUnknown(d, v, name)
			continue
		}
		if expected = i + 1; seen&(1<<i) != 0 {
			d.foundDuplicate()
		}
		seen |= 1 << i
		if f := &o.fields[i]; f.required || !d.Null() {
			f.decode(v, d)
		}
	}
	if missing := o.required &^ seen; missing != 0 && !d.lenient {
		o.checkRequired(d, v, missing)
	}
	if o.then != nil && d.err == nil {
		o.then(v)
	}
}

// find returns the index of the field with a name, or -1. It looks at the
// expected field first.
func (o *Object[T]) find(name string, expected int, v *T) int {
	for k := range o.fields {
		i := expected + k
		if i >= len(o.fields) {
			i -= len(o.fields)
		}
		if f := &o.fields[i]; f.name == name && (f.when == nil || f.when(v)) {
			return i
		}
	}
	return -1
}

// decodeUnknown reads the value of a member without a field into the Extra map, if
// there is one.
func (o *Object[T]) decodeUnknown(d *Decoder, v *T, name string) {
	if o.extra == nil {
		d.Skip()
		return
	}
	members := o.extra(v)
	if _, ok := members[name]; ok {
		d.foundDuplicate()
	}
	if !d.countValue() {
		return
	}
	raw := d.Raw()
	if d.err != nil {
		return
	}
	if members == nil {
		members = make(map[string]json.RawMessage)
		o.setExtra(v, members)
	}
	members[detach(d.doc, name)] = raw
}

// checkRequired fails if one of the missing fields is required in v.
func (o *Object[T]) checkRequired(d *Decoder, v *T, missing uint64) {
	for i := range o.fields {
		if f := &o.fields[i]; missing&(1<<i) != 0 && (f.when == nil || f.when(v)) {
			d.path = append(d.path, step{f.name, -1})
			d.failHere(&Error{Kind: Missing})
			d.path = d.path[:len(d.path)-1]
		}
	}
}

// Append appends the JSON of *v.
func (o *Object[T]) Append(b []byte, v *T) ([]byte, error) {
	b = append(b, '{')
	var err error
	for i := range o.fields {
		f := &o.fields[i]
		if f.append == nil || f.when != nil && !f.when(v) || f.omit != nil && f.omit(v) {
			continue
		}
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		b = append(b, f.quoted...)
		if b, err = f.append(v, b); err != nil {
			return b, err
		}
	}
	if o.extra != nil {
		if b, err = o.AppendExtra(b, v); err != nil {
			return b, err
		}
	}
	return append(b, '}'), nil
}

// AppendExtra appends the members without a field to the unfinished object b, in the
// order of their names.
func (o *Object[T]) AppendExtra(b []byte, v *T) ([]byte, error) {
	members := o.extra(v)
	if len(members) == 0 {
		return b, nil
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if !utf8.ValidString(name) { // two could become the same
			return b, errors.New("the name of a member is not UTF-8")
		}
		if o.hasMember(name, v) {
			continue
		}
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		var err error
		if b, err = AppendRaw(append(AppendString(b, name), ':'), members[name]); err != nil {
			return b, fmt.Errorf("member %q: %w", name, err)
		}
	}
	return b, nil
}

func (o *Object[T]) hasMember(name string, v *T) bool {
	for _, r := range o.reserved {
		if name == r {
			return true
		}
	}
	i := o.find(name, 0, v)
	return i >= 0 && o.fields[i].append != nil
}

// IsZero reports whether *v has zero values only.
func (o *Object[T]) IsZero(v *T) bool {
	for i := range o.fields {
		if f := &o.fields[i]; f.zero != nil && !f.zero(v) {
			return false
		}
	}
	return o.extra == nil || o.extra(v) == nil
}

// Check returns an error for the first number that is out of the bounds of
// its field.
func (o *Object[T]) Check(v *T) *Error {
	for i := range o.fields {
		f := &o.fields[i]
		if f.least == f.most {
			continue
		}
		number, ok := f.number(v)
		if ok && (number < f.least || number > f.most) {
			e := &Error{Kind: OutOfRange, Path: f.name, Integer: f.integer, Limit: f.least, Got: FormatNumber(number)}
			if e.Above = number > f.most; e.Above {
				e.Limit = f.most
			}
			return e
		}
	}
	return nil
}

// FormatNumber formats f for a message.
func FormatNumber(f float64) string {
	if math.Abs(f) >= 1e21 {
		return strconv.FormatFloat(f, 'e', 2, 64)
	}
	return strconv.FormatFloat(f, 'f', -1, 64)
}

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

// KeptIf encodes the member even if it has its zero value, where keep reports true.
func (f Field[T]) KeptIf(keep func(v *T) bool) Field[T] {
	zero := f.zero
	f.omit = func(v *T) bool { return zero(v) && !keep(v) }
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
	return Member(name, at, Type[I](intType[I]{}))
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

// Pointer returns a field that is an object or nil.
func Pointer[T, V any](name string, at func(v *T) **V, o *Object[V]) Field[T] {
	return Member(name, at, Type[*V](pointerType[V]{o}))
}

// List returns a field that is an array of objects: see [ListOf].
func List[T, V any](name string, at func(v *T) *[]V, of *Object[V], most int) Field[T] {
	return Member(name, at, ListOf(of, most))
}

// Extra returns the place of the members without a field.
func Extra[T any, M ~map[string]json.RawMessage](at func(v *T) *M) Field[T] {
	return Field[T]{
		extra:    func(v *T) map[string]json.RawMessage { return *at(v) },
		setExtra: func(v *T, members map[string]json.RawMessage) { *at(v) = members },
	}
}
