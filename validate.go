package llmhttp

import (
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// The wording and the codes of refused parameters follow what the original
// service was recorded to answer.

func errBadRequest(code, param, format string, args ...any) *Error {
	e := Errorf(http.StatusBadRequest, code, format, args...)
	e.Param = param
	return e
}

func errMissing(param string) *Error {
	return errBadRequest("missing_required_parameter", param, "Missing required parameter: '%s'.", param)
}

func errEmptyArray(param string) *Error {
	return errBadRequest("empty_array", param, "Invalid '%s': empty array. Expected an array with minimum length 1, but got an empty array instead.", param)
}

func errEmptyString(param string) *Error {
	return errBadRequest("empty_string", param, "Invalid '%s': empty string. Expected a string with minimum length 1, but got an empty string instead.", param)
}

func errLongArray(param string, limit, got int) *Error {
	return errBadRequest("array_above_max_length", param, "Invalid '%s': array too long. Expected an array with maximum length %d, but got an array with length %d instead.", param, limit, got)
}

func errLongString(param string, limit, got int) *Error {
	return errBadRequest("string_above_max_length", param, "Invalid '%s': string too long. Expected a string with maximum length %d, but got a string with length %d instead.", param, limit, got)
}

// errInvalidType says that a value is of another type than the wanted one. Both
// are given with their articles, as in "a string".
func errInvalidType(param, want, got string) *Error {
	if param == "" {
		return errBadRequest("invalid_type", "", "Invalid type for the request body: expected %s, but got %s instead.", want, got)
	}
	return errBadRequest("invalid_type", param, "Invalid type for '%s': expected %s, but got %s instead.", param, want, got)
}

func errInvalidValue(param, got string, supported ...string) *Error {
	return errBadRequest("invalid_value", param, "Invalid value: '%s'. Supported values are: %s.", echo(got), quoteList(supported))
}

// errInvalidText is like invalidValue, for values that cannot be listed.
func errInvalidText(param, got, want string) *Error {
	return errBadRequest("invalid_value", param, "Invalid '%s': '%s'. Expected %s.", param, echo(got), want)
}

// errOutOfRange says that a number is above or below its limit.
func errOutOfRange(e *jsonwire.Error) *Error {
	noun, relation, side, sign := "decimal", "below_min", "below minimum", ">="
	if e.Integer {
		noun = "integer"
	}
	if e.Above {
		relation, side, sign = "above_max", "above maximum", "<="
	}
	return errBadRequest(noun+"_"+relation+"_value", e.Path, "Invalid '%s': %s %s value. Expected a value %s %s, but got %s instead.",
		e.Path, noun, side, sign, jsonwire.FormatNumber(e.Limit), e.Got)
}

// inParameter returns an error of decoding a parameter by itself with the parameter's
// name in front of what is at fault.
func inParameter(param string, err error) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	whole := *e
	if whole.Param = param; e.Param != "" {
		whole.Param += "." + e.Param
		whole.Message = strings.Replace(e.Message, "'"+e.Param+"'", "'"+whole.Param+"'", 1)
	}
	return &whole
}

func quoteList(values []string) string {
	var b strings.Builder
	for i, v := range values {
		switch {
		case i == 0:
		case i < len(values)-1:
			b.WriteString(", ")
		case i == 1:
			b.WriteString(" and ")
		default:
			b.WriteString(", and ")
		}
		b.WriteString("'" + v + "'")
	}
	return b.String()
}

// echo makes a client's own text fit for a message: short, printable, and
// without what looks like an API key.
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
