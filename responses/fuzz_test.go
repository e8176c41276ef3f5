package responses_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/responses"
)

// serveDirectly serves a request without a network. It panics if the connection would have
// been cut.
func serveDirectly(h http.Handler, body []byte) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "/v1/responses", bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func newHandler(b llmhttp.Backend) http.Handler {
	return llmhttp.NewHandler(b, llmhttp.AllowAll("acme"), &llmhttp.Options{
		Protocols: []llmhttp.Protocol{responses.New(nil)},
		Logger:    slog.New(slog.DiscardHandler),
	})
}

// FuzzCreate checks that each request gets a reply or a 4xx, and that requests that
// reach the Backend have valid messages.
func FuzzCreate(f *testing.F) {
	for _, seed := range []string{
		`{"model":"m","input":"Hi"}`,
		`{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_image","image_url":"data:,x"}]}],"stream":true}`,
		`{"model":"m","input":[{"type":"function_call","call_id":"c","name":"f","namespace":"n","arguments":"{}"},` +
			`{"type":"function_call_output","call_id":"c","output":[]}],"tools":[{"type":"namespace","name":"n","tools":[{"type":"function","name":"f"}]}]}`,
		`{"model":"m","input":[{"type":"reasoning","summary":[{"text":"x"}],"encrypted_content":"llmhttp1.AAAA"},` +
			`{"type":"custom_tool_call","call_id":"c","name":"p","input":"x"},{"type":"new","content":"x"}],` +
			`"tools":[{"type":"custom","name":"p","format":{"type":"text"}}],"tool_choice":{"type":"allowed_tools","tools":[{"type":"custom","name":"p"}]}}`,
		`{"model":"m","input":[{"type":"additional_tools","tools":[{"type":"function","name":"f"}]},{"role":"developer","content":"x"}],` +
			`"text":{"format":{"type":"json_object"}},"include":["reasoning.encrypted_content"]}`,
		`{"model":"m","input":[{"role":"user","content":"x"},{"role":"assistant","content":"y"},{"type":"compaction_trigger"}],"stream":true}`,
		`{"model":"m","input":[{"type":"compaction","encrypted_content":"llmhttp-summary1.AAAA"},{"type":"compaction_trigger"},{"role":"user","content":"x"}]}`,
		`{"model":"m","input":[{"type":"mcp_call","id":"m","name":"n","arguments":"{}","output":"o"},{"type":"local_shell_call","call_id":"c","action":{}},` +
			`{"type":"local_shell_call_output","id":"c","output":"o"},{"type":"program","id":"p","code":"c"},{"type":"program_output","call_id":"p"}]}`,
	} {
		f.Add([]byte(seed))
	}
	var req *llm.ChatRequest
	h := newHandler(llmhttp.BackendFunc(func(_ context.Context, r *llm.ChatRequest) llm.ChatStream {
		req = r
		return llm.Reply("Hello")
	}))
	f.Fuzz(func(t *testing.T, body []byte) {
		req = nil
		w := serveDirectly(h, body)
		if w.Code != http.StatusOK {
			assert.GreaterOrEqual(t, w.Code, 400)
			assert.Less(t, w.Code, 500, "%s", w.Body)
			assert.Nil(t, req)
			return
		}
		checkMessages(t, req)
		if req.Stream {
			_, err := accumulate(readEvents(t, w.Body.String()))
			assert.NoError(t, err)
			return
		}
		var r object
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &r))
		assert.NoError(t, checkResponse(r))
	})
}

// checkMessages checks the guarantees about messages that a Handler gives to Backends.
func checkMessages(t *testing.T, r *llm.ChatRequest) {
	require.NotNil(t, r)
	require.NotEmpty(t, r.Messages)
	for i := range r.Messages {
		m := &r.Messages[i]
		switch m.Role {
		case llm.RoleUser, llm.RoleSystem, llm.RoleDeveloper:
			assert.NotEmpty(t, m.Content)
		case llm.RoleTool:
			assert.NotEmpty(t, m.ToolCallID)
			assert.NotEmpty(t, m.Content)
		case llm.RoleAssistant:
			assert.True(t, len(m.Content) > 0 || len(m.ToolCalls) > 0 || m.Refusal != "")
		default:
			assert.Fail(t, "unknown role", "%q", m.Role)
		}
		for j := range m.Content {
			p := &m.Content[j]
			assert.NotEmpty(t, p.Type)
			assert.True(t, p.Type != llm.PartImage || p.ImageURL != nil)
		}
		for j := range m.ToolCalls {
			assert.NotEmpty(t, m.ToolCalls[j].ID)
			assert.NotEmpty(t, m.ToolCalls[j].Function.Name)
		}
	}
	for i := range r.Tools {
		assert.NotEmpty(t, r.Tools[i].Function.Name)
	}
	_, err := json.Marshal(r)
	assert.NoError(t, err)
}

// FuzzReply checks for arbitrary chunks of a Backend that clients accept the stream,
// and that the whole reply equals the streamed one except for IDs and times.
func FuzzReply(f *testing.F) {
	for _, seed := range []string{
		chunkText + "\n" + chunkUsage,
		`{"choices":[{"delta":{"reasoning_content":"Hm","reasoning_details":[{"type":"reasoning.text","text":"Hm","signature":"s"}]}}]}` + "\n" + chunkText,
		`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"patch","arguments":"{\"input\":"}}]}}]}` + "\n" + chunkText + "\n" +
			`{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"x\"}"}},` +
			`{"index":1,"id":"d","function":{"name":"n__f"}}]},"finish_reason":"tool_calls"}]}`,
		`{"choices":[{"delta":{"content":"a","refusal":"b"},"logprobs":{"content":[{"token":"a","logprob":-1}]}},{"index":1,"delta":{"content":"x"}}]}`,
		`{"choices":[{"delta":{"content":"\ud83d"},"finish_reason":"length"}]}` + "\n" + `{"error":{"message":"x"}}`,
		`{"service_tier":"flex","choices":[{"delta":{"tool_calls":[{"id":"c","type":"custom","custom":{"name":"n","input":"i"}}]}}]}` + "\nfail",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, script string) {
		checkReplies(t, func() llm.ChatStream { return scriptedStream(script) })
	})
}

// FuzzReply_RandomChunks is like FuzzReply with random chunks, valid and invalid, in random
// order.
func FuzzReply_RandomChunks(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		checkReplies(t, func() llm.ChatStream {
			return func(yield func(*llm.ChatChunk, error) bool) {
				for _, c := range randomChunks(rand.New(rand.NewPCG(seed, 1))) {
					if !yield(c, nil) {
						return
					}
				}
			}
		})
	})
}

// checkReplies requests the same reply streamed and whole, and compares the two.
func checkReplies(t *testing.T, stream func() llm.ChatStream) {
	h := newHandler(llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream { return stream() }))
	for _, input := range []string{`"Hi"`, `[{"role":"user","content":"Hi"},{"type":"compaction_trigger"}]`} {
		checkReply(t, h, `{"model":"m","tools":[{"type":"custom","name":"patch"},{"type":"namespace","name":"n","tools":[{"type":"function","name":"f"}]}],
			"include":["message.output_text.logprobs","reasoning.encrypted_content"],"input":`+input)
	}
}

// checkReply requests a reply whole and streamed. body is without the last brace.
func checkReply(t *testing.T, h http.Handler, body string) {
	whole := serveDirectly(h, []byte(body+"}"))
	streamed := serveDirectly(h, []byte(body+`,"stream":true}`))
	if streamed.Code != http.StatusOK {
		assert.Equal(t, streamed.Code, whole.Code)
		return
	}
	r, err := accumulate(readEvents(t, streamed.Body.String()))
	require.NoError(t, err, "%s", streamed.Body)
	assert.Equal(t, whole.Code != http.StatusOK, r["status"] == "failed")
	if whole.Code != http.StatusOK {
		return
	}
	var w object
	require.NoError(t, json.Unmarshal(whole.Body.Bytes(), &w), "%s", whole.Body)
	require.NoError(t, checkResponse(w))
	assert.Equal(t, withoutIDs(w), withoutIDs(r))
	if strings.Contains(body, "compaction_trigger") {
		onlyCompaction(t, w)
	}
}

// scriptedStream returns a stream with a chunk for each line of script that decodes as
// one. The line "fail" yields an error.
func scriptedStream(script string) llm.ChatStream {
	return func(yield func(*llm.ChatChunk, error) bool) {
		for line := range strings.Lines(script) {
			if line == "fail" {
				yield(nil, llm.Errorf(500, "", "It broke."))
				return
			}
			c := new(llm.ChatChunk)
			if json.Unmarshal([]byte(line), c) == nil && !yield(c, nil) {
				return
			}
		}
	}
}
