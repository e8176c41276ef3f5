// Requests to rerank documents.

package upstream

import (
	"context"

	"github.com/llmhttp/llmhttp/rerank"
)

var _ rerank.Reranker = (*Backend)(nil)

// Rerank implements [rerank.Reranker]. It does not ask the server for the documents, which the
// caller has.
func (b *Backend) Rerank(ctx context.Context, req *rerank.Request) (*rerank.Response, error) {
	model := b.client.ModelNames(req.Model)
	r := *req
	r.Model, r.ReturnDocuments = model.Server, false
	body, err := r.MarshalJSON()
	if err != nil {
		return nil, err
	}
	return fetchResults(ctx, b, b.newEndpoint("rerank"), body, model, req.CheckReply, func(resp *rerank.Response) resultsReply {
		return resultsReply{len(resp.Results), resp.Extra, &resp.Model, &resp.Usage}
	})
}
