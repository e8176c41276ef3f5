package llmhttp

import (
	"context"

	"github.com/llmhttp/llmhttp/internal/wrapped"
)

// As returns b as a T if it is one, and otherwise what it wraps: it calls the method
//
//	Unwrap(ctx context.Context) llmhttp.Backend
//
// of b, if there is one, and of what that returns, until it finds a T. A Handler finds by it what a
// Backend can do besides chats, such as an [Embedder]. A wrapper that calls such a method does the same:
//
//	lister, ok := llmhttp.As[llmhttp.ModelLister](ctx, b)
//
// A wrapper that embeds a Backend therefore has Chat alone, and hides everything else of it. One that
// needs to see none of the other calls passes them on by its Unwrap. A wrapper that checks or changes
// requests must not have an Unwrap: it has the methods that it filters, and hides the others. TestGuard
// of package llmhttptest finds what goes around it. A wrapper embeds the interface Backend and not a
// type such as [Swap], whose Unwrap it would have.
//
// If a method that is found returns an error that wraps [errors.ErrUnsupported], it is not there for the
// request. The error of a system call, which also is one for [errors.Is], is a failure as any other.
//
// ctx is the context of the call for which the T is needed: see [Swap]. b, and what an Unwrap returns,
// may be nil, in which there is nothing. As gives up after 100 wrappers.
func As[T any](ctx context.Context, b Backend) (T, bool) {
	return wrapped.Find[T](b, wrapped.Next[Backend](ctx))
}

// StoreAs is [As] for a UsageStore, whose method is
//
//	Unwrap() llmhttp.UsageStore
//
// A Handler, [Serve] and a console look for the abilities of Options.Usage with it: see [UsageStore]. A
// wrapper with a state of its own has the abilities itself and no Unwrap, as a Buffer of package
// usagebuffer: see package manage for what reports usage behind it.
func StoreAs[T any](s UsageStore) (T, bool) { return wrapped.Find[T](s, unwrap[UsageStore]) }

// LimiterAs is [As] for a Limiter, whose method is
//
//	Unwrap() llmhttp.Limiter
//
// A Handler looks for a [ConcurrencyLimiter] and a [Reserver] with it.
func LimiterAs[T any](l Limiter) (T, bool) { return wrapped.Find[T](l, unwrap[Limiter]) }

// unwrap returns what v wraps. It reports false if v does not show that.
func unwrap[V any](v V) (V, bool) {
	wrapper, ok := any(v).(interface{ Unwrap() V })
	if !ok {
		var none V
		return none, false
	}
	return wrapper.Unwrap(), true
}

// Has reports whether [As] finds a T. It is the Supported of an [Endpoint] that needs one.
func Has[T any](ctx context.Context, b Backend) bool {
	_, ok := As[T](ctx, b)
	return ok
}
