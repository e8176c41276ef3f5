package llmhttp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// Each type of the wire has a table beside it, such as chatRequestJSON, which
// decodes and encodes it: see package jsonwire. The struct tags only tell the
// reader the names; TestJSON_TagsAgreeWithTables compares them.

// decodeRequest decodes the body of a request into v, which points to a zero value. Its error is an
// *Error for the client that names the parameter at fault.
func decodeRequest[T any](body []byte, t jsonwire.Type[T], v *T) error {
	if err := jsonwire.Unmarshal(body, t, v); err != nil {
		return paramError(err)
	}
	return nil
}

// paramError returns the Error that a client gets for a request that cannot be decoded, or
// for one of its members.
func paramError(e *jsonwire.Error) *Error {
	if refused, ok := errors.AsType[*Error](e.Err); ok {
		return refused
	}
	code, message := e.APIText()
	return &Error{Status: http.StatusBadRequest, Code: code, Param: e.Path, Message: message}
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

// The texts and codes of the errors below are those that OpenAI's API was recorded to send.

func errBadRequest(code, param, format string, args ...any) *Error {
	e := Errorf(http.StatusBadRequest, code, format, args...)
	e.Param = param
	return e
}

func errMissing(param string) *Error {
	return paramError(&jsonwire.Error{Kind: jsonwire.Missing, Path: param})
}

// errUnknown says that a parameter does not exist, or that Options.UnknownMembers refuses it.
func errUnknown(param string) *Error {
	return paramError(&jsonwire.Error{Kind: jsonwire.Unknown, Path: param})
}

func errEmptyArray(param string) *Error {
	return errBadRequest(
		"empty_array",
		param,
		"Invalid '%s': empty array. Expected an array with minimum length 1, but got an empty array instead.",
		param,
	)
}

func errEmptyString(param string) *Error {
	return errBadRequest("empty_string", param,
		"Invalid '%s': empty string. Expected a string with minimum length 1, but got an empty string instead.", param)
}

func errLongArray(param string, limit, got int) *Error {
	return paramError(&jsonwire.Error{Kind: jsonwire.TooLong, Path: param, Limit: float64(limit), Length: got})
}

func errLongString(param string, limit, got int) *Error {
	return errBadRequest(
		"string_above_max_length",
		param,
		"Invalid '%s': string too long. Expected a string with maximum length %d, but got a string with length %d instead.",
		param,
		limit,
		got,
	)
}

// errInvalidType says that a value is of another type than the wanted one. Both
// are given with their articles, as in "a string".
func errInvalidType(param, want, got string) *Error {
	return paramError(&jsonwire.Error{Kind: jsonwire.WrongType, Path: param, Want: want, Got: got})
}

func errInvalidValue(param, got string, supported ...string) *Error {
	return errBadRequest("invalid_value", param, "%s", jsonwire.ValueText(echo(got), supported))
}

// errInvalidText is like errInvalidValue, for parameters whose values cannot be listed.
func errInvalidText(param, got, want string) *Error {
	return errBadRequest("invalid_value", param, "Invalid '%s': '%s'. Expected %s.", param, echo(got), want)
}

// echo returns text of a client for use in an error message: shortened, printable, and
// without anything that looks like an API key.
func echo(s string) string {
	s = jsonwire.Clip(s, 64)
	if i := strings.Index(s, "sk-"); i >= 0 && len(s)-i > len("sk-")+8 {
		s = s[:i] + "sk-***"
	}
	return s
}

// elementPath names an element of a list by its index and member, as in
// "messages[1].role".
func elementPath(list string, index int, member string) string {
	p := list + "[" + strconv.Itoa(index) + "]"
	if member != "" {
		p += "." + member
	}
	return p
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
