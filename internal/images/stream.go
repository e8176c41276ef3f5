package images

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

// Stream returns the stream of a request. stream is the method of the streamer of a Backend, and nil if
// there is none; it may begin with an error by which it says that it is not there. Then the stream has
// the complete images that draw returns.
func Stream[Req any](
	ctx context.Context,
	req *Req,
	stream func(context.Context, *Req) llm.ImageStream,
	draw func(context.Context, *Req) (*llm.ImageResponse, error),
) llm.ImageStream {
	return func(yield func(*llm.ImageChunk, error) bool) {
		if stream != nil {
			asked := deepcopy.Of(req) // which belongs to the streamer
			if tryStream(stream(ctx, req), yield) {
				return
			}
			req = asked
		}
		resp, err := draw(ctx, req)
		if err == nil {
			err = CheckReply(resp)
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

// tryStream passes a stream on. It reports false if that begins with the error of a streamer that is not
// there.
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

// A Counter counts the complete images of a stream.
type Counter int64

// Add adds a chunk. It returns whether the chunk has an image, and about how many bytes.
func (n *Counter) Add(c *llm.ImageChunk) (hasImage bool, bytes int) {
	if c.Image == nil {
		return false, 0
	}
	if !c.Partial {
		*n++
	}
	return true, size(c.Image)
}

// Events encodes a stream as server-sent events. They have names, and each has all settings, because SDKs
// declare them as required.
type Events struct {
	kind     string // the beginning of the types of events
	settings llm.Extra
	partials int        // since the last complete image
	last     *llm.Image // is complete, and sent when it is known whether it has the usage
}

// NewEvents returns the encoder of the reply to req, to which it does not refer. The types of the events
// begin with kind.
func NewEvents(kind string, req *llm.ImageRequest) *Events {
	e := &Events{kind: kind, settings: make(llm.Extra)}
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

// AppendChunk appends the events that c brings.
func (e *Events) AppendChunk(b []byte, c *llm.ImageChunk) (_ []byte, err error) {
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
	return append(b, "}\n\n"...), err
}

// appendCompleted appends the event about the last image, which has the usage unless that is nil.
func (e *Events) appendCompleted(b []byte, u *llm.Usage) (_ []byte, err error) {
	image := e.last
	e.last = nil
	if b, err = e.appendEvent(b, "completed", image, nil); err != nil {
		return b, err
	}
	if u != nil {
		b, err = usageJSON.Append(append(b, `,"usage":`...), u)
	}
	return append(b, "}\n\n"...), err
}

var (
	imageJSON = jsonwire.ObjectOf[llm.Image]("")
	usageJSON = jsonwire.ObjectOf[llm.Usage]("media")
)

// appendEvent appends an event without its end.
func (e *Events) appendEvent(b []byte, name string, image *llm.Image, more llm.Extra) ([]byte, error) {
	members := maps.Clone(e.settings)
	members["created_at"] = strconv.AppendInt(nil, time.Now().Unix(), 10)
	maps.Copy(members, image.Extra)
	for _, reserved := range []string{"type", "usage", "partial_image_index"} {
		delete(members, reserved)
	}
	maps.Copy(members, more)
	b = append(append(append(append(b, "event: "...), e.kind...), '.'), name...)
	b = append(append(append(append(b, "\ndata: {\"type\":\""...), e.kind...), '.'), name...)
	b = base64.StdEncoding.AppendEncode(append(b, `","b64_json":"`...), image.Data)
	return imageJSON.AppendExtra(append(b, '"'), &llm.Image{Extra: members})
}

// AppendEnd appends the last event, with the usage. It returns an error if there was no complete image.
func (e *Events) AppendEnd(b []byte, u *llm.Usage) ([]byte, error) {
	if e.last == nil {
		return b, errNoImage
	}
	return e.appendCompleted(b, u)
}

// AppendFailure appends the event of an error.
func (*Events) AppendFailure(b []byte, e *llm.Error) []byte { return openai.AppendErrorEvent(b, e) }
