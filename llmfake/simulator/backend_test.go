package simulator_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/llmhttp/llmhttp/llmfake/simulator"
)

// newRequest decodes a request for the chat model with the given members.
func newRequest(t testing.TB, members string) *llm.ChatRequest {
	t.Helper()
	req := &llm.ChatRequest{Model: simulator.ModelChat}
	require.NoError(t, json.Unmarshal([]byte(`{"model":"demo-chat",`+members+`}`), req))
	return req
}

// collectChecked returns the whole reply to req. It checks that there is a chunk for
// each token, and that the usage is exact.
func collectChecked(t testing.TB, b *simulator.Backend, req *llm.ChatRequest) *llm.ChatResponse {
	t.Helper()
	chunks := 0
	resp, err := join.Collect(func(yield func(*llm.ChatChunk, error) bool) {
		for c, err := range b.Chat(t.Context(), req) {
			if err == nil {
				chunks++
				assert.Len(t, c.Choices, 1)
			}
			if !yield(c, err) {
				return
			}
		}
	})
	require.NoError(t, err)
	require.Len(t, resp.Choices, req.Choices())
	completion := 0
	for i, c := range resp.Choices {
		assert.Equal(t, i, c.Index)
		text := c.Message.Content.Text()
		for _, call := range c.Message.ToolCalls {
			text += call.Function.Arguments
			chunks-- // the chunk with the name of the call
		}
		completion += simulator.CountTokens("", text)
		if text == "" {
			chunks--
		}
	}
	assert.Equal(t, chunks, completion, "one chunk for each token")
	require.NotNil(t, resp.Usage)
	assert.Equal(t, completion, resp.Usage.CompletionTokens)
	assert.Equal(t, resp.Usage.PromptTokens+completion, resp.Usage.TotalTokens)
	return resp
}

func TestBackend_Chat(t *testing.T) {
	for name, test := range map[string]struct {
		members            string
		want               string
		finish             llm.FinishReason
		prompt, completion int
	}{
		"echo": {
			`"messages":[{"role":"user","content":"Hello, world!"}]`, "Hello, world!", llm.FinishStop, 2, 2},
		"verbatim": {
			`"messages":[{"role":"user","content":" \t a\u0000\u2028 data: [DONE]\r\n\n👩‍👩‍👧‍👦 "}]`, " \t a\x00\u2028 data: [DONE]\r\n\n👩‍👩‍👧‍👦 ", llm.FinishStop, 5, 5},
		"last user message": {
			`"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"a"},{"role":"assistant","content":"b c"},` +
				`{"role":"user","content":"d"},{"role":"assistant","content":null}]`,
			"d", llm.FinishStop, 6, 1},
		"text parts": {
			`"messages":[{"role":"user","content":[{"type":"text","text":"Hello, "},{"type":"image_url","image_url":{"url":"data:,"}},{"type":"text","text":"you"}]}]`,
			"Hello, you", llm.FinishStop, 2, 2},
		"empty": {
			`"messages":[{"role":"user","content":""}]`, "", llm.FinishStop, 0, 0},
		"no user message": {
			`"messages":[{"role":"developer","content":"Be kind."}]`, "Hello! How can I help you today?", llm.FinishStop, 2, 7},
		"no text part": {
			`"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:,"}}]}]`, "Hello! How can I help you today?", llm.FinishStop, 0, 7},
		"max_tokens": {
			`"messages":[{"role":"user","content":"one two three four"}],"max_tokens":3`, "one two three", llm.FinishLength, 4, 3},
		"max_completion_tokens": {
			`"messages":[{"role":"user","content":"one two three four"}],"max_tokens":3,"max_completion_tokens":2`, "one two", llm.FinishLength, 4, 2},
		"max_tokens equals length": {
			`"messages":[{"role":"user","content":"one two three"}],"max_tokens":3`, "one two three", llm.FinishStop, 3, 3},
		"max_tokens of emoji": {
			`"messages":[{"role":"user","content":"👩‍👩‍👧‍👦🇩🇪👋🏽"}],"max_tokens":2`, "👩‍👩‍👧‍👦🇩🇪", llm.FinishLength, 3, 2},
		"stop": {
			`"messages":[{"role":"user","content":"one two three"}],"stop":" t"`, "one", llm.FinishStop, 3, 1},
		"first of several stop sequences": {
			`"messages":[{"role":"user","content":"one two three"}],"stop":["three","wo","","x"]`, "one t", llm.FinishStop, 3, 2},
		"stop at start": {
			`"messages":[{"role":"user","content":"one"}],"stop":"o"`, "", llm.FinishStop, 1, 0},
		"stop, then length": {
			`"messages":[{"role":"user","content":"one two three four"}],"stop":" four","max_tokens":2`, "one two", llm.FinishLength, 4, 2},
		"stop before length": {
			`"messages":[{"role":"user","content":"one two three four"}],"stop":" two","max_tokens":2`, "one", llm.FinishStop, 4, 1},
		"json_object": {
			`"messages":[{"role":"user","content":"a \"<b>\""}],"response_format":{"type":"json_object"}`, `{"reply":"a \"<b>\""}`, llm.FinishStop, 2, 2},
		"json_schema": {
			`"messages":[{"role":"user","content":"hi"}],"response_format":{"type":"json_schema","json_schema":{"name":"s","schema":{"type":"object",` +
				`"properties":{"b":{"type":"string"},"a":{"type":"integer","minimum":3}},"required":["a","b"],"additionalProperties":false}}}`,
			`{"b":"hi","a":3}`, llm.FinishStop, 1, 2},
		"json_schema without schema": {
			`"messages":[{"role":"user","content":"hi"}],"response_format":{"type":"json_schema","json_schema":{"name":"s"}}`, `{"reply":"hi"}`, llm.FinishStop, 1, 2},
		"json_schema with null schema": {
			`"messages":[{"role":"user","content":"hi"}],"response_format":{"type":"json_schema","json_schema":{"schema":null}}`, `{"reply":"hi"}`, llm.FinishStop, 1, 2},
		"max_tokens cuts JSON": {
			`"messages":[{"role":"user","content":"hi there"}],"response_format":{"type":"json_object"},"max_tokens":1`, `{"reply":"hi`, llm.FinishLength, 2, 1},
		"text format": {
			`"messages":[{"role":"user","content":"hi"}],"response_format":{"type":"text"}`, `hi`, llm.FinishStop, 1, 1},
		"tool that is not a function": {
			`"messages":[{"role":"user","content":"hi"}],"tools":[{"type":"custom","custom":{"name":"x"}}],"tool_choice":"required"`, `hi`, llm.FinishStop, 1, 1},
		"tool_choice none": {
			`"messages":[{"role":"user","content":"hi"}],"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"none"`, `hi`, llm.FinishStop, 1, 1},
		"tool_choice is not a function": {
			`"messages":[{"role":"user","content":"hi"}],"tools":[{"type":"function","function":{"name":"f"}}],` +
				`"tool_choice":{"type":"custom","custom":{"name":"x"}}`, `hi`, llm.FinishStop, 1, 1},
		"last message of the assistant": {
			`"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"well"}],"tools":[{"type":"function","function":{"name":"f"}}]`, `hi`, llm.FinishStop, 2, 1},
		"tool results": {
			`"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function",` +
				`"function":{"name":"f","arguments":"{\"a\": 1}"}}]},{"role":"tool","tool_call_id":"1","content":"20 °C"},` +
				`{"role":"tool","tool_call_id":"2","content":[{"type":"text","text":"rain"}]}],"tools":[{"type":"function","function":{"name":"f"}}]`,
			"The tools say: 20 °C\nrain", llm.FinishStop, 6, 6},
		"tool results before a user's message": {
			`"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"x"},{"role":"tool","tool_call_id":"1","content":"rain"},` +
				`{"role":"user","content":"and now?"}],"tools":[{"type":"function","function":{"name":"f"}}]`,
			"The tools say: rain", llm.FinishStop, 5, 4},
		"json_object with a schema": {
			`"messages":[{"role":"user","content":"hi"}],"response_format":{"type":"json_object","schema":{"type":"object",` +
				`"properties":{"a":{"type":"string"}},"required":["a"]}}`,
			`{"a":"hi"}`, llm.FinishStop, 1, 1},
		"tool results as json_object": {
			`"messages":[{"role":"user","content":"hi"},{"role":"tool","tool_call_id":"1","content":"rain"}],` +
				`"tools":[{"type":"function","function":{"name":"f"}}],"response_format":{"type":"json_object"}`,
			`{"reply":"The tools say: rain"}`, llm.FinishStop, 2, 5},
		"tool results with tool_choice none": {
			`"messages":[{"role":"user","content":"hi"},{"role":"tool","tool_call_id":"1","content":"rain"}],` +
				`"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"none"`,
			"hi", llm.FinishStop, 2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			for _, n := range []int{1, 3} {
				req := newRequest(t, test.members)
				req.N = &n
				resp := collectChecked(t, simulator.New(), req)
				for _, c := range resp.Choices {
					assert.Equal(t, test.want, c.Message.Content.Text())
					assert.Equal(t, test.finish, c.FinishReason)
					assert.Empty(t, c.Message.ToolCalls)
				}
				assert.Equal(t, test.prompt+functions(req), resp.Usage.PromptTokens) // each is a name of one token
				assert.Equal(t, n*test.completion, resp.Usage.CompletionTokens)
			}
		})
	}
}

func TestBackend_ChatErrors(t *testing.T) {
	user := `"messages":[{"role":"user","content":"hi"}],`
	for name, test := range map[string]struct{ members, code, param, message string }{
		"unsatisfiable schema": {
			user + `"response_format":{"type":"json_schema","json_schema":{"name":"s","schema":false}}`,
			"invalid_json_schema", "response_format.json_schema.schema", `Invalid schema for response_format 's': found no value that satisfies "false" at "#".`},
		"unresolved reference": {
			user + `"response_format":{"type":"json_schema","json_schema":{"name":"s","schema":{"$ref":"#/nowhere"}}}`,
			"invalid_json_schema", "response_format.json_schema.schema", `Invalid schema for response_format 's': cannot resolve the reference "#/nowhere".`},
		"parameters are not an object": {
			user + `"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g","parameters":{"type":"string"}}}],` +
				`"tool_choice":{"type":"function","function":{"name":"g"}}`,
			"invalid_function_parameters", "tools[1].function.parameters", `Invalid schema for function 'g': found no value that satisfies "type" at "#".`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := join.Collect(simulator.New().Chat(t.Context(), newRequest(t, test.members)))
			var e *llm.Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, 400, e.Status)
			assert.Equal(t, test.code, e.Code)
			assert.Equal(t, test.param, e.Param)
			assert.Equal(t, test.message, e.Message)
		})
	}
	for _, model := range []string{"", "demo", simulator.ModelEmbed, simulator.ModelImageLarge} {
		req := newRequest(t, user+`"n":1`)
		req.Model = model
		_, err := join.Collect(simulator.New().Chat(t.Context(), req))
		assert.Equal(t, llm.ModelNotFound(model), err)
	}
}

func TestBackend_ChatLimitsSizeOfAllChoices(t *testing.T) {
	text := strings.Repeat("a"+strings.Repeat("\u0301", 1000)+" ", 400)
	req := newRequest(t, `"messages":[{"role":"user","content":""}]`)
	req.Messages[0].Content = llm.TextContent(text)
	n := 1
	req.N = &n
	assert.Equal(t, text, collectChecked(t, simulator.New(), req).Choices[0].Message.Content.Text())

	n = 128
	resp, err := join.Collect(simulator.New().Chat(t.Context(), req))
	require.NoError(t, err)
	for _, c := range resp.Choices {
		assert.Equal(t, llm.FinishLength, c.FinishReason)
		assert.LessOrEqual(t, len(c.Message.Content.Text()), 32<<20/n)
	}
}

func TestBackend_ChatAlternatesChoices(t *testing.T) {
	var order []int
	for c := range simulator.New().Chat(t.Context(), newRequest(t, `"messages":[{"role":"user","content":"a b c"}],"n":2`)) {
		order = append(order, c.Choices[0].Index)
	}
	assert.Equal(t, []int{0, 1, 0, 1, 0, 1}, order)
}

func TestBackend_Delay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := simulator.New()
		b.Delay = time.Second
		begin := time.Now()
		var at []time.Duration
		for _, err := range b.Chat(t.Context(), newRequest(t, `"messages":[{"role":"user","content":"a b c"}]`)) {
			require.NoError(t, err)
			at = append(at, time.Since(begin))
		}
		assert.Equal(t, []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}, at)
	})
}

func TestBackend_ChatEndsWithContext(t *testing.T) {
	gone := errors.New("gone")
	for _, delay := range []time.Duration{0, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			b := simulator.New()
			b.Delay = delay
			if delay > 0 {
				time.AfterFunc(3*delay/2, func() { cancel(gone) })
			}
			begin, chunks, failed := time.Now(), 0, error(nil)
			for _, err := range b.Chat(ctx, newRequest(t, `"messages":[{"role":"user","content":"a b c"}]`)) {
				if failed = err; err == nil {
					chunks++
				}
				if delay == 0 {
					cancel(gone)
				}
			}
			assert.Equal(t, 1, chunks)
			assert.Equal(t, gone, failed)
			assert.Equal(t, 3*delay/2, time.Since(begin))

			for c, err := range b.Chat(ctx, newRequest(t, `"messages":[{"role":"user","content":"a b c"}]`)) {
				assert.Nil(t, c)
				assert.Equal(t, gone, err)
			}
		})
	}
}

func TestBackend_ListModels(t *testing.T) {
	models, err := simulator.New().ListModels(t.Context())
	require.NoError(t, err)
	var ids []string
	for _, m := range models {
		ids = append(ids, m.ID)
		assert.Equal(t, "llmhttp", m.OwnedBy)
		assert.Equal(t, models[0].Created, m.Created)
	}
	assert.Equal(t, []string{"demo-chat", "demo-complete", "demo-embed", "demo-rerank", "demo-moderation", "demo-transcribe", "demo-image-large", "demo-image-small", "demo-speech"}, ids)
	models[0].ID = "changed"
	again, err := simulator.New().ListModels(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "demo-chat", again[0].ID, "the caller owns the list")
}

func BenchmarkBackend_Chat(b *testing.B) {
	req := newRequest(b, `"messages":[{"role":"user","content":"The quick brown fox jumps over the lazy dog."}]`)
	b.ReportAllocs()
	for b.Loop() {
		for range simulator.New().Chat(b.Context(), req) {
		}
	}
}

func TestBackend_StopSequence(t *testing.T) {
	for stop, want := range map[string]string{`"two"`: "two", `["none","wo"]`: "wo", `"four"`: ""} {
		resp := collectChecked(t, simulator.New(), newRequest(t, `"messages":[{"role":"user","content":"one two"}],"stop":`+stop))
		assert.Equal(t, want, resp.Choices[0].StopSequence)
	}
}

// functions returns how many tools of req are functions.
func functions(req *llm.ChatRequest) (n int) {
	for _, t := range req.Tools {
		if t.Function != nil {
			n++
		}
	}
	return n
}
