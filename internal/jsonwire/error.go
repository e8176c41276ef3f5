package jsonwire

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// An ErrorKind says what is wrong with a document.
type ErrorKind int

// The kinds of an [Error].
const (
	Syntax         ErrorKind = iota // not JSON, or not UTF-8
	WrongType                       // a value of another type was expected
	OutOfRange                      // a number is out of its bounds
	Duplicate                       // an object has two members with the same name
	WrongCase                       // the name of a member differs from a known one only in case
	Unknown                         // a member without a field is not allowed
	Missing                         // a required member is missing
	TooDeep                         // arrays and objects are nested too deep
	TooLong                         // an array has too many elements
	TooManyMembers                  // an object has too many members
	TooManyValues                   // the document has too many values
	Other                           // Err says what is wrong
)

// An Error says what is wrong with a document, and where.
type Error struct {
	Kind ErrorKind
	Path string // of the value, such as "messages[1].role"; empty for the document

	Want string // of WrongType: the expected type, with its article; of WrongCase: the known name
	Got  string // of WrongType: the actual type, with its article; of OutOfRange: the number

	Integer bool    // of OutOfRange: the number has to be an integer
	Above   bool    // of OutOfRange: the number is above Limit, not below
	Limit   float64 // of OutOfRange: the bound; of TooLong: the maximum length
	Length  int     // of TooLong: the actual length

	Err error // of Other
}

func (e *Error) Error() string {
	at := ""
	if e.Path != "" {
		at = " in " + strconv.Quote(e.Path)
	}
	switch e.Kind {
	case WrongType:
		return "expected " + e.Want + at + ", but got " + e.Got
	case OutOfRange:
		return "number out of range" + at + ": " + e.Got
	case Duplicate:
		return "duplicate member" + at
	case WrongCase:
		return "unknown member" + at + ", which is not " + strconv.Quote(e.Want)
	case Unknown:
		return "unknown member" + at
	case Missing:
		return "missing member" + at
	case TooDeep:
		return "nested too deep"
	case TooLong:
		return "array too long" + at
	case TooManyMembers:
		return "too many members" + at
	case TooManyValues:
		return "too many values"
	case Other:
		return e.Err.Error() + at
	}
	return "not a JSON document in UTF-8"
}

func (e *Error) Unwrap() error { return e.Err }

// APIText returns the code and the message with which OpenAI's API was recorded to refuse what e
// is about, or one in its style.
func (e *Error) APIText() (code, message string) {
	switch e.Kind {
	case WrongType:
		what := "'" + e.Path + "'"
		if e.Path == "" {
			what = "the request body"
		}
		return "invalid_type", fmt.Sprintf("Invalid type for %s: expected %s, but got %s instead.", what, e.Want, e.Got)
	case OutOfRange:
		return e.rangeText()
	case Duplicate:
		return "duplicate_parameter", "Duplicate parameter: '" + e.Path + "'."
	case WrongCase:
		return "unknown_parameter", "Unknown parameter: '" + e.Path + "'. Did you mean '" + e.Want + "'?"
	case Unknown:
		return "unknown_parameter", "Unknown parameter: '" + e.Path + "'."
	case Missing:
		return "missing_required_parameter", "Missing required parameter: '" + e.Path + "'."
	case TooDeep:
		return "", fmt.Sprintf("The JSON body of your request nests deeper than %d levels.", MaxDepth)
	case TooLong:
		return "array_above_max_length", fmt.Sprintf(
			"Invalid '%s': array too long. Expected an array with maximum length %.0f, but got an array with length %d instead.",
			e.Path,
			e.Limit,
			e.Length,
		)
	case TooManyMembers:
		what := "'" + e.Path + "'"
		if e.Path == "" {
			what = "request body"
		}
		return "object_above_max_properties", fmt.Sprintf(
			"Invalid %s: too many properties. Expected an object with at most %d properties.",
			what,
			MaxMembers,
		)
	case TooManyValues:
		return "", "The JSON body of your request has too many elements."
	case Other:
		return "invalid_value", "Invalid value for '" + e.Path + "'."
	}
	return "", "We could not parse the JSON body of your request. (HINT: It must be one JSON document in UTF-8.)"
}

// rangeText is APIText of an OutOfRange.
func (e *Error) rangeText() (code, message string) {
	noun, relation, side, sign := "decimal", "below_min", "below minimum", ">="
	if e.Integer {
		noun = "integer"
	}
	if e.Above {
		relation, side, sign = "above_max", "above maximum", "<="
	}
	return noun + "_" + relation + "_value", fmt.Sprintf("Invalid '%s': %s %s value. Expected a value %s %s, but got %s instead.",
		e.Path, noun, side, sign, FormatNumber(e.Limit), e.Got)
}

// A step is a part of the path to a value: the name of a member, or the index of
// an element if it is not negative.
type step struct {
	name  string
	index int
}

// formatPath returns the path that steps lead to. Names are clipped, and so is
// the whole.
func formatPath(steps []step) string {
	var b strings.Builder
	for _, s := range steps {
		if s.index >= 0 {
			b.WriteString("[" + strconv.Itoa(s.index) + "]")
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(Clip(s.name, 64))
		if b.Len() > 256 {
			break
		}
	}
	return b.String()
}

// FormatNumber formats f for a message.
func FormatNumber(f float64) string {
	if math.Abs(f) >= 1e21 {
		return strconv.FormatFloat(f, 'e', 2, 64)
	}
	return strconv.FormatFloat(f, 'f', -1, 64)
}

// ClipMark ends a text that [Clip] has shortened.
const ClipMark = "..."

// Clip shortens s to about n bytes and drops characters that are not printable.
func Clip(s string, n int) string {
	b := make([]byte, 0, min(len(s), n+len(ClipMark)))
	for _, r := range s {
		if len(b) >= n {
			return string(append(b, ClipMark...))
		}
		if strconv.IsPrint(r) {
			b = utf8.AppendRune(b, r)
		}
	}
	return string(b)
}

// ValueText returns the message for a text that is none of the supported values, of which there
// is at least one. got is the text, in the form in which it may be shown.
func ValueText(got string, supported []string) string {
	return "Invalid value: '" + got + "'. Supported values are: " + quoteList(supported) + "."
}

// quoteList lists values, of which there is at least one, as in "'a', 'b', and 'c'".
func quoteList(values []string) string {
	last := len(values) - 1
	switch last {
	case 0:
		return "'" + values[0] + "'"
	case 1:
		return "'" + values[0] + "' and '" + values[1] + "'"
	}
	return "'" + strings.Join(values[:last], "', '") + "', and '" + values[last] + "'"
}
