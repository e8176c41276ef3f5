package upstream

import (
	"context"

	"github.com/llmhttp/llmhttp/llm"
)

// GenerateImages implements [github.com/llmhttp/llmhttp.ImageGenerator]. An image whose address the client cannot use
// is fetched, if Options.Images allows it.
func (b *Backend) GenerateImages(ctx context.Context, req *llm.ImageRequest) (*llm.ImageResponse, error) {
	model := b.modelNames(req.Model)
	body, err := b.serverImageRequest(req, model).MarshalJSON()
	if err != nil {
		return nil, err
	}
	return b.fetchImageReply(ctx, b.images, jsonPayload(body), model, req.ResponseFormat)
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
