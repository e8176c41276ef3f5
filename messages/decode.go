package messages

import (
	"errors"
	"reflect"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Bounds on a request besides its size in bytes. They keep a small body from
// becoming much memory.
const (
	maxDepth  = 512
	maxValues = 1 << 17
)

// decode decodes a JSON value strictly: duplicate names and invalid UTF-8 are
// errors. Unknown members are ignored, and a null changes nothing. The error is a
// *requestError.
func decode(data []byte, v any) error {
	err := json.Unmarshal(data, v)
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*json.SemanticError](err); ok {
		return fieldError(fieldPath(e.JSONPointer), "Input should be %s", describeType(e.GoType))
	}
	if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok && e.Err == jsontext.ErrDuplicateName {
		return fieldError(fieldPath(e.JSONPointer), "Duplicate field")
	}
	return fieldError("", "The request body is not valid JSON: it must be one document in UTF-8")
}

// fieldPath returns a pointer in the form of this API's messages, such as
// "messages.2.content". Names that a client made up are shortened.
func fieldPath(p jsontext.Pointer) string {
	var b strings.Builder
	for token := range p.Tokens() {
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(clip(token))
		if b.Len() > 256 {
			break
		}
	}
	return b.String()
}

// clip returns a text of the client as a message may quote it: short and printable.
func clip(s string) string {
	const most = 64
	var b strings.Builder
	for _, r := range s {
		if b.Len() >= most {
			b.WriteString("...")
			break
		}
		if strconv.IsPrint(r) {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// describeType returns what JSON value a Go type is decoded from.
func describeType(t reflect.Type) string {
	if t == nil {
		return "another value"
	}
	switch t.Kind() {
	case reflect.String:
		return "a valid string"
	case reflect.Bool:
		return "a valid boolean"
	case reflect.Int:
		return "a valid integer"
	case reflect.Float64:
		return "a valid number"
	case reflect.Slice:
		return "a valid list"
	case reflect.Pointer:
		return describeType(t.Elem())
	}
	return "an object"
}

// checkBounds returns an error if a body nests too deep or has too many values. It
// counts them without parsing: a body that is not JSON is refused by decode.
func checkBounds(body []byte) error {
	depth, values := 0, 0
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '"':
			for i++; i < len(body) && body[i] != '"'; i++ {
				if body[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
			values++
		case '}', ']':
			depth--
		case ',':
			values++
		}
		if depth > maxDepth {
			return fieldError("", "The request body nests deeper than %d levels", maxDepth)
		}
	}
	if values > maxValues {
		return fieldError("", "The request body has more than %d values", maxValues)
	}
	return nil
}

// decodeList decodes a JSON array or returns an error.
func decodeList[T any](data jsontext.Value) (list []T, err error) {
	if data.Kind() != '[' {
		return nil, fieldError("", "Input should be a valid list")
	}
	err = decode(data, &list)
	return list, err
}

// isNull reports whether a member is absent or null.
func isNull(v jsontext.Value) bool { return len(v) == 0 || v.Kind() == 'n' }
