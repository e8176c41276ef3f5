package textfilter

import (
	"context"
	"slices"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/ability"
	"github.com/llmhttp/llmhttp/internal/texts"
)

var moderationTexts = textsOf(func(w *rewriter, r *llmhttp.ModerationRequest) {
	w.list(Content, r.Input.Texts)
	r.Input.Parts = joinRuns(w, Content, r.Input.Parts, partRun)
	for i := range r.Input.Parts {
		texts.WalkPart(&r.Input.Parts[i], w.visit, w.visitExtra)
	}
	w.extra(r.Extra)
})

// Moderate implements [llmhttp.Moderator].
func (b *backend) Moderate(ctx context.Context, req *llmhttp.ModerationRequest) (*llmhttp.ModerationResponse, error) {
	return filterReply(ctx, b, moderationTexts, ability.Call(llmhttp.Moderator.Moderate), req, func(w *rewriter, r *llmhttp.ModerationResponse) {
		r.Results = slices.Clone(r.Results)
		for i := range r.Results {
			w.extra(cloneExtra(&r.Results[i].Extra))
		}
		w.extra(cloneExtra(&r.Extra))
	})
}
