package llmhttptest

import (
	"fmt"
	"iter"
	"reflect"
	"strings"
	"time"
)

// leaves yields the fields of a struct with their names. In place of a field that is a struct,
// except for a time, it yields the fields of that, with names such as Limits.Quota.Cost.
func leaves(v reflect.Value) iter.Seq2[string, reflect.Value] {
	return func(yield func(name string, v reflect.Value) bool) { yieldLeaves(v, "", yield) }
}

func yieldLeaves(v reflect.Value, name string, yield func(string, reflect.Value) bool) bool {
	if v.Kind() != reflect.Struct || v.Type() == reflect.TypeFor[time.Time]() {
		return yield(name, v)
	}
	for i := range v.NumField() {
		inner := name
		if f := v.Type().Field(i); !f.Anonymous {
			inner = strings.TrimPrefix(name+"."+f.Name, ".")
		}
		if !yieldLeaves(v.Field(i), inner, yield) {
			return false
		}
	}
	return true
}

// diffFields describes the fields in which two structs of a type differ, or returns "". Times are
// the same if they are the same instant. A nil list differs from an empty one.
func diffFields[T any](got, want T) string {
	var diffs []string
	next, stop := iter.Pull2(leaves(reflect.ValueOf(want)))
	defer stop()
	for name, g := range leaves(reflect.ValueOf(got)) {
		_, w, _ := next()
		same := reflect.DeepEqual(g.Interface(), w.Interface())
		if at, ok := g.Interface().(time.Time); ok {
			same = at.Equal(w.Interface().(time.Time))
		}
		if !same {
			diffs = append(diffs, fmt.Sprintf("%s is %s, want %s", name, describeValue(g), describeValue(w)))
		}
	}
	return strings.Join(diffs, "; ")
}

// describeValue quotes texts and tells nil lists from empty ones.
func describeValue(v reflect.Value) string {
	if at, ok := v.Interface().(time.Time); ok {
		return at.UTC().Format(time.RFC3339Nano)
	}
	switch {
	case v.Kind() == reflect.Slice && v.IsNil():
		return "nil"
	case v.Kind() == reflect.String, v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.String:
		return fmt.Sprintf("%.60q", v)
	}
	return fmt.Sprintf("%+v", v)
}

// describeFields formats a call that is a struct by its type and the fields that are not zero.
func describeFields[Call any](c Call) string {
	var list []string
	v := reflect.ValueOf(c)
	for name, field := range leaves(v) {
		if !field.IsZero() {
			list = append(list, name+" "+describeValue(field))
		}
	}
	name := v.Type().Name()
	return strings.ToUpper(name[:1]) + name[1:] + "(" + strings.Join(list, ", ") + ")"
}

// simplerFields yields calls with one field of c set to zero, or an element of a list removed. It is
// for calls that are structs with exported fields, and for an interface that such structs implement.
func simplerFields[Call any](c Call) iter.Seq[Call] {
	return func(yield func(Call) bool) {
		simpler := reflect.New(reflect.TypeOf(c)).Elem()
		simpler.Set(reflect.ValueOf(c))
		for _, field := range leaves(simpler) {
			before := reflect.New(field.Type()).Elem()
			before.Set(field)
			for v := range simplerValues(before) {
				field.Set(v)
				if !yield(simpler.Interface().(Call)) {
					return
				}
			}
			field.Set(before)
		}
	}
}

func simplerValues(v reflect.Value) iter.Seq[reflect.Value] {
	return func(yield func(reflect.Value) bool) {
		if v.IsZero() || !yield(reflect.Zero(v.Type())) || v.Kind() != reflect.Slice {
			return
		}
		for i := range v.Len() {
			if !yield(reflect.AppendSlice(v.Slice3(0, i, i), v.Slice(i+1, v.Len()))) {
				return
			}
		}
	}
}
