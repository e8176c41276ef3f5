// Package strictjson decodes JSON into structs by their tags. It refuses documents that
// are ambiguous, or that would take much more memory than their size.
package strictjson

import (
	"bytes"
	"math"
	"reflect"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// Bounds on a document besides its size in bytes. Without them, decoding a small
// document could take a large amount of memory.
const (
	MaxDepth  = 512     // nested arrays and objects
	MaxValues = 1 << 17 // values of arrays and objects in the whole document
)

// A Kind says what is wrong with a document.
type Kind int

// The kinds of an [Error].
const (
	Syntax        Kind = iota // not JSON, or not UTF-8
	Duplicate                 // an object has two members with the same name
	WrongCase                 // the name of a member differs from that of a field only in case
	Unknown                   // a member without a field is not allowed
	WrongType                 // a value of another type was expected
	OutOfRange                // a number is too large for its type
	TooDeep                   // more levels than MaxDepth
	TooManyValues             // more values than MaxValues
	TooLong                   // an array has too many elements
)

// An Error says what is wrong with a document, and where. A method UnmarshalJSONFrom may
// return an Error without a path about the value that it has read. It may also return
// strconv.ErrRange for OutOfRange; another error is a WrongType.
type Error struct {
	Kind Kind
	Path jsontext.Pointer // of the value; empty for the document
	Want string           // of WrongType and OutOfRange: the expected type, with its article; of WrongCase: the name of the field
	Got  string           // of OutOfRange: the number

	Length, Most int // of TooLong: the number of elements, and how many there may be
}

func (e *Error) Error() string { return "strictjson: invalid value at " + string(e.Path) }

// RangeError describes an OutOfRange as jsonwire does for chat completions. param is the path
// of the number in the form of an error message.
func (e *Error) RangeError(param string) *jsonwire.Error {
	limit := math.MaxFloat64
	integer := e.Want == typeNames[reflect.Int]
	if integer {
		limit = jsonwire.MaxInteger
	}
	above := !strings.HasPrefix(e.Got, "-")
	if !above {
		limit = -limit
	}
	return &jsonwire.Error{Kind: jsonwire.OutOfRange, Path: param, Integer: integer, Above: above, Limit: limit, Got: jsonwire.Clip(e.Got, 24)}
}

// CheckBounds returns an error if doc has too many values or levels. It does not check
// that doc is valid JSON; Unmarshal does.
func CheckBounds(doc []byte) *Error {
	depth, values := 0, 0
	for i := 0; i < len(doc); i++ {
		switch doc[i] {
		case '"':
			i += stringLen(doc[i+1:])
		case '{', '[':
			depth++
			values++
		case '}', ']':
			depth--
		case ',':
			values++
		}
		if depth > MaxDepth {
			return &Error{Kind: TooDeep}
		}
	}
	if values > MaxValues {
		return &Error{Kind: TooManyValues}
	}
	return nil
}

// stringLen returns the length of the JSON string that doc continues with, with its
// closing quote. It searches for quotes with IndexByte, which in a large image is much
// faster than a loop over the bytes (BenchmarkRequest_Image in messages).
func stringLen(doc []byte) int {
	for end := 0; ; end++ {
		n := bytes.IndexByte(doc[end:], '"')
		if n < 0 {
			return len(doc)
		}
		end += n
		escapes := 0 // backslashes before the quote
		for escapes < n && doc[end-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return end + 1
		}
	}
}

// Unmarshal decodes doc, a document that CheckBounds has checked or a value of one, into
// *v. Members without a field are skipped, except for those whose names differ from that of
// a field only in case, which are refused.
//
// Every struct in the type of *v has its members in an object of the document, even if a
// type decodes itself by a method UnmarshalJSONFrom. Names of members have no upper-case
// letters.
func Unmarshal(doc []byte, v any) *Error { return UnmarshalAllowed(doc, v, nil) }

// UnmarshalAllowed is like [Unmarshal], and refuses members of doc itself that have no
// field and for which allows reports false. A nil allows allows all.
func UnmarshalAllowed(doc []byte, v any, allows func(name string) bool) *Error {
	switch err := json.Unmarshal(doc, v).(type) {
	case nil:
		c := nameChecker{doc: doc}
		if s := shapeOf(reflect.TypeOf(v)); s != nil {
			return c.value(s, allows)
		}
		return nil
	case *json.SemanticError:
		e := &Error{Kind: WrongType, Path: err.JSONPointer, Want: typeNames[err.GoType.Kind()]}
		if own, ok := err.Err.(*Error); ok {
			*e = *own
			e.Path = err.JSONPointer
		} else if err.Err == strconv.ErrRange {
			e.Kind, e.Got = OutOfRange, string(err.JSONValue)
		}
		return e
	case *jsontext.SyntacticError:
		if err.Err == jsontext.ErrDuplicateName {
			return &Error{Kind: Duplicate, Path: err.JSONPointer}
		}
	}
	return &Error{Kind: Syntax}
}

// typeNames has the names of the JSON types for Go types, with their articles.
var typeNames = map[reflect.Kind]string{
	reflect.Bool: "a boolean", reflect.Int: "an integer", reflect.Float64: "a number", reflect.String: "a string",
	reflect.Slice: "an array", reflect.Struct: "an object", reflect.Map: "an object",
}
