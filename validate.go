package llmhttp

import (
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
)

// The wording and the codes of refused parameters follow what the original
// service was recorded to answer.

func badRequest(code, param, format string, args ...any) *Error {
	e := Errorf(http.StatusBadRequest, code, format, args...)
	e.Param = param
	return e
}

func missing(param string) *Error {
	return badRequest("missing_required_parameter", param, "Missing required parameter: '%s'.", param)
}

func emptyArray(param string) *Error {
	return badRequest("empty_array", param, "Invalid '%s': empty array. Expected an array with minimum length 1, but got an empty array instead.", param)
}

func emptyString(param string) *Error {
	return badRequest("empty_string", param, "Invalid '%s': empty string. Expected a string with minimum length 1, but got an empty string instead.", param)
}

func longArray(param string, limit, got int) *Error {
	return badRequest("array_above_max_length", param, "Invalid '%s': array too long. Expected an array with maximum length %d, but got an array with length %d instead.", param, limit, got)
}

func longString(param string, limit, got int) *Error {
	return badRequest("string_above_max_length", param, "Invalid '%s': string too long. Expected a string with maximum length %d, but got a string with length %d instead.", param, limit, got)
}

// invalidType says that a value is of another type than the wanted one. Both
// are given with their articles, as in "a string".
func invalidType(param, want, got string) *Error {
	if param == "" {
		return badRequest("invalid_type", "", "Invalid type for the request body: expected %s, but got %s instead.", want, got)
	}
	return badRequest("invalid_type", param, "Invalid type for '%s': expected %s, but got %s instead.", param, want, got)
}

func invalidValue(param, got string, supported ...string) *Error {
	return badRequest("invalid_value", param, "Invalid value: '%s'. Supported values are: %s.", echo(got), list(supported))
}

// invalidText is like invalidValue, for values that cannot be listed.
func invalidText(param, got, want string) *Error {
	return badRequest("invalid_value", param, "Invalid '%s': '%s'. Expected %s.", param, echo(got), want)
}

func tooDeep() *Error {
	return badRequest("", "", "The JSON body of your request nests deeper than %d levels.", maxDepth)
}

func tooManyMembers(param string) *Error {
	return badRequest("object_above_max_properties", param, "Invalid '%s': too many properties. Expected an object with at most %d properties.", param, maxMembers)
}

// outOfRange says that a number is above or below its limit. The noun is
// integer or decimal; got is the number as the message shows it.
func outOfRange(param, noun string, above bool, limit float64, got string) *Error {
	relation, side, sign := "below_min", "below minimum", ">="
	if above {
		relation, side, sign = "above_max", "above maximum", "<="
	}
	return badRequest(noun+"_"+relation+"_value", param, "Invalid '%s': %s %s value. Expected a value %s %s, but got %s instead.",
		param, noun, side, sign, number(limit), got)
}

// outOfBounds says that a number cannot be held, as its size is above a limit.
func outOfBounds(param, noun string, limit float64, text string) *Error {
	above := text[0] != '-'
	if !above {
		limit = -limit
	}
	return outOfRange(param, noun, above, limit, clip(text, 24))
}

// within returns an error of decoding a parameter by itself with the parameter's
// name in front of what is at fault.
func within(param string, err error) error {
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

func checkInt(param string, n *int, least, most int) *Error {
	switch {
	case n == nil:
	case *n < least:
		return outOfRange(param, "integer", false, float64(least), strconv.Itoa(*n))
	case *n > most:
		return outOfRange(param, "integer", true, float64(most), strconv.Itoa(*n))
	}
	return nil
}

func checkFloat(param string, f *float64, least, most float64) *Error {
	switch {
	case f == nil:
	case *f < least:
		return outOfRange(param, "decimal", false, least, number(*f))
	case *f > most:
		return outOfRange(param, "decimal", true, most, number(*f))
	}
	return nil
}

func number(f float64) string {
	if math.Abs(f) >= 1e21 {
		return strconv.FormatFloat(f, 'e', 2, 64)
	}
	return strconv.FormatFloat(f, 'f', -1, 64)
}

func list(values []string) string {
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

// clipped ends an echo that does not contain the whole text.
const clipped = "..."

// echo makes a client's own text fit for a message: short, printable, and
// without what looks like an API key.
func echo(s string) string {
	s = clip(s, 64)
	if i := strings.Index(s, "sk-"); i >= 0 && len(s)-i > len("sk-")+8 {
		s = s[:i] + "sk-***"
	}
	return s
}

// clip shortens s to about n bytes and drops characters that are not printable.
func clip(s string, n int) string {
	var b strings.Builder
	for _, r := range s {
		if b.Len() >= n {
			b.WriteString(clipped)
			break
		}
		if strconv.IsPrint(r) {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// path names an element of a list by its index and member, as in
// "messages[1].role".
func path(list string, index int, member string) string {
	p := list + "[" + strconv.Itoa(index) + "]"
	if member != "" {
		p += "." + member
	}
	return p
}

// firstError returns the first error that is not nil. Its type is error so that
// no nil *Error passes for an error.
func firstError(errs ...*Error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
