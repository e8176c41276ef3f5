// Scopes and operations. An operation is what a Handler can do, whatever the wire format: it has a
// descriptor in a file of its own.

package llmhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp/internal/endpoints"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// An operation describes something that a Handler can do for clients, such as a chat, in any
// wire format. Each has one descriptor, in its own file, and is in operations.
type operation struct {
	name             Operation                                 // for telemetry; empty if no model is called
	scope            Scope                                     // empty for queries, whose Binding has it
	supportedBy      func(ctx context.Context, b Backend) bool // nil if every Backend supports it
	drawsTokenCounts bool                                      // requests take from BucketTokenCounts
	output           Output
}

// An Output says what the output of an operation is, of which the Handler counts the tokens if the
// Backend does not tell them. See "Endpoints of hosts" in the package documentation.
type Output uint8

// The kinds of output. See "Endpoints of hosts" in the package documentation.
const (
	OutputReported Output = iota // it has tokens if the Backend reports some, and otherwise none
	OutputText                   // they are estimated
	OutputNone                   // there is none: all tokens are of the prompt
	OutputImages                 // they are of images, whose number is what most Backends tell
	OutputAudio                  // they are of audio, whose length is what most Backends tell, or is measured
)

// hasMedia reports whether the output is something else than text.
func (op *operation) hasMedia() bool { return op.output == OutputImages || op.output == OutputAudio }

func (op *operation) isSupported(ctx context.Context, b Backend) bool {
	return op.supportedBy == nil || op.supportedBy(ctx, b)
}

// callAbility calls a method of the interface A, such as Embedder.Embed, of b. If b has none, the
// error wraps errors.ErrUnsupported.
func callAbility[A, Req, Resp any](ctx context.Context, b Backend, method func(A, context.Context, Req) (Resp, error), req Req) (resp Resp, err error) {
	a, ok := As[A](ctx, b)
	if !ok {
		return resp, errMissing[A]()
	}
	return method(a, ctx, req)
}

// errMissing returns the error of a call of the interface A, which a Backend does not have.
func errMissing[A any]() error {
	return fmt.Errorf("llmhttp: the Backend is no %v: %w", reflect.TypeFor[A](), errors.ErrUnsupported)
}

// queryOperation is the operation of [BindQuery].
var queryOperation operation

// operations returns the descriptors of the operations of this package with a scope of their own.
func operations() []*operation {
	return []*operation{
		&chatOperation, &countOperation, &imagesOperation, &embeddingsOperation, &modelsOperation, &usageOperation,
	}
}

// Scopes returns the scopes of all endpoints of this module, mounted or not, for programs that offer
// them. A host may have others: see [Scope.Validate].
func Scopes() []Scope {
	var scopes []Scope
	for i := range endpoints.All {
		if s := Scope(endpoints.All[i].Scope); !slices.Contains(scopes, s) {
			scopes = append(scopes, s)
		}
	}
	return scopes
}

// Operations returns all operations of this module that call a model, mounted or not, for programs that
// treat each of them in a way of its own. A host may have others: see [Operation.Validate].
func Operations() []Operation {
	var names []Operation
	for i := range endpoints.All {
		if op := Operation(endpoints.All[i].Operation); op != "" && !slices.Contains(names, op) {
			names = append(names, op)
		}
	}
	return names
}

// Validate returns an error if s cannot be the scope of an endpoint: a scope is a lower-case letter, and
// then at most 62 of these, digits, "-", "_" and ".". "all" and "none" are not scopes, because lists of
// scopes are written so. Every other text may be one, of an [Endpoint] of a host.
func (s Scope) Validate() error {
	if s == "all" || s == "none" {
		return fmt.Errorf("llmhttp: %q is not a scope: it stands for a list of scopes", s)
	}
	return checkName("scope", string(s))
}

// Validate returns an error if op cannot be the Operation of a request for a model: its syntax is that of
// a [Scope]. An operation that is valid need not be one of [Operations].
func (op Operation) Validate() error { return checkName("operation", string(op)) }

// checkName checks the name of a scope or an operation. kind is for the error.
func checkName(kind, s string) error {
	const letters, others = "abcdefghijklmnopqrstuvwxyz", "0123456789-_."
	if s != "" && len(s) <= 63 && strings.Contains(letters, s[:1]) && strings.Trim(s, letters+others) == "" {
		return nil
	}
	return fmt.Errorf(
		"llmhttp: the %s %q is malformed: want a lower-case letter, and then at most 62 of these, digits, '-', '_' and '.'", kind, jsonwire.Clip(s, 64),
	)
}

// Suggestion returns the one of [Scopes] for which s may be a typing error, such as "chat" for "chats". It
// is empty if there is none, or if s is one of them. It is only a hint: a host may have an endpoint with
// the scope s.
func (s Scope) Suggestion() Scope { return suggest(s, Scopes()) }

// Suggestion is that of a [Scope], of the [Operations].
func (op Operation) Suggestion() Operation { return suggest(op, Operations()) }

func suggest[T ~string](s T, known []T) T {
	names := make([]string, len(known))
	for i, k := range known {
		names[i] = string(k)
	}
	return T(endpoints.Nearest(string(s), names))
}

// SupportedBy reports whether [As] finds the method in b that op needs. Every Backend supports
// [OperationChat], and none that of an [Endpoint] of a host. ctx is that of the request, if there is one:
// see [SwappableBackend].
func (op Operation) SupportedBy(ctx context.Context, b Backend) bool {
	if op == "" {
		return false
	}
	return slices.ContainsFunc(operations(), func(o *operation) bool { return o.name == op && o.isSupported(ctx, b) }) ||
		endpoints.Supported(ctx, string(op), b)
}

// bindCall returns a Binding to op that calls serve.
func (op *operation) bindCall(serve func(c *Call) error) Binding {
	return op.bind(func(q *request) error { return (&Call{q: q}).run(serve) })
}

// decodeBody decodes the request of q. The error is not nil if decode, which belongs to a Protocol,
// returns a nil value without an error.
func decodeBody[Req, Reply any](q *request, decode func(ctx context.Context, r *http.Request, body []byte) (
	*Req, func(b []byte, reply Reply) ([]byte, error), error)) (req *Req, encode func(b []byte, reply Reply) ([]byte, error), err error) {
	err = q.withBody(func(ctx context.Context, r *http.Request, body []byte) (err error) {
		if req, encode, err = decode(ctx, r, body); err == nil && (req == nil || encode == nil) {
			err = errNothingDecoded
		}
		return err
	})
	return req, encode, err
}
