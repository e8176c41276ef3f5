package jsonwire

import (
	"cmp"
	"encoding/json"
	"reflect"
	"strings"
	"sync"

	"github.com/llmhttp/llmhttp/internal/membername"
)

// Bounds of a document that is decoded by tags.
const (
	// MaxElements is the maximum number of elements of an array that is decoded.
	MaxElements = 16384

	// MaxTaggedValues is the maximum number of members and elements of the whole document,
	// with those that are skipped or kept undecoded.
	MaxTaggedValues = 2 * MaxValues
)

// A TagDecoder is a pointer to a type that reads its JSON itself.
type TagDecoder interface {
	// DecodeTags reads the next value. It is not called for null, unless that is an element
	// of an array.
	DecodeTags(d *Decoder)
}

// UnmarshalTags decodes doc strictly into *v, which is zero, by the tags of its structs. It is for
// types that are only decoded, and of whose members each is checked by hand: others have a table.
// It knows structs, slices, maps with strings as keys, pointers, bool, string, int, float64,
// [Value], and any [TagDecoder] or json.Unmarshaler. Members without a field are skipped unless the
// struct has [Others], and those of embedded structs belong to the struct around them. A member that is
// null leaves its field as it is; an element may be null only if it is a Value or a json.Unmarshaler.
//
// allows reports whether doc itself may have a member without a field of a name. Nil allows all.
//
// UnmarshalTags panics if a type is not one of these, or if the name of a member is not plain:
// see package membername.
func UnmarshalTags[S ~string | ~[]byte](doc S, v any, allows func(name string) bool) *Error {
	d := decoders.Get().(*Decoder)
	d.doc, d.values, d.most, d.allows = string(doc), MaxTaggedValues, MaxTaggedValues, allows
	d.ByTags(v)
	return d.finish()
}

// ByTags reads the next value into *v as [UnmarshalTags] does.
func (d *Decoder) ByTags(v any) {
	p := reflect.ValueOf(v).Elem()
	tagDecoder(p.Type())(d, p)
}

var (
	tagDecoders    sync.Map // from reflect.Type to its func(d *Decoder, v reflect.Value)
	valueType      = reflect.TypeFor[Value]()
	unmarshaler    = reflect.TypeFor[json.Unmarshaler]()
	tagDecoderType = reflect.TypeFor[TagDecoder]()
	othersType     = reflect.TypeFor[Others]()
)

// tagDecoder returns the function that reads a value of type t.
func tagDecoder(t reflect.Type) func(d *Decoder, v reflect.Value) {
	f, ok := tagDecoders.Load(t)
	if !ok {
		f, _ = tagDecoders.LoadOrStore(t, newTagDecoder(t))
	}
	return f.(func(d *Decoder, v reflect.Value))
}

// newTagDecoder makes the function that tagDecoder returns. That looks up the functions of
// elements when it is called, because a type may contain itself.
func newTagDecoder(t reflect.Type) func(d *Decoder, v reflect.Value) {
	switch {
	case reflect.PointerTo(t).Implements(tagDecoderType):
		return func(d *Decoder, v reflect.Value) { v.Addr().Interface().(TagDecoder).DecodeTags(d) }
	case t == valueType:
		return func(d *Decoder, v reflect.Value) { v.SetString(detach(d.doc, d.View())) }
	case reflect.PointerTo(t).Implements(unmarshaler):
		return func(d *Decoder, v reflect.Value) { d.unmarshal(v.Addr().Interface().(json.Unmarshaler)) }
	}
	switch t.Kind() {
	case reflect.Bool:
		return func(d *Decoder, v reflect.Value) { v.SetBool(d.Bool()) }
	case reflect.Int:
		return func(d *Decoder, v reflect.Value) { v.SetInt(d.Int()) }
	case reflect.Float64:
		return func(d *Decoder, v reflect.Value) { v.SetFloat(d.Float(64)) }
	case reflect.String:
		return func(d *Decoder, v reflect.Value) { v.SetString(d.String()) }
	case reflect.Pointer:
		return func(d *Decoder, v reflect.Value) {
			v.Set(reflect.New(t.Elem()))
			tagDecoder(t.Elem())(d, v.Elem())
		}
	case reflect.Slice:
		return func(d *Decoder, v reflect.Value) { d.sliceByTags(v) }
	case reflect.Map:
		return func(d *Decoder, v reflect.Value) { d.mapByTags(v) }
	case reflect.Struct:
		s := new(taggedStruct)
		s.addFields(t, nil)
		return s.decode
	}
	panic("jsonwire: no values of type " + t.String())
}

// unmarshal reads any value and passes it to v.
func (d *Decoder) unmarshal(v json.Unmarshaler) {
	if raw := d.Raw(); d.err == nil {
		if err := v.UnmarshalJSON(raw); err != nil {
			d.Fail(err)
		}
	}
}

func (d *Decoder) sliceByTags(v reflect.Value) {
	list, zero := reflect.MakeSlice(v.Type(), 0, 0), reflect.Zero(v.Type().Elem())
	decode := tagDecoder(zero.Type())
	d.Array(MaxElements, func(i int) {
		list = reflect.Append(list, zero)
		decode(d, list.Index(i))
	})
	v.Set(list)
}

func (d *Decoder) mapByTags(v reflect.Value) {
	m, t := reflect.MakeMap(v.Type()), v.Type().Elem()
	decode := tagDecoder(t)
	d.object(func(name string) {
		element := reflect.New(t).Elem()
		decode(d, element)
		m.SetMapIndex(reflect.ValueOf(strings.Clone(name)), element)
	})
	v.Set(m)
}

// object reads an object, whose names must differ, and calls member for each member, which
// reads its value.
func (d *Decoder) object(member func(name string)) {
	if !d.begin('{', "an object") {
		return
	}
	names := d.beginNames()
	for n := 0; ; n++ {
		name, ok := d.member(n)
		if !ok {
			break
		}
		d.checkName(&names, n, name)
		member(name)
	}
	d.endNames(&names)
}

// Text returns the text of the value that read reads.
func (d *Decoder) Text(read func()) Value {
	return d.TextIf(func() bool {
		read()
		return true
	})
}

// TextIf is like Text, but returns "" if read, which reads a value, returns false.
func (d *Decoder) TextIf(read func() bool) Value {
	d.peek()
	start := d.pos
	if !read() || d.err != nil {
		return ""
	}
	return Value(detach(d.doc, d.doc[start:d.pos]))
}

// Others has the members of an object that its struct has no field for, except those that are null. A
// struct may have one field of this type, which has no tag.
type Others map[string]json.RawMessage

// A taggedStruct describes the members of a struct by its tags.
type taggedStruct struct {
	names  []string
	fields []taggedField
	others []int // the index of the field of type Others; nil if there is none
}

type taggedField struct {
	index []int // see reflect.Value.FieldByIndex
	typ   reflect.Type
}

// addFields adds the members of t, which is at an index of the struct.
func (s *taggedStruct) addFields(t reflect.Type, at []int) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		index := append(at[:len(at):len(at)], f.Index...)
		switch {
		case f.Type == othersType:
			s.others = index
		case f.Anonymous && name == "":
			s.addFields(f.Type, index)
		case !f.IsExported():
		case name == "" || !membername.Plain(name):
			panic("jsonwire: not a plain name: " + name)
		default:
			s.names = append(s.names, name)
			s.fields = append(s.fields, taggedField{index, f.Type})
		}
	}
}

func (s *taggedStruct) decode(d *Decoder, v reflect.Value) {
	isDocument := len(d.path) == 0
	d.object(func(name string) {
		i := s.find(name)
		if i < 0 {
			d.checkUnknown(name, s.names, isDocument)
			s.decodeOther(d, v, name)
			return
		}
		if f := &s.fields[i]; !d.Null() {
			tagDecoder(f.typ)(d, v.FieldByIndex(f.index))
		}
	})
}

// decodeOther reads the value of a member that has no field.
func (s *taggedStruct) decodeOther(d *Decoder, v reflect.Value, name string) {
	if s.others == nil {
		d.Skip()
		return
	}
	if d.Null() {
		return
	}
	raw := d.Raw()
	if d.err != nil {
		return
	}
	others := v.FieldByIndex(s.others).Addr().Interface().(*Others)
	if *others == nil {
		*others = make(Others)
	}
	(*others)[detach(d.doc, name)] = raw
}

func (s *taggedStruct) find(name string) int {
	for i := range s.names {
		if s.names[i] == name {
			return i
		}
	}
	return -1
}

// checkUnknown fails if an object with members of known names must not have one with a name that
// is none of them.
func (d *Decoder) checkUnknown(name string, known []string, isDocument bool) {
	if folded := membername.Folded(name, known); folded != "" {
		d.failHere(&Error{Kind: WrongCase, Want: folded})
	} else if isDocument && d.allows != nil && !d.allows(name) {
		d.failHere(&Error{Kind: Unknown})
	}
}

// A Value is a JSON value that is not decoded, without space around it; empty if it is
// missing.
type Value string

// Kind returns the kind of v: one of '{', '[', '"', '0', 't', 'f' and 'n', or 0 if v is empty.
func (v Value) Kind() byte { return (&lexer{doc: string(v)}).Kind() }

// IsNull reports whether v is null or missing.
func (v Value) IsNull() bool { return v == "" || v.Kind() == 'n' }

// MarshalJSON returns the text of v, or null if it is empty.
func (v Value) MarshalJSON() ([]byte, error) { return []byte(cmp.Or(v, "null")), nil }
