// Errors in the form of this API. chatError gives those of ChatRequest.Validate the names of the API.

package responses

import (
	"errors"
	"strings"

	"github.com/llmhttp/llmhttp/internal/invalid"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/llm"
)

// invalidType returns the error for a parameter whose value is not of the type want, which
// is given with its article.
func invalidType(param, want string, value jsonwire.Value) error {
	return invalid.WrongType(param, want, jsonwire.Describe(string(value)))
}

func unsupportedParam(param, format string, args ...any) *llm.Error {
	return invalid.Param("unsupported_parameter", param, format, args...)
}

// paramNames changes the names of parameters of chat completions to those of this API.
var paramNames = strings.NewReplacer(
	"max_completion_tokens", "max_output_tokens",
	"response_format.json_schema", "text.format",
	"response_format", "text.format",
)

// chatError returns err, an error of ChatRequest.Validate, with the name that the parameter
// has in this API. Messages have other indices than the items from which they are made.
func chatError(err error) error {
	e, ok := errors.AsType[*llm.Error](err)
	switch {
	case !ok:
		return err
	case strings.HasPrefix(e.Param, "messages"):
		return e.WithParam("input")
	}
	return e.WithParam(paramNames.Replace(e.Param))
}

// memberPath returns the path of the member name of the object at path.
func memberPath(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
