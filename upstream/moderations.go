// Moderations.

package upstream

import (
	"context"

	"github.com/llmhttp/llmhttp/moderation"
)

var _ moderation.Moderator = (*Backend)(nil)

// Moderate implements [moderation.Moderator].
func (b *Backend) Moderate(ctx context.Context, req *moderation.Request) (*moderation.Response, error) {
	model := b.client.ModelNames(req.Model)
	r := *req
	r.Model = model.Server
	body, err := r.MarshalJSON()
	if err != nil {
		return nil, err
	}
	return fetchResults(ctx, b, b.newEndpoint("moderations"), body, model, req.CheckReply, func(resp *moderation.Response) resultsReply {
		return resultsReply{len(resp.Results), resp.Extra, &resp.Model, &resp.Usage}
	})
}
