package simulator_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/llmhttp/llmhttp/llmfake/simulator"
)

func TestBackend_Reasoning(t *testing.T) {
	const hello = `"messages":[{"role":"user","content":"Hello you"}],"reasoning_effort":"low"`
	resp, err := join.Collect(simulator.New().Chat(t.Context(), newRequest(t, hello)))
	require.NoError(t, err)
	m := resp.Choices[0].Message
	assert.Equal(t, "The user said: Hello you", m.Reasoning)
	assert.Equal(t, "Hello you", m.Content.Text())
	assert.Equal(t, 5, resp.Usage.CompletionTokensDetails.ReasoningTokens)
	assert.Equal(t, 7, resp.Usage.CompletionTokens)
	require.Len(t, m.ReasoningDetails, 1)
	assert.NotEmpty(t, m.ReasoningDetails[0].Signature)

	next := newRequest(t, `"messages":[]`)
	user := llm.Message{Role: llm.RoleUser, Content: llm.TextContent("Go on")}
	next.Messages = []llm.Message{m, user}
	resp, err = join.Collect(simulator.New().Chat(t.Context(), next))
	require.NoError(t, err)
	assert.Empty(t, resp.Choices[0].Message.Reasoning)
	assert.Equal(t, 9, resp.Usage.PromptTokens, "reasoning counts")

	m.Reasoning = "The user said: something else"
	next.Messages = []llm.Message{m, user}
	_, err = join.Collect(simulator.New().Chat(t.Context(), next))
	var refused *llm.Error
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, 400, refused.Status)
	assert.Equal(t, "invalid_signature", refused.Code)

	m.ReasoningDetails[0].Signature = "of another model"
	_, err = join.Collect(simulator.New().Chat(t.Context(), next))
	assert.NoError(t, err)
	resp, err = join.Collect(simulator.New().Chat(t.Context(), newRequest(t, strings.Replace(hello, "low", "none", 1))))
	require.NoError(t, err)
	assert.Empty(t, resp.Choices[0].Message.Reasoning)
}
