package responses

import (
	"errors"
	"reflect"
	"strconv"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Bounds on a request besides its size in bytes. Without them, decoding a small body
// could take a large amount of memory.
const (
	maxDepth    = 512     // nested arrays and objects
	maxValues   = 1 << 17 // values of arrays and objects in the whole body
	maxElements = 16384   // of an array that is decoded
)

// checkBounds returns an error if body has too many values or levels. It does not
// check that body is valid JSON; decode does.
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
			return badRequest("", "", "The JSON body of your request nests deeper than %d levels.", maxDepth)
		}
	}
	if values > maxValues {
		return badRequest("", "", "The JSON body of your request has more than %d values.", maxValues)
	}
	return nil
}

// A rawList is an array whose elements are decoded later.
type rawList []jsontext.Value

var errTooLong = errors.New("too many elements")

func (l *rawList) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if err := jsonv2.UnmarshalDecode(dec, (*[]jsontext.Value)(l)); err != nil {
		return err
	}
	if len(*l) > maxElements {
		return errTooLong
	}
	return nil
}

// decode decodes a value of a request strictly. path is the path of the value in the
// request. Errors have the path of the invalid member.
func decode(raw []byte, path string, v any) error {
	err := jsonv2.Unmarshal(raw, v)
	if err == nil {
		return nil
	}
	var semantic *jsonv2.SemanticError
	var syntactic *jsontext.SyntacticError
	switch {
	case errors.Is(err, errTooLong) && errors.As(err, &semantic):
		param := pointerPath(path, semantic.JSONPointer)
		return badRequest("array_above_max_length", param, "Invalid '%s': array too long. Expected an array with maximum length %d.", param, maxElements)
	case errors.As(err, &syntactic) && errors.Is(syntactic.Err, jsontext.ErrDuplicateName):
		param := pointerPath(path, syntactic.JSONPointer)
		return badRequest("duplicate_parameter", param, "Duplicate parameter: '%s'.", param)
	case errors.As(err, &semantic):
		param := pointerPath(path, semantic.JSONPointer)
		if param == "" {
			return badRequest("invalid_type", "", "Invalid type for the request body: expected %s.", jsonTypeName(semantic.GoType))
		}
		return invalidType(param, jsonTypeName(semantic.GoType))
	}
	return badRequest("", "", "We could not parse the JSON body of your request. (HINT: This likely means you aren't using your HTTP library correctly. The API expects a JSON payload, but what was sent was not valid JSON.)")
}

// pointerPath returns path followed by the steps of a JSON pointer, such as
// "input[2].content[0].type".
func pointerPath(path string, p jsontext.Pointer) string {
	for token := range p.Tokens() {
		if i, err := strconv.Atoi(token); err == nil {
			path = elementPath(path, i)
			continue
		}
		path = memberPath(path, token)
	}
	return path
}

// jsonTypeName returns the name of the JSON type for a Go type, with an article.
func jsonTypeName(t reflect.Type) string {
	if t == nil {
		return "another type"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return jsonTypeName(t.Elem())
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "a boolean"
	case reflect.Int:
		return "an integer"
	case reflect.Float64:
		return "a number"
	case reflect.Slice:
		return "an array"
	}
	return "an object"
}

// isNull reports whether a member is missing or null.
func isNull(raw jsontext.Value) bool { return len(raw) == 0 || raw.Kind() == 'n' }

// decodeString decodes a JSON string.
func decodeString(raw jsontext.Value, param string) (string, error) {
	if raw.Kind() != '"' {
		return "", invalidType(param, "a string")
	}
	var s string
	err := decode(raw, param, &s)
	return s, err
}

// decodeArray decodes a JSON array.
func decodeArray(raw jsontext.Value, param string) (rawList, error) {
	var l rawList
	err := decode(raw, param, &l)
	return l, err
}
