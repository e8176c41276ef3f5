// Decoding of JSON: its errors, and types that tags alone do not describe. The requests are only
// decoded, by the tags of their structs and without tables, and each member is checked by hand.
// Members whose type depends on others are a jsonwire.Value, which is decoded later.

package messages

import (
	"context"
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// raw is a JSON value that is not decoded. A nil *raw is absent or null. Structs have
// pointers to it because most members are absent, and a request may have many blocks.
type raw = jsonwire.Value

// decode decodes a JSON value strictly. The error is a *requestError.
func decode[S ~string | ~[]byte](data S, v any) error {
	return decodeError(jsonwire.UnmarshalTags(data, v, nil))
}

// decodeBody is like decode for the body of a request. It refuses members that
// Options.Accept.UnknownMembers of the Handler refuses.
func decodeBody(ctx context.Context, body []byte, v any) error {
	allows := func(name string) bool { return llmhttp.AllowsUnknownMember(ctx, name) }
	return decodeError(jsonwire.UnmarshalTags(body, v, allows))
}

// decodeError returns the *requestError for e, or nil. Its code is that of OpenAI's API, which
// Observers and logs have.
func decodeError(e *jsonwire.Error) error {
	if e == nil {
		return nil
	}
	code, _ := e.APIText()
	path := formatPath(e.Path)
	switch e.Kind {
	case jsonwire.WrongType:
		return fieldError(path, "Input should be %s", e.Want).withCode(code)
	case jsonwire.OutOfRange:
		return fieldError(path, "Input should be a number that is not as large").withCode(code)
	case jsonwire.Duplicate:
		return fieldError(path, "Duplicate field").withCode(code)
	case jsonwire.WrongCase:
		return fieldError(path, "Extra inputs are not permitted. Did you mean '%s'?", e.Want).withCode(code)
	case jsonwire.Unknown:
		return fieldError(path, "Extra inputs are not permitted").withCode(code)
	case jsonwire.TooLong:
		return fieldError(path, "List should have at most %.0f items, not %d", e.Limit, e.Length).withCode(code)
	case jsonwire.TooManyMembers:
		return fieldError(path, "Object should have at most %d members", jsonwire.MaxMembers).withCode(code)
	case jsonwire.TooDeep:
		return fieldError("", "The request body nests deeper than %d levels", jsonwire.MaxDepth)
	case jsonwire.TooManyValues:
		return fieldError("", "The request body has too many values")
	}
	return fieldError("", "The request body is not valid JSON: it must be one document in UTF-8")
}

// formatPath returns a path such as "messages[2].content" in the form of this API's messages,
// "messages.2.content".
func formatPath(path string) string {
	return strings.TrimPrefix(strings.NewReplacer("[", ".", "]", "").Replace(path), ".")
}

// clip shortens a text of the client, so that an error message can quote it.
func clip(s string) string { return jsonwire.Clip(s, 64) }

// content is a string or an array of blocks. A string is a block of text.
type content []block

// DecodeTags reads a string or an array.
func (c *content) DecodeTags(d *jsonwire.Decoder) {
	switch d.Kind() {
	case '"':
		*c = content{{Type: "text", Text: new(d.String())}}
	case '[':
		d.ByTags((*[]block)(c))
	default:
		d.Mismatch("a string or an array")
	}
}
