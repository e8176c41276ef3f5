package llmhttp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// Each type of the wire has a table beside it, such as chatRequestJSON, which
// decodes and encodes it: see package jsonwire. The struct tags only tell the
// reader the names; TestTagsAgreeWithTables compares them.

// decodeRequest decodes the body of a request into v, which points to a zero
// value. Its error is an *Error for the client that names the parameter at
// fault.
func decodeRequest[T any](body []byte, t jsonwire.Type[T], v *T) error {
	if err := jsonwire.Unmarshal(body, t, v); err != nil {
		return paramError(err)
	}
	return nil
}

// paramError returns what a client is told of an error in a request.
func paramError(e *jsonwire.Error) *Error {
	switch e.Kind {
	case jsonwire.WrongType:
		return errInvalidType(e.Path, e.Want, e.Got)
	case jsonwire.OutOfRange:
		return errOutOfRange(e)
	case jsonwire.Duplicate:
		return errBadRequest("duplicate_parameter", e.Path, "Duplicate parameter: '%s'.", echo(e.Path))
	case jsonwire.Missing:
		return errMissing(e.Path)
	case jsonwire.TooDeep:
		return errBadRequest("", "", "The JSON body of your request nests deeper than %d levels.", jsonwire.MaxDepth)
	case jsonwire.TooLong:
		return errLongArray(e.Path, int(e.Limit), e.Length)
	case jsonwire.TooManyMembers:
		return errBadRequest("object_above_max_properties", e.Path,
			"Invalid '%s': too many properties. Expected an object with at most %d properties.", e.Path, jsonwire.MaxMembers)
	case jsonwire.TooManyValues:
		return errBadRequest("", "", "The JSON body of your request has too many elements.")
	case jsonwire.Other:
		if refused, ok := errors.AsType[*Error](e.Err); ok {
			return refused
		}
	}
	return errBadRequest("", "", "We could not parse the JSON body of your request. (HINT: It must be one JSON document in UTF-8.)")
}

// unmarshalRequest decodes data strictly and replaces *v, unless there is an error.
// As is usual, null changes nothing.
func unmarshalRequest[T any](data []byte, t jsonwire.Type[T], v *T) error {
	return replace(data, v, func() error {
		if err := jsonwire.Unmarshal(data, t, v); err != nil {
			return errors.New(paramError(err).Message)
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
func marshal[T any](t jsonwire.Type[T], v *T) ([]byte, error) {
	b, err := t.Append(nil, v)
	if err != nil {
		return nil, fmt.Errorf("llmhttp: encoding %T: %w", v, err)
	}
	return b, nil
}

// appendJSON appends the JSON of v, which may be of any type that package
// encoding/json can encode, without needless space.
func appendJSON(b []byte, v any) ([]byte, error) {
	var doc bytes.Buffer
	enc := json.NewEncoder(&doc)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return b, fmt.Errorf("llmhttp: encoding %T: %w", v, err)
	}
	return jsonwire.AppendRaw(b, doc.Bytes())
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
