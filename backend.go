package llmhttp

import (
	"context"
	"errors"
	"fmt"
)

// A Backend answers chat requests. It may also implement [ModelLister],
// [ImageGenerator], [ImageSizer], [Embedder] and [TokenCounter]; a [Handler]
// answers 404 on the endpoints of those that it does not implement. All
// methods must be safe for concurrent use.
type Backend interface {
	// Chat returns the reply to req. The work is done while the returned
	// stream is iterated over, not before, and must stop when ctx is done.
	//
	// A stream that ends without an error is a complete reply, unless ctx is
	// done: then it need not yield ctx's error. If req asks for several
	// choices, the stream contains all of them. For an unknown model the
	// stream yields [ModelNotFound].
	//
	// A Usage that it yields is the total of the request so far, not that of a
	// chunk: the last one counts.
	//
	// The Backend owns req and everything it points to.
	Chat(ctx context.Context, req *ChatRequest) ChatStream
}

// The BackendFunc type is an adapter to use an ordinary function as a
// [Backend].
type BackendFunc func(ctx context.Context, req *ChatRequest) ChatStream

// Chat returns f(ctx, req).
func (f BackendFunc) Chat(ctx context.Context, req *ChatRequest) ChatStream { return f(ctx, req) }

// A ModelLister is a [Backend] that can list its models.
type ModelLister interface {
	// ListModels returns the models in the order in which clients see them.
	ListModels(ctx context.Context) ([]Model, error)
}

// An ImageGenerator is a [Backend] that generates images.
type ImageGenerator interface {
	// GenerateImages returns req.Count() images. The ImageGenerator owns req.
	GenerateImages(ctx context.Context, req *ImageRequest) (*ImageResponse, error)
}

// An ImageSizer is a [Backend] whose image models allow certain sizes only.
// The Handler refuses other sizes before it calls GenerateImages.
type ImageSizer interface {
	// ImageSizes returns the sizes that model allows, such as "1024x1024". An
	// empty result allows every size. For an unknown model it returns
	// [ModelNotFound].
	ImageSizes(ctx context.Context, model string) ([]string, error)
}

// An Embedder is a [Backend] that computes embedding vectors.
type Embedder interface {
	// Embed returns one vector for each input of req, in the order of the
	// inputs. The Embedder owns req.
	Embed(ctx context.Context, req *EmbeddingRequest) (*EmbeddingResponse, error)
}

// A TokenCounter is a [Backend] that can count the tokens of a prompt.
// Protocols with a token counting endpoint use it.
type TokenCounter interface {
	// CountTokens returns the number of prompt tokens of req: messages, tools
	// and images. It does not change req.
	CountTokens(ctx context.Context, req *ChatRequest) (int, error)
}

// A Forwarder is a [Backend] that forwards every call, including those of the
// optional interfaces, to another Backend. Embed it in a wrapper that changes
// some of the calls, or use it to call an optional method of any Backend:
//
//	models, err := llmhttp.Forwarder{Backend: b}.ListModels(ctx)
//
// If the wrapped Backend does not implement an optional interface, the methods
// of that interface return an error wrapping [errors.ErrUnsupported].
type Forwarder struct{ Backend }

var (
	_ ModelLister    = Forwarder{}
	_ ImageGenerator = Forwarder{}
	_ ImageSizer     = Forwarder{}
	_ Embedder       = Forwarder{}
	_ TokenCounter   = Forwarder{}
)

// ListModels calls the method of the wrapped [ModelLister].
func (f Forwarder) ListModels(ctx context.Context) ([]Model, error) {
	if b, ok := f.Backend.(ModelLister); ok {
		return b.ListModels(ctx)
	}
	return nil, unsupported("list models")
}

// GenerateImages calls the method of the wrapped [ImageGenerator].
func (f Forwarder) GenerateImages(ctx context.Context, req *ImageRequest) (*ImageResponse, error) {
	if b, ok := f.Backend.(ImageGenerator); ok {
		return b.GenerateImages(ctx, req)
	}
	return nil, unsupported("generate images")
}

// ImageSizes calls the method of the wrapped [ImageSizer].
func (f Forwarder) ImageSizes(ctx context.Context, model string) ([]string, error) {
	if b, ok := f.Backend.(ImageSizer); ok {
		return b.ImageSizes(ctx, model)
	}
	return nil, unsupported("list image sizes")
}

// Embed calls the method of the wrapped [Embedder].
func (f Forwarder) Embed(ctx context.Context, req *EmbeddingRequest) (*EmbeddingResponse, error) {
	if b, ok := f.Backend.(Embedder); ok {
		return b.Embed(ctx, req)
	}
	return nil, unsupported("compute embeddings")
}

// CountTokens calls the method of the wrapped [TokenCounter].
func (f Forwarder) CountTokens(ctx context.Context, req *ChatRequest) (int, error) {
	if b, ok := f.Backend.(TokenCounter); ok {
		return b.CountTokens(ctx, req)
	}
	return 0, unsupported("count tokens")
}

func unsupported(what string) error {
	return fmt.Errorf("llmhttp: backend does not %s: %w", what, errors.ErrUnsupported)
}
