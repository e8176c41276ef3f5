package route

import (
	"context"

	"github.com/llmhttp/llmhttp"
)

// Embed implements [llmhttp.Embedder].
func (r *Router) Embed(ctx context.Context, req *llmhttp.EmbeddingRequest) (*llmhttp.EmbeddingResponse, error) {
	c, err := r.begin(ctx, req.Model, kindEmbeddings)
	if err != nil {
		return nil, err
	}
	var resp *llmhttp.EmbeddingResponse
	err = c.run(func(ctx context.Context, t *target, _ *ticket) (final bool, err error) {
		ask := cloneEmbedding(req)
		model := t.modelFor(c.model)
		ask.Model = model
		resp, err = llmhttp.Forwarder{Backend: t.backend}.Embed(ctx, ask)
		switch {
		case err != nil:
			return false, err
		case resp == nil:
			return false, errNoResponse
		case model != c.model:
			named := *resp
			named.Model = c.model
			resp = &named
		}
		return false, nil
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}
