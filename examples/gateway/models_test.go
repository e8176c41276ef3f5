package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Claude Code offers the models whose names contain claude: those of the routes that map names one to one. The
// route for all other names of its own lists none, and serves them.
func TestGateway_ModelsOfClaudeCode(t *testing.T) {
	s := newSetup(t, 0)
	status, body := s.call(t, "sk-gateway-secret", "GET", "/v1/models?limit=1000", "", "Anthropic-Version", "2023-06-01")
	require.Equal(t, 200, status, body)
	var list struct {
		Data []struct {
			ID     string `json:"id"`
			Window int    `json:"max_input_tokens"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(body), &list))
	windows := make(map[string]int)
	for _, m := range list.Data {
		windows[m.ID] = m.Window
	}
	assert.Equal(t, 128_000, windows["demo-chat"])
	assert.Equal(t, 128_000, windows["claude-demo-chat"])
	assert.NotContains(t, windows, "claude-haiku-4-5")
	for _, name := range []string{"claude-demo-chat", "claude-haiku-4-5"} {
		status, body := s.call(t, "sk-gateway-secret", "POST", "/v1/messages",
			`{"model": "`+name+`", "max_tokens": 9, "messages": [{"role": "user", "content": "Hello!"}]}`, "Content-Type", "application/json")
		assert.Equal(t, 200, status, body)
		assert.Contains(t, body, `"model":"`+name+`"`)
	}
}
