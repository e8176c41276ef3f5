package llmhttp

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"iter"
	"maps"
	"strconv"
	"time"
)

// An ImageStreamer is an [ImageGenerator] or an [ImageEditor] that shows images while they are made.
// For other Backends, a client that asks for a stream gets the complete images as events.
type ImageStreamer interface {
	// StreamImages is GenerateImages, or EditImages if req has Images, of a request with Stream. It
	// is not called with Images if the Backend is no ImageEditor. As with Chat of a [Backend], the
	// work is done while the stream is iterated over, and must stop when ctx is done.
	StreamImages(ctx context.Context, req *ImageRequest) ImageStream
}

// An ImageStream is the reply to an [ImageRequest] with Stream: its chunks in order, and then at most
// one error. A stream without a complete image is an error too. The rules of a [ChatStream] hold.
type ImageStream = iter.Seq2[*ImageChunk, error]

// An ImageChunk is a part of an [ImageStream]. What it refers to must not be changed any more.
type ImageChunk struct {
	// Image is an image with Data, or with a data: URL; nil if there is none in this chunk. Members of
	// its Extra are members of the event, such as size and output_format; those that clients
	// expect are made of the request if it lacks them.
	Image *Image

	// Partial tells that Image is not complete: it shows what the next complete image is going to be.
	Partial bool

	Usage *Usage // of the request so far, as in a [ChatChunk]; nil if it is not known
}

// facts returns what c tells a streaming operation.
func (c *ImageChunk) facts() chunkFacts {
	f := chunkFacts{usage: c.Usage}
	if c.Image != nil {
		f.size, f.hasOutput = c.Image.size(), true
		if !c.Partial {
			f.images = 1
		}
	}
	return f
}

// newImageStreams returns the descriptor of the same operation for requests with Stream.
func newImageStreams(op *oneShot[ImageRequest, ImageResponse]) *streaming[ImageRequest, ImageChunk] {
	return &streaming[ImageRequest, ImageChunk]{
		modelCall: op.modelCall,
		call: func(ctx context.Context, b Forwarder, r *ImageRequest) ImageStream {
			if err := checkImageSize(ctx, b, r); err != nil {
				return func(yield func(*ImageChunk, error) bool) { yield(nil, errors.Join(err, ErrNotSent)) }
			}
			return b.StreamImages(ctx, r)
		},
		facts: (*ImageChunk).facts,
	}
}

var (
	imageStreams     = newImageStreams(imagesOperation)
	imageEditStreams = newImageStreams(imageEditsOperation)
)

// serveImages serves a request whole, or as a stream if the client asks for that and newEncoder is set.
func serveImages(
	q *request,
	whole *oneShot[ImageRequest, ImageResponse],
	stream *streaming[ImageRequest, ImageChunk],
	req *ImageRequest,
	encode func(b []byte, r *ImageResponse) ([]byte, error),
	newEncoder func(req *ImageRequest) ImageEncoder,
) error {
	if !req.Stream || newEncoder == nil {
		return whole.serve(q, req, encode)
	}
	encoder := newEncoder(req)
	return stream.serve(q, func(*request) (*ImageRequest, replyEncoder[ImageChunk], error) { return req, encoder, nil })
}

// An ImageEncoder encodes the reply to one [ImageRequest] with Stream. Its methods are called as those
// of a [SpeechEncoder]. See "Protocols" in the package documentation.
type ImageEncoder interface {
	// Framing returns how the reply is sent. It is called once, before the other methods and
	// before the Backend is called.
	Framing() Framing

	// AppendChunk adds a chunk. An error fails the request, and the Backend must stop.
	AppendChunk(b []byte, c *ImageChunk) ([]byte, error)

	// AppendEnd ends a reply that is complete. The usage is final; it is zero if the Backend
	// reports none.
	AppendEnd(b []byte, u *Usage) ([]byte, error)

	// AppendFailure ends a stream that failed. See Framing.EndsCleanly.
	AppendFailure(b []byte, e *Error) []byte
}

// imageEvents encodes a stream as server-sent events. They have names, and each has all settings,
// because SDKs declare them as required.
type imageEvents struct {
	kind     string // the beginning of the types of events
	settings Extra
	partials int    // since the last complete image
	last     *Image // is complete, and sent when it is known whether it has the usage
}

// newImageEvents returns the encoder of the reply to req, to which it does not refer.
func newImageEvents(req *ImageRequest) ImageEncoder {
	e := &imageEvents{kind: "image_generation", settings: make(Extra)}
	if req.Images != nil {
		e.kind = "image_edit"
	}
	for name, value := range map[string]string{
		"size": req.Size, "quality": req.Quality, "background": textOf(req.Extra["background"]), "output_format": textOf(req.Extra["output_format"]),
	} {
		fallback := "auto"
		if name == "output_format" {
			fallback = "png"
		}
		e.settings[name] = appendString(nil, cmp.Or(value, fallback))
	}
	return e
}

func (*imageEvents) Framing() Framing { return EventStream() }

func (e *imageEvents) AppendChunk(b []byte, c *ImageChunk) (_ []byte, err error) {
	if c.Image == nil {
		return b, nil
	}
	image := *c.Image
	if err := image.convertToData(); err != nil {
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
	b, err = e.appendEvent(b, "partial_image", &image, Extra{"partial_image_index": strconv.AppendInt(nil, int64(e.partials), 10)})
	e.partials++
	return appendEventEnd(append(b, '}')), err
}

// appendCompleted appends the event about the last image, which has the usage unless that is nil.
func (e *imageEvents) appendCompleted(b []byte, u *Usage) (_ []byte, err error) {
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
func (e *imageEvents) appendEvent(b []byte, name string, image *Image, more Extra) ([]byte, error) {
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
	return imageJSON.AppendExtra(append(b, '"'), &Image{Extra: members})
}

func (e *imageEvents) AppendEnd(b []byte, u *Usage) ([]byte, error) {
	if e.last == nil {
		return b, errNoImage
	}
	return e.appendCompleted(b, u)
}

func (*imageEvents) AppendFailure(b []byte, e *Error) []byte { return appendErrorEvent(b, e) }

var (
	_ ImageStreamer = Forwarder{}
	_ ImageStreamer = (*Swap)(nil)
)

// StreamImages calls the method of the Backend: see [Forwarder.StreamImages].
func (s *Swap) StreamImages(ctx context.Context, req *ImageRequest) ImageStream {
	return s.backend(ctx).StreamImages(ctx, req)
}

// StreamImages calls the method of the wrapped [ImageStreamer]. If the Backend is none, it yields the
// images that its other method returns.
func (f Forwarder) StreamImages(ctx context.Context, req *ImageRequest) ImageStream {
	call, supported := f.GenerateImages, implements[ImageGenerator](f.Backend)
	if req.Images != nil {
		call, supported = f.EditImages, implements[ImageEditor](f.Backend)
	}
	if b, ok := f.Backend.(ImageStreamer); ok && supported {
		return b.StreamImages(ctx, req)
	}
	return func(yield func(*ImageChunk, error) bool) {
		resp, err := call(ctx, req)
		if err == nil {
			err = checkImages(req, resp)
		}
		if err != nil {
			yield(nil, err)
			return
		}
		for i := range resp.Data {
			c := &ImageChunk{Image: &resp.Data[i]}
			if i == len(resp.Data)-1 {
				c.Usage = resp.Usage
			}
			if !yield(c, nil) {
				return
			}
		}
	}
}
