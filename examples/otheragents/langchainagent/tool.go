package main

import (
	"context"

	"github.com/llmhttp/llmhttp/examples/otheragents/notes"
	"github.com/llmhttp/llmhttp/llm"
)

// A tool is one of the agent's.
type tool struct {
	*llm.Function
	state *notes.Notes
}

func (t tool) Name() string        { return t.Function.Name }
func (t tool) Description() string { return t.Function.Description }

func (t tool) Call(ctx context.Context, input string) (string, error) {
	result, err := t.state.Call(ctx, llm.ToolCall{Function: llm.FunctionCall{Name: t.Function.Name, Arguments: input}})
	return result.Content.Text(), err
}
