package main

import (
	"encoding/json"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/examples/agenttest"
	"github.com/llmhttp/llmhttp/llmfake"
)

func newTestAgent(t *testing.T, model *llmfake.Server) llmhttp.Backend {
	return newAgent(model.OpenAIURL(), "test")
}

func TestAgent(t *testing.T) { agenttest.Run(t, newTestAgent) }

// Clients of Anthropic's Messages API get the same: progress is thinking.
func TestAgent_Messages(t *testing.T) {
	h := agenttest.NewHost(t, newTestAgent)
	client := anthropic.NewClient(option.WithBaseURL(h.URL), option.WithAPIKey("sk-demo"))
	params := anthropic.MessageNewParams{
		Model: "m", MaxTokens: 100,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("What do I need?"))},
	}
	for _, stream := range []bool{false, true} {
		h.Model.Reply(agenttest.Research()...)
		reply := &anthropic.Message{}
		if stream {
			events := client.Messages.NewStreaming(t.Context(), params)
			for events.Next() {
				require.NoError(t, reply.Accumulate(events.Current()))
			}
			require.NoError(t, events.Err())
		} else {
			var err error
			reply, err = client.Messages.New(t.Context(), params)
			require.NoError(t, err)
		}
		var text, thinking string
		for _, block := range reply.Content {
			text += block.Text
			thinking += block.Thinking
		}
		assert.Equal(t, "Let me look. Take an umbrella.", text)
		assert.Contains(t, thinking, "Calling forecast")
		assert.Equal(t, anthropic.StopReasonEndTurn, reply.StopReason)
		assert.Equal(t, int64(40+9), reply.Usage.InputTokens+reply.Usage.OutputTokens)
	}
}

// What the model is told of calls that cannot be carried out.
func TestAgent_Failures(t *testing.T) {
	h := agenttest.NewHost(t, newTestAgent)
	h.Model.Reply(llmfake.Call("forecast", json.RawMessage(`{"city":`)).Call("fly", nil), llmfake.Text("Sorry."))
	client := h.Client("")
	_, err := client.Chat.Completions.New(t.Context(), agenttest.Params("What do I need?"))
	require.NoError(t, err)
	h.Model.Request(1).WantToolResult("forecast", "The arguments are not").WantToolResult("fly", "There is no tool")

	h.Model.Always(llmfake.Call("forecast", nil))
	_, err = client.Chat.Completions.New(t.Context(), agenttest.Params("What do I need?"))
	assert.Error(t, err, "turns are bounded")
	h.Model.WantRequests(2 + maxTurns)
}
