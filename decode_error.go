package llmhttp

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"strconv"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

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
	return &jsonv2.SemanticError{JSONPointer: where, Err: &fault{refuse}}
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

var (
	errTooDeep       = errors.New("nested too deep")
	errTooManyValues = errors.New("too many values")
)

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
	if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok && e.Err == jsontext.ErrDuplicateName {
		param := paramOf(&d.dec, e.JSONPointer)
		return badRequest("duplicate_parameter", param, "Duplicate parameter: '%s'.", echo(param))
	}
	if e, ok := errors.AsType[*jsonv2.SemanticError](err); ok {
		if refused := d.semanticRefusal(body, e); refused != nil {
			return refused
		}
	}
	return badRequest("", "", "We could not parse the JSON body of your request. (HINT: It must be one JSON document in UTF-8.)")
}

func (d *decoder) semanticRefusal(body []byte, e *jsonv2.SemanticError) *Error {
	param := paramOf(&d.dec, e.JSONPointer)
	if f, ok := e.Err.(*fault); ok {
		return f.refuse(param)
	}
	if e.Err == strconv.ErrRange && len(e.JSONValue) > 0 {
		return outOfBounds(param, "decimal", math.MaxFloat64, string(e.JSONValue))
	}
	if want := describeType(e.GoType); want != "" && int(e.ByteOffset) < len(body) {
		return invalidType(param, want, describe(body[e.ByteOffset:]))
	}
	return nil
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
	case reflect.Float64:
		return "a number"
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
