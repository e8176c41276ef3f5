package responses

import (
	"net/http"
	"strconv"

	"github.com/llmhttp/llmhttp"
)

func badRequest(code, param, format string, args ...any) *llmhttp.Error {
	e := llmhttp.Errorf(http.StatusBadRequest, code, format, args...)
	e.Param = param
	return e
}

func missingParam(param string) *llmhttp.Error {
	return badRequest("missing_required_parameter", param, "Missing required parameter: '%s'.", param)
}

func invalidType(param, want string) *llmhttp.Error {
	return badRequest("invalid_type", param, "Invalid type for '%s': expected %s.", param, want)
}

func unsupportedParam(param, format string, args ...any) *llmhttp.Error {
	return badRequest("unsupported_parameter", param, format, args...)
}

// memberPath returns the path of the member name of the object at path.
func memberPath(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// elementPath returns the path of element i of the array at path.
func elementPath(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }
