// Where the texts of moderations are.

package textfilter

import (
	"context"
	"slices"

	"github.com/llmhttp/llmhttp/internal/ability"
	"github.com/llmhttp/llmhttp/internal/texts"
	"github.com/llmhttp/llmhttp/moderation"
)

var moderationTexts = textsOf(func(w *rewriter, r *moderation.Request) {
	w.list(Content, r.Input.Texts)
	r.Input.Parts = joinRuns(w, Content, r.Input.Parts, partRun)
	for i := range r.Input.Parts {
		texts.WalkPart(&r.Input.Parts[i], w.visit, w.visitExtra)
	}
	w.extra(r.Extra)
})

// Moderate implements [moderation.Moderator].
func (b *backend) Moderate(ctx context.Context, req *moderation.Request) (*moderation.Response, error) {
	return filterReply(ctx, b, moderationTexts, ability.Call(moderation.Moderator.Moderate), req, func(w *rewriter, r *moderation.Response) {
		r.Results = slices.Clone(r.Results)
		for i := range r.Results {
			w.extra(cloneExtra(&r.Results[i].Extra))
		}
		w.extra(cloneExtra(&r.Extra))
	})
}
