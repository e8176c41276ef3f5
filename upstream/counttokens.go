// Counts of the tokens of a chat, by an endpoint that vLLM has.

package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

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
	b.marks.Apply(&prompt)
	prompt.Messages = b.reasoning.Apply(prompt.Messages, b.opts.ReasoningName, model.Server)
	body, err := prompt.MarshalJSON()
	if err != nil {
		return 0, err
	}
	return client.Fetch(ctx, b.client, b.tokenize, payload.JSON(body), model, decodeTokenCount)
}

// decodeTokenCount decodes the reply r to a request for a number of tokens.
func decodeTokenCount(r *reply.Reply, body []byte) (int, error) {
	var counted struct {
		Count *int            `json:"count"`
		Error json.RawMessage `json:"error"`
	}
	malformed := json.Unmarshal(body, &counted)
	if err := r.Reported(body, counted.Error, counted.Count != nil); err != nil {
		return 0, err
	}
	switch {
	case malformed != nil:
		return 0, r.Unreadable(body, malformed)
	case counted.Count == nil || *counted.Count < 0:
		return 0, r.Invalid("the reply has no count")
	}
	return *counted.Count, nil
}
