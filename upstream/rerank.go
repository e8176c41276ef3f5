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
	return fetchResults(ctx, b, b.rerank, body, model, req.CheckReply, func(resp *llmhttp.RerankResponse) resultsReply {
		return resultsReply{len(resp.Results), resp.Extra, &resp.Model}
	})
}
