// Package texttest finds the strings of a type by reflection, for tests that none of them is
// forgotten.
package texttest

import (
	"fmt"
	"reflect"
	"strings"
)

// Each calls f for each string in v, at every depth, with its path.
func Each(v reflect.Value, at string, f func(path string, s reflect.Value)) {
	switch v.Kind() {
	case reflect.String:
		f(at, v)
	case reflect.Struct:
		for i := range v.NumField() {
			Each(v.Field(i), at+"."+v.Type().Field(i).Name, f)
		}
	case reflect.Slice:
		for i := range v.Len() {
			Each(v.Index(i), fmt.Sprintf("%s[%d]", at, i), f)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			Each(v.Elem(), at, f)
		}
	}
}

// makeElements gives each list in v that is on the way to path one element, and each pointer a
// value. If path is empty, it does so for all of them.
func makeElements(v reflect.Value, at, path string) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			makeElements(v.Field(i), at+"."+v.Type().Field(i).Name, path)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 && (path == "" || strings.HasPrefix(path, at+"[0]")) {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			makeElements(v.Index(0), at+"[0]", path)
		}
	case reflect.Pointer:
		if path == "" || strings.HasPrefix(path, at+".") {
			v.Set(reflect.New(v.Type().Elem()))
			makeElements(v.Elem(), at, path)
		}
	}
}

// Paths returns the paths of all strings that a T can have.
func Paths[T any]() (paths []string) {
	v := reflect.ValueOf(new(T)).Elem()
	makeElements(v, "", "")
	Each(v, "", func(path string, _ reflect.Value) { paths = append(paths, path) })
	return paths
}

// With returns a T that has the string s at path. If it is in an element of a list, the other
// strings of the element have a value too, so that the element is not dropped.
func With[T any](path, s string) *T {
	value := new(T)
	v := reflect.ValueOf(value).Elem()
	makeElements(v, "", path)
	Each(v, "", func(at string, other reflect.Value) {
		switch {
		case at == path:
			other.SetString(s)
		case strings.Contains(at, "["):
			other.SetString("p")
		}
	})
	return value
}

// At returns the string at path in what v points to, or "".
func At(v any, path string) (text string) {
	Each(reflect.ValueOf(v).Elem(), "", func(at string, s reflect.Value) {
		if at == path {
			text = s.String()
		}
	})
	return text
}
