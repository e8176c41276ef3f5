package route

import (
	"context"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/deepcopy"
)

// Embed implements [llmhttp.Embedder]. Each try gets a copy of req.
func (r *Router) Embed(ctx context.Context, req *llmhttp.EmbeddingRequest) (*llmhttp.EmbeddingResponse, error) {
	return tryTargets(ctx, r, Request{llmhttp.OperationEmbeddings, req.Model, req}, func(ctx context.Context, t *try) (*llmhttp.EmbeddingResponse, error) {
		copied, model := deepcopy.Of(req), t.target.backendModel(req.Model)
		copied.Model = model
		resp, err := llmhttp.Forwarder{Backend: t.target.backend}.Embed(ctx, copied)
		if err == nil && resp != nil && model != req.Model {
			renamed := *resp // the target may keep resp
			renamed.Model = req.Model
			resp = &renamed
		}
		return resp, err
	})
}
