package members

import (
	"encoding/json"
	"reflect"
	"strings"
	"time"
)

// A member is a member of an object that a struct of an SDK describes.
type member struct {
	name     string
	typ      reflect.Type
	required bool
	constant string // the value of a member such as type, which the type determines
}

// membersOf returns the members of a struct.
func membersOf(t reflect.Type) []member {
	var list []member
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" || !f.IsExported() {
			continue
		}
		m := member{name: name, typ: f.Type, constant: f.Tag.Get("default")}
		m.required = f.Tag.Get("api") == "required" || m.constant != "" || strings.Contains(options, "required")
		list = append(list, m)
	}
	return list
}

// variantsOf returns the types of a union of parameters, or nil if t is none.
func variantsOf(t reflect.Type) []reflect.StructField {
	if t.Kind() != reflect.Struct {
		return nil
	}
	isUnion := false
	var variants []reflect.StructField
	for f := range t.Fields() {
		switch {
		case f.Anonymous && f.Type.Name() == "APIUnion":
			isUnion = true
		case f.IsExported() && strings.HasPrefix(f.Name, "Of"):
			variants = append(variants, f)
		}
	}
	if !isUnion {
		return nil
	}
	return variants
}

// plain returns the type of the value that t stands for: what a pointer points to, and what an optional
// parameter has.
func plain(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return plain(t.Elem())
	}
	if strings.HasPrefix(t.Name(), "Opt[") {
		value, _ := t.FieldByName("Value")
		return value.Type
	}
	return t
}

var timeType, rawType = reflect.TypeFor[time.Time](), reflect.TypeFor[json.RawMessage]()

// isObject reports whether values of t are objects whose members are known.
func isObject(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && t != timeType && variantsOf(t) == nil && len(membersOf(t)) > 0
}
