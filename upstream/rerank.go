package upstream

import (
	"context"

	"github.com/llmhttp/llmhttp"
)

// Rerank implements [llmhttp.Reranker]. It does not ask the server for the documents, which the
// caller has.
func (b *Backend) Rerank(ctx context.Context, req *llmhttp.RerankRequest) (*llmhttp.RerankResponse, error) {
	model := b.modelNames(req.Model)
	r := *req
	r.Model, r.ReturnDocuments = model.server, false
	body, err := r.MarshalJSON()
	if err != nil {
		return nil, err
	}
	return fetchReply(ctx, b, b.rerank, body, model, func(c *call, reply []byte) (*llmhttp.RerankResponse, error) {
		resp := new(llmhttp.RerankResponse)
		if err := resp.UnmarshalJSON(reply); err != nil {
			return nil, c.malformedReply(err)
		}
		if err := c.reportedError(reply, resp.Extra["error"], len(resp.Results) > 0); err != nil {
			return nil, err
		}
		if err := req.CheckReply(resp); err != nil {
			return nil, c.malformedReply(err)
		}
		delete(resp.Extra, "error")
		if model.client != model.server {
			resp.Model = model.client
		}
		return resp, nil
	})
}
