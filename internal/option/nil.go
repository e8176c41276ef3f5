package option

import (
	"fmt"
	"reflect"
)

// IsNil reports whether v is nil or holds a nil pointer or function: a variable that was never set,
// whose methods would fail at the first request.
func IsNil(v any) bool { return v == nil || isNil(reflect.ValueOf(v)) }

func isNil(v reflect.Value) bool {
	return (v.Kind() == reflect.Pointer || v.Kind() == reflect.Func) && v.IsNil()
}

// CheckInterfaces returns an error that names the first interface in opts, a pointer to a struct or
// a nil pointer, that holds a nil pointer or function. It also checks the structs within opts. An
// interface that is nil is an option that is not set.
func CheckInterfaces(opts any) error {
	v := reflect.ValueOf(opts)
	if v.IsNil() {
		return nil
	}
	return checkStruct(v.Elem(), "Options")
}

func checkStruct(v reflect.Value, name string) error {
	for i := range v.NumField() {
		f, name := v.Field(i), name+"."+v.Type().Field(i).Name
		switch f.Kind() {
		case reflect.Interface:
			if e := f.Elem(); e.IsValid() && isNil(e) {
				return fmt.Errorf("%s holds a nil %s", name, e.Type())
			}
		case reflect.Struct:
			if err := checkStruct(f, name); err != nil {
				return err
			}
		}
	}
	return nil
}
