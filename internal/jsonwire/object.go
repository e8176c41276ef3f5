package jsonwire

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/llmhttp/llmhttp/internal/membername"
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
	known    []string // names that a strict decoder refuses in another case: see Known

	discriminator   string // see Discriminator; empty if it was not called
	discriminatorAt func(v *T) *string

	initElement func(v *T, i int) // see InitElement; nil if there is nothing to do
	afterDecode func(v *T)        // see AfterDecode; nil if there is nothing to do
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
		o.Known(f.name)
	}
	if len(o.fields) > 64 {
		panic("jsonwire: too many fields")
	}
	return o
}

// Known adds names of members that a strict decoder refuses in another case. Those of
// fields, whatever their conditions, need not be added. It panics if a name has upper-case
// letters or characters outside of ASCII.
func (o *Object[T]) Known(names ...string) *Object[T] {
	for _, name := range names {
		if !membername.Plain(name) {
			panic("jsonwire: not a plain name: " + name)
		}
	}
	o.known = append(o.known, names...)
	return o
}

// KnownNames returns the names that a strict decoder refuses in another case.
func (o *Object[T]) KnownNames() []string { return slices.Clone(o.known) }

// Reserve names members that are not encoded from the Extra map, although they
// have no field.
func (o *Object[T]) Reserve(names ...string) *Object[T] {
	o.reserved = append(o.reserved, names...)
	return o
}

// Discriminator names a member that is a string and on which the conditions of
// [Field.When] depend. It is read before the other members, even if they stand
// before it in the object.
func (o *Object[T]) Discriminator(name string, at func(v *T) *string) *Object[T] {
	o.discriminator, o.discriminatorAt = name, at
	return o
}

// InitElement sets a function that is called for each element of an array, with its
// index, before it is decoded.
func (o *Object[T]) InitElement(init func(v *T, i int)) *Object[T] {
	o.initElement = init
	return o
}

// AfterDecode sets a function that is called for each value that was decoded.
func (o *Object[T]) AfterDecode(f func(v *T)) *Object[T] {
	o.afterDecode = f
	return o
}

// Decode reads an object into *v.
func (o *Object[T]) Decode(d *Decoder, v *T) {
	if o.discriminatorAt != nil {
		*o.discriminatorAt(v) = d.peekMember(o.discriminator)
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
	if o.afterDecode != nil && d.err == nil {
		o.afterDecode(v)
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
	if !d.lenient {
		if known := membername.Folded(name, o.known); known != "" {
			d.failHere(&Error{Kind: WrongCase, Want: known})
			return
		}
	}
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
	if slices.Contains(o.reserved, name) {
		return true
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

// Check returns an error for the first number that is out of the bounds of its field.
func (o *Object[T]) Check(v *T) *Error {
	for i := range o.fields {
		f := &o.fields[i]
		if f.least == f.most {
			continue
		}
		number, ok := f.number(v)
		if ok && !(number >= f.least && number <= f.most) { // also if it is NaN
			e := &Error{Kind: OutOfRange, Path: f.name, Integer: f.integer, Limit: f.least, Got: FormatNumber(number)}
			if e.Above = number > f.most; e.Above {
				e.Limit = f.most
			}
			return e
		}
	}
	return nil
}
