package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
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
	"github.com/llmhttp/llmhttp/memory"
)

// A script is a model that replies to its nth call with the nth steps, and to later calls with the
// last ones. Each call uses 10 tokens of prompt and 5 of completion.
type script struct {
	replies [][]memory.Step

	mu       sync.Mutex // guards requests
	requests []*llmhttp.ChatRequest
}

func (s *script) model() llmhttp.Backend {
	return &memory.Backend{Script: func(req *llmhttp.ChatRequest) []memory.Step {
		s.mu.Lock()
		defer s.mu.Unlock()
		steps := s.replies[min(len(s.requests), len(s.replies)-1)]
		s.requests = append(s.requests, req.Clone())
		usage := &llmhttp.ChatChunk{Usage: &llmhttp.Usage{PromptTokens: 10, CompletionTokens: 5}}
		return append(slices.Clone(steps), memory.Chunk(usage))
	}}
}

// request returns the nth request that the model has got.
func (s *script) request(n int) *llmhttp.ChatRequest {
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
	agent *agent
	usage recorded
	url   string
}

func newHost(t *testing.T, replies ...[]memory.Step) *host {
	h := &host{script: &script{replies: replies}, usage: recorded{memory.NewUsageStore(), make(chan llmhttp.UsageRecord, 9)}}
	h.agent = newAgent(h.script.model(), serverTools())
	keys := llmhttp.KeyStoreFunc(func(_ context.Context, secret string) (*llmhttp.Key, error) {
		return &llmhttp.Key{ID: secret, Account: secret}, nil
	})
	server := httptest.NewServer(newHandler(h.agent, keys, h.usage))
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
func (h *host) chat(t *testing.T, body string) *llmhttp.ChatResponse {
	t.Helper()
	var r llmhttp.ChatResponse
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
				h := newHost(t, callBoth, answer)
				body := strings.Replace(f.body, `,"stream_options":{"include_usage":true}`, map[bool]string{true: `,"stream_options":{"include_usage":true}`}[stream], 1)
				reply := h.post(t, f.path, fmt.Sprintf(body, stream))
				for _, want := range []string{f.reasoning, f.usage, "umbrella"} {
					assert.Contains(t, reply, want)
				}
				assert.NotContains(t, reply, `"forecast"`, "calls of the agent's tools are not for the client")
				results := h.request(1).Messages
				require.Len(t, results, 5, "the notes, the question, the calls and two results")
				assert.Equal(t, "Your notes of this conversation:\n- goes to Bergen", results[0].Content.Text())
				assert.Equal(t, "It rains in Bergen.", results[3].Content.Text())
				assert.Equal(t, "c2", results[4].ToolCallID)
			})
		}
	}
}

// Tools run in parallel: these wait for each other.
func TestAgent_ParallelCalls(t *testing.T) {
	h := newHost(t, []memory.Step{memory.Call("c1", "meet", "{}"), memory.Call("c2", "meet", "{}")}, answer)
	var both sync.WaitGroup
	both.Add(2)
	h.agent.tools = []tool{{llmhttp.Function{Name: "meet"}, func(context.Context, string, *session) (string, error) {
		both.Done()
		both.Wait()
		return "met", nil
	}}}
	assert.Equal(t, "An umbrella.", h.chat(t, question).Choices[0].Message.Content.Text())
}

// Calls of the client's tools go to the client, those of the agent beside them do not.
func TestAgent_ClientTools(t *testing.T) {
	h := newHost(t, []memory.Step{memory.Call("c1", "forecast", `{"city":"Bergen"}`), memory.Call("c2", "read_file", `{"path":"a"}`)}, answer)
	const tools = `,"tools":[{"type":"function","function":{"name":"read_file"}}]}`
	choice := h.chat(t, question[:len(question)-1]+tools).Choices[0]
	assert.Equal(t, llmhttp.FinishToolCalls, choice.FinishReason)
	require.Len(t, choice.Message.ToolCalls, 1)
	assert.Equal(t, llmhttp.FunctionCall{Name: "read_file", Arguments: `{"path":"a"}`}, choice.Message.ToolCalls[0].Function)
	var offered []string
	for _, tool := range h.request(0).Tools {
		offered = append(offered, tool.Function.Name)
	}
	assert.Equal(t, []string{"read_file", "forecast", "note"}, offered)

	assert.Contains(t, h.post(t, "/v1/chat/completions", strings.Replace(question[:len(question)-1]+tools, "read_file", "note", 1)), `"param":"tools"`)
	assert.Contains(t, h.post(t, "/v1/chat/completions", question[:len(question)-1]+`,"n":2}`), `"param":"n"`)
}

// The model gets no tools when a bound is reached, so that it answers.
func TestAgent_Bounds(t *testing.T) {
	perCall := func(r *llmhttp.UsageRecord) (llmhttp.Cost, error) {
		return llmhttp.Cost{Output: llmhttp.Money(r.Units.CompletionTokens) * llmhttp.MoneyUnit}, nil
	}
	for name, test := range map[string]struct {
		bound func(a *agent)
		calls int
	}{
		"turns": {func(a *agent) { a.maxTurns = 3 }, 3},
		"cost":  {func(a *agent) { a.price, a.maxCost = perCall, 6*llmhttp.MoneyUnit }, 3}, // 5 each
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, callBoth)
			test.bound(h.agent)
			r := h.chat(t, question)
			assert.Equal(t, test.calls, h.calls())
			assert.NotEmpty(t, h.request(test.calls-2).Tools)
			assert.Empty(t, h.request(test.calls-1).Tools)
			assert.Equal(t, llmhttp.FinishLength, r.Choices[0].FinishReason, "the script calls tools nevertheless")
			assert.Empty(t, r.Choices[0].Message.ToolCalls)
			assert.Equal(t, test.calls*15, r.Usage.TotalTokens)
		})
	}
}

// When the client leaves, the tools stop, and the client has paid for the calls until then.
func TestAgent_ClientLeaves(t *testing.T) {
	h := newHost(t, []memory.Step{memory.Call("c1", "hang", "{}")}, answer)
	stopped := make(chan struct{})
	ctx, leave := context.WithCancel(t.Context())
	h.agent.tools = []tool{{llmhttp.Function{Name: "hang"}, func(ctx context.Context, _ string, _ *session) (string, error) {
		defer close(stopped)
		leave()
		<-ctx.Done()
		return "", ctx.Err()
	}}}
	req, err := http.NewRequestWithContext(ctx, "POST", h.url+"/v1/chat/completions", strings.NewReader(question))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer sk-ada")
	req.Header.Set("Content-Type", "application/json")
	_, err = http.DefaultClient.Do(req)
	require.ErrorIs(t, err, context.Canceled)
	<-stopped
	record := <-h.usage.records
	assert.Equal(t, int64(15), record.Units.Tokens())
	assert.Equal(t, 1, h.calls())
}

// What the model is told of a tool, and what it is not.
func TestAgent_ToolErrors(t *testing.T) {
	h := newHost(t, []memory.Step{memory.Call("c1", "forecast", `{"city":`)}, answer)
	h.chat(t, question)
	result := h.request(1).Messages[2]
	assert.True(t, result.IsError)
	assert.Contains(t, result.Content.Text(), "the arguments are not those of this tool")

	h.agent.tools[0].run = func(context.Context, string, *session) (string, error) {
		return "", errors.New("password is swordfish")
	}
	reply := h.post(t, "/v1/chat/completions", question)
	h.mu.Lock()
	h.requests = nil
	h.mu.Unlock()
	reply += h.post(t, "/v1/chat/completions", question)
	assert.Contains(t, reply, `"error"`)
	assert.NotContains(t, reply, "swordfish")
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
			h := newHost(t, callBoth, answer)
			turns(t, h)
			require.Equal(t, 4, h.calls())
			assert.Contains(t, h.request(2).Messages[0].Content.Text(), "goes to Bergen")
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
