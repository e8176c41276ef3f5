// Replies to requests for images that are streams.

package llmhttp

import (
	"context"

	"github.com/llmhttp/llmhttp/internal/images"
	"github.com/llmhttp/llmhttp/internal/wrapped"
	"github.com/llmhttp/llmhttp/llm"
)

// An ImageStreamer is an [ImageGenerator] that shows images while they are made. For other Backends, a
// client that asks for a stream gets the complete images as events.
type ImageStreamer interface {
	// StreamImages is GenerateImages of a request with Stream. As with Chat of a [Backend], the
	// work is done while the stream is iterated over, and must stop when ctx is done. The ImageStreamer
	// owns req. If the stream begins with an error that wraps [errors.ErrUnsupported], the client gets
	// the complete images as events. See also the function [StreamImages].
	StreamImages(ctx context.Context, req *llm.ImageRequest) llm.ImageStream
}

// An ImageEncoder encodes the reply to one [llm.ImageRequest] with Stream, or to one for edits. Its methods are
// called as those of a [ChatEncoder]. See "Protocols" in the package documentation.
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
	return imageEvents{images.NewEvents("image_generation", req)}
}

func (imageEvents) Framing() Framing { return EventStream() }

// StreamImages calls the method of an [ImageStreamer] if b, or what it wraps as [As] finds it, is one.
// Otherwise it yields the complete images of GenerateImages, as it does if something around the
// ImageStreamer has that method: a wrapper that changes images sees those of streams too. If b is no
// [ImageGenerator], the error wraps [errors.ErrUnsupported]. A [Handler] calls it for
// requests with Stream, and so does a wrapper that has a StreamImages of its own. b owns req.
func StreamImages(ctx context.Context, b Backend, req *llm.ImageRequest) llm.ImageStream {
	generator, ok := As[ImageGenerator](ctx, b)
	if !ok {
		return func(yield func(*llm.ImageChunk, error) bool) { yield(nil, errMissing[ImageGenerator]()) }
	}
	var stream func(context.Context, *llm.ImageRequest) llm.ImageStream
	if s, ok := wrapped.FindBefore[ImageStreamer, ImageGenerator](b, wrapped.Next[Backend](ctx)); ok {
		stream = s.StreamImages
	}
	return images.Stream(ctx, req, stream, generator.GenerateImages)
}
