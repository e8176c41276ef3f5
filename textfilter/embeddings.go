// Where the texts of embeddings are.

package textfilter

import (
	"context"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/ability"
	"github.com/llmhttp/llmhttp/llm"
)

var embeddingTexts = textsOf(func(w *rewriter, r *llm.EmbeddingRequest) {
	w.refuseTokens("input", r.Input.Tokens)
	w.list(Content, r.Input.Texts)
	w.extra(r.Extra)
})

// Embed implements [llmhttp.Embedder].
func (b *backend) Embed(ctx context.Context, req *llm.EmbeddingRequest) (*llm.EmbeddingResponse, error) {
	return filterReply(ctx, b, embeddingTexts, ability.Call(llmhttp.Embedder.Embed), req, func(w *rewriter, r *llm.EmbeddingResponse) {
		w.extra(cloneExtra(&r.Extra))
	})
}
