package upstream

import (
	"context"

	"github.com/llmhttp/llmhttp"
)

// Moderate implements [llmhttp.Moderator].
func (b *Backend) Moderate(ctx context.Context, req *llmhttp.ModerationRequest) (*llmhttp.ModerationResponse, error) {
	model := b.modelNames(req.Model)
	r := *req
	r.Model = model.server
	body, err := r.MarshalJSON()
	if err != nil {
		return nil, err
	}
	return fetchResults(ctx, b, b.moderations, body, model, req.CheckReply, func(resp *llmhttp.ModerationResponse) resultsReply {
		return resultsReply{len(resp.Results), resp.Extra, &resp.Model}
	})
}
