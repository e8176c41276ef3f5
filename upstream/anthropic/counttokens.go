// Counts of the tokens of a chat.

package anthropic

import (
	"context"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/upstream/internal/client"
	"github.com/llmhttp/llmhttp/upstream/internal/payload"
	"github.com/llmhttp/llmhttp/upstream/internal/reply"
)

// CountTokens implements [github.com/llmhttp/llmhttp.TokenCounter]. If the server has no such endpoint, the error wraps
// [errors.ErrUnsupported].
func (b *Backend) CountTokens(ctx context.Context, req *llm.ChatRequest) (int, error) {
	model := b.client.ModelNames(req.Model)
	e := newEncoder(&b.opts, req)
	e.counts = true
	body, err := e.encode(nil, model.Server)
	if err != nil {
		return 0, err
	}
	endpoint := b.countTokens
	endpoint.Header = b.betaHeader(e)
	return client.Fetch(ctx, b.client, endpoint, payload.JSON(body), model, func(r *reply.Reply, body []byte) (int, error) { return r.Count(body, "input_tokens") })
}
