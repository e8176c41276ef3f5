package route

import (
	"context"

	"github.com/llmhttp/llmhttp"
)

var chat = &streaming[llmhttp.ChatRequest, llmhttp.ChatChunk]{
	name:       llmhttp.OperationChat,
	model:      func(r *llmhttp.ChatRequest) *string { return &r.Model },
	clone:      (*llmhttp.ChatRequest).Clone,
	call:       llmhttp.Forwarder.Chat,
	hasContent: (*llmhttp.ChatChunk).HasContent,
	setModel:   func(c *llmhttp.ChatChunk, model string) { c.Model = model },
}

// Chat implements [llmhttp.Backend].
//
// Each try gets a copy of the request, which the target may change.
func (r *Router) Chat(ctx context.Context, req *llmhttp.ChatRequest) llmhttp.ChatStream {
	return chat.serve(ctx, r, req)
}
