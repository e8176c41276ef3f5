package llmhttp

import (
	"context"

	"github.com/llmhttp/llmhttp/internal/images"
	"github.com/llmhttp/llmhttp/internal/wrapped"
	"github.com/llmhttp/llmhttp/llm"
)

// An ImageStreamer is an [ImageGenerator] or an [ImageEditor] that shows images while they are made.
// For other Backends, a client that asks for a stream gets the complete images as events.
type ImageStreamer interface {
	// StreamImages is GenerateImages, or EditImages if req has Images, of a request with Stream. It
	// is not called with Images if the Backend is no ImageEditor. As with Chat of a [Backend], the
	// work is done while the stream is iterated over, and must stop when ctx is done. The ImageStreamer
	// owns req. If the stream begins with an error that wraps [errors.ErrUnsupported], the client gets
	// the complete images as events. See also the function [StreamImages].
	StreamImages(ctx context.Context, req *llm.ImageRequest) llm.ImageStream
}

// An ImageEncoder encodes the reply to one [llm.ImageRequest] with Stream. Its methods are called as those
// of a [ChatEncoder]. See "Protocols" in the package documentation.
type ImageEncoder interface {
	// Framing returns how the reply is sent. It is called once, before the other methods and
	// before the Backend is called.
	Framing() Framing

	// AppendChunk adds a chunk. An error fails the request, and the Backend must stop.
	AppendChunk(b []byte, c *llm.ImageChunk) ([]byte, error)

	// AppendEnd ends a reply that is complete. The usage is final; it is zero if the Backend
	// reports none.
	AppendEnd(b []byte, u *llm.Usage) ([]byte, error)

	// AppendFailure ends a stream that failed. See Framing.EndsCleanly.
	AppendFailure(b []byte, e *llm.Error) []byte
}

// imageEvents encodes a stream as server-sent events.
type imageEvents struct{ *images.Events }

// newImageEvents returns the encoder of the reply to req, to which it does not refer.
func newImageEvents(req *llm.ImageRequest) ImageEncoder {
	kind := "image_generation"
	if req.Images != nil {
		kind = "image_edit"
	}
	return imageEvents{images.NewEvents(kind, req)}
}

func (imageEvents) Framing() Framing { return EventStream() }


// StreamImages calls the method of an [ImageStreamer] if b, or what it wraps as [As] finds it, is one.
// Otherwise it yields the complete images of GenerateImages, or of EditImages if req has Images, as it
// does if something around the ImageStreamer has that method: a wrapper that changes images sees those
// of streams too. If b has neither, the error wraps [errors.ErrUnsupported]. A [Handler] calls it for
// requests with Stream, and so does a wrapper that has a StreamImages of its own. b owns req.
func StreamImages(ctx context.Context, b Backend, req *llm.ImageRequest) llm.ImageStream {
	if req.Images != nil {
		return streamImages(ctx, b, ImageEditor.EditImages, req)
	}
	return streamImages(ctx, b, ImageGenerator.GenerateImages, req)
}

// streamImages is StreamImages of a Backend whose images an A makes. An ImageStreamer that is in something
// that is an A and no ImageStreamer is not asked.
func streamImages[A any](ctx context.Context, b Backend, method imageMethod[A], req *llm.ImageRequest) llm.ImageStream {
	maker, ok := As[A](ctx, b)
	if !ok {
		return func(yield func(*llm.ImageChunk, error) bool) { yield(nil, errMissing[A]()) }
	}
	var stream func(context.Context, *llm.ImageRequest) llm.ImageStream
	if s, ok := wrapped.FindBefore[ImageStreamer, A](b, wrapped.Next[Backend](ctx)); ok {
		stream = s.StreamImages
	}
	return images.Stream(ctx, req, stream, func(ctx context.Context, req *llm.ImageRequest) (*llm.ImageResponse, error) {
		return method(maker, ctx, req)
	})
}
