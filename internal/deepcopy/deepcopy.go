// Package deepcopy copies requests and chunks.
package deepcopy

import (
	"bytes"
	"reflect"
)

// Of returns a deep copy of *v, or nil if v is nil. The copy shares nothing with the
// original that can change, except what interfaces hold. T must not contain unexported fields.
func Of[T any](v *T) *T {
	if v == nil {
		return nil
	}
	n := new(T)
	copyValue(reflect.ValueOf(n).Elem(), reflect.ValueOf(v).Elem())
	return n
}

// copyValue sets to, which is zero, to a deep copy of from.
func copyValue(to, from reflect.Value) {
	switch from.Kind() {
	case reflect.Pointer:
		if !from.IsNil() {
			to.Set(reflect.New(from.Type().Elem()))
			copyValue(to.Elem(), from.Elem())
		}
	case reflect.Slice:
		copySlice(to, from)
	case reflect.Map:
		copyMap(to, from)
	case reflect.Struct:
		for i := range from.NumField() {
			copyValue(to.Field(i), from.Field(i))
		}
	default:
		to.Set(from)
	}
}

func copySlice(to, from reflect.Value) {
	if from.IsNil() {
		return
	}
	if from.Type().Elem().Kind() == reflect.Uint8 {
		to.SetBytes(bytes.Clone(from.Bytes()))
		return
	}
	to.Set(reflect.MakeSlice(from.Type(), from.Len(), from.Len()))
	for i := range from.Len() {
		copyValue(to.Index(i), from.Index(i))
	}
}

func copyMap(to, from reflect.Value) {
	if from.IsNil() {
		return
	}
	to.Set(reflect.MakeMapWithSize(from.Type(), from.Len()))
	for entries := from.MapRange(); entries.Next(); {
		value := reflect.New(from.Type().Elem()).Elem()
		copyValue(value, entries.Value())
		to.SetMapIndex(entries.Key(), value)
	}
}
