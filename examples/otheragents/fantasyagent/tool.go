package main

import (
	"context"

	"charm.land/fantasy"

	"github.com/llmhttp/llmhttp/agent"
	"github.com/llmhttp/llmhttp/examples/otheragents/notes"
	"github.com/llmhttp/llmhttp/llm"
)

// A tool is one of the agent's, or of the client if it has no state.
type tool struct {
	*llm.Function
	state   *notes.Notes
	options fantasy.ProviderOptions
}

func (t *tool) Info() fantasy.ToolInfo {
	schema, _ := agent.Convert[struct { // the zero value if it is no object
		Properties map[string]any
		Required   []string
	}](t.Parameters)
	return fantasy.ToolInfo{Name: t.Name, Description: t.Description, Parameters: schema.Properties, Required: schema.Required}
}

// Run ends the run if the tool is the client's.
func (t *tool) Run(ctx context.Context, c fantasy.ToolCall) (fantasy.ToolResponse, error) {
	if t.state == nil {
		return fantasy.ToolResponse{StopTurn: true}, nil
	}
	result, err := t.state.Call(ctx, llm.ToolCall{ID: c.ID, Function: llm.FunctionCall{Name: t.Name, Arguments: c.Input}})
	return fantasy.ToolResponse{Type: "text", Content: result.Content.Text(), IsError: result.IsError}, err
}

func (t *tool) ProviderOptions() fantasy.ProviderOptions     { return t.options }
func (t *tool) SetProviderOptions(o fantasy.ProviderOptions) { t.options = o }
