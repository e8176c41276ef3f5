// Chats: their requests, and how their replies are passed on.

package upstream

import (
	"context"

	"github.com/llmhttp/llmhttp/internal/anthropic"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/upstream/internal/client"
	"github.com/llmhttp/llmhttp/upstream/internal/payload"
	"github.com/llmhttp/llmhttp/upstream/internal/reply"
)

// Chat implements [github.com/llmhttp/llmhttp.Backend].
func (b *Backend) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	return func(yield func(*llm.ChatChunk, error) bool) {
		r := reply.NewChat(yield, req.Choices(), &b.reasoning)
		r.Finish(b.forwardChat(ctx, req, r))
	}
}

// forwardChat sends req to the server and yields the chunks of the reply. It does not
// yield the error that it returns.
func (b *Backend) forwardChat(ctx context.Context, req *llm.ChatRequest, r *reply.Chat) error {
	model := b.client.ModelNames(req.Model)
	body, err := b.encodeChat(req, model.Server)
	if err != nil {
		return err
	}
	r.Reply, err = b.client.Send(ctx, b.chat, body.Payload(), client.Accepted(req.Stream), model)
	body.Release()
	if err != nil {
		return err
	}
	defer r.Close()
	return r.Read()
}

// encodeChat returns the body of the request to the server. It does not change
// req.
func (b *Backend) encodeChat(req *llm.ChatRequest, model string) (*payload.Shared, error) {
	r := *req
	r.Model = model
	if err := anthropic.Strip(&r); err != nil {
		return nil, err
	}
	r.StreamOptions = b.streamOptions(req.Stream, req.StreamOptions)
	b.marks.Apply(&r)
	r.Messages = b.reasoning.Apply(r.Messages, b.opts.ReasoningName, model)
	return payload.NewShared(r.AppendJSON)
}

// streamOptions returns the options for the server of a request that has the options asked: the
// Handler wants the usage of a stream, whether or not the client does.
func (b *Backend) streamOptions(stream bool, asked *llm.StreamOptions) *llm.StreamOptions {
	if !stream || b.opts.OmitStreamOptions {
		return nil
	}
	opts := &llm.StreamOptions{IncludeUsage: true}
	if asked != nil {
		opts.Extra = asked.Extra
	}
	return opts
}
