package anthropic_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/llmhttp/llmhttp/messages"
	"github.com/llmhttp/llmhttp/upstream/anthropic"
)

// FuzzReply checks that arbitrary bytes from the server become a valid reply or an error, for clients of both APIs.
func FuzzReply(f *testing.F) {
	for _, s := range []string{
		textStream(), okMessage, allBlocks, allEvents(), "<html>", "event: error\ndata: x\n\n", "data: {}\n\n", "data: [DONE]\n\n",
		events(messageStart, textDelta, delta("5", `{"type":"input_json_delta","partial_json":"{"}`), messageStop),
		events(messageStart, start("0", `{"type":"tool_use","name":"f"}`), delta("0", `{"type":"input_json_delta","partial_json":"\ud83d"}`), messageEnd),
		`{"type":"message","content":[{"type":"x_tool_result","input":5},{"type":"text","citations":[1,null]},7]}`, `{"type":"error","error":"a"}`,
	} {
		f.Add(s, true)
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, body string, stream bool) {
		b, err := anthropic.New("http://localhost", withTransport(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, ContentLength: -1, Body: io.NopCloser(iotest.HalfReader(strings.NewReader(body)))}, nil
		}))
		require.NoError(t, err)
		resp, err := join.Collect(b.Chat(t.Context(), ask(stream)))
		if err == nil {
			_, err = resp.MarshalJSON()
		}
		failed := err != nil
		h := llmhttp.NewHandler(b, llmhttp.AllowAll("fuzz"), &llmhttp.Options{Protocols: []llmhttp.Protocol{messages.New(&messages.Options{Anthropic: true})}})
		w := httptest.NewRecorder()
		r := httptest.NewRequest("POST", "/v1/messages", strings.NewReader(`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"Hi"}]}`))
		r.Header.Set("Content-Type", "application/json")
		h.ServeHTTP(w, r)
		if w.Code == http.StatusOK {
			assert.False(t, failed)
			var m llm.Extra
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &m), "%s", w.Body)
		}
	})
}

// FuzzTurns checks that the request to the server is JSON, whatever a client has in the members that package messages uses.
func FuzzTurns(f *testing.F) {
	for _, s := range []string{
		`[{"type":"text"},{"type":"thinking"},{"type":"tool_use","caller":{"a":1}},{"type":"server_tool_use","id":"a"}]`, `{"block":{"type":"document"},"parts":1}`,
		`{"tools":[{"type":"x_20250101"},{"name":"f","defer_loading":true},5],"members":{"thinking":null,"tool_choice":{"type":"any"}},"betas":["a"]}`, `7`, `[[]]`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, own string) {
		if !json.Valid([]byte(own)) {
			return
		}
		extra := llm.Extra{"anthropic": []byte(own)}
		req := &llm.ChatRequest{
			Model: "m", Extra: extra, Tools: []llm.Tool{{Type: llm.ToolFunction, Function: &llm.Function{Name: "f"}}},
			Messages: []llm.Message{
				{Role: llm.RoleUser, Content: llm.Content{{Type: llm.PartText, Text: "a", Extra: extra}, {Type: llm.PartText, Text: "b"}}},
				{Role: llm.RoleAssistant, Content: llm.TextContent("c"), Extra: extra, ReasoningDetails: []llm.ReasoningDetail{{Type: llm.ReasoningText, Signature: "s"}},
					ToolCalls: []llm.ToolCall{{ID: "i", Function: llm.FunctionCall{Name: "f"}}}},
			},
		}
		b, err := anthropic.New("http://localhost", withTransport(func(r *http.Request) (*http.Response, error) {
			body, err := io.ReadAll(r.Body)
			require.NoError(t, err)
			assert.True(t, json.Valid(body), "%s", body)
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, ContentLength: -1, Body: io.NopCloser(strings.NewReader(okMessage))}, nil
		}))
		require.NoError(t, err)
		_, _ = join.Collect(b.Chat(t.Context(), req))
	})
}
