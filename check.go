package llmhttp

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// The words and codes in which the format refuses a parameter. They follow
// what the original service was recorded to answer.

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

func invalidType(param, want, got string) *Error {
	if param == "" {
		return badRequest("invalid_type", "", "Invalid type for the request body: expected %s, but got %s instead.", want, got)
	}
	return badRequest("invalid_type", param, "Invalid type for '%s': expected %s, but got %s instead.", param, want, got)
}

func invalidValue(param, got string, supported ...string) *Error {
	return badRequest("invalid_value", param, "Invalid value: '%s'. Supported values are: %s.", echo(got), list(supported))
}

// invalidText is for values that are not of an enumerable set.
func invalidText(param, got, want string) *Error {
	return badRequest("invalid_value", param, "Invalid '%s': '%s'. Expected %s.", param, echo(got), want)
}

// outOfRange says that a number of the given noun, integer or decimal, is not
// within its limit. got is as the message is to show it.
func outOfRange(param, noun string, above bool, limit float64, got string) *Error {
	relation, side, sign := "below_min", "below minimum", ">="
	if above {
		relation, side, sign = "above_max", "above maximum", "<="
	}
	return badRequest(noun+"_"+relation+"_value", param, "Invalid '%s': %s %s value. Expected a value %s %s, but got %s instead.",
		param, noun, side, sign, number(limit), got)
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

// clipped is what an echo ends with that does not have it all.
const clipped = "..."

// echo makes a client's own text fit for a message: short, printable, and
// without what looks like an API key.
func echo(s string) string {
	const limit = 64
	var b strings.Builder
	for _, r := range s {
		if b.Len() >= limit {
			b.WriteString(clipped)
			break
		}
		if strconv.IsPrint(r) {
			b.WriteRune(r)
		}
	}
	s = b.String()
	if i := strings.Index(s, "sk-"); i >= 0 && len(s)-i > len("sk-")+8 {
		s = s[:i] + "sk-***"
	}
	return s
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

// decodeError turns what is wrong with a document into what a client is told.
func decodeError(err *jsonwire.Error) *Error {
	param := err.Path
	switch err.Kind {
	case jsonwire.Type:
		return invalidType(param, err.Want, err.Got)
	case jsonwire.Range:
		return outOfRange(param, err.Noun, err.Above, err.Limit, err.Got)
	case jsonwire.Missing:
		return missing(param)
	case jsonwire.Duplicate:
		return badRequest("duplicate_parameter", param, "Duplicate parameter: '%s'.", echo(param))
	case jsonwire.TooDeep:
		return badRequest("", "", "The JSON body of your request nests deeper than %d levels.", jsonwire.MaxDepth)
	case jsonwire.TooLong:
		return longArray(param, int(err.Limit), err.Count)
	case jsonwire.TooMany:
		if param == "" {
			return badRequest("", "", "The JSON body of your request has too many elements.")
		}
		return badRequest("object_above_max_properties", param, "Invalid '%s': too many properties. Expected an object with at most %d properties.", param, jsonwire.MaxMembers)
	}
	return badRequest("", "", "We could not parse the JSON body of your request. (HINT: It must be one JSON document in UTF-8.)")
}

var decoders = sync.Pool{New: func() any { return new(jsonwire.Decoder) }}

// decodeBody decodes a request's body, and reports whether v refers to its
// memory from now on: texts of at least share bytes may.
func decodeBody(body []byte, v decoder, share int) (shared bool, err error) {
	d := decoders.Get().(*jsonwire.Decoder)
	d.Reset(body)
	d.Share = share
	defer func() {
		d.Reset(nil)
		decoders.Put(d)
	}()
	v.decode(d)
	if err := d.Finish(); err != nil {
		return d.Shared != nil, decodeError(err)
	}
	return d.Shared != nil, nil
}

// decodePart decodes raw, a part of a request by the given name, into v.
func decodePart(raw json.RawMessage, name string, v decoder) error {
	d := jsonwire.NewDecoder(raw)
	v.decode(d)
	err := d.Finish()
	if err == nil {
		return nil
	}
	if err.Path != "" && err.Path[0] != '[' {
		name += "."
	}
	err.Path = name + err.Path
	return decodeError(err)
}

// firstError returns the first that is not nil. Its type is error so that no
// nil *Error passes for an error.
func firstError(errs ...*Error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// sprintf is fmt.Sprintf, except that a format without verbs is not touched.
func sprintf(format string, args []any) string {
	if len(args) == 0 {
		return format
	}
	return fmt.Sprintf(format, args...)
}
