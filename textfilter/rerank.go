// Where the texts of requests to rerank are.

package textfilter

import (
	"context"
	"slices"

	"github.com/llmhttp/llmhttp/internal/ability"
	"github.com/llmhttp/llmhttp/rerank"
)

// The list of documents is replaced too: the one before may be needed for the reply.
var rerankTexts = textsOf(func(w *rewriter, r *rerank.Request) {
	w.text(Content, &r.Query)
	r.Documents = slices.Clone(r.Documents)
	for i := range r.Documents {
		w.text(Content, &r.Documents[i].Text)
		w.json(&r.Documents[i].Raw)
	}
	w.extra(r.Extra)
})

// Rerank implements [rerank.Reranker].
func (b *backend) Rerank(ctx context.Context, req *rerank.Request) (*rerank.Response, error) {
	return filterReply(ctx, b, rerankTexts, ability.Call(rerank.Reranker.Rerank), req, func(w *rewriter, r *rerank.Response) {
		r.Results = slices.Clone(r.Results)
		for i := range r.Results {
			w.extra(cloneExtra(&r.Results[i].Extra))
		}
		w.extra(cloneExtra(&r.Extra))
	})
}
