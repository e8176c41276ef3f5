// Generated images.

package upstream

import (
	"context"
	"encoding/json"

	"github.com/llmhttp/llmhttp/internal/modelname"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/upstream/internal/client"
	"github.com/llmhttp/llmhttp/upstream/internal/payload"
	"github.com/llmhttp/llmhttp/upstream/internal/reply"
)

// GenerateImages implements [github.com/llmhttp/llmhttp.ImageGenerator]. An image whose address the client cannot use
// is fetched, if Options.Images allows it.
func (b *Backend) GenerateImages(ctx context.Context, req *llm.ImageRequest) (*llm.ImageResponse, error) {
	model := b.client.ModelNames(req.Model)
	body, err := b.serverImageRequest(req, model).MarshalJSON()
	if err != nil {
		return nil, err
	}
	return b.fetchImageReply(ctx, b.images, payload.JSON(body), model, req.ResponseFormat)
}

// serverImageRequest returns the request for the server.
func (b *Backend) serverImageRequest(req *llm.ImageRequest, model modelname.Names) *llm.ImageRequest {
	r := *req
	r.Model = model.Server
	if b.opts.Images.OmitFormat {
		r.ResponseFormat = ""
	}
	return &r
}

// fetchImageReply sends a request and returns the images of the reply.
func (b *Backend) fetchImageReply(
	ctx context.Context,
	e client.Endpoint,
	body payload.Payload,
	model modelname.Names,
	format string,
) (*llm.ImageResponse, error) {
	return client.Fetch(ctx, b.client, e, body, model, func(r *reply.Reply, body []byte) (*llm.ImageResponse, error) {
		return b.decodeImages(r, body, format)
	})
}

// decodeImages decodes a whole reply, and fetches the images that the client cannot use.
func (b *Backend) decodeImages(r *reply.Reply, body []byte, format string) (*llm.ImageResponse, error) {
	resp := new(llm.ImageResponse)
	if err := r.Decode(body, resp); err != nil {
		return nil, err
	}
	if err := r.Reported(body, resp.Extra["error"], len(resp.Data) > 0); err != nil {
		return nil, err
	}
	resp.Usage = r.Usage(body, resp.Usage)
	if len(resp.Data) == 0 {
		return nil, r.Invalid("the reply has no images")
	}
	if resp.Usage != nil { // also if the images cannot be fetched, or nobody waits for them
		llm.ReportUsage(r.Caller(), *resp.Usage)
	}
	if err := b.fetchImages(r, resp.Data, format); err != nil {
		return nil, err
	}
	delete(resp.Extra, "error")
	return resp, nil
}

// mediaUsage returns the usage of an event of images or speech, and nil if it has no number that package llm knows.
func mediaUsage(raw json.RawMessage) *llm.Usage {
	if len(raw) == 0 {
		return nil
	}
	var resp llm.ImageResponse
	_ = resp.UnmarshalJSON([]byte(`{"usage":` + string(raw) + `}`)) // values of other types are no usage
	return resp.Usage
}
