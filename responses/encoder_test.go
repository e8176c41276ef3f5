package responses_test

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

func TestCreate_Output(t *testing.T) {
	const tools = `"tools":[{"type":"custom","name":"patch"},{"type":"namespace","name":"ns","tools":[{"type":"function","name":"f"}]}]`
	tests := []struct {
		name, params string
		chunks       []string
		status       string
		output       string // with IDs as their prefixes
	}{
		{"text", "", []string{chunkText}, "completed",
			`[{"type":"message","id":"msg_","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Hello","annotations":[],"logprobs":[]}]}]`},
		{"nothing", "", nil, "completed",
			`[{"type":"message","id":"msg_","role":"assistant","status":"completed","content":[{"type":"output_text","text":"","annotations":[],"logprobs":[]}]}]`},
		{"reasoning, text and calls", "", []string{
			`{"choices":[{"delta":{"reasoning_content":"Hm"}}]}`, `{"choices":[{"delta":{"reasoning_content":"m.","content":"I look."}}]}`,
			`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"f","arguments":"{\"a\":"}},{"index":1,"id":"c2","function":{"name":"g"}}]}}]}`,
			`{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}],"content":"Later."}}]}`},
			"completed",
			`[{"type":"reasoning","id":"rs_","summary":[{"type":"summary_text","text":"Hmm."}]},
			{"type":"message","id":"msg_","role":"assistant","status":"completed","content":[{"type":"output_text","text":"I look.","annotations":[],"logprobs":[]}]},
			{"type":"function_call","id":"fc_","call_id":"c1","name":"f","arguments":"{\"a\":1}","status":"completed"},
			{"type":"function_call","id":"fc_","call_id":"c2","name":"g","arguments":"{}","status":"completed"},
			{"type":"message","id":"msg_","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Later.","annotations":[],"logprobs":[]}]}]`},
		{"refusal", "", []string{`{"choices":[{"delta":{"content":"So: ","refusal":"No"}}]}`, `{"choices":[{"delta":{"refusal":"!"}}]}`}, "completed",
			`[{"type":"message","id":"msg_","role":"assistant","status":"completed","content":[{"type":"output_text","text":"So: ","annotations":[],` +
				`"logprobs":[]},{"type":"refusal","refusal":"No!"}]}]`},
		{"citations", "", []string{
			`{"choices":[{"delta":{"annotations":[{"type":"url_citation","url_citation":{"url":"https://early"}}]}}]}`,
			`{"choices":[{"delta":{"content":"Ål. ","reasoning_content":"Hm"}}]}`, `{"choices":[{"delta":{"refusal":"No."}}]}`,
			`{"choices":[{"delta":{"annotations":[{"type":"url_citation","url_citation":{"url":"https://refused"}}]}}]}`,
			`{"choices":[{"delta":{"content":"Cod.","annotations":[{"type":"url_citation","url_citation":{"url":"https://a","title":"A","start_index":4,"end_index":8}},` +
				`{"type":"file_citation","file_id":"f"},{"type":"url_citation","url_citation":{"url":"https://ended","start_index":0,"end_index":4}},` +
				`{"type":"url_citation","url_citation":{"url":"https://b","title":"B","start_index":2,"end_index":7}}]}}]}`},
			"completed",
			`[{"type":"reasoning","id":"rs_","summary":[{"type":"summary_text","text":"Hm"}]},
			{"type":"message","id":"msg_","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Ål. ","annotations":[],"logprobs":[]},
				{"type":"refusal","refusal":"No."},{"type":"output_text","text":"Cod.","annotations":[
				{"type":"url_citation","start_index":0,"end_index":4,"url":"https://a","title":"A"},
				{"type":"url_citation","start_index":0,"end_index":3,"url":"https://b","title":"B"}],"logprobs":[]}]}]`},
		{"custom tool and namespace", tools, []string{
			`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"patch","arguments":"{\"input\":\"a"}},` +
				`{"index":1,"id":"c2","function":{"name":"ns__f","arguments":"{}"}}]}}]}`,
			`{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\\nb\"}"}},` +
				`{"index":2,"id":"c3","function":{"name":"patch","arguments":"plain"}}]}}]}`},
			"completed",
			`[{"type":"custom_tool_call","id":"ctc_","call_id":"c1","name":"patch","input":"a\nb","status":"completed"},
			{"type":"function_call","id":"fc_","call_id":"c2","name":"f","namespace":"ns","arguments":"{}","status":"completed"},
			{"type":"custom_tool_call","id":"ctc_","call_id":"c3","name":"patch","input":"plain","status":"completed"}]`},
		{"custom call of the Backend", "", []string{
			`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","type":"custom","custom":{"name":"patch","input":"x"}}]}}]}`}, "completed",
			`[{"type":"custom_tool_call","id":"ctc_","call_id":"c1","name":"patch","input":"x","status":"completed"}]`},
		{"length", "", []string{`{"choices":[{"delta":{"reasoning_content":"Hm","content":"One"},"finish_reason":"length"}]}`}, "incomplete",
			`[{"type":"reasoning","id":"rs_","summary":[{"type":"summary_text","text":"Hm"}]},
			{"type":"message","id":"msg_","role":"assistant","status":"incomplete","content":[{"type":"output_text","text":"One","annotations":[],"logprobs":[]}]}]`},
		{"content filter", "", []string{`{"choices":[{"delta":{},"finish_reason":"content_filter"}]}`}, "incomplete",
			`[{"type":"message","id":"msg_","role":"assistant","status":"incomplete","content":[{"type":"output_text","text":"","annotations":[],"logprobs":[]}]}]`},
		{"logprobs", `"include":["message.output_text.logprobs"]`, []string{
			`{"choices":[{"delta":{"content":"a"},"logprobs":{"content":[{"token":"a","logprob":-1,"bytes":[97],` +
				`"top_logprobs":[{"token":"b","logprob":-2,"bytes":null}]}]}}]}`,
			`{"choices":[{"delta":{"content":""},"logprobs":{"content":[{"token":"x","logprob":-3}]}}]}`,
			`{"choices":[{"delta":{"content":"c"},"logprobs":{"content":[{"token":"c","logprob":-4}]}}]}`}, "completed",
			`[{"type":"message","id":"msg_","role":"assistant","status":"completed","content":[{"type":"output_text","text":"ac","annotations":[],"logprobs":[
				{"token":"a","logprob":-1,"bytes":[97],"top_logprobs":[{"token":"b","logprob":-2}]},{"token":"x","logprob":-3,"top_logprobs":[]},
				{"token":"c","logprob":-4,"top_logprobs":[]}]}]}]`},
		{"logprobs that were not asked for", "", []string{`{"choices":[{"delta":{"content":"a"},"logprobs":{"content":[{"token":"a","logprob":-1}]}}]}`}, "completed",
			`[{"type":"message","id":"msg_","role":"assistant","status":"completed","content":[{"type":"output_text","text":"a","annotations":[],"logprobs":[]}]}]`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := newServer(t, nil, append(test.chunks, chunkUsage)...)
			body := strings.TrimSuffix(`{"model":"m","input":"Hi",`+test.params, ",") + "}"
			whole := s.create(body)
			assert.Equal(t, test.status, whole["status"])
			got, err := json.Marshal(withoutIDs(whole["output"]))
			require.NoError(t, err)
			assert.JSONEq(t, test.output, string(got))
			streamed, err := accumulate(s.stream(body))
			require.NoError(t, err)
			assert.Equal(t, withoutIDs(whole), withoutIDs(streamed))
		})
	}
}

var randomID = regexp.MustCompile(`^([a-z]+)_[0-9a-f]{32}$`)

// withoutIDs returns a copy of v in which IDs are their prefixes and times are
// left out.
func withoutIDs(v any) any {
	switch v := v.(type) {
	case object:
		c := make(object)
		for name, member := range v {
			if id, ok := member.(string); ok && (name == "id" || name == "call_id") {
				member = randomID.ReplaceAllString(id, "${1}_")
			}
			if name != "created_at" && name != "completed_at" && name != "encrypted_content" {
				c[name] = withoutIDs(member)
			}
		}
		return c
	case []any:
		c := make([]any, len(v))
		for i := range v {
			c[i] = withoutIDs(v[i])
		}
		return c
	}
	return v
}

func TestCreate_Response(t *testing.T) {
	s := newServer(t, nil, chunkText, chunkUsage)
	r := s.create(`{"model":"m","input":"Hi"}`)
	assert.Equal(t, object{
		"id": r["id"], "object": "response", "created_at": r["created_at"], "completed_at": r["completed_at"], "status": "completed",
		"model": "m", "output": r["output"], "error": nil, "incomplete_details": nil, "instructions": nil, "previous_response_id": nil,
		"access_programs": nil, "conversation": nil, "moderation": nil, "prompt": nil,
		"tools": []any{}, "tool_choice": "auto", "text": object{"format": object{"type": "text"}, "verbosity": "medium"},
		"reasoning": object{"effort": nil, "summary": nil}, "metadata": object{}, "store": false, "background": false, "service_tier": "default",
		"temperature": 1.0, "top_p": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "top_logprobs": 0.0, "max_output_tokens": nil,
		"max_tool_calls": nil, "parallel_tool_calls": true, "truncation": "disabled", "user": nil, "safety_identifier": nil,
		"prompt_cache_key": nil, "prompt_cache_retention": nil,
		"usage": object{"input_tokens": 7.0, "input_tokens_details": object{"cached_tokens": 3.0, "cache_write_tokens": 2.0}, "output_tokens": 5.0,
			"output_tokens_details": object{"reasoning_tokens": 2.0}, "total_tokens": 12.0},
	}, r)
	assert.Regexp(t, "^resp_[0-9a-f]{32}$", r["id"])
	assert.GreaterOrEqual(t, r["completed_at"], r["created_at"])

	s.chunks = []string{`{"model":"m-2","service_tier":"priority","choices":[{"delta":{"content":"Hi"}}]}`}
	r = s.create(`{"model":"m","input":"Hi","instructions":"Be kind.","temperature":0.5,"metadata":{"a":"b"},"reasoning":{"effort":"low"},"store":true,
		"text":{"verbosity":"low","format":{"type":"json_schema","name":"n","schema":{"type":"object"}}},"tool_choice":"none","service_tier":"auto","user":"u",
		"tools":[{"type":"function","name":"f"},{"type":"web_search"}]}`)
	for name, want := range (object{
		"model": "m-2", "instructions": "Be kind.", "temperature": 0.5, "metadata": object{"a": "b"}, "reasoning": object{"effort": "low", "summary": nil},
		"store": false, "text": object{"verbosity": "low", "format": object{"type": "json_schema", "name": "n", "schema": object{"type": "object"}}},
		"tool_choice": "none", "service_tier": "priority", "user": "u",
		"tools": []any{object{"type": "function", "name": "f", "description": nil, "parameters": nil, "strict": nil}, object{"type": "web_search"}},
	}) {
		assert.Equal(t, want, r[name], name)
	}
}

func TestCreate_LineBreaks(t *testing.T) {
	// Some clients end a line of a stream at these characters.
	s := newServer(t, nil, `{"choices":[{"delta":{"content":"a\u2028b\u0085c"}}]}`)
	events := s.stream("{\"model\":\"m\",\"input\":\"Hi\",\n\"instructions\":\"x\u2028\u0085y\",\"metadata\":{\"a\":\n\"\u2029\"}}")
	r, err := accumulate(events)
	require.NoError(t, err)
	assert.Equal(t, "x\u2028\u0085y", r["instructions"])
	for _, e := range events {
		assert.NotContains(t, e.Data, "\u2028")
		assert.NotContains(t, e.Data, "\u0085")
		assert.NotContains(t, e.Data, "\u2029")
	}
}

func TestCreate_Failure(t *testing.T) {
	for name, test := range map[string]struct {
		err     error
		code    string
		message string
	}{
		"of the server":  {fmt.Errorf("secret"), "server_error", "The server had an error while processing your request. Sorry about that!"},
		"rate limit":     {llm.Errorf(429, "", "Slow down."), "rate_limit_exceeded", "Slow down."},
		"of the request": {llm.Errorf(400, "", "Bad."), "invalid_prompt", "Bad."},
		"with a code":    {llm.Errorf(400, "context_length_exceeded", "Long."), "context_length_exceeded", "Long."},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, nil, `{"choices":[{"delta":{"content":"Hel"}}]}`,
				`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"patch","arguments":"{\"in"}}]}}]}`)
			s.err = test.err
			r, err := accumulate(s.stream(`{"model":"m","input":"Hi","tools":[{"type":"custom","name":"patch"}]}`))
			require.NoError(t, err)
			assert.Equal(t, "failed", r["status"])
			assert.Equal(t, object{"code": test.code, "message": test.message}, r["error"])
			output := r["output"].([]any)
			assert.Equal(t, "completed", output[0].(object)["status"], "the call ended the message")
			assert.Equal(t, "incomplete", output[1].(object)["status"])
			assert.Equal(t, "", output[1].(object)["input"])
		})
	}
	s := newServer(t, nil)
	s.err = llm.Errorf(503, "server_is_overloaded", "Busy.")
	status, _ := s.send("acme", "POST", "/v1/responses", `{"model":"m","input":"Hi","stream":true}`)
	assert.Equal(t, 503, status, "an error before the reply is its status")
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// A stream that starts before the Backend's first chunk keeps its ID and creation time.
func TestCreate_SlowBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream {
			return func(yield func(*llm.ChatChunk, error) bool) {
				time.Sleep(20 * time.Second)
				c := llm.TextChunk("Hello")
				c.ID, c.Model, c.Created = "chatcmpl-1", "another name", 1
				yield(c, nil)
			}
		}))
		w := serveDirectly(h, []byte(`{"model":"demo-chat","input":"Hi","stream":true}`))
		r, err := accumulate(readEvents(t, w.Body.String()))
		assert.NoError(t, err)
		assert.Equal(t, "demo-chat", r["model"])
		assert.Equal(t, map[string]string{"text": "Hello"}, textsOf(r))
		assert.Contains(t, w.Body.String(), ": keep-alive\n")
	})
}
