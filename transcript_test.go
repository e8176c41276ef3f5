package llmhttp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// Collects the texts of one account only.
func ExampleObservation() {
	observe := func(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
		return ctx, llmhttp.Observation{
			WantTranscript: func(_ context.Context, info *llmhttp.RequestInfo) bool { return info.Account == "acme" },
			Transcript: func(t *llmhttp.Transcript) {
				fmt.Println(t.Messages[0].Content.Text(), t.Choices[0].Message.Content.Text())
			},
		}
	}
	for _, account := range []string{"other", "acme"} {
		h := llmhttp.NewHandler(shout, llmhttp.AllowAll(account), &llmhttp.Options{Observe: observe})
		post(h, hello)
	}
	// Output: Hello! HELLO!
}

// transcribe sends a chat to a Backend and returns the Transcript.
func transcribe(t *testing.T, limit int64, b llmhttp.Backend, body string) *llmhttp.Transcript {
	t.Helper()
	var got *llmhttp.Transcript
	s := startServer(t, config{backend: b, opts: llmhttp.Options{
		Observe: func(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
			return ctx, llmhttp.Observation{TranscriptLimit: limit, Transcript: func(tr *llmhttp.Transcript) { got = tr }}
		},
	}})
	s.chat(body)
	s.shutdown()
	return got
}

func TestTranscript(t *testing.T) {
	const request = `{"model":"m","n":2,"messages":[
		{"role":"system","content":"be brief","vendor":"x"},
		{"role":"user","name":"u","content":[{"type":"text","text":"what is this?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}},
			{"type":"input_audio","input_audio":{"data":"BBBB","format":"wav"}}]},
		{"role":"assistant","reasoning_content":"hm","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"look","arguments":"{}"}}]},
		{"role":"tool","tool_call_id":"call_1","content":"my key is ` + testSecret + `"}],
		"tools":[{"type":"function","function":{"name":"look","description":"looks","parameters":{"type":"object"}}}]`
	chunks := []string{
		`{"choices":[{"index":0,"delta":{"reasoning_content":"let me "}},{"index":1,"delta":{"refusal":"no"}}]}`,
		`{"choices":[{"index":0,"delta":{"reasoning_content":"see","content":"a "}}]}`,
		`{"choices":[{"index":0,"delta":{"content":"cat, ` + testSecret[:10] + `"}}]}`,
		`{"choices":[{"index":0,"delta":{"content":"` + testSecret[10:] + `","tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"look","arguments":"{\"a\""}}]}}]}`,
		`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]},"finish_reason":"tool_calls"},{"index":1,"delta":{},"finish_reason":"stop"}]}`,
	}
	want := &llmhttp.Transcript{
		Messages: []llm.Message{
			{Role: "system", Content: llm.TextContent("be brief")},
			{Role: "user", Name: "u", Content: llm.Content{{Type: "text", Text: "what is this?"}, {Type: "image_url"}, {Type: "input_audio"}}},
			{Role: "assistant", Reasoning: "hm", ToolCalls: []llm.ToolCall{{ID: "call_1", Type: "function", Function: llm.FunctionCall{Name: "look", Arguments: "{}"}}}},
			{Role: "tool", ToolCallID: "call_1", Content: llm.TextContent("my key is [redacted]")},
		},
		Tools: []llm.Tool{{Type: "function", Function: &llm.Function{Name: "look", Description: "looks", Parameters: json.RawMessage(`{"type":"object"}`)}}},
		Choices: []llm.Choice{
			{Index: 0, FinishReason: "tool_calls", Message: llm.Message{Role: "assistant", Reasoning: "let me see", Content: llm.TextContent("a cat, [redacted]"),
				ToolCalls: []llm.ToolCall{{ID: "c", Type: "function", Function: llm.FunctionCall{Name: "look", Arguments: `{"a":1}`}}}}},
			{Index: 1, FinishReason: "stop", Message: llm.Message{Role: "assistant", Refusal: "no"}},
		},
	}
	for mode, end := range map[string]string{"whole": "}", "stream": `,"stream":true}`} {
		t.Run(mode, func(t *testing.T) {
			assert.Equal(t, want, transcribe(t, 0, jsonBackend(t, chunks...), request+end))
		})
	}
}

// The limit applies to all texts of the request, and separately to all texts of the
// reply.
func TestTranscript_Limit(t *testing.T) {
	const limit = 200
	long := strings.Repeat("é", 5000)
	many := strings.Repeat(`{"role":"user","content":""},`, 1000)
	calls := `"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":"` + long + `"}},{"index":1,"id":"d","type":"function","function":{"name":"g"}}]`
	for name, test := range map[string]struct{ message, delta string }{
		"text":     {`{"role":"user","content":"` + long + `"}`, `"content":"` + long + `"`},
		"messages": {many + `{"role":"user","content":""}`, `"content":"` + long + `"`},
		"parts": {`{"role":"user","content":[` + strings.Repeat(`{"type":"text","text":""},`, 1000) + `{"type":"text","text":"a"}]}`,
			`"reasoning_content":"` + long + `"`},
		"calls": {`{"role":"assistant","tool_calls":[` + strings.Repeat(`{"id":"c","type":"function","function":{"name":"f"}},`, 500) +
			`{"id":"c","type":"function","function":{"name":"f"}}]}`, calls},
		"tools": {`{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"f","parameters":{"x":"` + long + `"}}}`, calls},
	} {
		t.Run(name, func(t *testing.T) {
			chunk := `{"choices":[{"index":0,"delta":{` + test.delta + `}},{"index":1,"delta":{"content":"b"}}]}`
			got := transcribe(t, limit, jsonBackend(t, chunk, chunk), `{"model":"m","n":2,"messages":[`+test.message+`]}`)
			assert.True(t, got.Truncated)
			size := func(v any) int {
				b, err := json.Marshal(v)
				require.NoError(t, err)
				return len(b)
			}
			// The JSON of an element is less than 12 times as large as what it counts
			// toward the limit.
			assert.Less(t, size(got.Messages)+size(got.Tools), 12*limit)
			assert.Less(t, size(got.Choices), 12*limit)
		})
	}
	exact := transcribe(t, limit, textBackend("hello"), chatBody)
	assert.False(t, exact.Truncated)
}

func TestTranscript_ZeroAndNegative(t *testing.T) {
	const messages, size = 4, 20_000
	text := strings.Repeat("x", size)
	body := `{"model":"m","messages":[` + strings.Repeat(`{"role":"user","content":"`+text+`"},`, messages-1) + `{"role":"user","content":"` + text + `"}]}`
	for limit, want := range map[int64]int{0: 1, -1: messages, size + 1: 1, messages * (size + 100): messages} {
		got := transcribe(t, limit, textBackend(text), body)
		assert.Len(t, got.Messages, want, limit)
		assert.Equal(t, limit >= 0 && want < messages, got.Truncated, limit)
		if limit < 0 {
			assert.Equal(t, text, got.Messages[messages-1].Content.Text())
			assert.Equal(t, text, got.Choices[0].Message.Content.Text())
		}
	}
}

// A request has a Transcript only if the Backend was called, even if that call failed.
func TestTranscript_Failures(t *testing.T) {
	assert.Nil(t, transcribe(t, 0, nil, "{"))
	cut := transcribe(t, 0, failAfter(errCause, "a", "b"), streamBody)
	assert.Equal(t, []llm.Choice{{Message: llm.Message{Role: "assistant", Content: llm.TextContent("ab")}}}, cut.Choices)
	failed := transcribe(t, 0, failingBackend(errCause), chatBody)
	assert.Len(t, failed.Messages, 1)
	assert.Empty(t, failed.Choices)
}

// Observers decide for themselves, when the key is known, of which chats they want a Transcript.
func TestTranscript_OfSomeKeys(t *testing.T) {
	var got []string
	observer := func(name string, limit int64, want func(context.Context, *llmhttp.RequestInfo) bool) llmhttp.Observer {
		return func(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
			return ctx, llmhttp.Observation{
				WantTranscript: want, TranscriptLimit: limit,
				Transcript: func(tr *llmhttp.Transcript) { got = append(got, name+" "+tr.Messages[0].Content.Text()) },
			}
		}
	}
	ofTenant := func(tenant string) func(context.Context, *llmhttp.RequestInfo) bool {
		return func(ctx context.Context, info *llmhttp.RequestInfo) bool {
			assert.Equal(t, "key_1", info.KeyID)
			assert.Equal(t, "of Started", ctx.Value(transcriptKey{}))
			return llmhttp.KeyFrom(ctx).Data == tenant
		}
	}
	started := func(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
		return ctx, llmhttp.Observation{Started: func(ctx context.Context, _ *llmhttp.RequestInfo) context.Context {
			return context.WithValue(ctx, transcriptKey{}, "of Started")
		}}
	}
	key := testKey()
	key.Data = "acme"
	for name, test := range map[string]struct {
		observer llmhttp.Observer
		want     []string
	}{
		"wanted":        {llmhttp.Observers(started, observer("a", 0, ofTenant("acme"))), []string{"a Hello, how are you?"}},
		"not wanted":    {llmhttp.Observers(started, observer("a", 0, ofTenant("other"))), nil},
		"wanted by one": {llmhttp.Observers(started, observer("a", 0, ofTenant("other")), observer("b", 0, ofTenant("acme"))), []string{"b Hello, how are you?"}},
		"nil wants all": {llmhttp.Observers(started, observer("a", 0, nil), observer("b", 0, ofTenant("other"))), []string{"a Hello, how are you?"}},
		"without Transcript": {func(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
			return ctx, llmhttp.Observation{WantTranscript: func(context.Context, *llmhttp.RequestInfo) bool { panic("not called") }}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got = nil
			s := startServer(t, config{keys: keysFor(key), opts: llmhttp.Options{Observe: test.observer}})
			assert.Equal(t, 200, s.chat(chatBody).StatusCode)
			s.shutdown()
			assert.Equal(t, test.want, got)
		})
	}
}

type transcriptKey struct{}
