package route

import (
	"context"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/ability"
	"github.com/llmhttp/llmhttp/internal/deepcopy"
	"github.com/llmhttp/llmhttp/llm"
)

var completions = &streaming[llmhttp.CompletionRequest, llm.ChatChunk]{
	name:       llmhttp.OperationCompletions,
	model:      func(r *llmhttp.CompletionRequest) *string { return &r.Model },
	clone:      deepcopy.Of[llmhttp.CompletionRequest],
	call:       ability.Stream(llmhttp.Completer.Complete),
	hasContent: (*llm.ChatChunk).HasContent,
	setModel:   func(c *llm.ChatChunk, model string) { c.Model = model },
}

// Complete implements [llmhttp.Completer]. Each try gets a copy of req.
func (r *Router) Complete(ctx context.Context, req *llmhttp.CompletionRequest) llm.ChatStream {
	return completions.serve(ctx, r, req)
}
