package llmhttp

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"maps"
	"strconv"
	"time"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/llm"
)

// An ImageStreamer is an [ImageGenerator] or an [ImageEditor] that shows images while they are made.
// For other Backends, a client that asks for a stream gets the complete images as events.
type ImageStreamer interface {
	// StreamImages is GenerateImages, or EditImages if req has Images, of a request with Stream. It
	// is not called with Images if the Backend is no ImageEditor. As with Chat of a [Backend], the
	// work is done while the stream is iterated over, and must stop when ctx is done.
	StreamImages(ctx context.Context, req *llm.ImageRequest) llm.ImageStream
}

// imageFacts returns what c tells a streaming operation.
func imageFacts(c *llm.ImageChunk) chunkFacts {
	f := chunkFacts{usage: c.Usage}
	if c.Image != nil {
		f.size, f.hasOutput = imageSize(c.Image), true
		if !c.Partial {
			f.images = 1
		}
	}
	return f
}

// newImageStreams returns the descriptor of the same operation for requests with Stream.
func newImageStreams(op *oneShot[llm.ImageRequest, llm.ImageResponse]) *streaming[llm.ImageRequest, llm.ImageChunk] {
	return &streaming[llm.ImageRequest, llm.ImageChunk]{
		modelCall: op.modelCall,
		call: func(ctx context.Context, b Forwarder, r *llm.ImageRequest) llm.ImageStream {
			if err := checkImageSize(ctx, b, r); err != nil {
				return func(yield func(*llm.ImageChunk, error) bool) { yield(nil, errors.Join(err, llm.ErrNotSent)) }
			}
			return b.StreamImages(ctx, r)
		},
		facts: imageFacts,
	}
}

var (
	imageStreams     = newImageStreams(imagesOperation)
	imageEditStreams = newImageStreams(imageEditsOperation)
)

// An ImageEncoder encodes the reply to one [llm.ImageRequest] with Stream. Its methods are called as those
// of a [SpeechEncoder]. See "Protocols" in the package documentation.
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
	return appendEventEnd(append(b, '}')), err
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
	return appendEventEnd(append(b, '}')), err
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
	b = appendEventStart(append(b, '\n'))
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

func (*imageEvents) AppendFailure(b []byte, e *llm.Error) []byte { return appendErrorEvent(b, e) }

var (
	_ ImageStreamer = Forwarder{}
	_ ImageStreamer = (*Swap)(nil)
)

// StreamImages calls the method of the Backend: see [Forwarder.StreamImages].
func (s *Swap) StreamImages(ctx context.Context, req *llm.ImageRequest) llm.ImageStream {
	return s.backend(ctx).StreamImages(ctx, req)
}

// StreamImages calls the method of the wrapped [ImageStreamer]. If the Backend is none, it yields the
// images that its other method returns.
func (f Forwarder) StreamImages(ctx context.Context, req *llm.ImageRequest) llm.ImageStream {
	call, supported := f.GenerateImages, implements[ImageGenerator](f.Backend)
	if req.Images != nil {
		call, supported = f.EditImages, implements[ImageEditor](f.Backend)
	}
	if b, ok := f.Backend.(ImageStreamer); ok && supported {
		return b.StreamImages(ctx, req)
	}
	return func(yield func(*llm.ImageChunk, error) bool) {
		resp, err := call(ctx, req)
		if err == nil {
			err = checkImages(req, resp)
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
