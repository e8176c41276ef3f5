package upstream

import (
	"context"

	"github.com/llmhttp/llmhttp"
)

// GenerateImages implements [llmhttp.ImageGenerator]. An image whose address the client cannot use
// is fetched, if Options.Images allows it.
func (b *Backend) GenerateImages(ctx context.Context, req *llmhttp.ImageRequest) (*llmhttp.ImageResponse, error) {
	model := b.modelNames(req.Model)
	r := *req
	r.Model = model.server
	if b.opts.Images.OmitFormat {
		r.ResponseFormat = ""
	}
	body, err := r.MarshalJSON()
	if err != nil {
		return nil, err
	}
	format := req.ResponseFormat
	return fetchReply(ctx, b, b.images, body, model, func(c *call, reply []byte) (*llmhttp.ImageResponse, error) {
		resp := new(llmhttp.ImageResponse)
		if err := resp.UnmarshalJSON(reply); err != nil {
			return nil, c.malformedReply(err)
		}
		if err := c.reportedError(reply, resp.Extra["error"], len(resp.Data) > 0); err != nil {
			return nil, err
		}
		if len(resp.Data) == 0 {
			return nil, c.invalidReply("the reply has no images")
		}
		if err := c.fetchImages(resp.Data, format); err != nil {
			return nil, c.fetchError(err)
		}
		delete(resp.Extra, "error")
		return resp, nil
	})
}
