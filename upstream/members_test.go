package upstream_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/membertest"
	"github.com/llmhttp/llmhttp/messages"
	"github.com/llmhttp/llmhttp/responses"
	"github.com/llmhttp/llmhttp/upstream"
)

// A foldingServer decodes requests with encoding/json, which ignores the case of members,
// as Ollama does.
type foldingServer struct {
	t        *testing.T
	requests int
}

func (s *foldingServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.requests++
	var req struct {
		Model     string `json:"model"`
		N         int    `json:"n"`
		MaxTokens int    `json:"max_tokens"`
		Messages  []struct {
			Role    string `json:"role"`
			Content string `json:"content"`
		} `json:"messages"`
		Input string `json:"input"`
	}
	if !assert.NoError(s.t, json.NewDecoder(r.Body).Decode(&req)) {
		return
	}
	assert.Equal(s.t, "small", req.Model)
	w.Header().Set("Content-Type", "application/json")
	if strings.HasSuffix(r.URL.Path, "/embeddings") {
		assert.Equal(s.t, "Hi", req.Input)
		fmt.Fprint(w, `{"data":[{"index":0,"embedding":[1]}],"usage":{"prompt_tokens":1,"total_tokens":1}}`)
		return
	}
	assert.Zero(s.t, req.N)
	assert.LessOrEqual(s.t, req.MaxTokens, 9)
	for _, m := range req.Messages {
		assert.Equal(s.t, "Hi", m.Content)
	}
	fmt.Fprint(w, `{"choices":[{"index":0,"message":{"role":"assistant","content":"Hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`)
}

// A server that ignores the case of members never gets another model, limit or message than
// those that the Handler has checked.
func TestRequest_MembersInAnotherCase(t *testing.T) {
	s := &foldingServer{t: t}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	keys := llmhttp.KeyStoreFunc(func(context.Context, string) (*llmhttp.Key, error) {
		return &llmhttp.Key{ID: "k", Models: []string{"small"}, Limits: llmhttp.Limits{MaxCompletionTokens: 9}}, nil
	})
	h := llmhttp.NewHandler(newBackend(t, server.URL+"/v1", &upstream.Options{}), keys, &llmhttp.Options{
		Protocols: []llmhttp.Protocol{messages.New(nil), responses.New(nil)},
	})
	post := func(path, body string) int {
		r := httptest.NewRequest("POST", "http://localhost"+path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer sk-small")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	const hi = `"messages":[{"role":"user","content":"Hi"}]`
	bodies := map[string]string{
		"/v1/chat/completions": `{"model":"small",` + hi + `}`,
		"/v1/messages":         `{"model":"small","max_tokens":9,` + hi + `}`,
		"/v1/responses":        `{"model":"small","input":"Hi"}`,
		"/v1/embeddings":       `{"model":"small","input":"Hi"}`,
	}
	for path, body := range bodies {
		require.Equal(t, http.StatusOK, post(path, body), path)
		require.Equal(t, 1, s.requests)
		for _, member := range []struct{ name, value string }{
			{"model", `"big"`}, {"n", `20`}, {"max_tokens", `100000`}, {"messages", `[{"role":"user","content":"other"}]`}, {"input", `"other"`},
		} {
			for _, variant := range membertest.Variants(member.name) {
				changed := variant + ":" + member.value
				post(path, strings.TrimSuffix(body, "}")+","+changed+"}")
				post(path, "{"+changed+","+strings.TrimPrefix(body, "{"))
			}
		}
		s.requests = 0
	}
}
