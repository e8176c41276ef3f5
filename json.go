package llmhttp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/param"
)

// Each type of the wire has a table beside it, such as chatRequestJSON, which
// decodes and encodes it: see package jsonwire. The struct tags only tell the
// reader the names; TestJSON_TagsAgreeWithTables compares them.

// unmarshalRequest decodes data strictly and replaces *v, unless there is an error.
// As is usual, null changes nothing.
func unmarshalRequest[T any](data []byte, t jsonwire.Type[T], v *T) error {
	return replace(data, v, func() error {
		if err := jsonwire.Unmarshal(data, t, v); err != nil {
			return param.FromJSON(err)
		}
		return nil
	})
}

// unmarshalReply decodes data leniently and replaces *v, unless there is an error.
// As is usual, null changes nothing.
func unmarshalReply[T any](data []byte, t jsonwire.Type[T], v *T) error {
	return replace(data, v, func() error {
		if err := jsonwire.UnmarshalLenient(data, t, v); err != nil {
			return err
		}
		return nil
	})
}

func replace[T any](data []byte, v *T, decode func() error) error {
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

// marshal returns the JSON of v.
func marshal[T any](t jsonwire.Type[T], v *T) ([]byte, error) { return appendJSON(nil, t, v) }

// appendJSON appends the JSON of v to b.
func appendJSON[T any](b []byte, t jsonwire.Type[T], v *T) ([]byte, error) {
	b, err := t.Append(b, v)
	if err != nil {
		return nil, fmt.Errorf("llmhttp: encoding %T: %w", v, err)
	}
	return b, nil
}

// appendString appends s as a JSON string.
func appendString(b []byte, s string) []byte { return jsonwire.AppendString(b, s) }

// appendStrings appends list as an array of strings.
func appendStrings(b []byte, list []string) ([]byte, error) {
	return appendArray(b, list, func(b []byte, s string) ([]byte, error) { return appendString(b, s), nil })
}

// appendArray appends an array whose elements are appended by a function.
func appendArray[E any](b []byte, list []E, appendElement func(b []byte, e E) ([]byte, error)) ([]byte, error) {
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

// textOf returns the text of a JSON string, or "" if raw is another value.
func textOf(raw json.RawMessage) (s string) {
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// Extra holds the JSON members of an object that have no field in its Go type. They are kept when
// the object is encoded again, so that new and vendor-specific members pass through without a
// release of this package. A member that has a field is never encoded from Extra.
type Extra map[string]json.RawMessage

var extraJSON = jsonwire.NewObject(jsonwire.Extra(func(e *Extra) *Extra { return e }))

// size returns the number of bytes of the members of e.
func (e Extra) size() int {
	if len(e) == 0 { // the usual case, in which a loop would cost more (budget: stream, a flush per chunk)
		return 0
	}
	n := 0
	for name, v := range e {
		n += len(name) + len(v)
	}
	return n
}

// dropInvalid removes the members of several Extras that are not JSON, and
// reports whether there were any.
func dropInvalid(extras ...Extra) (dropped bool) {
	for _, e := range extras {
		for name, v := range e {
			if _, err := jsonwire.AppendRaw(nil, v); err != nil {
				delete(e, name)
				dropped = true
			}
		}
	}
	return dropped
}

// mergeExtra adds the members of b to a, which it may change, and returns the
// result.
func mergeExtra(a, b Extra) Extra {
	if len(a) == 0 {
		return b
	}
	maps.Copy(a, b)
	return a
}

// hasValue reports whether e has a member that is not null.
func hasValue(e Extra) bool {
	for _, v := range e {
		if string(v) != "null" {
			return true
		}
	}
	return false
}

// constantField returns a member that is always the same, and ignored in a document.
func constantField[T any](name, value string) jsonwire.Field[T] {
	return jsonwire.Func(name, func(_ *T, d *jsonwire.Decoder) { d.Skip() },
		func(_ *T, b []byte) ([]byte, error) { return appendString(b, value), nil })
}

// objectField returns the member "object", which is constant. If a server sends "error"
// there, decoding keeps it in Extra, where wrapErrorMembers finds it.
func objectField[T any](constant string, extra func(*T) *Extra) jsonwire.Field[T] {
	return constantField[T](memberObject, constant).DecodeWith(func(v *T, d *jsonwire.Decoder) {
		if raw := d.View(); raw == `"error"` {
			*extra(v) = mergeExtra(*extra(v), Extra{memberObject: json.RawMessage(raw)})
		}
	})
}

const memberObject = "object"

// wrapErrorMembers moves the members of a reply that is an error to Extra["error"].
func wrapErrorMembers(extra *Extra) {
	if _, ok := (*extra)[memberObject]; !ok {
		return
	}
	delete(*extra, memberObject)
	b, _ := extraJSON.Append(nil, extra) // which is valid, because it was decoded
	*extra = Extra{objectError: b}
}
