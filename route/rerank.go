package route

import (
	"context"

	"github.com/llmhttp/llmhttp/internal/ability"
	"github.com/llmhttp/llmhttp/rerank"
)

var _ rerank.Reranker = (*Router)(nil)

var reranking = &oneShot[rerank.Request, rerank.Response]{
	name:   rerank.Operation,
	model:  func(r *rerank.Request) *string { return &r.Model },
	call:   ability.Call(rerank.Reranker.Rerank),
	served: func(r *rerank.Response) *string { return &r.Model },
}

// Rerank implements [rerank.Reranker]. Each try gets a copy of req.
func (r *Router) Rerank(ctx context.Context, req *rerank.Request) (*rerank.Response, error) {
	return reranking.serve(ctx, r, req)
}
