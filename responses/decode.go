package responses

import (
	"errors"
	"strconv"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/strictjson"
)

// maxElements bounds the elements of an array that is decoded.
const maxElements = 16384

// A rawList is an array whose elements are decoded later.
type rawList []jsontext.Value

func (l *rawList) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return unmarshalList(dec, (*[]jsontext.Value)(l))
}

// unmarshalList decodes an array with a bounded number of elements.
func unmarshalList[T any](dec *jsontext.Decoder, l *[]T) error {
	err := jsonv2.UnmarshalDecode(dec, l)
	if err == nil && len(*l) > maxElements {
		err = &strictjson.Error{Kind: strictjson.TooLong, Length: len(*l), Most: maxElements}
	}
	return err
}

// decode decodes a value of a request strictly. path is the path of the value in the
// request. Errors have the path of the invalid member.
func decode(raw []byte, path string, v any) error {
	return decodeError(path, strictjson.Unmarshal(raw, v))
}

// decodeError returns the error for the client about the value at path. It returns nil
// if e is nil.
func decodeError(path string, e *strictjson.Error) error {
	if e == nil {
		return nil
	}
	param := pointerPath(path, e.Path)
	switch e.Kind {
	case strictjson.TooDeep:
		return badRequest("", "", "The JSON body of your request nests deeper than %d levels.", strictjson.MaxDepth)
	case strictjson.TooManyValues:
		return badRequest("", "", "The JSON body of your request has more than %d values.", strictjson.MaxValues)
	case strictjson.TooLong:
		return badRequest("array_above_max_length", param, "Invalid '%s': array too long. Expected an array with maximum length %d, but got an array with length %d instead.",
			param, e.Most, e.Length)
	case strictjson.WrongCase:
		return badRequest(codeUnknownParam, param, "Unknown parameter: '%s'. Did you mean '%s'?", param, e.Want)
	case strictjson.Unknown:
		return badRequest(codeUnknownParam, param, "Unknown parameter: '%s'.", param)
	case strictjson.Duplicate:
		return badRequest("duplicate_parameter", param, "Duplicate parameter: '%s'.", param)
	case strictjson.OutOfRange:
		return outOfRange(e.RangeError(param))
	case strictjson.WrongType:
		if param == "" {
			return badRequest("invalid_type", "", "Invalid type for the request body: expected %s.", e.Want)
		}
		return invalidType(param, e.Want)
	}
	return badRequest("", "", "We could not parse the JSON body of your request. (HINT: This likely means you aren't using your HTTP library correctly. The API expects a JSON payload, but what was sent was not valid JSON.)")
}

const codeUnknownParam = "unknown_parameter"

// isUnknownParam reports whether err refuses a member because of its name.
func isUnknownParam(err error) bool {
	e, ok := errors.AsType[*llmhttp.Error](err)
	return ok && e.Code == codeUnknownParam
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
