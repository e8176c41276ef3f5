package route

import (
	"context"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/ability"
)

var rerank = &oneShot[llmhttp.RerankRequest, llmhttp.RerankResponse]{
	name:   llmhttp.OperationRerank,
	model:  func(r *llmhttp.RerankRequest) *string { return &r.Model },
	call:   ability.Call(llmhttp.Reranker.Rerank),
	served: func(r *llmhttp.RerankResponse) *string { return &r.Model },
}

// Rerank implements [llmhttp.Reranker]. Each try gets a copy of req.
func (r *Router) Rerank(ctx context.Context, req *llmhttp.RerankRequest) (*llmhttp.RerankResponse, error) {
	return rerank.serve(ctx, r, req)
}
