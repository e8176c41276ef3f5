package llmhttp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/all"
	"github.com/llmhttp/llmhttp/internal/membertest"
	"github.com/llmhttp/llmhttp/llm"
)

// maximalChat has objects of all types of a chat request.
const maximalChat = `{"model":"m","stream":true,"stream_options":{"include_usage":true},"temperature":1,"top_p":1,"presence_penalty":0,"frequency_penalty":0,
		"max_tokens":9,"max_completion_tokens":9,"reasoning_effort":"low","n":2,"stop":["a"],"parallel_tool_calls":true,
		"response_format":{"type":"json_schema","json_schema":{"name":"n","description":"d","schema":{},"strict":true}},
		"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"},"strict":true}}],
		"tool_choice":` + plainToolChoice + `,
		"messages":[
			{"role":"user","name":"u","content":[{"type":"text","text":"t"},{"type":"image_url","image_url":{"url":"data:,","detail":"low"}},
				{"type":"input_audio","input_audio":{"data":"","format":"wav"}},{"type":"file","file":{"file_id":"f"}}]},
			{"role":"assistant","content":null,"refusal":"r","reasoning_content":"r","reasoning_details":[{"type":"reasoning.text","text":"t","summary":"s","signature":"g","data":"d"}],
				"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},
			{"role":"tool","tool_call_id":"c","is_error":false,"content":"x"}]}`

// toolChoices take the place of plainToolChoice in a maximal request.
const plainToolChoice = `{"type":"function","function":{"name":"f"}}`

var toolChoices = []string{
	`{"type":"custom","custom":{"name":"g"}}`,
	`{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"f"}},{"type":"custom","custom":{"name":"g"}}]}}`,
}

// freeObjects are the objects of maximal requests that may have any members.
var freeObjects = []string{"schema", "parameters", "logit_bias", "metadata", "input_audio", "file"}

func isFree(path []string) bool {
	for _, name := range path[max(len(path)-1, 0):] {
		for _, free := range freeObjects {
			if name == free {
				return true
			}
		}
	}
	return len(path) > 1 && isFree(path[:len(path)-1])
}

// A request with a member in another case does not reach the Backend, wherever the member is.
func TestMembers_OtherCaseOfRequests(t *testing.T) {
	calls := 0
	h := llmhttp.NewHandler(countCalls(&calls), keysFor(testKey()), &llmhttp.Options{Routes: all.Routes(nil)})
	post := func(path, body string) *httptest.ResponseRecorder {
		body, contentType := requestBody(t, path, body)
		r := httptest.NewRequest("POST", path, strings.NewReader(body))
		r.Header.Set("Content-Type", contentType)
		r.Header.Set("Authorization", "Bearer "+testSecret)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	for _, op := range testOperations {
		path, body := op.path, op.maximal
		cases := membertest.Cases(t, body, isFree)
		if path == chatPath {
			for _, choice := range toolChoices {
				with := strings.Replace(body, plainToolChoice, choice, 1)
				cases = append(cases, slices.DeleteFunc(membertest.Cases(t, with, isFree), func(c membertest.Case) bool { return c.Path[0] != "tool_choice" })...)
				require.Equal(t, http.StatusOK, post(path, with).Code)
			}
		}
		w := post(path, body)
		require.Equal(t, http.StatusOK, w.Code, "%s", w.Body)
		calls = 0
		for _, c := range cases {
			w := post(path, c.Doc)
			want := fmt.Sprintf("Unknown parameter: '%s'. Did you mean '%s'?", membertest.Param(c.Path), c.Member)
			assert.Equal(t, http.StatusBadRequest, w.Code, "%s", c.Doc)
			var reply struct{ Error apiError }
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &reply))
			assert.Equal(t, want, reply.Error.Message)
			assert.Equal(t, membertest.Param(c.Path), reply.Error.Param)
			assert.Equal(t, "unknown_parameter", reply.Error.Code)
		}
		assert.Zero(t, calls)
	}
}

// countCalls returns a Backend that counts its calls.
func countCalls(calls *int) llmhttp.Backend {
	return &stubBackend{call: func(context.Context) error { *calls++; return nil }}
}

// Free objects may have members in any case, and so may unknown ones.
func TestMembers_Free(t *testing.T) {
	s := startServer(t, config{backend: new(stubBackend)})
	for _, members := range []string{
		`"metadata":{"Model":"a","model":"b"}`,
		`"tools":[{"type":"function","function":{"name":"f","parameters":{"Name":1,"name":2,"properties":{"Model":{}}}}}]`,
		`"logit_bias":{"A":1,"a":2}`,
		`"x":{"Model":1,"model":2},"X":1`,
	} {
		body := strings.TrimSuffix(chatBody, "}") + "," + members + "}"
		assert.Equal(t, 200, s.do("POST", chatPath, body).StatusCode, members)
	}
}

func TestUnknownMembers_Default(t *testing.T) {
	calls := 0
	s := startServer(t, config{backend: countCalls(&calls)})
	for path, body := range modelBodies {
		with := func(name string) string { return strings.TrimSuffix(body, "}") + `,"` + name + `":"x"}` }
		for _, name := range []string{
			"models", "best_of", "n_predict", "api_base", "base_url", "api_key", "provider", "plugins", "preset", "fallbacks", "user_config", "lora", "n_cmpl", "kv_transfer_params",
			"Models", "BEST_OF", "api_\u212aey", "plugin\u017f",
		} {
			if path == completionsPath && strings.EqualFold(name, "best_of") {
				continue // is a parameter, which the reservation counts
			}
			e := s.do("POST", path, with(name)).checkError(t, 400)
			assert.Equal(t, apiError{Message: "Unknown parameter: '" + name + "'.", Type: "invalid_request_error", Param: name, Code: "unknown_parameter"}, e)
		}
		for _, name := range []string{"seed", "user", "service_tier", "x", "model_", "Seed", "modelss", "provider\u017f"} {
			assert.Equal(t, 200, s.do("POST", path, with(name)).StatusCode, name)
		}
	}
	assert.Equal(t, len(testOperations)*8, calls)
}

func TestUnknownMembers_Option(t *testing.T) {
	var got *llm.ChatRequest
	b := &stubBackend{chat: func(_ context.Context, req *llm.ChatRequest) llm.ChatStream {
		got = req
		return llm.Reply("Hello!")
	}}
	s := startServer(t, config{backend: b, opts: llmhttp.Options{
		Accept: llmhttp.AcceptOptions{UnknownMembers: func(name string) bool {
			return name == "models" || name != "seed" && llmhttp.DefaultUnknownMembers(name)
		}},
	}})
	ask := func(members string) reply {
		return s.do("POST", chatPath, strings.TrimSuffix(chatBody, "}")+","+members+"}")
	}
	require.Equal(t, 200, ask(`"models":["a"],"top_k":1`).StatusCode)
	assert.JSONEq(t, `["a"]`, string(got.Extra["models"]))
	assert.Equal(t, "seed", ask(`"seed":1`).checkError(t, 400).Param)
	assert.Equal(t, "api_base", ask(`"x":1,"seed":1,"api_base":"b"`).checkError(t, 400).Param, "the first by name")
	assert.Equal(t, "Model", ask(`"Model":"big"`).checkError(t, 400).Param, "no Option allows another case")
	assert.Equal(t, "Unknown parameter: 'models'.",
		startServer(t, config{opts: llmhttp.Options{Accept: llmhttp.AcceptOptions{UnknownMembers: func(string) bool { return false }}}}).
			do("POST", chatPath, strings.TrimSuffix(chatBody, "}")+`,"models":[]}`).checkError(t, 400).Message)
}

// A denylist of a host holds for a name in any case, and the error quotes the name.
func TestUnknownMembers_IgnoresCase(t *testing.T) {
	s := startServer(t, config{backend: new(stubBackend), opts: llmhttp.Options{
		Accept: llmhttp.AcceptOptions{UnknownMembers: func(name string) bool { return name != "tasks" && name != "topk" }},
	}})
	for path, body := range modelBodies {
		for _, name := range []string{"tasks", "Tasks", "TASKS", "ta\u017f\u212as", "topK"} {
			with := strings.TrimSuffix(body, "}") + `,"` + name + `":["big"]}`
			assert.Equal(t, name, s.do("POST", path, with).checkError(t, 400).Param, path)
		}
	}
}

func TestAllowsUnknownMember(t *testing.T) {
	assert.True(t, llmhttp.AllowsUnknownMember(t.Context(), "seed"))
	assert.False(t, llmhttp.AllowsUnknownMember(t.Context(), "MODELS"))
}
