package llmhttp

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"reflect"
	"slices"
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
// Backend does not tell them.
type Output uint8

// The kinds of output.
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

// streamAbility is callAbility for methods that return a stream. If b has none, the stream fails.
func streamAbility[A, Req, Chunk any](ctx context.Context, b Backend, method func(A, context.Context, Req) iter.Seq2[*Chunk, error], req Req) iter.Seq2[*Chunk, error] {
	a, ok := As[A](ctx, b)
	if !ok {
		return func(yield func(*Chunk, error) bool) { yield(nil, errMissing[A]()) }
	}
	return method(a, ctx, req)
}

// errMissing returns the error of a call of the interface A, which a Backend does not have.
func errMissing[A any]() error {
	return fmt.Errorf("llmhttp: the Backend is no %v: %w", reflect.TypeFor[A](), errors.ErrUnsupported)
}

// queryOperation is the operation of [BindQuery].
var queryOperation operation

// operations returns the descriptors of all operations with a scope of their own.
func operations() []*operation {
	return []*operation{
		&chatOperation, &completionsOperation, &countOperation, &imagesOperation, &imageEditsOperation, &embeddingsOperation,
		&speechOperation, &transcriptionsOperation, &rerankOperation, &moderationsOperation,
		&modelsOperation, &usageOperation,
	}
}

// Scopes returns all scopes, for programs that check the scopes of keys.
func Scopes() []Scope {
	var scopes []Scope
	for _, op := range operations() {
		if !slices.Contains(scopes, op.scope) {
			scopes = append(scopes, op.scope)
		}
	}
	return scopes
}

// Operations returns all operations that call a model, for programs that treat each of them
// in a way of its own, such as exporters of metrics.
func Operations() []Operation {
	var names []Operation
	for _, op := range operations() {
		if op.name != "" {
			names = append(names, op.name)
		}
	}
	return names
}

// SupportedBy reports whether [As] finds the method in b that op needs. Every Backend supports
// [OperationChat]. ctx is that of the request, if there is one: see [Swap].
func (op Operation) SupportedBy(ctx context.Context, b Backend) bool {
	return slices.ContainsFunc(operations(), func(o *operation) bool { return o.name == op && op != "" && o.isSupported(ctx, b) })
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
