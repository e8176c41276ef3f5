// Embeddings.

package upstream

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/llmhttp/llmhttp/llm"
)

// Embed implements [github.com/llmhttp/llmhttp.Embedder].
func (b *Backend) Embed(ctx context.Context, req *llm.EmbeddingRequest) (*llm.EmbeddingResponse, error) {
	model := b.client.ModelNames(req.Model)
	r := *req
	r.Model = model.Server
	body, err := r.MarshalJSON()
	if err != nil {
		return nil, err
	}
	inputs := req.Input.Len()
	check := func(resp *llm.EmbeddingResponse) error { return checkVectors(resp.Vectors, inputs) }
	return fetchResults(ctx, b, b.embeddings, body, model, check, func(resp *llm.EmbeddingResponse) resultsReply {
		return resultsReply{len(resp.Vectors), resp.Extra, &resp.Model, &resp.Usage}
	})
}

// checkVectors returns an error if there is not one vector for each input.
func checkVectors(vectors [][]float32, inputs int) error {
	if len(vectors) != inputs {
		return fmt.Errorf("it has %d vectors for %d inputs", len(vectors), inputs)
	}
	if len(vectors) == 0 || slices.ContainsFunc(vectors, func(v []float32) bool { return len(v) == 0 }) {
		return errors.New("a vector is missing")
	}
	return nil
}
