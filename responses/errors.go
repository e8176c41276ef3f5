package responses

import (
	"errors"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/llmhttp/llmhttp"
)

func badRequest(code, param, format string, args ...any) *llmhttp.Error {
	e := llmhttp.Errorf(http.StatusBadRequest, code, format, args...)
	e.Param = param
	return e
}

func missing(param string) *llmhttp.Error {
	return badRequest("missing_required_parameter", param, "Missing required parameter: '%s'.", param)
}

func invalidType(param, want string) *llmhttp.Error {
	return badRequest("invalid_type", param, "Invalid type for '%s': expected %s.", param, want)
}

func unsupported(param, format string, args ...any) *llmhttp.Error {
	return badRequest("unsupported_parameter", param, format, args...)
}

// at returns the path of a member or, if name is in brackets, of an element.
func at(path, name string) string {
	if path == "" || strings.HasPrefix(name, "[") {
		return path + name
	}
	return path + "." + name
}

// index returns the path of an element.
func index(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// Bounds on a request besides its size in bytes. They keep a small body from
// becoming much memory.
const (
	maxDepth    = 512     // nested arrays and objects
	maxValues   = 1 << 17 // values of arrays and objects in the whole body
	maxElements = 16384   // of an array that is decoded
)

// checkBounds counts what a body has without parsing it: a body that is not JSON
// is refused by decode.
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

// A list is an array whose elements are decoded later.
type list []jsontext.Value

var errTooLong = errors.New("too many elements")

func (l *list) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if dec.PeekKind() == 'n' {
		*l = nil
		return dec.SkipValue()
	}
	if dec.PeekKind() != '[' {
		return &jsonv2.SemanticError{JSONKind: dec.PeekKind(), GoType: reflect.TypeFor[list]()}
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	*l = list{}
	for dec.PeekKind() != ']' {
		v, err := dec.ReadValue()
		if err != nil {
			return err
		}
		if len(*l) == maxElements {
			return errTooLong
		}
		*l = append(*l, v.Clone())
	}
	_, err := dec.ReadToken()
	return err
}

// decode decodes a value of a request strictly. Errors name what is at fault
// below path.
func decode(raw []byte, path string, v any) error {
	err := jsonv2.Unmarshal(raw, v)
	if err == nil {
		return nil
	}
	var semantic *jsonv2.SemanticError
	var syntactic *jsontext.SyntacticError
	switch {
	case errors.Is(err, errTooLong) && errors.As(err, &semantic):
		param := paramOf(path, semantic.JSONPointer)
		return badRequest("array_above_max_length", param, "Invalid '%s': array too long. Expected an array with maximum length %d.", param, maxElements)
	case errors.As(err, &syntactic) && errors.Is(syntactic.Err, jsontext.ErrDuplicateName):
		param := paramOf(path, syntactic.JSONPointer)
		return badRequest("duplicate_parameter", param, "Duplicate parameter: '%s'.", param)
	case errors.As(err, &semantic):
		param := paramOf(path, semantic.JSONPointer)
		if param == "" {
			return badRequest("invalid_type", "", "Invalid type for the request body: expected %s.", kindOf(semantic.GoType))
		}
		return invalidType(param, kindOf(semantic.GoType))
	}
	return badRequest("", "", "We could not parse the JSON body of your request. (HINT: This likely means you aren't using your HTTP library correctly. The API expects a JSON payload, but what was sent was not valid JSON.)")
}

// paramOf returns the path of what a pointer points to, such as
// "input[2].content[0].type".
func paramOf(path string, p jsontext.Pointer) string {
	for token := range p.Tokens() {
		if i, err := strconv.Atoi(token); err == nil {
			path = index(path, i)
			continue
		}
		path = at(path, token)
	}
	return path
}

// kindOf returns what a Go type is in JSON, with its article.
func kindOf(t reflect.Type) string {
	if t == nil {
		return "another type"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return kindOf(t.Elem())
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

// textOf returns the string that raw is.
func textOf(raw jsontext.Value, param string) (string, error) {
	if raw.Kind() != '"' {
		return "", invalidType(param, "a string")
	}
	var s string
	err := decode(raw, param, &s)
	return s, err
}

// elements returns the elements of the array that raw is.
func elements(raw jsontext.Value, param string) (list, error) {
	var l list
	err := decode(raw, param, &l)
	return l, err
}
