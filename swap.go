package llmhttp

import (
	"context"
	"sync/atomic"

	"github.com/llmhttp/llmhttp/internal/option"
	"github.com/llmhttp/llmhttp/llm"
)

// ChatOnly returns a Backend that has the Chat of b and no optional interface. Clients get a 404
// for everything else. A wrapper that checks or changes chats only wraps ChatOnly, so that images,
// embeddings and the others do not pass by it. ChatOnly panics if b is nil.
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
// Like a [Forwarder], a Swap has the methods of all optional interfaces. They return an error
// wrapping [errors.ErrUnsupported] while the Backend of the request does not have them. Create a Swap
// with [NewSwap]. Its methods may be called concurrently.
type Swap struct{ current atomic.Pointer[Forwarder] }

var (
	_ Backend        = (*Swap)(nil)
	_ ModelLister    = (*Swap)(nil)
	_ ImageGenerator = (*Swap)(nil)
	_ ImageSizer     = (*Swap)(nil)
	_ Embedder       = (*Swap)(nil)
	_ Reranker       = (*Swap)(nil)
	_ TokenCounter   = (*Swap)(nil)
)

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
	if before := s.current.Swap(&Forwarder{b}); before != nil {
		old = before.Backend
	}
	return old
}

// Current returns the Backend that requests use that begin now.
func (s *Swap) Current() Backend { return s.current.Load().Backend }

// backend returns the Backend for the request that ctx belongs to.
func (s *Swap) backend(ctx context.Context) *Forwarder { return keptBackend(ctx, s, s.current.Load()) }

// Chat calls the method of the Backend.
func (s *Swap) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	return s.backend(ctx).Chat(ctx, req)
}

// ListModels calls the method of the Backend if it is a [ModelLister].
func (s *Swap) ListModels(ctx context.Context) ([]llm.Model, error) {
	return s.backend(ctx).ListModels(ctx)
}

// GenerateImages calls the method of the Backend if it is an [ImageGenerator].
func (s *Swap) GenerateImages(ctx context.Context, req *llm.ImageRequest) (*llm.ImageResponse, error) {
	return s.backend(ctx).GenerateImages(ctx, req)
}

// ImageSizes calls the method of the Backend if it is an [ImageSizer].
func (s *Swap) ImageSizes(ctx context.Context, model string) ([]string, error) {
	return s.backend(ctx).ImageSizes(ctx, model)
}

// Embed calls the method of the Backend if it is an [Embedder].
func (s *Swap) Embed(ctx context.Context, req *llm.EmbeddingRequest) (*llm.EmbeddingResponse, error) {
	return s.backend(ctx).Embed(ctx, req)
}

// CountTokens calls the method of the Backend if it is a [TokenCounter].
func (s *Swap) CountTokens(ctx context.Context, req *llm.ChatRequest) (int, error) {
	return s.backend(ctx).CountTokens(ctx, req)
}
