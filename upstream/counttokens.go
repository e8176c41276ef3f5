// Counts of the tokens of a chat, by an endpoint that vLLM has.

package upstream

import (
	"context"
	"errors"
	"fmt"

	"github.com/llmhttp/llmhttp/internal/anthropic"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/upstream/internal/client"
	"github.com/llmhttp/llmhttp/upstream/internal/payload"
	"github.com/llmhttp/llmhttp/upstream/internal/reply"
)

// CountTokens implements [github.com/llmhttp/llmhttp.TokenCounter] with Options.TokenizePath. Without that, or if
// the server has no such endpoint, the error wraps [errors.ErrUnsupported].
//
// The request and its reply are those of vLLM
// (https://docs.vllm.ai/en/stable/serving/openai_compatible_server/#tokenizer-api).
func (b *Backend) CountTokens(ctx context.Context, req *llm.ChatRequest) (int, error) {
	if b.opts.TokenizePath == "" {
		return 0, fmt.Errorf("upstream: there is no Options.TokenizePath: %w", errors.ErrUnsupported)
	}
	model := b.client.ModelNames(req.Model)
	prompt := llm.ChatRequest{Model: model.Server, Messages: req.Messages, Tools: req.Tools}
	_ = anthropic.Strip(&prompt) // the number of tokens is not wrong without tools
	b.marks.Apply(&prompt)
	prompt.Messages = b.reasoning.Apply(prompt.Messages, b.opts.ReasoningName, model.Server)
	body, err := prompt.MarshalJSON()
	if err != nil {
		return 0, err
	}
	return client.Fetch(ctx, b.client, b.tokenize, payload.JSON(body), model, func(r *reply.Reply, body []byte) (int, error) { return r.Count(body, "count") })
}
