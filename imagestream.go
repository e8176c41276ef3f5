package llmhttp

import (
	"cmp"
	"context"
	"encoding/base64"
	"maps"
	"strconv"
	"time"

	"github.com/llmhttp/llmhttp/internal/callctx"
	"github.com/llmhttp/llmhttp/internal/deepcopy"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/openai"
	"github.com/llmhttp/llmhttp/internal/unsupported"
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

// imageEvents encodes a stream as server-sent events. They have names, and each has all settings,
// because SDKs declare them as required.
type imageEvents struct {
	kind     string // the beginning of the types of events
	settings llm.Extra
	partials int        // since the last complete image
	last     *llm.Image // is complete, and sent when it is known whether it has the usage
}

// newImageEvents returns the encoder of the reply to req, to which it does not refer.
func newImageEvents(req *llm.ImageRequest) ImageEncoder {
	e := &imageEvents{kind: "image_generation", settings: make(llm.Extra)}
	if req.Images != nil {
		e.kind = "image_edit"
	}
	for name, value := range map[string]string{
		"size": req.Size, "quality": req.Quality, "background": jsonwire.Text(req.Extra["background"]), "output_format": jsonwire.Text(req.Extra["output_format"]),
	} {
		fallback := "auto"
		if name == "output_format" {
			fallback = "png"
		}
		e.settings[name] = jsonwire.AppendString(nil, cmp.Or(value, fallback))
	}
	return e
}

func (*imageEvents) Framing() Framing { return EventStream() }

func (e *imageEvents) AppendChunk(b []byte, c *llm.ImageChunk) (_ []byte, err error) {
	if c.Image == nil {
		return b, nil
	}
	image := *c.Image
	if err := convertToData(&image); err != nil {
		return b, err
	}
	if e.last != nil {
		if b, err = e.appendCompleted(b, nil); err != nil {
			return b, err
		}
	}
	if !c.Partial {
		e.last, e.partials = &image, 0
		return b, nil
	}
	b, err = e.appendEvent(b, "partial_image", &image, llm.Extra{"partial_image_index": strconv.AppendInt(nil, int64(e.partials), 10)})
	e.partials++
	return openai.AppendEventEnd(append(b, '}')), err
}

// appendCompleted appends the event about the last image, which has the usage unless that is nil.
func (e *imageEvents) appendCompleted(b []byte, u *llm.Usage) (_ []byte, err error) {
	image := e.last
	e.last = nil
	if b, err = e.appendEvent(b, "completed", image, nil); err != nil {
		return b, err
	}
	if u != nil {
		b, err = mediaUsageJSON.Append(append(b, `,"usage":`...), u)
	}
	return openai.AppendEventEnd(append(b, '}')), err
}

// appendEvent appends an event without its end.
func (e *imageEvents) appendEvent(b []byte, name string, image *llm.Image, more llm.Extra) ([]byte, error) {
	members := maps.Clone(e.settings)
	members["created_at"] = strconv.AppendInt(nil, time.Now().Unix(), 10)
	maps.Copy(members, image.Extra)
	for _, reserved := range []string{"type", "usage", "partial_image_index"} {
		delete(members, reserved)
	}
	maps.Copy(members, more)
	b = append(append(append(append(b, "event: "...), e.kind...), '.'), name...)
	b = openai.AppendEventStart(append(b, '\n'))
	b = append(append(append(append(b, `{"type":"`...), e.kind...), '.'), name...)
	b = base64.StdEncoding.AppendEncode(append(b, `","b64_json":"`...), image.Data)
	return imageJSON.AppendExtra(append(b, '"'), &llm.Image{Extra: members})
}

func (e *imageEvents) AppendEnd(b []byte, u *llm.Usage) ([]byte, error) {
	if e.last == nil {
		return b, errNoImage
	}
	return e.appendCompleted(b, u)
}

func (*imageEvents) AppendFailure(b []byte, e *llm.Error) []byte {
	return openai.AppendErrorEvent(b, e)
}

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

// streamImages is StreamImages of a Backend whose images A makes.
func streamImages[A any](
	ctx context.Context,
	b Backend,
	method func(a A, ctx context.Context, r *llm.ImageRequest) (*llm.ImageResponse, error),
	req *llm.ImageRequest,
) llm.ImageStream {
	maker, ok := As[A](ctx, b)
	if !ok {
		return func(yield func(*llm.ImageChunk, error) bool) { yield(nil, errMissing[A]()) }
	}
	return func(yield func(*llm.ImageChunk, error) bool) {
		if streamer := findStreamer[A](ctx, b); streamer != nil {
			asked := deepcopy.Of(req) // which belongs to the ImageStreamer
			if tryStream(streamer.StreamImages(ctx, req), yield) {
				return
			}
			req = asked
		}
		resp, err := method(maker, ctx, req)
		if err == nil && (resp == nil || len(resp.Data) == 0) {
			err = errNoImage
		}
		if err != nil {
			yield(nil, err)
			return
		}
		for i := range resp.Data {
			c := &llm.ImageChunk{Image: &resp.Data[i]}
			if i == len(resp.Data)-1 {
				c.Usage = resp.Usage
			}
			if !yield(c, nil) {
				return
			}
		}
	}
}

// findStreamer returns the first ImageStreamer among b and what it wraps. It returns nil if there is
// none, or if it is in something that is an A and no ImageStreamer.
func findStreamer[A any](ctx context.Context, b Backend) ImageStreamer {
	for range maxWrappers {
		if s, ok := b.(ImageStreamer); ok {
			return s
		}
		if _, ok := b.(A); ok {
			return nil
		}
		var ok bool
		if b, ok = unwrapBackend(ctx, b); !ok {
			return nil
		}
	}
	return nil
}

// tryStream passes a stream on. It reports false if that begins with the error of an ImageStreamer
// that is not there.
func tryStream(stream llm.ImageStream, yield func(*llm.ImageChunk, error) bool) bool {
	if stream == nil {
		yield(nil, callctx.ErrNilStream)
		return true
	}
	begun, missing := false, false
	stream(func(c *llm.ImageChunk, err error) bool {
		if !begun {
			begun = true
			if missing = unsupported.Is(err); missing {
				return false
			}
		}
		return yield(c, err)
	})
	return !missing
}
