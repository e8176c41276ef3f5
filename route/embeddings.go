package route

import (
	"context"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/deepcopy"
)

// Embed implements [llmhttp.Embedder]. Each try gets a copy of req.
func (r *Router) Embed(ctx context.Context, req *llmhttp.EmbeddingRequest) (*llmhttp.EmbeddingResponse, error) {
	return tryTargets(ctx, r, req.Model, llmhttp.OperationEmbeddings, func(ctx context.Context, t *target) (*llmhttp.EmbeddingResponse, error) {
		copied, model := deepcopy.Of(req), t.backendModel(req.Model)
		copied.Model = model
		resp, err := llmhttp.Forwarder{Backend: t.backend}.Embed(ctx, copied)
		if err == nil && resp != nil && model != req.Model {
			renamed := *resp // the target may keep resp
			renamed.Model = req.Model
			resp = &renamed
		}
		return resp, err
	})
}
