package route

import (
	"context"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/ability"
	"github.com/llmhttp/llmhttp/llm"
)

var embeddings = &oneShot[llm.EmbeddingRequest, llm.EmbeddingResponse]{
	name:   llmhttp.OperationEmbeddings,
	model:  func(r *llm.EmbeddingRequest) *string { return &r.Model },
	call:   ability.Call(llmhttp.Embedder.Embed),
	served: func(r *llm.EmbeddingResponse) *string { return &r.Model },
}

// Embed implements [llmhttp.Embedder]. Each try gets a copy of req.
func (r *Router) Embed(ctx context.Context, req *llm.EmbeddingRequest) (*llm.EmbeddingResponse, error) {
	return embeddings.serve(ctx, r, req)
}
