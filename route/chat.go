package route

import (
	"context"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

var chat = &streaming[llm.ChatRequest, llm.ChatChunk]{
	name:       llmhttp.OperationChat,
	model:      func(r *llm.ChatRequest) *string { return &r.Model },
	clone:      (*llm.ChatRequest).Clone,
	call:       func(ctx context.Context, b llmhttp.Backend, r *llm.ChatRequest) llm.ChatStream { return b.Chat(ctx, r) },
	hasContent: (*llm.ChatChunk).HasContent,
	setModel:   func(c *llm.ChatChunk, model string) { c.Model = model },
}

// Chat implements [llmhttp.Backend].
//
// Each try gets a copy of the request, which the target may change.
func (r *Router) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	return chat.serve(ctx, r, req)
}
