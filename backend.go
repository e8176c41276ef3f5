package llmhttp

import (
	"context"
	"errors"
	"fmt"
)

// A Backend answers chat requests. One that can do more says so by
// implementing [ModelLister], [ImageGenerator], [ImageSizer] or [Embedder] as
// well. All methods must be safe for concurrent use.
type Backend interface {
	// Chat answers req. The work happens as the stream is ranged over,
	// not before, and ends when ctx is done.
	//
	// A Chat that returns because ctx is done need not yield ctx's error. Any
	// other end without an error means that the reply is complete. Where req
	// asks for several choices, Chat is to yield them all. A model that does
	// not exist is [ModelNotFound].
	//
	// req and what it points to belong to the Backend.
	Chat(ctx context.Context, req *ChatRequest) ChatStream
}

// A BackendFunc is a [Backend] that calls itself to answer chat requests.
type BackendFunc func(ctx context.Context, req *ChatRequest) ChatStream

// Chat returns f(ctx, req).
func (f BackendFunc) Chat(ctx context.Context, req *ChatRequest) ChatStream { return f(ctx, req) }

// A ModelLister is a [Backend] that knows its models.
type ModelLister interface {
	// ListModels returns the models in the order they are to be listed in.
	ListModels(ctx context.Context) ([]Model, error)
}

// An ImageGenerator is a [Backend] that draws.
type ImageGenerator interface {
	// GenerateImages returns as many images as req.Count() says.
	GenerateImages(ctx context.Context, req *ImageRequest) (*ImageResponse, error)
}

// An ImageSizer is a [Backend] that knows which sizes its image models allow.
// The Handler refuses others before it calls GenerateImages.
type ImageSizer interface {
	// ImageSizes returns the sizes model allows, such as "1024x1024". If
	// there are none, it allows every size. For a model that does not exist
	// it returns [ModelNotFound].
	ImageSizes(ctx context.Context, model string) ([]string, error)
}

// An Embedder is a [Backend] that turns texts into vectors.
type Embedder interface {
	// Embed returns a vector for each input of req, in their order.
	Embed(ctx context.Context, req *EmbeddingRequest) (*EmbeddingResponse, error)
}

// ListModels returns b.ListModels(ctx) if b is a [ModelLister]. Otherwise it
// returns an error wrapping [errors.ErrUnsupported].
func ListModels(ctx context.Context, b Backend) ([]Model, error) {
	if b, ok := b.(ModelLister); ok {
		return b.ListModels(ctx)
	}
	return nil, unsupported("list models")
}

// GenerateImages returns b.GenerateImages(ctx, req) if b is an
// [ImageGenerator]. Otherwise it returns an error wrapping
// [errors.ErrUnsupported].
func GenerateImages(ctx context.Context, b Backend, req *ImageRequest) (*ImageResponse, error) {
	if b, ok := b.(ImageGenerator); ok {
		return b.GenerateImages(ctx, req)
	}
	return nil, unsupported("generate images")
}

// ImageSizes returns b.ImageSizes(ctx, model) if b is an [ImageSizer].
// Otherwise it returns an error wrapping [errors.ErrUnsupported].
func ImageSizes(ctx context.Context, b Backend, model string) ([]string, error) {
	if b, ok := b.(ImageSizer); ok {
		return b.ImageSizes(ctx, model)
	}
	return nil, unsupported("tell image sizes")
}

// Embed returns b.Embed(ctx, req) if b is an [Embedder]. Otherwise it returns
// an error wrapping [errors.ErrUnsupported].
func Embed(ctx context.Context, b Backend, req *EmbeddingRequest) (*EmbeddingResponse, error) {
	if b, ok := b.(Embedder); ok {
		return b.Embed(ctx, req)
	}
	return nil, unsupported("embed")
}

func unsupported(what string) error {
	return fmt.Errorf("llmhttp: backend does not %s: %w", what, errors.ErrUnsupported)
}

// A Forwarder is a [Backend] that forwards every call, optional ones
// included, to another. Embed it in a wrapper that changes some of them.
type Forwarder struct{ Backend }

var (
	_ ModelLister    = Forwarder{}
	_ ImageGenerator = Forwarder{}
	_ ImageSizer     = Forwarder{}
	_ Embedder       = Forwarder{}
)

// ListModels returns [ListModels] of the wrapped Backend.
func (f Forwarder) ListModels(ctx context.Context) ([]Model, error) {
	return ListModels(ctx, f.Backend)
}

// GenerateImages returns [GenerateImages] of the wrapped Backend.
func (f Forwarder) GenerateImages(ctx context.Context, req *ImageRequest) (*ImageResponse, error) {
	return GenerateImages(ctx, f.Backend, req)
}

// ImageSizes returns [ImageSizes] of the wrapped Backend.
func (f Forwarder) ImageSizes(ctx context.Context, model string) ([]string, error) {
	return ImageSizes(ctx, f.Backend, model)
}

// Embed returns [Embed] of the wrapped Backend.
func (f Forwarder) Embed(ctx context.Context, req *EmbeddingRequest) (*EmbeddingResponse, error) {
	return Embed(ctx, f.Backend, req)
}
