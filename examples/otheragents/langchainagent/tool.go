package main

import (
	"context"

	"github.com/tmc/langchaingo/tools"

	"github.com/llmhttp/llmhttp/examples/otheragents/notes"
	"github.com/llmhttp/llmhttp/llm"
)

// ownTools returns the tools of the agent.
func ownTools(state *notes.Notes) (own []tools.Tool) {
	for _, t := range notes.Tools {
		own = append(own, tool{t.Function, state})
	}
	return own
}

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
