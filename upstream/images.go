package upstream

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/llmhttp/llmhttp/llm"
)

// GenerateImages implements [llmhttp.ImageGenerator]. An image whose address the client cannot use
// is fetched, if Options.Images allows it.
func (b *Backend) GenerateImages(ctx context.Context, req *llm.ImageRequest) (*llm.ImageResponse, error) {
	model := b.modelNames(req.Model)
	body, err := b.serverImageRequest(req, model).MarshalJSON()
	if err != nil {
		return nil, err
	}
	return b.fetchImageReply(ctx, b.images, jsonPayload(body), model, req.ResponseFormat)
}

// EditImages implements [llmhttp.ImageEditor]. The server gets a form, also if the client has sent
// JSON, which not every server takes. Images are passed on as by GenerateImages.
func (b *Backend) EditImages(ctx context.Context, req *llm.ImageRequest) (*llm.ImageResponse, error) {
	model := b.modelNames(req.Model)
	body, err := encodeImageEdit(b.serverImageRequest(req, model))
	if err != nil {
		return nil, err
	}
	return b.fetchImageReply(ctx, b.imageEdits, body, model, req.ResponseFormat)
}

// serverImageRequest returns the request for the server.
func (b *Backend) serverImageRequest(req *llm.ImageRequest, model modelNames) *llm.ImageRequest {
	r := *req
	r.Model = model.server
	if b.opts.Images.OmitFormat {
		r.ResponseFormat = ""
	}
	return &r
}

// fetchImageReply sends a request and returns the images of the reply.
func (b *Backend) fetchImageReply(
	ctx context.Context,
	e endpoint,
	body payload,
	model modelNames,
	format string,
) (*llm.ImageResponse, error) {
	return fetchReplyTo(ctx, b, e, body, model, func(c *call, reply []byte) (*llm.ImageResponse, error) {
		return c.decodeImages(reply, format)
	})
}

// decodeImages decodes a whole reply, and fetches the images that the client cannot use.
func (c *call) decodeImages(reply []byte, format string) (*llm.ImageResponse, error) {
	resp := new(llm.ImageResponse)
	if err := resp.UnmarshalJSON(reply); err != nil {
		return nil, c.malformedReply(err)
	}
	if err := c.reportedError(reply, resp.Extra["error"], len(resp.Data) > 0); err != nil {
		return nil, err
	}
	if len(resp.Data) == 0 {
		return nil, c.invalidReply("the reply has no images")
	}
	if resp.Usage != nil { // also if the images cannot be fetched, or nobody waits for them
		llm.ReportUsage(c.callerCtx, *resp.Usage)
	}
	if err := c.fetchImages(resp.Data, format); err != nil {
		return nil, c.fetchError(err)
	}
	delete(resp.Extra, "error")
	return resp, nil
}

// encodeImageEdit returns the form for the server.
func encodeImageEdit(r *llm.ImageRequest) (payload, error) {
	f := newForm()
	f.add("model", r.Model)
	f.add("prompt", r.Prompt)
	f.add("n", formInt(r.N))
	f.add("size", r.Size)
	f.add("quality", r.Quality)
	f.add("response_format", r.ResponseFormat)
	f.add("stream", formBool(r.Stream))
	f.add("partial_images", formInt(r.PartialImages))
	image := "image" // servers that edit a single one may know no other name
	if len(r.Images) > 1 {
		image = "image[]"
	}
	for _, file := range r.Images {
		f.addFile(image, file, "image")
	}
	if r.Mask != nil {
		f.addFile("mask", r.Mask, "mask")
	} else {
		f.add("mask", "")
	}
	for _, name := range slices.Sorted(maps.Keys(r.Extra)) {
		f.addExtra(name, formValues(r.Extra[name]))
	}
	return f.payload()
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
