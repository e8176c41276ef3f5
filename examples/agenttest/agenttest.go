// Package agenttest tests the agents in examples: what each of them does for its clients, whatever its framework is.
// The official Go SDK of OpenAI is the client in front, and llmfake the model behind.
package agenttest

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmfake"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/messages"
	"github.com/llmhttp/llmhttp/responses"
)

// A Host is a server with an agent, and the model behind it.
type Host struct {
	URL     string
	Model   *llmfake.Server
	Records chan llmhttp.UsageRecord // of the requests that have ended
}

// NewHost serves the agent that newAgent returns for a model.
func NewHost(t *testing.T, newAgent func(t *testing.T, model *llmfake.Server) llmhttp.Backend) *Host {
	t.Helper()
	h := &Host{Model: llmfake.NewServer(t), Records: make(chan llmhttp.UsageRecord, 9)}
	handler := llmhttp.NewHandler(newAgent(t, h.Model), memory.NewKeyStore("sk-demo"), &llmhttp.Options{
		Usage:     usageLog{memory.NewUsageStore(), h.Records},
		Price:     price,
		Observe:   llmhttp.ConversationHeader("X-Conversation-Id"),
		Protocols: []llmhttp.Protocol{messages.New(nil), responses.New(nil)},
	})
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	h.URL = server.URL
	return h
}

// price is one unit for a call and one for a token of its completion, so that calls that are priced together
// cost less than those that are priced one by one.
func price(r *llmhttp.UsageRecord) (llmhttp.Cost, error) {
	return llmhttp.Cost{Output: llm.USD(float64(1 + r.Units.CompletionTokens))}, nil
}

// A usageLog passes on what it stores.
type usageLog struct {
	llmhttp.UsageStore
	records chan llmhttp.UsageRecord
}

func (l usageLog) Record(ctx context.Context, records ...llmhttp.UsageRecord) error {
	for i := range records {
		l.records <- records[i]
	}
	return l.UsageStore.Record(ctx, records...)
}

// Client returns a client of the server, whose requests are of a conversation.
func (h *Host) Client(conversation string) openai.Client {
	return openai.NewClient(
		option.WithBaseURL(h.URL+"/v1"), option.WithAPIKey("sk-demo"), option.WithMaxRetries(0),
		option.WithHeader("X-Conversation-Id", conversation),
	)
}

// Params returns a question, with the tools that the client has.
func Params(question string, tools ...string) openai.ChatCompletionNewParams {
	p := openai.ChatCompletionNewParams{Model: "m", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(question)}}
	for _, name := range tools {
		p.Tools = append(p.Tools, openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{
			Name:       name,
			Parameters: openai.FunctionParameters{"type": "object", "properties": map[string]any{"path": map[string]any{"type": "string"}}},
		}))
	}
	return p
}

// Research are the replies of a model that looks for the weather before it answers.
func Research() []llmfake.Reply {
	return []llmfake.Reply{
		llmfake.Text("Let me look. ").Call("forecast", map[string]string{"city": "Bergen"}).Usage(10, 5),
		llmfake.Text("Take an umbrella.").Usage(30, 4),
	}
}

// Run tests an agent, which has the tools forecast, with a city, and note, with a fact that it remembers in a
// conversation.
func Run(t *testing.T, newAgent func(t *testing.T, model *llmfake.Server) llmhttp.Backend) {
	t.Run("whole reply", func(t *testing.T) { testWhole(t, NewHost(t, newAgent)) })
	t.Run("reply at its limit", func(t *testing.T) { testLimit(t, NewHost(t, newAgent)) })
	t.Run("stream", func(t *testing.T) { testStream(t, NewHost(t, newAgent)) })
	t.Run("client tools", func(t *testing.T) { testClientTools(t, NewHost(t, newAgent)) })
	t.Run("client leaves", func(t *testing.T) { testClientLeaves(t, NewHost(t, newAgent)) })
	t.Run("conversations", func(t *testing.T) { testConversations(t, NewHost(t, newAgent)) })
	t.Run("model fails", func(t *testing.T) { testModelFails(t, NewHost(t, newAgent)) })
}

func testWhole(t *testing.T, h *Host) {
	h.Model.Reply(Research()...)
	client := h.Client("")
	reply, err := client.Chat.Completions.New(t.Context(), Params("What do I need?"))
	require.NoError(t, err)
	choice := reply.Choices[0]
	assert.Equal(t, "Let me look. Take an umbrella.", choice.Message.Content)
	assert.Equal(t, "stop", choice.FinishReason)
	assert.Empty(t, choice.Message.ToolCalls, "the calls of the agent are its own")
	assert.Contains(t, choice.Message.JSON.ExtraFields["reasoning_content"].Raw(), "forecast", "progress is reasoning")
	assert.Equal(t, int64(49), reply.Usage.TotalTokens)

	h.Model.WantRequests(2)
	h.Model.Request(0).WantUserText("What do I need?").WantTools("forecast", "note").WantModel("m")
	for _, tool := range h.Model.Request(0).Chat.Tools {
		assert.Regexp(t, `"(city|fact)"`, string(tool.Function.Parameters), "the model knows the arguments of the tool")
	}
	h.Model.Request(1).WantToolResult("forecast", "It rains in Bergen.")
	h.wantRecord(t, 40, 9, 1+5+1+4)
}

// The model stops at the limit of its tokens, and the client learns that the answer is not complete.
func testLimit(t *testing.T, h *Host) {
	h.Model.Reply(Research()[0], llmfake.Text("Take an").Finish(llm.FinishLength).Usage(30, 2))
	client := h.Client("")
	reply, err := client.Chat.Completions.New(t.Context(), Params("What do I need?"))
	require.NoError(t, err)
	assert.Equal(t, "length", reply.Choices[0].FinishReason)
}

// wantRecord checks the record of a request: the sum of its calls, each of which is priced by itself.
func (h *Host) wantRecord(t *testing.T, prompt, completion int64, cost float64) {
	t.Helper()
	record := <-h.Records
	assert.Equal(t, prompt, record.Units.PromptTokens)
	assert.Equal(t, completion, record.Units.CompletionTokens)
	assert.Equal(t, llm.USD(cost), record.Cost.Total())
	assert.False(t, record.Estimated || record.Unpriced)
	assert.Empty(t, h.Records, "a request has one record")
}

func testStream(t *testing.T, h *Host) {
	h.Model.Reply(Research()...)
	client := h.Client("")
	params := Params("What do I need?")
	params.StreamOptions.IncludeUsage = openai.Bool(true)
	stream := client.Chat.Completions.NewStreaming(t.Context(), params)
	var text, reasoning, order strings.Builder
	var usage int64
	for stream.Next() {
		chunk := stream.Current()
		usage += chunk.Usage.TotalTokens
		for _, choice := range chunk.Choices {
			text.WriteString(choice.Delta.Content)
			order.WriteString(choice.Delta.Content)
			if extra, ok := choice.Delta.JSON.ExtraFields["reasoning_content"]; ok {
				var s string
				require.NoError(t, json.Unmarshal([]byte(extra.Raw()), &s))
				reasoning.WriteString(s)
				order.WriteString("(" + s + ")")
			}
		}
	}
	require.NoError(t, stream.Err())
	assert.Equal(t, "Let me look. Take an umbrella.", text.String())
	assert.Contains(t, reasoning.String(), "forecast")
	assert.Regexp(t, `(?s)^Let me look\. \(.*forecast.*\)Take an umbrella\.$`, order.String(), "progress is shown before the answer")
	assert.Equal(t, int64(49), usage)
	h.wantRecord(t, 40, 9, 11)
}

// A client has tools of its own: the agent yields the call, and goes on with the result.
func testClientTools(t *testing.T, h *Host) {
	h.Model.Reply(
		llmfake.Call("read_file", map[string]string{"path": "a.txt"}).Usage(10, 5),
		llmfake.Text("It says hello.").Usage(20, 3),
	)
	client := h.Client("")
	params := Params("What does a.txt say?", "read_file")
	reply, err := client.Chat.Completions.New(t.Context(), params)
	require.NoError(t, err)
	require.Equal(t, "tool_calls", reply.Choices[0].FinishReason)
	calls := reply.Choices[0].Message.ToolCalls
	require.Len(t, calls, 1)
	assert.Equal(t, "read_file", calls[0].Function.Name)
	assert.JSONEq(t, `{"path":"a.txt"}`, calls[0].Function.Arguments)
	h.wantRecord(t, 10, 5, 6)

	params.Messages = append(params.Messages, reply.Choices[0].Message.ToParam(), openai.ToolMessage("hello", calls[0].ID))
	reply, err = client.Chat.Completions.New(t.Context(), params)
	require.NoError(t, err)
	assert.Equal(t, "It says hello.", reply.Choices[0].Message.Content)
	h.Model.WantRequests(2)
	h.Model.Request(0).WantTools("forecast", "note", "read_file")
	h.Model.Request(1).WantToolResult("read_file", "hello")
	h.wantRecord(t, 20, 3, 4)
}

// The client leaves while the model writes: its request ends too.
func testClientLeaves(t *testing.T, h *Host) {
	h.Model.Reply(llmfake.Text("Let me think about ").Hang())
	client := h.Client("")
	ctx, leave := context.WithCancel(t.Context())
	stream := client.Chat.Completions.NewStreaming(ctx, Params("What do I need?"))
	for stream.Next() && (len(stream.Current().Choices) == 0 || stream.Current().Choices[0].Delta.Content == "") {
	}
	require.NoError(t, stream.Err())
	leave()
	h.Model.AwaitRequests(1)
	record := <-h.Records
	assert.Positive(t, record.Units.PromptTokens, "what was used is recorded")
	assert.Empty(t, h.Records)
}

// A conversation has what was noted in it, and others have not.
func testConversations(t *testing.T, h *Host) {
	h.Model.Reply(llmfake.Call("note", map[string]string{"fact": "goes to Bergen"}), llmfake.Text("Noted."), llmfake.Text("Bergen."), llmfake.Text("Where?"))
	for _, conversation := range []string{"trip", "trip", "work"} {
		client := h.Client(conversation)
		_, err := client.Chat.Completions.New(t.Context(), Params("Where do I go?"))
		require.NoError(t, err)
	}
	h.Model.WantRequests(4)
	h.Model.Request(2).WantSystem("goes to Bergen")
	assert.NotContains(t, string(h.Model.Request(3).Body), "goes to Bergen")
}

// An error of the model is one for the client, without its cause.
func testModelFails(t *testing.T, h *Host) {
	h.Model.When(llmfake.UserText("fail")).Always(llmfake.FailWith(&llm.Error{Status: 400, Message: "swordfish"}))
	client := h.Client("")
	_, err := client.Chat.Completions.New(t.Context(), Params("fail"))
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "swordfish")
}
