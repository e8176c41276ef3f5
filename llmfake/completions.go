// Completions of prompts: Matcher, Reply, and what the Handler calls.

package llmfake

import (
	"context"

	"github.com/llmhttp/llmhttp/completion"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmfake/simulator"
)

// Completions returns a Matcher for requests to complete prompts without a chat: see [Embeddings].
func Completions() Matcher { return operationMatcher(completion.Operation) }

// Complete implements [completion.Completer]. For a player, the prompts are the messages of a chat.
func (b backend) Complete(ctx context.Context, req *completion.Request) llm.ChatStream {
	return func(yield func(*llm.ChatChunk, error) bool) {
		request := b.s.describe(ctx, func(r *Request) {
			r.Asked, r.Model, r.Stream, r.userText = new(*req), req.Model, req.Stream, first(req.Prompt.Texts)
		})
		chat := &llm.ChatRequest{Model: req.Model, N: new(req.Choices()), MaxTokens: req.MaxTokens, Stop: req.Stop, Stream: req.Stream}
		for _, text := range req.Prompt.Texts {
			chat.Messages = append(chat.Messages, llm.Message{Role: llm.RoleUser, Content: llm.TextContent(text)})
		}
		p := &player{server: b.s, ctx: ctx, exchange: exchangeFrom(ctx), request: request, chat: chat}
		p.model = func(ctx context.Context) llm.ChatStream {
			asked := *req
			asked.Model = simulator.ModelComplete
			return b.s.model.Complete(ctx, &asked)
		}
		p.stream(yield)
	}
}
