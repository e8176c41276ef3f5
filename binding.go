// Bindings connect a path to an operation, with functions that decode the request and encode the reply
// of a wire format.

package llmhttp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/llmhttp/llmhttp/internal/invalid"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/llm"
)

// A Binding tells what the Handler does for the requests of a [Route]: an operation, such as a
// chat, and how its request and its reply look in the wire format. The functions whose names begin
// with Bind make Bindings, and panic if their function or scope is missing; the zero Binding is
// invalid. See "Protocols" in the package documentation.
//
// The Handler checks the key and its scope, which follows from the operation, and the limits
// of the key; it then reads the body and calls decode. Of r, decode may use the URL, which is
// without Options.Prefix, the path values and the header. The body is empty for GET, HEAD and
// DELETE, and is only valid during the call. [KeyFrom] of ctx is the key of the request.
// Errors that the client is to see are of type [*llm.Error]. A decode function refuses members
// that [AllowsUnknownMember] refuses.
//
// Except by BindChat, decode also returns a function that appends the body of the reply to b,
// which is sent as JSON with the status 200. An error of it fails the request.
type Binding struct {
	op    *operation
	scope Scope
	serve func(q *request) error

	pkg string // the package that has called NewRoute, for errors; empty for other Bindings
}

// bind returns a Binding to op.
func (op *operation) bind(serve func(q *request) error) Binding {
	return Binding{op: op, scope: op.scope, serve: serve}
}

// BindChat binds a route to chats, with [ScopeChat]. decode checks the request by
// [llm.ChatRequest.Validate] and returns the encoder of its reply. The errors of Validate have
// the names of chat completions, which [llm.Error.WithParam] changes. See "Protocols" in the
// package documentation.
//
// If decode returns an encoder and no request, the reply is empty. The Handler then does not
// call the Backend, and records nothing: for formats in which clients can ask for nothing, as
// to load a model. Such a request counts against the limits on requests.
func BindChat(decode func(ctx context.Context, r *http.Request, body []byte) (*llm.ChatRequest, ChatEncoder, error)) Binding {
	mustBeSet(decode != nil)
	return chatOperation.bind(serveChat(decode))
}

// BindQuery binds a route to a function that answers requests by itself and calls no model,
// such as one that returns stored responses. The key needs the scope. The request counts
// against the limits on requests, and is not recorded as usage. serve gets what decode gets:
// see [Binding]. Options.Bounds.Timeout applies to it. See "Protocols" in the package documentation.
func BindQuery(scope Scope, serve func(ctx context.Context, r *http.Request, body []byte) (*QueryReply, error)) Binding {
	mustBeSet(serve != nil && scope != "")
	b := queryOperation.bind(func(q *request) error {
		var reply *QueryReply
		err := q.withBody(func(_ context.Context, r *http.Request, body []byte) (err error) {
			reply, err = callUnrecorded(q, ClassInternal, func(ctx context.Context) (*QueryReply, error) {
				return serve(ctx, r, body)
			})
			return err
		})
		switch {
		case err != nil:
			return err
		case reply == nil:
			return errNoQueryReply
		}
		return reply.write(q)
	})
	b.scope = scope
	return b
}

// mustBeSet panics if an argument of a Binding is missing.
func mustBeSet(set bool) {
	if !set {
		panic("llmhttp: a Binding needs a function, and that of a query a scope")
	}
}

var errNothingDecoded = errors.New("llmhttp: a decode function returned neither a request with its encode function nor an error")

var errNoQueryReply = errors.New("llmhttp: a query returned neither a reply nor an error")

// A QueryReply is the reply to a request that [BindQuery] has bound. See "Protocols" in the
// package documentation.
type QueryReply struct {
	Status      int    // from 200 to 599; zero means 200
	ContentType string // if empty, application/json
	Body        []byte // must be empty if the Status is 204 or 304
}

// DecodeJSON decodes the body of a request into *v, which is zero, by the tags of its structs. It
// is as strict as the Handler is with the requests of OpenAI's API, unlike package
// encoding/json: it refuses duplicate names, names that differ from those of fields only in
// case, text that is not UTF-8, values that take much more memory than the body, and members
// that [AllowsUnknownMember] refuses. The error is an [*llm.Error] of status 400 that names the
// member. ctx is that of the request. See "Protocols" in the package documentation.
//
// *v consists of structs, slices, maps with strings as keys, pointers, bool, string, int and
// float64, and types with a method UnmarshalJSON, such as json.RawMessage; DecodeJSON panics if
// it meets another type. Names in tags have no upper-case letters. A member that is null leaves
// its field as it is.
func DecodeJSON(ctx context.Context, body []byte, v any) error {
	err := jsonwire.UnmarshalTags(body, v, func(name string) bool { return AllowsUnknownMember(ctx, name) })
	if err != nil {
		return invalid.JSON(err)
	}
	return nil
}

// AppendJSON appends v as package encoding/json encodes it, without white space and without
// escapes for HTML. See "Protocols" in the package documentation.
func AppendJSON(b []byte, v any) ([]byte, error) {
	var doc bytes.Buffer
	enc := json.NewEncoder(&doc)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return b, fmt.Errorf("llmhttp: encoding %T: %w", v, err)
	}
	return jsonwire.AppendRaw(b, doc.Bytes())
}

// write writes the reply to q.
func (r *QueryReply) write(q *request) error {
	status, contentType := cmp.Or(r.Status, http.StatusOK), cmp.Or(r.ContentType, contentTypeJSON)
	switch {
	case status < 200 || status > 599:
		return fmt.Errorf("llmhttp: the Status of a QueryReply is %d, which is none of a reply", status)
	case (status == http.StatusNoContent || status == http.StatusNotModified) && len(r.Body) > 0:
		return fmt.Errorf("llmhttp: a QueryReply with the Status %d has a Body", status)
	}
	return q.replyAs(status, contentType, func(b []byte) ([]byte, error) { return append(b, r.Body...), nil })
}

// decodeRequest decodes the body of a request into v, which points to a zero value. Its error is an
// *Error for the client that names the parameter at fault.
func decodeRequest[T any](body []byte, t jsonwire.Type[T], v *T) error {
	if err := jsonwire.Unmarshal(body, t, v); err != nil {
		return invalid.JSON(err)
	}
	return nil
}
