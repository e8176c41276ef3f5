// Where the texts of completions of prompts are.

package textfilter

import (
	"context"

	"github.com/llmhttp/llmhttp/completion"
	"github.com/llmhttp/llmhttp/internal/ability"
	"github.com/llmhttp/llmhttp/llm"
)

var completionTexts = textsOf(func(w *rewriter, r *completion.Request) {
	w.refuseTokens("prompt", r.Prompt.Tokens)
	w.list(Content, r.Prompt.Texts)
	w.text(Content, &r.Suffix)
	w.list(Other, r.Stop)
	w.streamOptions(r.StreamOptions)
	w.extra(r.Extra)
})

// Complete implements [completion.Completer].
func (b *backend) Complete(ctx context.Context, req *completion.Request) llm.ChatStream {
	return filterStream(ctx, b, completionTexts, ability.Stream(completion.Completer.Complete), req, forwardChoices(ctx, req.Choices()))
}
