package llm_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llm"
)

// Clients and servers parse the arguments of a whole call. They join those of a stream, where {} would be text between them.
func TestToolCall_NoArguments(t *testing.T) {
	function := llm.FunctionCall{Name: "now"}
	message := llm.Message{Role: llm.RoleAssistant, ToolCalls: []llm.ToolCall{{ID: "call_1", Function: function}}}
	const (
		whole  = `"tool_calls":[{"id":"call_1","type":"function","function":{"name":"now","arguments":"{}"}}]`
		delta  = `"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"now","arguments":""}}]`
		custom = `"tool_calls":[{"id":"call_1","type":"custom","custom":{"name":"now","input":""}}]`
	)
	for name, test := range map[string]struct {
		v    any
		want string
	}{
		"request": {&llm.ChatRequest{Model: "m", Messages: []llm.Message{message}}, whole},
		"reply":   {&llm.ChatResponse{Choices: []llm.Choice{{Message: message}}}, whole},
		"chunk": {&llm.ChatChunk{Choices: []llm.ChunkChoice{{Delta: llm.Delta{
			ToolCalls: []llm.ToolCallDelta{{ID: "call_1", Type: "function", Function: function}},
		}}}}, delta},
		"custom tool": {&llm.Message{ToolCalls: []llm.ToolCall{{
			ID: "call_1", Type: "custom", Extra: llm.Extra{"custom": json.RawMessage(`{"name":"now","input":""}`)},
		}}}, custom},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := json.Marshal(test.v)
			require.NoError(t, err)
			assert.Contains(t, string(got), test.want)
		})
	}
}
