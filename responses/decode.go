// Decoding of JSON, by the tags of structs and without tables. Each member is checked by hand.

package responses

import (
	"strings"

	"github.com/llmhttp/llmhttp/internal/invalid"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// decode decodes a value of a request strictly. path is the path of the value in the
// request. Errors have the path of the invalid member.
func decode[S ~string | ~[]byte](raw S, path string, v any) error {
	return decodeError(path, jsonwire.UnmarshalTags(raw, v, nil))
}

// decodeError returns the error for the client about the value at path. It returns nil
// if e is nil.
func decodeError(path string, e *jsonwire.Error) error {
	if e == nil {
		return nil
	}
	if path != "" && e.Path != "" && !strings.HasPrefix(e.Path, "[") {
		path += "."
	}
	e.Path = path + e.Path
	return invalid.JSON(e)
}

// decodeString decodes a JSON string.
func decodeString(raw jsonwire.Value, param string) (s string, err error) {
	err = decode(raw, param, &s)
	return s, err
}
