// Backend, and functions that make one of another: a Backend that can be replaced, one with Chat
// alone, one that makes several choices of one that makes one. As finds what is behind a wrapper of a
// Backend, a store or a Limiter.

package llmhttp

import (
	"context"
	"sync/atomic"

	"github.com/llmhttp/llmhttp/internal/choices"
	"github.com/llmhttp/llmhttp/internal/option"
	"github.com/llmhttp/llmhttp/internal/wrapped"
	"github.com/llmhttp/llmhttp/llm"
)

// A Backend answers chat requests. It may also implement [ModelLister], [ImageGenerator],
// [ImageStreamer], [ImageSizer], [Embedder] and [TokenCounter], and the interfaces of packages such as
// completion and rerank, whose routes are in Options.Routes: package all has all of these. Without an
// interface a [Handler] answers 404 on its endpoints: see [As], which finds them also in what a
// Backend wraps. All methods must be safe for concurrent use.
type Backend interface {
	// Chat returns the reply to req. The work is done while the returned stream is iterated over,
	// not before, and must stop when ctx is done: when the client has left, when the stream was silent
	// for longer than Options.Bounds.Timeout, or when [Serve] or [Handler.Shutdown] stops waiting. The
	// client gets its reply on time, but a Backend that ignores ctx keeps its goroutine, for which
	// http.Server.Shutdown waits, and not Serve.
	//
	// A stream that ends without an error is a complete reply, unless ctx is done: then it need not
	// yield ctx's error. If req asks for several choices, the stream contains all of them; fewer are no
	// error, nor are more tokens than MaxTokens, which only the Backend can count. For an unknown model the stream yields [llm.ModelNotFound].
	//
	// A Usage that it yields is the total of the request so far, not that of a
	// chunk: the last one counts. A Backend that learns it in steps yields it after each step or
	// calls [llm.ReportUsage], so that a client that leaves has paid for what was done. One that calls
	// models several times, such as an agent, tells each call with [llm.StartCall].
	//
	// The Backend owns req and everything it points to.
	Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream
}

// The BackendFunc type is an adapter to use an ordinary function as a
// [Backend].
type BackendFunc func(ctx context.Context, req *llm.ChatRequest) llm.ChatStream

// Chat returns f(ctx, req).
func (f BackendFunc) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	return f(ctx, req)
}

// Choices returns a Backend whose chats have as many choices as the request asks for, by [llm.ChatRequest.N],
// of a Backend that makes one and need not look at N. For each choice it calls b with a copy of the request
// without N. Requests for one choice are passed on as they are. Everything else that b can do passes:
// see [As].
//
// The calls are made in turn: choice 0 is complete before choice 1 begins, all chunks are yielded on one
// goroutine, and b has no more calls at the same time than it has requests. An error of one call ends the
// reply, without further calls. Each is a call of its own ([llm.StartCall]), so the prompt counts once for
// each choice. What a request asks for beside N is the same in each call: with a seed, for example, a
// model makes the same choice several times.
//
// Choices panics if b is nil.
func Choices(b Backend) Backend {
	if option.IsNil(b) {
		panic("llmhttp: Choices of a nil Backend")
	}
	return choiceMaker{b}
}

// A choiceMaker is the Backend that Choices returns.
type choiceMaker struct{ Backend }

// Unwrap returns the Backend for [As].
func (b choiceMaker) Unwrap(context.Context) Backend { return b.Backend }

// Chat implements [Backend].
func (b choiceMaker) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	return choices.Chat(ctx, b.Backend.Chat, req)
}

// ChatOnly returns a Backend that has the Chat of b and no optional interface. Clients get a 404
// for everything else, as they do of a wrapper that has no Unwrap: see [As]. ChatOnly panics if b is
// nil.
func ChatOnly(b Backend) Backend {
	if option.IsNil(b) {
		panic("llmhttp: ChatOnly of a nil Backend")
	}
	return BackendFunc(b.Chat)
}

// A SwappableBackend is a [Backend] that forwards every call to another Backend, which can be replaced while
// requests run, for example when the configuration has changed. A request keeps the Backend to which
// its first call went, so that the ImageSizes and the GenerateImages of one request, or all calls of
// an agent, go to the same one. Calls whose context does not belong to a request of a [Handler] go
// to the current one.
//
// A SwappableBackend has what the Backend of a request has, which [As] finds by its Unwrap. Create one with
// [NewSwappableBackend]. Its methods may be called concurrently.
type SwappableBackend struct{ current atomic.Pointer[Backend] }

// NewSwappableBackend returns one that forwards to b. It panics if b is nil.
func NewSwappableBackend(b Backend) *SwappableBackend {
	s := new(SwappableBackend)
	s.Replace(b)
	return s
}

// Replace makes requests that begin from now on use b, and returns the Backend that they used before.
// Requests in progress may use that until they end. Replace panics if b is nil.
func (s *SwappableBackend) Replace(b Backend) (old Backend) {
	if option.IsNil(b) {
		panic("llmhttp: SwappableBackend of a nil Backend")
	}
	if before := s.current.Swap(&b); before != nil {
		old = *before
	}
	return old
}

// Current returns the Backend that requests use that begin now.
func (s *SwappableBackend) Current() Backend { return *s.current.Load() }

// Unwrap returns the Backend of the request that ctx belongs to, for [As]. It is the one that Chat
// calls.
func (s *SwappableBackend) Unwrap(ctx context.Context) Backend {
	return *keptBackend(ctx, s, s.current.Load())
}

// Chat calls the method of the Backend.
func (s *SwappableBackend) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	return s.Unwrap(ctx).Chat(ctx, req)
}

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
// type such as [SwappableBackend], whose Unwrap it would have.
//
// If a method that is found returns an error that wraps [errors.ErrUnsupported], it is not there for the
// request. The error of a system call, which also is one for [errors.Is], is a failure as any other.
//
// ctx is the context of the call for which the T is needed: see [SwappableBackend]. b, and what an Unwrap returns,
// may be nil, in which there is nothing. As gives up after 100 wrappers.
func As[T any](ctx context.Context, b Backend) (T, bool) {
	return wrapped.Find[T](b, wrapped.Next[Backend](ctx))
}

func init() {
	wrapped.NextBackend = func(ctx context.Context, b any) (any, bool) {
		backend, _ := b.(Backend)
		return wrapped.Next[Backend](ctx)(backend)
	}
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
// A Handler looks for a [ConcurrencyLimiter] and a [Reserver] with it. A wrapper that has neither the
// Unwrap nor the methods of these makes each Handler count by itself. See "Limiters" in the package
// documentation.
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

// Has reports whether [As] finds a T. It is the Supported of an [Endpoint] that needs one. See
// "Endpoints of hosts" in the package documentation.
func Has[T any](ctx context.Context, b Backend) bool {
	_, ok := As[T](ctx, b)
	return ok
}
