package upstream

import (
	"context"
	"encoding/json"

	"github.com/llmhttp/llmhttp/llm"
)

// A resultsReply is what replies with results of the inputs of a request have in common.
type resultsReply struct {
	results int // how many
	extra   llm.Extra
	model   *string
}

// fetchResults sends a request and returns the reply, which check accepts. of tells about it.
func fetchResults[Resp any, P interface {
	*Resp
	json.Unmarshaler
}](ctx context.Context, b *Backend, e endpoint, body []byte, model modelNames, check func(P) error, of func(P) resultsReply) (P, error) {
	return fetchReply(ctx, b, e, body, model, func(c *call, reply []byte) (P, error) {
		resp := P(new(Resp))
		if err := resp.UnmarshalJSON(reply); err != nil {
			return nil, c.malformedReply(err)
		}
		got := of(resp)
		if err := c.reportedError(reply, got.extra["error"], got.results > 0); err != nil {
			return nil, err
		}
		if err := check(resp); err != nil {
			return nil, c.malformedReply(err)
		}
		delete(got.extra, "error")
		if model.client != model.server {
			*got.model = model.client
		}
		return resp, nil
	})
}
