package messages

import (
	"context"
	"reflect"
	"slices"
	"strconv"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/strictjson"
)

// decode decodes a JSON value strictly. The error is a *requestError.
func decode(data []byte, v any) error { return decodeError(strictjson.Unmarshal(data, v)) }

// decodeBody is like decode for the body of a request. It refuses members that
// Options.UnknownMembers of the Handler refuses.
func decodeBody(ctx context.Context, body []byte, v any) error {
	allows := func(name string) bool { return llmhttp.AllowsUnknownMember(ctx, name) }
	return decodeError(strictjson.UnmarshalAllowed(body, v, allows))
}

// decodeError returns the *requestError for e, or nil.
func decodeError(e *strictjson.Error) error {
	if e == nil {
		return nil
	}
	path := formatPath(e.Path)
	switch e.Kind {
	case strictjson.WrongType:
		return fieldError(path, "Input should be %s", e.Want).withCode("invalid_type")
	case strictjson.OutOfRange:
		code, _ := e.RangeError(path).RangeText()
		return fieldError(path, "Input should be a number that is not as large").withCode(code)
	case strictjson.Duplicate:
		return fieldError(path, "Duplicate field").withCode("duplicate_parameter")
	case strictjson.WrongCase:
		return fieldError(path, "Extra inputs are not permitted. Did you mean '%s'?", e.Want).withCode(codeUnknown)
	case strictjson.Unknown:
		return fieldError(path, "Extra inputs are not permitted").withCode(codeUnknown)
	case strictjson.TooDeep:
		return fieldError("", "The request body nests deeper than %d levels", strictjson.MaxDepth)
	case strictjson.TooManyValues:
		return fieldError("", "The request body has too many values")
	}
	return fieldError("", "The request body is not valid JSON: it must be one document in UTF-8")
}

const codeUnknown = "unknown_parameter"

// formatPath returns a path in the form of this API's messages, such as
// "messages.2.content". Long names and paths are shortened.
func formatPath(p jsontext.Pointer) string {
	var steps []string
	for step := range p.Tokens() {
		steps = append(steps, clip(step))
	}
	return jsonwire.Clip(strings.Join(steps, "."), 256)
}

// clip shortens a text of the client, so that an error message can quote it.
func clip(s string) string { return jsonwire.Clip(s, 64) }

// A list is an array whose elements are not null.
type list[T any] []*T

func (l *list[T]) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	err := jsonv2.UnmarshalDecode(dec, (*[]*T)(l))
	if i := slices.Index(*l, nil); i >= 0 && err == nil {
		err = &jsonv2.SemanticError{JSONPointer: dec.StackPointer().AppendToken(strconv.Itoa(i)), GoType: reflect.TypeFor[T]()}
	}
	return err
}

type integer = strictjson.Integer

// content is a string or an array of blocks. A string is a block of text.
type content list[block]

func (c *content) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	switch dec.PeekKind() {
	case '"':
		*c = content{{Type: "text"}}
		return jsonv2.UnmarshalDecode(dec, &(*c)[0].Text)
	case '[', 'n':
		return jsonv2.UnmarshalDecode(dec, (*list[block])(c))
	}
	if err := dec.SkipValue(); err != nil {
		return err
	}
	return &strictjson.Error{Kind: strictjson.WrongType, Want: "a string or an array"}
}
