package textfilter

import (
	"context"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/ability"
	"github.com/llmhttp/llmhttp/llm"
)

var completionTexts = textsOf(func(w *rewriter, r *llmhttp.CompletionRequest) {
	w.refuseTokens("prompt", r.Prompt.Tokens)
	w.list(Content, r.Prompt.Texts)
	w.text(Content, &r.Suffix)
	w.list(Other, r.Stop)
	w.streamOptions(r.StreamOptions)
	w.extra(r.Extra)
})

// Complete implements [llmhttp.Completer].
func (b *backend) Complete(ctx context.Context, req *llmhttp.CompletionRequest) llm.ChatStream {
	return filterStream(ctx, b, completionTexts, ability.Stream(llmhttp.Completer.Complete), req, forwardChoices(ctx, req.Choices()))
}
