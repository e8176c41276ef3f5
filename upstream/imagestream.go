// Streams of images, generated or edited.

package upstream

import (
	"context"
	"encoding/json"
	"io"
	"strings"

	"github.com/llmhttp/llmhttp/internal/modelname"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/upstream/internal/client"
	"github.com/llmhttp/llmhttp/upstream/internal/payload"
	"github.com/llmhttp/llmhttp/upstream/internal/reply"
)

// StreamImages implements [github.com/llmhttp/llmhttp.ImageStreamer]. The reply may be whole: servers whose model shows no
// images while it makes them ignore that the client asks for it.
func (b *Backend) StreamImages(ctx context.Context, req *llm.ImageRequest) llm.ImageStream {
	return b.streamImages(ctx, b.images, req, func(model modelname.Names) (payload.Payload, error) {
		body, err := b.serverImageRequest(req, model).MarshalJSON()
		return payload.JSON(body), err
	})
}

// streamImages returns the stream of a request for images or edits, whose body for the server encode returns.
func (b *Backend) streamImages(ctx context.Context, e client.Endpoint, req *llm.ImageRequest, encode func(modelname.Names) (payload.Payload, error)) llm.ImageStream {
	return func(yield func(*llm.ImageChunk, error) bool) {
		r := imageReply{Sender: reply.Sender[llm.ImageChunk]{Yield: yield}, b: b, expected: req.Count()}
		r.Finish(r.forward(ctx, e, b.client.ModelNames(req.Model), encode))
	}
}

// An imageReply passes on the reply to a request for a stream of images.
type imageReply struct {
	reply.Sender[llm.ImageChunk]
	b        *Backend
	expected int // complete images
	complete int // those that have come
}

// forward sends a request to the server and yields the reply. It does not yield the error that it returns.
func (r *imageReply) forward(ctx context.Context, e client.Endpoint, model modelname.Names, encode func(modelname.Names) (payload.Payload, error)) error {
	body, err := encode(model)
	if err != nil {
		return err
	}
	if r.Reply, err = r.b.client.Send(ctx, e, body, client.MediaEvents, model); err != nil {
		return err
	}
	defer r.Close()
	isStream, err := r.IsStream()
	if err != nil {
		return err
	}
	if !isStream {
		return r.readWhole()
	}
	return r.readEvents()
}

// readWhole yields the images of a whole reply.
func (r *imageReply) readWhole() error {
	body, err := r.ReadAll()
	if err != nil {
		return err
	}
	defer r.Release()
	resp, err := r.b.decodeImages(r.Reply, body, llm.ImageFormatBase64)
	if err != nil {
		return err
	}
	for i := range resp.Data {
		chunk := &llm.ImageChunk{Image: &resp.Data[i]}
		if i == len(resp.Data)-1 {
			chunk.Usage = resp.Usage
		}
		if !r.sendImage(chunk) {
			break
		}
	}
	return nil
}

// sendImage yields a chunk. It returns false if nothing more is to be read.
func (r *imageReply) sendImage(c *llm.ImageChunk) (more bool) {
	if !c.Partial {
		r.complete++
	}
	return r.Send(c, c.Usage)
}

// readEvents yields a reply that is server-sent events. There is none that ends it: the connection
// does, or the last image.
func (r *imageReply) readEvents() error {
	events := r.Events()
	for {
		e, err := events.Next()
		switch {
		case err == io.EOF, err == nil && reply.IsDone(e.Data):
			if r.complete == 0 {
				return r.Invalid("the stream ended without an image")
			}
			return nil
		case err != nil:
			return r.Interrupted(err)
		case e.Kind == reply.KindPing:
			continue
		case e.Kind == reply.KindError:
			return r.Event(e.Data)
		}
		chunk, err := r.decode(e.Data)
		switch {
		case err != nil:
			return err
		case chunk == nil:
			continue
		case !r.sendImage(chunk):
			return nil
		case r.complete >= r.expected:
			r.MarkComplete() // what follows has no meaning
			return nil
		}
	}
}

// decode decodes an event. The chunk is nil if the event has no image.
func (r *imageReply) decode(data []byte) (*llm.ImageChunk, error) {
	var e struct {
		Type         string
		Usage, Error json.RawMessage
	}
	if err := r.Decode(data, &e); err != nil {
		return nil, err
	}
	if err := r.Reported(data, e.Error, reply.IsEventType(e.Type)); err != nil {
		return nil, err
	}
	partial := strings.HasSuffix(e.Type, ".partial_image")
	if !partial && !strings.HasSuffix(e.Type, ".completed") {
		return nil, nil // is not known
	}
	chunk := &llm.ImageChunk{Image: new(llm.Image), Partial: partial}
	if err := r.Decode(data, chunk.Image); err != nil {
		return nil, err
	}
	for _, name := range []string{"type", "usage", "error", "partial_image_index"} {
		delete(chunk.Image.Extra, name)
	}
	chunk.Usage = r.Usage(data, mediaUsage(e.Usage))
	return chunk, nil
}
