package route

import (
	"context"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/deepcopy"
)

var completions = &streaming[llmhttp.CompletionRequest, llmhttp.ChatChunk]{
	name:       llmhttp.OperationCompletions,
	model:      func(r *llmhttp.CompletionRequest) *string { return &r.Model },
	clone:      deepcopy.Of[llmhttp.CompletionRequest],
	call:       llmhttp.Forwarder.Complete,
	hasContent: (*llmhttp.ChatChunk).HasContent,
	setModel:   func(c *llmhttp.ChatChunk, model string) { c.Model = model },
}

// Complete implements [llmhttp.Completer]. Each try gets a copy of req.
func (r *Router) Complete(ctx context.Context, req *llmhttp.CompletionRequest) llmhttp.ChatStream {
	return completions.serve(ctx, r, req)
}
