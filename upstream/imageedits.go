// Edits of images, which are sent as a form.

package upstream

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/llmhttp/llmhttp/imageedit"
	"github.com/llmhttp/llmhttp/internal/modelname"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/upstream/internal/client"
	"github.com/llmhttp/llmhttp/upstream/internal/payload"
)

var (
	_ imageedit.Editor   = (*Backend)(nil)
	_ imageedit.Streamer = (*Backend)(nil)
)

// EditImages implements [imageedit.Editor]. The server gets a form, also if the client has sent
// JSON, which not every server takes. Images are passed on as by GenerateImages.
func (b *Backend) EditImages(ctx context.Context, req *imageedit.Request) (*llm.ImageResponse, error) {
	model := b.client.ModelNames(req.Model)
	body, err := b.encodeImageEdit(req, model)
	if err != nil {
		return nil, err
	}
	return b.fetchImageReply(ctx, b.imageEdits(), body, model, req.ResponseFormat)
}

// StreamImageEdits implements [imageedit.Streamer], as StreamImages an ImageStreamer.
func (b *Backend) StreamImageEdits(ctx context.Context, req *imageedit.Request) llm.ImageStream {
	return b.streamImages(ctx, b.imageEdits(), &req.ImageRequest, func(model modelname.Names) (payload.Payload, error) {
		return b.encodeImageEdit(req, model)
	})
}

// imageEdits returns the endpoint of edits.
func (b *Backend) imageEdits() client.Endpoint { return b.newEndpoint("images/edits") }

// encodeImageEdit returns the form for the server.
func (b *Backend) encodeImageEdit(req *imageedit.Request, model modelname.Names) (payload.Payload, error) {
	r, f := b.serverImageRequest(&req.ImageRequest, model), payload.NewForm()
	f.Add("model", r.Model)
	f.Add("prompt", r.Prompt)
	f.Add("n", formInt(r.N))
	f.Add("size", r.Size)
	f.Add("quality", r.Quality)
	f.Add("response_format", r.ResponseFormat)
	f.Add("stream", formBool(r.Stream))
	f.Add("partial_images", formInt(r.PartialImages))
	image := "image" // servers that edit a single one may know no other name
	if len(req.Images) > 1 {
		image = "image[]"
	}
	for _, file := range req.Images {
		f.AddFile(image, file, "image")
	}
	if req.Mask != nil {
		f.AddFile("mask", req.Mask, "mask")
	} else {
		f.Add("mask", "")
	}
	for _, name := range slices.Sorted(maps.Keys(r.Extra)) {
		f.AddExtra(name, formValues(r.Extra[name]))
	}
	return f.Payload()
}

// formInt returns the value of a field for an integer.
func formInt(n *int) string {
	if n == nil {
		return ""
	}
	return strconv.Itoa(*n)
}

// formBool returns the value of a field that is left out if it is false.
func formBool(b bool) string {
	if b {
		return "true"
	}
	return ""
}

// formValues returns the values of the field of a form for a member of a request: strings as they
// are, other values in JSON.
func formValues(raw json.RawMessage) []string {
	var text string
	var list []string
	switch {
	case string(raw) == "null":
		return nil
	case json.Unmarshal(raw, &text) == nil:
		return []string{text}
	case json.Unmarshal(raw, &list) == nil:
		return list
	}
	return []string{string(raw)}
}
