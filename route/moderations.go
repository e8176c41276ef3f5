package route

import (
	"context"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/ability"
)

var moderations = &oneShot[llmhttp.ModerationRequest, llmhttp.ModerationResponse]{
	name:   llmhttp.OperationModerations,
	model:  func(r *llmhttp.ModerationRequest) *string { return &r.Model },
	call:   ability.Call(llmhttp.Moderator.Moderate),
	served: func(r *llmhttp.ModerationResponse) *string { return &r.Model },
}

// Moderate implements [llmhttp.Moderator]. Each try gets a copy of req.
func (r *Router) Moderate(ctx context.Context, req *llmhttp.ModerationRequest) (*llmhttp.ModerationResponse, error) {
	return moderations.serve(ctx, r, req)
}
