package route

import (
	"context"

	"github.com/llmhttp/llmhttp/internal/ability"
	"github.com/llmhttp/llmhttp/moderation"
)

var _ moderation.Moderator = (*Router)(nil)

var moderations = &oneShot[moderation.Request, moderation.Response]{
	name:   moderation.Operation,
	model:  func(r *moderation.Request) *string { return &r.Model },
	call:   ability.Call(moderation.Moderator.Moderate),
	served: func(r *moderation.Response) *string { return &r.Model },
}

// Moderate implements [moderation.Moderator]. Each try gets a copy of req.
func (r *Router) Moderate(ctx context.Context, req *moderation.Request) (*moderation.Response, error) {
	return moderations.serve(ctx, r, req)
}
