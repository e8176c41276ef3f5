package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/agent"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
)

// A script is a model that replies to its nth call with the nth steps, and to later calls with the
// last ones. Each call uses 10 tokens of prompt and 5 of completion.
type script struct {
	replies [][]memory.Step

	mu       sync.Mutex // guards requests
	requests []*llm.ChatRequest
}

func (s *script) model() llmhttp.Backend {
	return &memory.Backend{Script: func(req *llm.ChatRequest) []memory.Step {
		s.mu.Lock()
		defer s.mu.Unlock()
		steps := s.replies[min(len(s.requests), len(s.replies)-1)]
		s.requests = append(s.requests, req.Clone())
		usage := &llm.ChatChunk{Usage: &llm.Usage{PromptTokens: 10, CompletionTokens: 5}}
		return append(slices.Clone(steps), memory.Chunk(usage))
	}}
}

// request returns the nth request that the model has got.
func (s *script) request(n int) *llm.ChatRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[n]
}

func (s *script) calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.requests)
}

// A recorded UsageStore passes on what it stores.
type recorded struct {
	*memory.UsageStore
	records chan llmhttp.UsageRecord
}

func (r recorded) Record(ctx context.Context, records ...llmhttp.UsageRecord) error {
	for i := range records {
		r.records <- records[i]
	}
	return r.UsageStore.Record(ctx, records...)
}

// A host is a server with an agent over a script.
type host struct {
	*script
	usage recorded
	url   string
}

// perCompletionToken is a price of one unit for a token: 5 for each call of a script.
func perCompletionToken(r *llmhttp.UsageRecord) (llmhttp.Cost, error) {
	return llmhttp.Cost{Output: llm.Money(r.Units.CompletionTokens) * llm.MoneyUnit}, nil
}

func newHost(t *testing.T, opts agent.Options, replies ...[]memory.Step) *host {
	h := &host{script: &script{replies: replies}, usage: recorded{memory.NewUsageStore(), make(chan llmhttp.UsageRecord, 9)}}
	keys := llmhttp.KeyStoreFunc(func(_ context.Context, secret string) (*llmhttp.Key, error) {
		return &llmhttp.Key{ID: secret, Account: secret}, nil
	})
	server := httptest.NewServer(newHandler(newAgent(h.script.model(), opts), keys, h.usage, perCompletionToken))
	t.Cleanup(server.Close)
	h.url = server.URL
	return h
}

// post sends a request of the account sk-ada.
func (h *host) post(t *testing.T, path, body string, header ...string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", h.url+path, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer sk-ada")
	req.Header.Set("Anthropic-Version", "2023-06-01")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return string(text)
}

// chat sends a chat and returns the reply.
func (h *host) chat(t *testing.T, body string) *llm.ChatResponse {
	t.Helper()
	var r llm.ChatResponse
	text := h.post(t, "/v1/chat/completions", body)
	require.NoError(t, json.Unmarshal([]byte(text), &r))
	require.Len(t, r.Choices, 1, text)
	return &r
}

const question = `{"model":"m","messages":[{"role":"user","content":"What do I need?"}]}`

var (
	callBoth = []memory.Step{memory.Say("I look. "), memory.Call("c1", "forecast", `{"city":"Bergen"}`), memory.Call("c2", "note", `{"fact":"goes to Bergen"}`)}
	answer   = []memory.Step{memory.Say("An umbrella.")}
)

// The client of each format gets one reply, with the progress as reasoning and the usage of both
// calls of the model.
func TestAgent_Formats(t *testing.T) {
	for name, f := range map[string]struct{ path, body, reasoning, usage string }{
		"chat completions": {"/v1/chat/completions", question[:len(question)-1] + `,"stream":%t,"stream_options":{"include_usage":true}}`,
			`"reasoning_content":"Calling forecast`, `"prompt_tokens":20,"completion_tokens":10,"total_tokens":30`},
		"Messages API": {"/v1/messages", `{"model":"m","max_tokens":99,"stream":%t,"messages":[{"role":"user","content":"What do I need?"}]}`,
			`"thinking":"Calling forecast`, `"output_tokens":10`},
		"Responses API": {"/v1/responses", `{"model":"m","stream":%t,"input":"What do I need?"}`,
			`Calling forecast`, `"total_tokens":30`},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", stream ", stream), func(t *testing.T) {
				h := newHost(t, agent.Options{}, callBoth, answer)
				body := strings.Replace(f.body, `,"stream_options":{"include_usage":true}`, map[bool]string{true: `,"stream_options":{"include_usage":true}`}[stream], 1)
				reply := h.post(t, f.path, fmt.Sprintf(body, stream))
				for _, want := range []string{f.reasoning, f.usage, "umbrella"} {
					assert.Contains(t, reply, want)
				}
				assert.NotContains(t, reply, `"forecast"`, "calls of the agent's tools are not for the client")
				results := h.request(1).Messages
				require.Len(t, results, 4, "the question, the calls and two results")
				assert.Equal(t, "It rains in Bergen.", results[2].Content.Text())
				assert.Equal(t, "c2", results[3].ToolCallID)
			})
		}
	}
}

// Calls of the client's tools go to the client, those of the agent beside them do not.
func TestAgent_ClientTools(t *testing.T) {
	h := newHost(t, agent.Options{}, []memory.Step{memory.Call("c1", "forecast", `{"city":"Bergen"}`), memory.Call("c2", "read_file", `{"path":"a"}`)}, answer)
	const tools = `,"tools":[{"type":"function","function":{"name":"read_file"}}]}`
	choice := h.chat(t, question[:len(question)-1]+tools).Choices[0]
	assert.Equal(t, llm.FinishToolCalls, choice.FinishReason)
	require.Len(t, choice.Message.ToolCalls, 1)
	assert.Equal(t, llm.FunctionCall{Name: "read_file", Arguments: `{"path":"a"}`}, choice.Message.ToolCalls[0].Function)
	var offered []string
	for _, tool := range h.request(0).Tools {
		offered = append(offered, tool.Function.Name)
	}
	assert.Equal(t, []string{"read_file", "forecast", "note"}, offered)

	assert.Contains(t, h.post(t, "/v1/chat/completions", strings.Replace(question[:len(question)-1]+tools, "read_file", "note", 1)), `"param":"tools"`)
	assert.Contains(t, h.post(t, "/v1/chat/completions", question[:len(question)-1]+`,"n":2}`), `"param":"n"`)
}

// The model may not call tools when a bound is reached, so that it answers.
func TestAgent_Bounds(t *testing.T) {
	for name, opts := range map[string]agent.Options{
		"turns": {MaxTurns: 3},
		"cost":  {MaxCost: llm.USD(6)},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, opts, callBoth)
			r := h.chat(t, question)
			assert.Equal(t, 3, h.calls())
			assert.Nil(t, h.request(1).ToolChoice)
			assert.Equal(t, &llm.ToolChoice{Mode: llm.ToolChoiceNone}, h.request(2).ToolChoice)
			assert.Equal(t, llm.FinishLength, r.Choices[0].FinishReason, "the script calls tools nevertheless")
			assert.Empty(t, r.Choices[0].Message.ToolCalls)
			assert.Equal(t, 3*15, r.Usage.TotalTokens)
			record := <-h.usage.records
			assert.Equal(t, int64(3*15), record.Units.Tokens())
		})
	}
}

// The model is told of arguments that are wrong.
func TestAgent_Arguments(t *testing.T) {
	h := newHost(t, agent.Options{}, []memory.Step{memory.Call("c1", "forecast", `{"city":`), memory.Call("c2", "forecast", "{}")}, answer)
	h.chat(t, question)
	results := h.request(1).Messages[2:]
	require.Len(t, results, 2)
	assert.Contains(t, results[0].Content.Text(), "The arguments are not those of this tool")
	assert.Equal(t, "Which city?", results[1].Content.Text())
	assert.True(t, results[0].IsError && results[1].IsError)
}

// The state of a conversation is there in its next turn, in all formats, and for its account only.
func TestAgent_Conversation(t *testing.T) {
	const message = `{"model":"m","max_tokens":99,"messages":[{"role":"user","content":"Hi"}]}`
	for name, turns := range map[string]func(t *testing.T, h *host){
		"chat completions": func(t *testing.T, h *host) {
			h.post(t, "/v1/chat/completions", question, conversationHeader, "trip")
			h.post(t, "/v1/chat/completions", question, conversationHeader, "trip")
			h.post(t, "/v1/chat/completions", question, conversationHeader, "trip", "Authorization", "Bearer sk-bob")
		},
		"Messages API": func(t *testing.T, h *host) {
			h.post(t, "/v1/messages", message, conversationHeader, "trip")
			h.post(t, "/v1/messages", message, conversationHeader, "trip")
			h.post(t, "/v1/messages", message, conversationHeader, "other")
		},
		"Responses API": func(t *testing.T, h *host) {
			first := h.post(t, "/v1/responses", `{"model":"m","input":"Hi"}`)
			id := regexp.MustCompile(`"id":"(resp_[^"]+)"`).FindStringSubmatch(first)
			require.NotNil(t, id, first)
			h.post(t, "/v1/responses", fmt.Sprintf(`{"model":"m","input":"And then?","previous_response_id":%q}`, id[1]))
			h.post(t, "/v1/responses", `{"model":"m","input":"Hi"}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, agent.Options{}, callBoth, answer)
			turns(t, h)
			require.Equal(t, 4, h.calls())
			assert.Equal(t, "Your notes of this conversation:\n- goes to Bergen", h.request(2).Messages[0].Content.Text())
			for _, m := range h.request(3).Messages {
				assert.NotContains(t, m.Content.Text(), "Bergen")
			}
		})
	}
}

// The program prints its address and commands.
func TestRun(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, "127.0.0.1:0", demoModel(), w) }()
	line, err := bufio.NewReader(r).ReadString('\n')
	require.NoError(t, err)
	go io.Copy(io.Discard, r)
	h := &host{url: regexp.MustCompile(`http://\S+`).FindString(line)}
	reply := h.post(t, "/v1/chat/completions", question, "Authorization", "Bearer sk-demo")
	assert.Contains(t, reply, `"content":"Take an umbrella to Bergen."`)
	assert.NotContains(t, reply, `"total_tokens":0`, "what the model does not report is estimated")
	assert.Contains(t, reply, `I need the weather. Calling forecast {\"city\":\"Bergen\"}`)
	stop()
	assert.NoError(t, <-ended)
}
