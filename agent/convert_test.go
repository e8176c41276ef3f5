// Conversions between the types of package llm and those of frameworks.

package agent_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/agent"
	"github.com/llmhttp/llmhttp/llm"
)

// A frameworkMessage is a message of a framework, whose JSON is that of OpenAI's API.
type frameworkMessage struct {
	Role      string `json:"role"`
	Content   string `json:"content"`
	ToolCalls []struct {
		ID       string `json:"id"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls,omitempty"`
}

func ExampleConvert() {
	messages, err := agent.TextMessages([]llm.Message{
		{Role: llm.RoleDeveloper, Content: llm.TextContent("Be brief.")},
		{Role: llm.RoleUser, Content: llm.Content{{Type: llm.PartText, Text: "How is "}, {Type: llm.PartText, Text: "Bergen?"}}},
	})
	if err != nil {
		fmt.Println(err)
	}
	converted, err := agent.Convert[[]frameworkMessage](messages)
	fmt.Printf("%+v %v\n", converted, err)
	// Output: [{Role:system Content:Be brief. ToolCalls:[]} {Role:user Content:How is Bergen? ToolCalls:[]}] <nil>
}

func TestConvert(t *testing.T) {
	calls := []llm.ToolCall{{ID: "c1", Type: "function", Function: llm.FunctionCall{Name: "f", Arguments: `{"a":1}`}}}
	there, err := agent.Convert[frameworkMessage](llm.Message{Role: llm.RoleAssistant, Content: llm.TextContent("Hi"), ToolCalls: calls})
	require.NoError(t, err)
	assert.Equal(t, `{"a":1}`, there.ToolCalls[0].Function.Arguments)
	back, err := agent.Convert[[]llm.ToolCall](there.ToolCalls)
	require.NoError(t, err)
	assert.Equal(t, calls[0].Function, back[0].Function)

	chunk, err := agent.Convert[*llm.ChatChunk](json.RawMessage(`{"choices":[{"delta":{"content":"Hi","vendor":1}}]}`))
	require.NoError(t, err)
	assert.Equal(t, "Hi", chunk.Choices[0].Delta.Content)
	assert.Equal(t, "1", string(chunk.Choices[0].Delta.Extra["vendor"]))

	_, err = agent.Convert[int](llm.Message{})
	assert.ErrorContains(t, err, "agent: llm.Message does not become a int")
	_, err = agent.Convert[int](make(chan int))
	assert.Error(t, err)
}

func TestTextMessages(t *testing.T) {
	from := []llm.Message{
		{Role: llm.RoleDeveloper, Content: llm.Content{{Type: llm.PartText, Text: "a"}, {Type: llm.PartText, Text: "b", Extra: llm.Extra{"x": json.RawMessage("1")}}}},
		{Role: llm.RoleAssistant, ToolCalls: []llm.ToolCall{{ID: "c1"}}},
	}
	got, err := agent.TextMessages(from)
	require.NoError(t, err)
	assert.Equal(t, llm.Message{Role: llm.RoleSystem, Content: llm.TextContent("ab")}, got[0])
	assert.Nil(t, got[1].Content)
	assert.Equal(t, llm.RoleDeveloper, from[0].Role, "the messages stay as they are")

	from[1].Content = llm.Content{{Type: llm.PartText, Text: "a"}, {Type: llm.PartImage}}
	_, err = agent.TextMessages(from)
	e, ok := errors.AsType[*llm.Error](err)
	require.True(t, ok)
	assert.Equal(t, http.StatusBadRequest, e.Status)
	assert.Equal(t, "messages[1].content[1]", e.Param)
}

func TestSplitCalls(t *testing.T) {
	var calls []llm.ToolCall
	for _, name := range []string{"look", "read", "unknown"} {
		calls = append(calls, llm.ToolCall{Function: llm.FunctionCall{Name: name}})
	}
	client, err := agent.ClientTools(question("read"), "look")
	require.NoError(t, err)
	own, theirs := agent.SplitCalls(calls, client)
	assert.Equal(t, []llm.ToolCall{calls[0], calls[2]}, own)
	assert.Equal(t, []llm.ToolCall{calls[1]}, theirs)

	req := question("read")
	req.Tools = append(req.Tools, llm.Tool{Type: "bash"})
	client, err = agent.ClientTools(req)
	require.NoError(t, err)
	assert.Len(t, client, 2)
	req.ToolChoice = &llm.ToolChoice{Mode: llm.ToolChoiceNone}
	client, err = agent.ClientTools(req, "look")
	require.NoError(t, err)
	assert.Empty(t, client)
	_, err = agent.ClientTools(req, "look", "read")
	assert.ErrorContains(t, err, `"read"`)

	names := agent.CallNames([]llm.Message{{ToolCalls: []llm.ToolCall{{ID: "c1", Function: llm.FunctionCall{Name: "f"}}, {ID: "c2", Function: llm.FunctionCall{Name: "g"}}}}})
	assert.Equal(t, map[string]string{"c1": "f", "c2": "g"}, names)
}
