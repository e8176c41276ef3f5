package responses_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmhttptest"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/responses"
)

// A server is a Handler with the protocol, and a Backend that answers with chunks
// and keeps the last request.
type server struct {
	t       testing.TB
	url     string
	chunks  []string             // chunks that the Backend yields, as JSON
	err     error                // error that the Backend yields after the chunks
	request *llm.ChatRequest     // the last request that the Backend got
	info    *llmhttp.RequestInfo // what the Observer got about it
	limits  llmhttp.Limits       // of the keys
	usage   *memory.UsageStore
	ended   chan *llmhttp.RequestSummary
}

// observe is the Observer of the Handler.
func (s *server) observe(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
	return ctx, llmhttp.Observation{Started: func(ctx context.Context, info *llmhttp.RequestInfo) context.Context {
		s.info = info
		return ctx
	}, Ended: func(summary *llmhttp.RequestSummary) {
		select {
		case s.ended <- summary:
		default: // the test does not read them
		}
	}}
}

// newServer starts a server. The key sk-NAME belongs to the account NAME.
func newServer(t testing.TB, opts *responses.Options, chunks ...string) *server {
	s := &server{t: t, chunks: chunks, usage: memory.NewUsageStore(), ended: make(chan *llmhttp.RequestSummary, 1)}
	keys := llmhttp.KeyStoreFunc(func(_ context.Context, secret string) (*llmhttp.Key, error) {
		name, ok := strings.CutPrefix(secret, "sk-")
		if !ok {
			return nil, llmhttp.ErrKeyNotFound
		}
		return &llmhttp.Key{ID: "key of " + name, Account: name, Limits: s.limits}, nil
	})
	h := llmhttp.NewHandler(llmhttp.BackendFunc(s.chat), keys, &llmhttp.Options{
		Protocols: []llmhttp.Protocol{responses.New(opts)},
		Logger:    slog.New(slog.DiscardHandler),
		Observe:   s.observe,
		Usage:     s.usage,
	})
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func (s *server) chat(_ context.Context, req *llm.ChatRequest) llm.ChatStream {
	s.request = req
	return func(yield func(*llm.ChatChunk, error) bool) {
		for _, text := range s.chunks {
			c := new(llm.ChatChunk)
			if err := json.Unmarshal([]byte(text), c); err != nil {
				panic(err)
			}
			if !yield(c, nil) {
				return
			}
		}
		if s.err != nil {
			yield(nil, s.err)
		}
	}
}

// send sends a request of an account and returns the status and the body.
func (s *server) send(account, method, path, body string, header ...string) (int, []byte) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	require.NoError(s.t, err)
	r.Header.Set("Authorization", "Bearer sk-"+account)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	require.NoError(s.t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err, "a stream that fails ends cleanly too")
	return resp.StatusCode, data
}

// ask sends a request that must succeed, and returns the reply.
func (s *server) ask(account, method, path, body string) object {
	s.t.Helper()
	status, data := s.send(account, method, path, body)
	require.Equal(s.t, 200, status, "%s", data)
	var o object
	require.NoError(s.t, json.Unmarshal(data, &o), "%s", data)
	return o
}

// create requests a whole response.
func (s *server) create(body string) object {
	s.t.Helper()
	r := s.ask("acme", "POST", "/v1/responses", body)
	require.NoError(s.t, checkResponse(r))
	return r
}

// stream requests a stream, and returns its events.
func (s *server) stream(body string) []llmhttptest.Event {
	s.t.Helper()
	status, data := s.send("acme", "POST", "/v1/responses", strings.Replace(body, "{", `{"stream":true,`, 1))
	require.Equal(s.t, 200, status, "%s", data)
	return readEvents(s.t, string(data))
}

// readEvents returns the events of a stream.
func readEvents(t testing.TB, data string) []llmhttptest.Event {
	var events []llmhttptest.Event
	var e llmhttptest.Event
	lines := bufio.NewScanner(strings.NewReader(data))
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "event":
			e.Name = value
		case "data":
			e.Data = value
		case "":
			if e != (llmhttptest.Event{}) {
				events = append(events, e)
			}
			e = llmhttptest.Event{}
		}
	}
	require.NoError(t, lines.Err())
	return events
}

// requireRefused sends a request that must be refused, and returns the error.
func (s *server) requireRefused(status int, method, path, body string) (e struct{ Message, Type, Param, Code string }) {
	s.t.Helper()
	got, data := s.send("acme", method, path, body)
	require.Equal(s.t, status, got, "%s", data)
	var reply struct {
		Error *struct{ Message, Type, Param, Code string }
	}
	require.NoError(s.t, json.Unmarshal(data, &reply), "%s", data)
	require.NotNil(s.t, reply.Error, "%s", data)
	return *reply.Error
}

// Chunks that the Backend of a server yields.
const (
	chunkText  = `{"choices":[{"delta":{"content":"Hello"}}]}`
	chunkUsage = `{"usage":{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12,"prompt_tokens_details":{"cached_tokens":3,"cache_write_tokens":2},` +
		`"completion_tokens_details":{"reasoning_tokens":2}}}`
)

// chatResponse returns a response as one of chat completions, for llmhttptest.
func chatResponse(r object) (*llm.ChatResponse, error) {
	if err := checkResponse(r); err != nil {
		return nil, err
	}
	if r["usage"] == nil {
		return nil, fmt.Errorf("the status is %v", r["status"])
	}
	c := llm.Choice{Message: llm.Message{Role: llm.RoleAssistant}, FinishReason: llm.FinishStop}
	m := &c.Message
	text := ""
	for _, it := range r["output"].([]any) {
		it := it.(object)
		switch it["type"] {
		case "reasoning":
			for _, p := range it["summary"].([]any) {
				m.Reasoning += p.(object)["text"].(string)
			}
		case "message":
			for _, p := range it["content"].([]any) {
				if s, ok := p.(object)["text"].(string); ok {
					text += s
				}
			}
		case "function_call":
			c.FinishReason = llm.FinishToolCalls
			m.ToolCalls = append(m.ToolCalls, llm.ToolCall{ID: it["call_id"].(string),
				Function: llm.FunctionCall{Name: it["name"].(string), Arguments: it["arguments"].(string)}})
		}
	}
	m.Content = llm.TextContent(text)
	if details, ok := r["incomplete_details"].(object); ok {
		c.FinishReason = map[any]llm.FinishReason{"max_output_tokens": llm.FinishLength, "content_filter": llm.FinishContentFilter}[details["reason"]]
	}
	usage := r["usage"].(object)
	return &llm.ChatResponse{
		Choices: []llm.Choice{c},
		Usage:   &llm.Usage{PromptTokens: int(usage["input_tokens"].(float64)), CompletionTokens: int(usage["output_tokens"].(float64))},
	}, nil
}
