package route

import (
	"context"

	"github.com/llmhttp/llmhttp/completion"
	"github.com/llmhttp/llmhttp/internal/ability"
	"github.com/llmhttp/llmhttp/internal/deepcopy"
	"github.com/llmhttp/llmhttp/llm"
)

var _ completion.Completer = (*Router)(nil)

var completions = &streaming[completion.Request, llm.ChatChunk]{
	name:       completion.Operation,
	model:      func(r *completion.Request) *string { return &r.Model },
	clone:      deepcopy.Of[completion.Request],
	call:       ability.Stream(completion.Completer.Complete),
	hasContent: (*llm.ChatChunk).HasContent,
	setModel:   func(c *llm.ChatChunk, model string) { c.Model = model },
}

// Complete implements [completion.Completer]. Each try gets a copy of req.
func (r *Router) Complete(ctx context.Context, req *completion.Request) llm.ChatStream {
	return completions.serve(ctx, r, req)
}
