package jsonwire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strconv"
)

// MarshalValue returns the JSON of v, as a method MarshalJSON does.
func MarshalValue[T any](t Type[T], v *T) ([]byte, error) { return AppendValue(nil, t, v) }

// AppendValue appends the JSON of v to b. If there is an error, it returns nil.
func AppendValue[T any](b []byte, t Type[T], v *T) ([]byte, error) {
	b, err := t.Append(b, v)
	if err != nil {
		return nil, fmt.Errorf("llmhttp: encoding %T: %w", v, err)
	}
	return b, nil
}

// Replace replaces *v by what decode makes of its zero value, unless there is an error, as a method
// UnmarshalJSON does. As is usual, null changes nothing.
func Replace[T any](data []byte, v *T, decode func() error) error {
	if string(bytes.TrimSpace(data)) == "null" {
		return nil
	}
	var zero T
	old := *v
	*v = zero
	if err := decode(); err != nil {
		*v = old
		return fmt.Errorf("llmhttp: decoding %T: %w", v, err)
	}
	return nil
}

// AppendStrings appends list as an array of strings.
func AppendStrings(b []byte, list []string) ([]byte, error) {
	return AppendArray(b, list, func(b []byte, s string) ([]byte, error) { return AppendString(b, s), nil })
}

// AppendInts appends list as an array of numbers.
func AppendInts(b []byte, list []int) ([]byte, error) {
	return AppendArray(b, list, func(b []byte, n int) ([]byte, error) { return strconv.AppendInt(b, int64(n), 10), nil })
}

// AppendArray appends an array whose elements are appended by a function.
func AppendArray[E any](b []byte, list []E, appendElement func(b []byte, e E) ([]byte, error)) ([]byte, error) {
	b = append(b, '[')
	for i, e := range list {
		if i > 0 {
			b = append(b, ',')
		}
		var err error
		if b, err = appendElement(b, e); err != nil {
			return b, err
		}
	}
	return append(b, ']'), nil
}

// Text returns the text of a JSON string, or "" if raw is another value.
func Text(raw json.RawMessage) (s string) {
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// Constant returns a member that is always the same, and ignored in a document.
func Constant[T any](name, value string) Field[T] {
	return Func(name, func(_ *T, d *Decoder) { d.Skip() },
		func(_ *T, b []byte) ([]byte, error) { return AppendString(b, value), nil })
}

// ExtraSize returns the number of bytes of the members of e.
func ExtraSize(e map[string]json.RawMessage) int {
	if len(e) == 0 { // the usual case, in which a loop would cost more (budget: stream, a flush per chunk)
		return 0
	}
	n := 0
	for name, v := range e {
		n += len(name) + len(v)
	}
	return n
}

// DropInvalid removes the members of several Extras that are not JSON, and reports whether there
// were any.
func DropInvalid[E ~map[string]json.RawMessage](extras ...E) (dropped bool) {
	for _, e := range extras {
		for name, v := range e {
			if _, err := AppendRaw(nil, v); err != nil {
				delete(e, name)
				dropped = true
			}
		}
	}
	return dropped
}

// MergeExtra adds the members of b to a, which it may change, and returns the result.
func MergeExtra[E ~map[string]json.RawMessage](a, b E) E {
	if len(a) == 0 {
		return b
	}
	maps.Copy(a, b)
	return a
}

// HasValue reports whether e has a member that is not null.
func HasValue(e map[string]json.RawMessage) bool {
	for _, v := range e {
		if string(v) != "null" {
			return true
		}
	}
	return false
}

// A tableKey names the JSON of a type. A type may have several, of which the usual one has no name.
type tableKey struct {
	typ  reflect.Type
	name string
}

// tables has the types of JSON that packages share. It is only written while packages are initialized.
var tables = make(map[tableKey]any)

// Register makes t the JSON of T for other packages, which get it by [TableOf]. It is for package
// llm, whose tables are not exported. It must be called while the package is initialized.
func Register[T any](name string, t Type[T]) { tables[tableKey{reflect.TypeFor[T](), name}] = t }

// ObjectOf is TableOf for a table that is an Object.
func ObjectOf[T any](name string) *Object[T] {
	return tables[tableKey{reflect.TypeFor[T](), name}].(*Object[T])
}

// TableOf returns the JSON of T that was registered under a name. It panics if there is none.
func TableOf[T any](name string) Type[T] {
	return tables[tableKey{reflect.TypeFor[T](), name}].(Type[T])
}
