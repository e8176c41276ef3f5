package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
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
		if n := inputs(req.Input); len(resp.Vectors) != n {
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

// inputs returns how many inputs there are in that of a request.
func inputs(input json.RawMessage) int {
	d := jsonwire.NewDecoder(input)
	if d.Kind() != '[' {
		return 1
	}
	n := 0
	for a := d.Array(); a.Next(); n++ {
		if d.Kind() == '0' {
			return 1 // a text as its tokens
		}
		d.Skip()
	}
	return n
}
