package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/agent"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
)

type cityArguments struct {
	City string `json:"city" jsonschema:"the name of the city"`
}

// newMCPServer returns an MCP server with a tool.
func newMCPServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "weather", Version: "v0.0.1"}, nil)
	forecast := func(_ context.Context, _ *mcp.CallToolRequest, in cityArguments) (*mcp.CallToolResult, any, error) {
		if in.City == "" {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "Which city?"}}, IsError: true}, nil, nil
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "It rains in " + in.City + "."}}}, nil, nil
	}
	mcp.AddTool(s, &mcp.Tool{Name: "forecast", Description: "The weather in a city"}, forecast)
	return s
}

// newSession returns a session with an MCP server.
func newSession(t *testing.T, transport mcp.Transport) *mcp.ClientSession {
	session, err := connect(t.Context(), transport)
	require.NoError(t, err)
	t.Cleanup(func() { session.Close() })
	return session
}

// newModel returns a model whose first reply has the steps and whose later ones are an answer, with
// the requests that it gets.
func newModel(first ...memory.Step) (llmhttp.Backend, *[]*llm.ChatRequest) {
	requests := new([]*llm.ChatRequest)
	model := &memory.Backend{Script: func(req *llm.ChatRequest) []memory.Step {
		*requests = append(*requests, req.Clone())
		usage := memory.Chunk(&llm.ChatChunk{Usage: &llm.Usage{PromptTokens: 10, CompletionTokens: 5}})
		if len(*requests) > 1 {
			return []memory.Step{memory.Say("Take an umbrella."), usage}
		}
		return append(first, usage)
	}}
	return model, requests
}

// inMemory returns a transport to an MCP server in this process.
func inMemory(t *testing.T) mcp.Transport {
	here, there := mcp.NewInMemoryTransports()
	server, err := newMCPServer().Connect(t.Context(), there, nil)
	require.NoError(t, err)
	t.Cleanup(func() { server.Wait() })
	return here
}

func onePerCall(*llmhttp.UsageRecord) (llmhttp.Cost, error) { return llmhttp.Cost{Output: 1}, nil }

func ask(t *testing.T, a llmhttp.Backend, body string) string {
	t.Helper()
	server := httptest.NewServer(newHandler(a, onePerCall))
	t.Cleanup(server.Close)
	req, err := http.NewRequestWithContext(t.Context(), "POST", server.URL+"/v1/chat/completions", strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer sk-demo")
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Conversation-Id", "trip")
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	reply, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return string(reply)
}

const question = `{"model":"m","messages":[{"role":"user","content":"What do I need?"}]}`

// The model calls tools of an MCP server: in this process, and over HTTP.
func TestAgent(t *testing.T) {
	server := newMCPServer()
	remote := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	t.Cleanup(remote.Close)
	for name, transport := range map[string]mcp.Transport{"in this process": inMemory(t), "over HTTP": transport(remote.URL)} {
		t.Run(name, func(t *testing.T) {
			model, requests := newModel(memory.Call("c1", "forecast", `{"city":"Bergen"}`), memory.Call("c2", "forecast", `{"city":""}`), memory.Call("c3", "forecast", `{"city":`))
			reply := ask(t, newAgent(model, newSession(t, transport), agent.Options{}), question)
			assert.Contains(t, reply, `"content":"Take an umbrella."`)
			assert.Contains(t, reply, `"reasoning_content":"Calling forecast {\"city\":\"Bergen\"}`)
			assert.Contains(t, reply, `"total_tokens":30`)
			require.Len(t, *requests, 2)
			offered := (*requests)[0].Tools[0].Function
			assert.Equal(t, "The weather in a city", offered.Description)
			assert.Contains(t, string(offered.Parameters), `"the name of the city"`)
			var results []string
			for i, m := range (*requests)[1].Messages[2:] {
				results = append(results, m.ToolCallID+" "+m.Content.Text())
				assert.Equal(t, i > 0, m.IsError)
			}
			assert.Equal(t, []string{"c1 It rains in Bergen.", "c2 Which city?", "c3 The arguments are not valid JSON."}, results)
		})
	}
}

// Calls of the client's tools go to the client.
func TestAgent_ClientTools(t *testing.T) {
	const tools = `,"tools":[{"type":"function","function":{"name":"read_file"}}]}`
	model, _ := newModel(memory.Call("c1", "read_file", `{}`))
	a := newAgent(model, newSession(t, inMemory(t)), agent.Options{})
	assert.Contains(t, ask(t, a, question[:len(question)-1]+tools), `"name":"read_file"`)
	assert.Contains(t, ask(t, a, question[:len(question)-1]+strings.Replace(tools, "read_file", "forecast", 1)), `"param":"tools"`)
}

// Turns and cost are bounded.
func TestAgent_Bounds(t *testing.T) {
	for name, opts := range map[string]agent.Options{"turns": {MaxTurns: 1}, "cost": {MaxCost: 1}} {
		t.Run(name, func(t *testing.T) {
			step := memory.Call("c1", "forecast", `{"city":"Bergen"}`)
			model := &memory.Backend{Script: func(*llm.ChatRequest) []memory.Step {
				return []memory.Step{step, memory.Chunk(&llm.ChatChunk{Usage: &llm.Usage{PromptTokens: 10, CompletionTokens: 5}})}
			}}
			assert.Contains(t, ask(t, newAgent(model, newSession(t, inMemory(t)), opts), question), `"finish_reason":"length"`)
		})
	}
}

// A server that keeps state knows the conversation.
func TestAgent_Conversation(t *testing.T) {
	server := newMCPServer()
	metas := make(chan mcp.Meta, 1)
	server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if method == "tools/call" {
				metas <- req.GetParams().GetMeta()
			}
			return next(ctx, method, req)
		}
	})
	here, there := mcp.NewInMemoryTransports()
	_, err := server.Connect(t.Context(), there, nil)
	require.NoError(t, err)
	model, _ := newModel(memory.Call("c1", "forecast", `{"city":"Bergen"}`))
	ask(t, newAgent(model, newSession(t, here), agent.Options{}), question)
	meta := <-metas
	assert.Equal(t, "trip", meta["example.com/conversation"])
	assert.NotEmpty(t, meta["example.com/account"])
}

// When the MCP server is away, the client gets a general message.
func TestAgent_ServerIsAway(t *testing.T) {
	model, _ := newModel()
	session := newSession(t, inMemory(t))
	require.NoError(t, session.Close())
	reply := ask(t, newAgent(model, session, agent.Options{}), question)
	assert.Contains(t, reply, `"error"`)
	assert.NotContains(t, reply, "closed")
}
