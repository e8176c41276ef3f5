// Package ability calls methods that a Backend may have, or what it wraps. The errors for a Backend
// without them wrap errors.ErrUnsupported.
package ability

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// Call returns a function that calls a method of the interface A, such as Embedder.Embed.
func Call[A, Req, Resp any](method func(a A, ctx context.Context, req Req) (Resp, error)) func(context.Context, llmhttp.Backend, Req) (Resp, error) {
	return func(ctx context.Context, b llmhttp.Backend, req Req) (resp Resp, err error) {
		a, err := Find[A](ctx, b)
		if err != nil {
			return resp, err
		}
		return method(a, ctx, req)
	}
}

// Stream is [Call] for methods that return a stream. It fails if the Backend has no A, and is nil if
// the method returns nil.
func Stream[A, Req, Chunk any](
	method func(a A, ctx context.Context, req Req) iter.Seq2[*Chunk, error],
) func(context.Context, llmhttp.Backend, Req) iter.Seq2[*Chunk, error] {
	return func(ctx context.Context, b llmhttp.Backend, req Req) iter.Seq2[*Chunk, error] {
		a, err := Find[A](ctx, b)
		if err != nil {
			return func(yield func(*Chunk, error) bool) { yield(nil, err) }
		}
		return method(a, ctx, req)
	}
}

// ListModels calls the method of a [llmhttp.ModelLister].
func ListModels(ctx context.Context, b llmhttp.Backend) ([]llm.Model, error) {
	lister, err := Find[llmhttp.ModelLister](ctx, b)
	if err != nil {
		return nil, err
	}
	return lister.ListModels(ctx)
}

// Find returns the A that b is or wraps, or an error if there is none.
func Find[A any](ctx context.Context, b llmhttp.Backend) (A, error) {
	a, ok := llmhttp.As[A](ctx, b)
	if !ok {
		return a, fmt.Errorf("llmhttp: the Backend is no %v: %w", reflect.TypeFor[A](), errors.ErrUnsupported)
	}
	return a, nil
}
