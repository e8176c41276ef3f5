// Completions of prompts.

package upstream

import (
	"context"

	"github.com/llmhttp/llmhttp/completion"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/upstream/internal/client"
	"github.com/llmhttp/llmhttp/upstream/internal/payload"
	"github.com/llmhttp/llmhttp/upstream/internal/reply"
)

var _ completion.Completer = (*Backend)(nil)

// Complete implements [completion.Completer].
func (b *Backend) Complete(ctx context.Context, req *completion.Request) llm.ChatStream {
	return func(yield func(*llm.ChatChunk, error) bool) {
		r := reply.NewChat(yield, req.Choices(), &b.reasoning)
		r.Completes()
		r.Finish(b.forwardCompletion(ctx, req, r))
	}
}

// forwardCompletion is forwardChat for a request to complete prompts.
func (b *Backend) forwardCompletion(ctx context.Context, req *completion.Request, r *reply.Chat) error {
	model := b.client.ModelNames(req.Model)
	asked := *req
	asked.Model, asked.StreamOptions = model.Server, b.streamOptions(req.Stream, req.StreamOptions)
	body, err := asked.MarshalJSON()
	if err != nil {
		return err
	}
	if r.Reply, err = b.client.Send(ctx, b.completions, payload.JSON(body), client.Accepted(req.Stream), model); err != nil {
		return err
	}
	defer r.Close()
	return r.Read()
}
