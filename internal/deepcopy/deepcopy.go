// Package deepcopy copies requests and chunks.
package deepcopy

import "reflect"

// Of returns a deep copy of *v. The copy shares strings, raw JSON and other byte
// slices with the original. T must not contain interfaces or unexported fields.
func Of[T any](v *T) *T {
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
		if from.IsNil() || from.Type().Elem().Kind() == reflect.Uint8 {
			to.Set(from)
			return
		}
		to.Set(reflect.MakeSlice(from.Type(), from.Len(), from.Len()))
		for i := range from.Len() {
			copyValue(to.Index(i), from.Index(i))
		}
	case reflect.Map:
		if from.IsNil() {
			return
		}
		to.Set(reflect.MakeMapWithSize(from.Type(), from.Len()))
		for entries := from.MapRange(); entries.Next(); {
			to.SetMapIndex(entries.Key(), entries.Value())
		}
	case reflect.Struct:
		for i := range from.NumField() {
			copyValue(to.Field(i), from.Field(i))
		}
	default:
		to.Set(from)
	}
}
