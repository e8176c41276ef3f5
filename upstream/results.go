// What replies with a result for each input have in common.

package upstream

import (
	"context"
	"encoding/json"

	"github.com/llmhttp/llmhttp/internal/modelname"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/upstream/internal/client"
	"github.com/llmhttp/llmhttp/upstream/internal/payload"
	"github.com/llmhttp/llmhttp/upstream/internal/reply"
)

// A resultsReply is what replies with results of the inputs of a request have in common.
type resultsReply struct {
	results int // how many
	extra   llm.Extra
	model   *string
	usage   **llm.Usage
}

// fetchResults sends a request and returns the reply, which check accepts. of tells about it.
func fetchResults[Resp any, P interface {
	*Resp
	json.Unmarshaler
}](ctx context.Context, b *Backend, e client.Endpoint, body []byte, model modelname.Names, check func(P) error, of func(P) resultsReply) (P, error) {
	return client.Fetch(ctx, b.client, e, payload.JSON(body), model, func(r *reply.Reply, body []byte) (P, error) {
		resp := P(new(Resp))
		if err := r.Decode(body, resp); err != nil {
			return nil, err
		}
		got := of(resp)
		if err := r.Reported(body, got.extra["error"], got.results > 0); err != nil {
			return nil, err
		}
		if err := check(resp); err != nil {
			return nil, r.Malformed(err)
		}
		delete(got.extra, "error")
		*got.usage = r.Usage(body, *got.usage)
		if model.Client != model.Server {
			*got.model = model.Client
		}
		return resp, nil
	})
}
