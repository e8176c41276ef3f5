package route

import (
	"context"

	"github.com/llmhttp/llmhttp"
)

var embeddings = &oneShot[llmhttp.EmbeddingRequest, llmhttp.EmbeddingResponse]{
	name:   llmhttp.OperationEmbeddings,
	model:  func(r *llmhttp.EmbeddingRequest) *string { return &r.Model },
	call:   llmhttp.Forwarder.Embed,
	served: func(r *llmhttp.EmbeddingResponse) *string { return &r.Model },
}

// Embed implements [llmhttp.Embedder]. Each try gets a copy of req.
func (r *Router) Embed(ctx context.Context, req *llmhttp.EmbeddingRequest) (*llmhttp.EmbeddingResponse, error) {
	return embeddings.serve(ctx, r, req)
}
