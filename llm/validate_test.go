package llm_test

import (
	"encoding/json"
	"errors"
	"math"
	"testing"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Validate refuses requests that no document can have, too.
func TestValidate(t *testing.T) {
	plain := func() *llm.ChatRequest {
		return &llm.ChatRequest{Model: "m", Messages: []llm.Message{{Role: llm.RoleUser, Content: llm.TextContent("Hi")}}}
	}
	require.NoError(t, plain().Validate())
	for name, test := range map[string]struct {
		change      func(r *llm.ChatRequest)
		code, param string
	}{
		"nothing":               {func(r *llm.ChatRequest) { *r = llm.ChatRequest{} }, "missing_required_parameter", "model"},
		"no messages":           {func(r *llm.ChatRequest) { r.Messages = nil }, "missing_required_parameter", "messages"},
		"many messages":         {func(r *llm.ChatRequest) { r.Messages = make([]llm.Message, 16385) }, "array_above_max_length", "messages"},
		"many parts":            {func(r *llm.ChatRequest) { r.Messages[0].Content = make(llm.Content, 4097) }, "array_above_max_length", "messages[0].content"},
		"many calls":            {func(r *llm.ChatRequest) { r.Messages[0].ToolCalls = make([]llm.ToolCall, 1025) }, "array_above_max_length", "messages[0].tool_calls"},
		"many details":          {func(r *llm.ChatRequest) { r.Messages[0].ReasoningDetails = make([]llm.ReasoningDetail, 4097) }, "array_above_max_length", "messages[0].reasoning_details"},
		"no number":             {func(r *llm.ChatRequest) { r.Temperature = new(math.NaN()) }, "decimal_below_min_value", "temperature"},
		"infinite":              {func(r *llm.ChatRequest) { r.TopP = new(math.Inf(1)) }, "decimal_above_max_value", "top_p"},
		"five stop sequences":   {func(r *llm.ChatRequest) { r.Stop = make(llm.StringList, 5) }, "array_above_max_length", "stop"},
		"many tools":            {func(r *llm.ChatRequest) { r.Tools = make([]llm.Tool, 2049) }, "array_above_max_length", "tools"},
		"empty parameters":      {func(r *llm.ChatRequest) { r.Tools = []llm.Tool{function(json.RawMessage{})} }, "invalid_type", "tools[0].function.parameters"},
		"parameters with space": {func(r *llm.ChatRequest) { r.Tools = []llm.Tool{function(json.RawMessage("\n {}"))} }, "", ""},
		"an empty choice":       {func(r *llm.ChatRequest) { r.ToolChoice = new(llm.ToolChoice) }, "missing_required_parameter", "tool_choice.type"},
		"many allowed tools": {func(r *llm.ChatRequest) {
			r.ToolChoice = &llm.ToolChoice{Type: "allowed_tools", AllowedTools: &llm.AllowedTools{Tools: make([]llm.AllowedTool, 2049)}}
		}, "array_above_max_length", "tool_choice.allowed_tools.tools"},
		"no schema": {func(r *llm.ChatRequest) { r.ResponseFormat = &llm.ResponseFormat{Type: "json_schema"} }, "missing_required_parameter", "response_format.json_schema"},
		"an empty schema": {func(r *llm.ChatRequest) {
			r.ResponseFormat = &llm.ResponseFormat{Type: "json_schema", JSONSchema: &llm.JSONSchema{Schema: json.RawMessage{}}}
		}, "invalid_type", "response_format.json_schema.schema"},
	} {
		t.Run(name, func(t *testing.T) {
			r := plain()
			test.change(r)
			err := r.Validate()
			if test.code == "" {
				assert.NoError(t, err)
				return
			}
			e, ok := errors.AsType[*llm.Error](err)
			require.True(t, ok, "%v", err)
			assert.Equal(t, 400, e.Status)
			assert.Equal(t, test.code, e.Code)
			assert.Equal(t, test.param, e.Param)
		})
	}
}

func function(parameters json.RawMessage) llm.Tool {
	return llm.Tool{Type: "function", Function: &llm.Function{Name: "f", Parameters: parameters}}
}
