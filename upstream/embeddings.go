package upstream

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/llmhttp/llmhttp"
)

// Embed implements [llmhttp.Embedder].
func (b *Backend) Embed(ctx context.Context, req *llmhttp.EmbeddingRequest) (*llmhttp.EmbeddingResponse, error) {
	model := modelName{req.Model, b.serverModel(req.Model)}
	r := *req
	r.Model = model.theirs
	body, err := r.MarshalJSON()
	if err != nil {
		return nil, err
	}
	resp := new(llmhttp.EmbeddingResponse)
	err = b.fetch(ctx, b.embeddings, body, model, func(_ *call, reply []byte) error {
		if err := resp.UnmarshalJSON(reply); err != nil {
			return err
		}
		if n := req.Input.Len(); len(resp.Vectors) != n {
			return fmt.Errorf("there are %d vectors for %d inputs", len(resp.Vectors), n)
		}
		if len(resp.Vectors) == 0 || slices.ContainsFunc(resp.Vectors, func(v []float32) bool { return len(v) == 0 }) {
			return errors.New("a vector is missing")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	resp.Usage = reported(resp.Usage)
	if model.ours != model.theirs {
		resp.Model = model.ours
	}
	return resp, nil
}
