package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/messages"
	"github.com/llmhttp/llmhttp/route"
)

// A server of Anthropic's format is one of several targets: what only it knows reaches it alone, and when it is overloaded
// the next target is tried.
func TestGateway_Anthropic(t *testing.T) {
	var bodies []string
	var keys []string
	newServer := func(status int, path, reply string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != path {
				http.NotFound(w, r)
				return
			}
			body, _ := io.ReadAll(r.Body)
			bodies, keys = append(bodies, string(body)), append(keys, r.Header.Get("X-Api-Key")+r.Header.Get("Authorization"))
			w.WriteHeader(status)
			io.WriteString(w, reply)
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	setSecrets(t)
	overloaded := newServer(529, "/v1/messages", `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`)
	other := newServer(200, "/anthropic/v1/messages", `{"id":"msg_1","type":"message","content":[{"type":"thinking","thinking":"T","signature":"s=="},{"type":"text","text":"Hi"}],`+
		`"stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":2}}`)
	openai := newServer(200, "/v1/chat/completions", `{"id":"a","choices":[{"index":0,"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}]}`)
	g, err := newGateway(&config{
		Upstreams: []upstreamConfig{
			{Name: "overloaded", Format: "anthropic", URL: overloaded, KeyEnv: "FIRST_KEY"},
			{Name: "other", Format: "anthropic", URL: other + "/anthropic", KeyEnv: "SECOND_KEY", Anthropic: anthropicConfig{BearerKey: true, OmitCacheControl: true}},
			{Name: "openai", URL: openai + "/v1"},
		},
		Routes: []routeConfig{
			{Model: "claude-*", Strategy: route.InOrder, Targets: []targetConfig{{Upstream: "overloaded"}, {Upstream: "other", Model: "glm"}}},
			{Model: "gpt-*", Targets: []targetConfig{{Upstream: "openai"}}},
		},
		Keys: []keyConfig{{ID: "demo", SecretEnv: "GATEWAY_KEY"}},
	})
	require.NoError(t, err)
	h := llmhttp.NewHandler(g.router, &g.keys, &llmhttp.Options{Protocols: []llmhttp.Protocol{messages.New(&messages.Options{Anthropic: true})}})
	ask := func(model, members string) *httptest.ResponseRecorder {
		bodies, keys = nil, nil
		w := httptest.NewRecorder()
		r := httptest.NewRequest("POST", "/v1/messages", strings.NewReader(`{"model":"`+model+`","max_tokens":9,`+members+
			`"messages":[{"role":"user","content":[{"type":"text","text":"Hello!","cache_control":{"type":"ephemeral"}}]}]}`))
		r.Header.Set("Authorization", "Bearer sk-gateway")
		h.ServeHTTP(w, r)
		return w
	}
	const search = `"tools":[{"type":"web_search_20250305","name":"web_search"}],`
	w := ask("claude-x", search)
	require.Equal(t, 200, w.Code, w.Body)
	assert.Contains(t, w.Body.String(), `[{"type":"thinking","thinking":"T","signature":"s=="},{"type":"text","text":"Hi"}]`)
	assert.Contains(t, w.Body.String(), `"model":"claude-x"`)
	assert.Equal(t, []string{
		`{"model":"claude-x","max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":"Hello!","cache_control":{"type":"ephemeral"}}]}],` + strings.TrimSuffix(search, ",") + `}`,
		`{"model":"glm","max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":"Hello!"}]}],` + strings.TrimSuffix(search, ",") + `}`,
	}, bodies)
	assert.Equal(t, []string{"sk-first", "Bearer sk-second"}, keys)

	w = ask("gpt-x", search)
	assert.Equal(t, 400, w.Code, w.Body)
	assert.Empty(t, bodies)
	w = ask("gpt-x", "")
	assert.Equal(t, 200, w.Code, w.Body)
	assert.Equal(t, []string{`{"model":"gpt-x","messages":[{"role":"user","content":"Hello!"}],"max_tokens":9}`}, bodies)
}
