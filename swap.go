package llmhttp

import (
	"context"
	"sync/atomic"

	"github.com/llmhttp/llmhttp/internal/option"
	"github.com/llmhttp/llmhttp/llm"
)

// ChatOnly returns a Backend that has the Chat of b and no optional interface. Clients get a 404
// for everything else, as they do of a wrapper that has no Unwrap: see [As]. ChatOnly panics if b is
// nil.
func ChatOnly(b Backend) Backend {
	if option.IsNil(b) {
		panic("llmhttp: ChatOnly of a nil Backend")
	}
	return BackendFunc(b.Chat)
}

// A Swap is a [Backend] that forwards every call to another Backend, which can be replaced while
// requests run, for example when the configuration has changed. A request keeps the Backend to which
// its first call went, so that the ImageSizes and the GenerateImages of one request, or all calls of
// an agent, go to the same one. Calls whose context does not belong to a request of a [Handler] go
// to the current one.
//
// A Swap has what the Backend of a request has, which [As] finds by its Unwrap. Create a Swap with
// [NewSwap]. Its methods may be called concurrently.
type Swap struct{ current atomic.Pointer[Backend] }

// NewSwap returns a Swap that forwards to b. It panics if b is nil.
func NewSwap(b Backend) *Swap {
	s := new(Swap)
	s.Replace(b)
	return s
}

// Replace makes requests that begin from now on use b, and returns the Backend that they used before.
// Requests in progress may use that until they end. Replace panics if b is nil.
func (s *Swap) Replace(b Backend) (old Backend) {
	if option.IsNil(b) {
		panic("llmhttp: Swap of a nil Backend")
	}
	if before := s.current.Swap(&b); before != nil {
		old = *before
	}
	return old
}

// Current returns the Backend that requests use that begin now.
func (s *Swap) Current() Backend { return *s.current.Load() }

// Unwrap returns the Backend of the request that ctx belongs to, for [As]. It is the one that Chat
// calls.
func (s *Swap) Unwrap(ctx context.Context) Backend { return *keptBackend(ctx, s, s.current.Load()) }

// Chat calls the method of the Backend.
func (s *Swap) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	return s.Unwrap(ctx).Chat(ctx, req)
}
