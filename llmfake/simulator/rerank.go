// Scores of documents.

package simulator

import (
	"context"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/rerank"
)

// ModelRerank is the model of [Backend.Rerank].
const ModelRerank = "demo-rerank"

var _ rerank.Reranker = (*Backend)(nil)

// Rerank implements [rerank.Reranker]. The score of a document is the similarity of its vector and that
// of the query, from 0 to 1. An object without a text is compared as JSON.
func (b *Backend) Rerank(ctx context.Context, req *rerank.Request) (*rerank.Response, error) {
	if req.Model != ModelRerank {
		return nil, llm.ModelNotFound(req.Model)
	}
	query, queryTokens := vector(wordsOf(req.Query), defaultDimensions), CountTokens(req.Model, req.Query)
	resp := &rerank.Response{Model: req.Model, Usage: new(llm.Usage)}
	for i, d := range req.Documents {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		text := d.Text
		if text == "" {
			text = string(d.Raw)
		}
		resp.Usage.PromptTokens += queryTokens + CountTokens(req.Model, text)
		resp.Results = append(
			resp.Results,
			rerank.Result{Index: i, Score: similarity(query, vector(wordsOf(text), defaultDimensions))},
		)
	}
	resp.Usage.TotalTokens = resp.Usage.PromptTokens
	return resp, nil
}

// similarity returns the cosine of the angle between two vectors of length 1, or 0 if that is
// negative.
func similarity(a, b []float32) float64 {
	var sum float64
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return min(max(sum, 0), 1)
}
