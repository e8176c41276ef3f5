// Moderations: Matcher, Reply, and what the Handler calls.

package llmfake

import (
	"cmp"
	"context"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmfake/simulator"
	"github.com/llmhttp/llmhttp/moderation"
)

// Moderations returns a Matcher for requests for moderations: see [Embeddings].
func Moderations() Matcher { return operationMatcher(moderation.Operation) }

// Moderate implements [moderation.Moderator].
func (b backend) Moderate(ctx context.Context, req *moderation.Request) (*moderation.Response, error) {
	p, err := b.s.playOther(ctx, func(r *Request) {
		r.Asked, r.Model, r.userText = new(*req), req.Model, cmp.Or(first(req.Input.Texts), llm.Content(req.Input.Parts).Text())
	})
	switch {
	case err != nil:
		return nil, err
	case !p.simulated:
		return nil, p.misfit("for a moderation")
	}
	asked := *req
	asked.Model = simulator.ModelModeration
	resp, err := b.s.model.Moderate(ctx, &asked)
	if err == nil {
		resp.Model = ""
	}
	return resp, err
}
