// Compares, describes and simplifies structs, such as calls, by reflection.

package kit

import (
	"bytes"
	"fmt"
	"iter"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// The functions in this file use the exported fields of structs, also of those in pointers and lists.

// isStruct reports whether v has fields of interest. A time has none.
func isStruct(v reflect.Value) bool {
	return v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[time.Time]()
}

// isList reports whether v is a slice, but not a text.
func isList(v reflect.Value) bool {
	return v.Kind() == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8
}

// exported yields the indices of the exported fields of a struct.
func exported(v reflect.Value) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && !yield(i) {
				return
			}
		}
	}
}

// fieldName returns the name of a field in name, such as Limits.Quota. Embedded structs have no
// name.
func fieldName(name string, f reflect.StructField) string {
	if f.Anonymous {
		return name
	}
	return strings.TrimPrefix(name+"."+f.Name, ".")
}

// WantSame reports an error unless two structs of a type are the same. Times are the same if they
// are the same instant. A nil list differs from an empty one.
func WantSame[T any](t testing.TB, did string, got, want T) {
	t.Helper()
	if saw, wanted := diff(got, want); saw != "" {
		Wrong(t, did, saw, wanted)
	}
}

// diff describes the fields in which two structs of a type differ.
func diff[T any](got, want T) (saw, wanted string) {
	var d diffs
	d.add("", reflect.ValueOf(got), reflect.ValueOf(want))
	return strings.Join(d.saw, ", "), strings.Join(d.want, ", ")
}

type diffs struct{ saw, want []string }

func (d *diffs) add(name string, got, want reflect.Value) {
	switch {
	case isStruct(got):
		for i := range exported(got) {
			d.add(fieldName(name, got.Type().Field(i)), got.Field(i), want.Field(i))
		}
		return
	case got.Kind() == reflect.Pointer && !got.IsNil() && !want.IsNil():
		d.add(name, got.Elem(), want.Elem())
		return
	case isList(got) && got.Len() == want.Len() && got.Len() > 0:
		for i := range got.Len() {
			d.add(fmt.Sprintf("%s[%d]", name, i), got.Index(i), want.Index(i))
		}
		return
	}
	same := reflect.DeepEqual(got.Interface(), want.Interface())
	switch g := got.Interface().(type) {
	case time.Time:
		same = g.Equal(want.Interface().(time.Time))
	case []byte:
		same = bytes.Equal(g, want.Bytes())
	}
	if !same {
		d.saw = append(d.saw, name+" "+describeValue(got))
		d.want = append(d.want, name+" "+describeValue(want))
	}
}

// describeValue quotes texts and tells nil lists from empty ones. It describes the fields of a
// struct that are not zero. It shortens long texts.
func describeValue(v reflect.Value) string {
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
		return describeTime(v.Interface().(time.Time))
	case v.Kind() == reflect.String, v.Kind() == reflect.Slice && !isList(v):
		if v.Len() > 60 {
			return fmt.Sprintf("%.60q... of %d bytes", v, v.Len())
		}
		return fmt.Sprintf("%q", v)
	case (v.Kind() == reflect.Slice || v.Kind() == reflect.Pointer) && v.IsNil():
		return "nil"
	case v.Type() == reflect.TypeFor[*time.Location]():
		return v.Interface().(*time.Location).String()
	case v.Kind() == reflect.Pointer:
		return describeValue(v.Elem())
	case v.Kind() == reflect.Slice:
		var list []string
		for i := range v.Len() {
			list = append(list, describeValue(v.Index(i)))
		}
		return "[" + strings.Join(list, " ") + "]"
	case isStruct(v):
		return "(" + strings.Join(appendFields(nil, "", v), ", ") + ")"
	}
	return fmt.Sprintf("%+v", v)
}

// appendFields describes each field that is not zero.
func appendFields(list []string, name string, v reflect.Value) []string {
	if !isStruct(v) {
		return append(list, name+" "+describeValue(v))
	}
	for i := range exported(v) {
		if !v.Field(i).IsZero() {
			list = appendFields(list, fieldName(name, v.Type().Field(i)), v.Field(i))
		}
	}
	return list
}

func describeTime(t time.Time) string {
	if t.IsZero() {
		return "zero"
	}
	return t.Format(time.RFC3339Nano)
}

// Describe formats the fields of a struct that are not zero, or another value.
func Describe(v any) string { return describeValue(reflect.ValueOf(v)) }

// DescribeCall formats a call that is a struct by its type and the fields that are not zero.
func DescribeCall[Call any](c Call) string {
	v := reflect.ValueOf(c)
	name := v.Type().Name()
	return strings.ToUpper(name[:1]) + name[1:] + describeValue(v)
}

// SimplerFields yields calls with one field of c set to zero, an element of a list removed, or a long
// text cut in half. It is
// for calls that are structs with exported fields, and for an interface that such structs implement.
func SimplerFields[Call any](c Call) iter.Seq[Call] {
	return func(yield func(Call) bool) {
		for v := range simplerValues(reflect.ValueOf(c)) {
			if !yield(v.Interface().(Call)) {
				return
			}
		}
	}
}

func simplerValues(v reflect.Value) iter.Seq[reflect.Value] {
	return func(yield func(reflect.Value) bool) {
		// simplify simplifies a part of v, which of returns of a copy of v.
		simplify := func(of func(v reflect.Value) reflect.Value) bool {
			for simpler := range simplerValues(of(v)) {
				c := cloneValue(v)
				if of(c).Set(simpler); !yield(c) {
					return false
				}
			}
			return true
		}
		switch {
		case v.IsZero():
		case isStruct(v):
			for i := range exported(v) {
				if !simplify(func(v reflect.Value) reflect.Value { return v.Field(i) }) {
					return
				}
			}
		case !yield(reflect.Zero(v.Type())):
		case v.Kind() == reflect.Pointer:
			simplify(reflect.Value.Elem)
		case v.Kind() == reflect.String && v.Len() > 16:
			half := v.Len() / 2
			for half > 0 && !utf8.RuneStart(v.String()[half]) {
				half--
			}
			_ = yield(v.Slice(0, half)) && yield(v.Slice(half, v.Len()))
		case isList(v):
			part := func(from, to int) reflect.Value { // the list without it
				return reflect.AppendSlice(v.Slice3(0, from, from), v.Slice(to, v.Len()))
			}
			if half := v.Len() / 2; half > 1 && (!yield(part(0, half)) || !yield(part(half, v.Len()))) {
				return
			}
			for i := range v.Len() {
				if !yield(part(i, i+1)) {
					return
				}
			}
			for i := range v.Len() {
				if e := v.Index(i); !isStruct(e) && e.Kind() != reflect.Pointer {
					return
				}
				if !simplify(func(v reflect.Value) reflect.Value { return v.Index(i) }) {
					return
				}
			}
		}
	}
}

// cloneValue returns a copy of v whose parts can be changed.
func cloneValue(v reflect.Value) reflect.Value {
	c := reflect.New(v.Type()).Elem()
	switch v.Kind() {
	case reflect.Pointer:
		c.Set(reflect.New(v.Type().Elem()))
		c.Elem().Set(v.Elem())
	case reflect.Slice:
		c.Set(reflect.AppendSlice(c, v))
	default:
		c.Set(v)
	}
	return c
}
