package anthropic_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/internal/anthropic"
	"github.com/llmhttp/llmhttp/llm"
)

func TestSet(t *testing.T) {
	for _, test := range []struct{ object, value, want string }{
		{`{}`, `1`, `{"a":1}`},
		{`{"b":2}`, `1`, `{"b":2,"a":1}`},
		{` { "a" : 0 , "b":[1, 2] } `, `1`, `{"a":1,"b":[1, 2]}`},
		{`{"b":2,"a":0,"c":3}`, ``, `{"b":2,"c":3}`},
		{`{"a":0,"c":3}`, ``, `{"c":3}`},
		{`{"c":3}`, ``, `{"c":3}`},
		{`[1]`, `1`, `[1]`},
		{`{"a"`, `1`, `{"a"`},
	} {
		var value json.RawMessage
		if test.value != "" {
			value = json.RawMessage(test.value)
		}
		assert.Equal(t, test.want, string(anthropic.Set(json.RawMessage(test.object), "a", value)), test.object)
	}
	assert.Equal(t, `[1, 2]`, string(anthropic.Get(json.RawMessage(`{"a":[1, 2]}`), "a")))
	assert.Nil(t, anthropic.Get(json.RawMessage(`7`), "a"))
}

func TestInput(t *testing.T) {
	for arguments, want := range map[string]string{
		"": `{}`, " null ": `{}`, ` {"a": 1} `: `{"a": 1}`, `{"a`: `{"INVALID_JSON":"{\"a"}`, `[1]`: `{"INVALID_JSON":"[1]"}`,
	} {
		input, ok := anthropic.Input([]byte(arguments))
		assert.Equal(t, want, string(input))
		assert.Equal(t, !strings.Contains(want, "INVALID_JSON"), ok, arguments)
	}
}

func TestIsServerTool(t *testing.T) {
	for typ, want := range map[string]bool{
		"web_search_20250305": true, "bash_20250124": true, "function": false, "custom": false, "web_search_preview": false, "_20250305": false, "x_2025030": false, "": false,
	} {
		assert.Equal(t, want, anthropic.IsServerTool(typ), typ)
	}
}

// Strip removes the member everywhere, and does not change what the request refers to.
func TestStrip(t *testing.T) {
	own := llm.Extra{"anthropic": json.RawMessage(`{"tools":[{"type":"web_search_20250305"}]}`), "other": json.RawMessage(`1`)}
	req := &llm.ChatRequest{Extra: own, Tools: []llm.Tool{{Type: llm.ToolFunction}}, Messages: []llm.Message{
		{Role: llm.RoleUser, Content: llm.TextContent("plain")},
		{Role: llm.RoleUser, Content: llm.Content{{Type: llm.PartText, Extra: own}}},
		{Role: llm.RoleAssistant, Extra: llm.Extra{"anthropic": json.RawMessage(`[]`)}, ToolCalls: []llm.ToolCall{{ID: "c", Extra: own}}},
	}}
	before, err := json.Marshal(req)
	require.NoError(t, err)
	stripped := *req
	require.NoError(t, anthropic.Strip(&stripped))
	after, err := json.Marshal(&stripped)
	require.NoError(t, err)
	assert.NotContains(t, string(after), "anthropic")
	assert.Contains(t, string(after), `"other":1`)
	unchanged, err := json.Marshal(req)
	require.NoError(t, err)
	assert.Equal(t, string(before), string(unchanged))

	lost := *req
	lost.Tools = nil
	var e *llm.Error
	require.ErrorAs(t, anthropic.Strip(&lost), &e)
	assert.Equal(t, "tools", e.Param)
	lost = *req
	lost.Tools, lost.ToolChoice = nil, &llm.ToolChoice{Mode: llm.ToolChoiceNone}
	assert.NoError(t, anthropic.Strip(&lost))
}
