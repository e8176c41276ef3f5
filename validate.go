package llmhttp

import (
	"bytes"
	"errors"
	"math"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
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

// A fault is what a hook of a decoder finds wrong with a value.
type fault struct {
	refuse func(param string) *Error
}

func (f *fault) Error() string { return f.refuse("value").Message }

// newFault returns the error for a fault of the value that was read last.
func newFault(dec *jsontext.Decoder, refuse func(param string) *Error) error {
	return newFaultAt(dec.StackPointer(), refuse)
}

func newFaultAt(where jsontext.Pointer, refuse func(param string) *Error) error {
	return &json.SemanticError{JSONPointer: where, Err: &fault{refuse}}
}

// mismatch reads the next value, which is not what is wanted, and returns the
// fault that says so.
func mismatch(dec *jsontext.Decoder, want string) error {
	value, err := dec.ReadValue()
	if err != nil {
		return err
	}
	got := describe(value)
	return newFault(dec, func(param string) *Error { return invalidType(param, want, got) })
}

// rangeFault says that a number cannot be held.
func rangeFault(dec *jsontext.Decoder, text, noun string, limit float64) error {
	above := text[0] != '-'
	if !above {
		limit = -limit
	}
	return newFault(dec, func(param string) *Error { return outOfRange(param, noun, above, limit, clip(text, 24)) })
}

var (
	errTooDeep       = errors.New("nested too deep")
	errTooManyValues = errors.New("too many values")
)

func tooDeep() *Error {
	return badRequest("", "", "The JSON body of your request nests deeper than %d levels.", maxDepth)
}

func tooManyMembers(param string) *Error {
	return badRequest("object_above_max_properties", param, "Invalid '%s': too many properties. Expected an object with at most %d properties.", param, maxMembers)
}

// refusal returns what a client is told of an error of decoding body.
func (d *decoder) refusal(body []byte, err error) *Error {
	if e := checkBounds(body, true); e != nil {
		return e.(*Error)
	}
	switch {
	case errors.Is(err, errTooDeep):
		return tooDeep()
	case errors.Is(err, errTooManyValues):
		return badRequest("", "", "The JSON body of your request has too many elements.")
	}
	if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		if e.Err == jsontext.ErrDuplicateName {
			param := paramOf(&d.dec, e.JSONPointer)
			return badRequest("duplicate_parameter", param, "Duplicate parameter: '%s'.", echo(param))
		}
	} else if e, ok := errors.AsType[*json.SemanticError](err); ok {
		param := paramOf(&d.dec, e.JSONPointer)
		if f, ok := e.Err.(*fault); ok {
			return f.refuse(param)
		}
		if want := describeType(e.GoType); want != "" && int(e.ByteOffset) < len(body) {
			return invalidType(param, want, describe(body[e.ByteOffset:]))
		}
	}
	return badRequest("", "", "We could not parse the JSON body of your request. (HINT: It must be one JSON document in UTF-8.)")
}

// paramOf returns the name of the parameter that a pointer leads to, such as
// "messages[1].role". Names are clipped, and so is the whole.
func paramOf(dec *jsontext.Decoder, where jsontext.Pointer) string {
	var b []byte
	level := 0
	for token := range where.Tokens() {
		level++
		if isIndex(dec, level, token) {
			b = append(append(append(b, '['), token...), ']')
			continue
		}
		if len(b) > 0 {
			b = append(b, '.')
		}
		b = append(b, clip(token, 64)...)
		if len(b) > 256 {
			break
		}
	}
	return string(b)
}

// isIndex reports whether a token of the pointer to an error is the index of an
// array. The decoder is where the error occurred, but does not know about arrays
// within a raw value.
func isIndex(dec *jsontext.Decoder, level int, token string) bool {
	if level <= dec.StackDepth() {
		kind, _ := dec.StackIndex(level)
		return kind == '['
	}
	_, err := strconv.ParseUint(token, 10, 32)
	return err == nil
}

// describe returns what the JSON value at the beginning of b is, with its
// article.
func describe(b []byte) string {
	switch jsontext.Value(b).Kind() {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	if i := bytes.IndexFunc(b, func(r rune) bool { return !strings.ContainsRune("-0123456789", r) }); i >= 0 && strings.ContainsRune(".eE", rune(b[i])) {
		return "a decimal number"
	}
	return "an integer"
}

// describeType returns which JSON value a Go type stands for, or "".
func describeType(t reflect.Type) string {
	if t == nil {
		return ""
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "a boolean"
	case reflect.Struct:
		return "an object"
	}
	return ""
}

// checkBounds returns an *Error if a document nests too deep, or has an object
// with too many members. It reads all of body, so unless always is true it does
// nothing where the number of colons shows that no object can be too large; the
// decoder itself sees what is too deep.
func checkBounds(body []byte, always bool) error {
	if !always && bytes.Count(body, []byte{':'}) <= maxMembers {
		return nil
	}
	dec := jsontext.NewDecoder(bytes.NewBuffer(body), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	var members [maxDepth + 1]int // of the object that is open at each depth
	total := 0
	for {
		token, err := dec.ReadToken()
		if err != nil {
			return nil // the decoder finds the error, too
		}
		depth := dec.StackDepth()
		if depth > maxDepth {
			return tooDeep()
		}
		if token.Kind() == '}' {
			total -= members[depth+1]
			members[depth+1] = 0
			continue
		}
		if kind, n := dec.StackIndex(depth); kind != '{' || n%2 == 0 {
			continue
		}
		members[depth]++
		total++
		if members[depth] > maxMembers || total > 4*maxMembers {
			return tooManyMembers(paramOf(dec, dec.StackPointer().Parent()))
		}
	}
}

// isDeeper reports whether a valid JSON value nests deeper than n levels.
func isDeeper(value []byte, n int) bool {
	if bytes.Count(value, []byte{'{'})+bytes.Count(value, []byte{'['}) <= n {
		return false
	}
	depth := 0
	for i := 0; i < len(value); i++ {
		switch value[i] {
		case '"':
			for i++; value[i] != '"'; i++ {
				if value[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			if depth++; depth > n {
				return true
			}
		case '}', ']':
			depth--
		}
	}
	return false
}
