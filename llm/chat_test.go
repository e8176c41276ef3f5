package llm_test

import (
	"encoding/json"
	"testing"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestChatRequest_AppendJSON(t *testing.T) {
	r := &llm.ChatRequest{Model: "m", Messages: []llm.Message{{Role: llm.RoleUser, Content: llm.TextContent("hi")}}}
	b, err := r.AppendJSON([]byte("body: "))
	require.NoError(t, err)
	assert.Equal(t, `body: {"model":"m","messages":[{"role":"user","content":"hi"}]}`, string(b))

	r.Tools = []llm.Tool{{Type: "function", Function: &llm.Function{Name: "f", Parameters: json.RawMessage("{")}}}
	b, err = r.AppendJSON([]byte("body: "))
	assert.ErrorContains(t, err, "llmhttp: encoding *llm.ChatRequest: a raw value is not valid")
	assert.Nil(t, b)
}
