package messages_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmhttptest"
	"github.com/llmhttp/llmhttp/messages"
)

func TestProtocol_Conformance(t *testing.T) {
	for name, authorize := range map[string]func(r *http.Request, secret string){
		"x-api-key": func(r *http.Request, secret string) { r.Header.Set("X-Api-Key", secret) },
		"bearer":    func(r *http.Request, secret string) { r.Header.Set("Authorization", "Bearer "+secret) },
		"both": func(r *http.Request, secret string) {
			r.Header.Set("X-Api-Key", secret)
			r.Header.Set("Authorization", "Bearer sk-of-another-service")
		},
	} {
		t.Run(name, func(t *testing.T) {
			llmhttptest.TestProtocol(t, messages.New(nil), llmhttptest.ProtocolOptions{
				Path: "/v1/messages?beta=true",
				Request: func(stream bool, _ int) []byte {
					return fmt.Appendf(nil, `{"model":"m","max_tokens":100,"stream":%v,"messages":[{"role":"user","content":"Hi"}]}`, stream)
				},
				Authorize: authorize,
				ReadWhole: func(body []byte) (*llm.ChatResponse, error) {
					m, err := readMessage(body)
					if err != nil {
						return nil, err
					}
					return m.response(), nil
				},
				ReadStream: func(events []llmhttptest.Event) (*llm.ChatResponse, error) {
					m, err := readStream(events)
					if err != nil {
						return nil, err
					}
					return m.response(), nil
				},
				ReadError: func(body []byte) (string, error) {
					_, text, err := readError(body)
					return text, err
				},
				EndsCleanly: true,
				ReadFailure: func(events []llmhttptest.Event) (string, error) {
					if len(events) == 0 || events[len(events)-1].Name != "error" {
						return "", errors.New("the stream does not end with an error event")
					}
					_, text, err := readError([]byte(events[len(events)-1].Data))
					return text, err
				},
			})
		})
	}
}

func TestProtocol_RateLimitHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // at midnight UTC, 2000-01-01
		key := &llmhttp.Key{ID: "k", Limits: llmhttp.Limits{Requests: llmhttp.PerMinute(2), Tokens: llmhttp.PerMinute(600)}}
		keys := llmhttp.KeyStoreFunc(func(context.Context, string) (*llmhttp.Key, error) { return key, nil })
		backend := llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream {
			time.Sleep(100 * time.Millisecond)
			return (&llm.ChatResponse{Usage: &llm.Usage{PromptTokens: 50, CompletionTokens: 10}}).Stream()
		})
		s := &server{Handler: llmhttp.NewHandler(backend, keys, &llmhttp.Options{Protocols: []llmhttp.Protocol{messages.New(nil)}})}
		w := s.do("POST", messagesPath, requestBody(hi))
		require.Equal(t, 200, w.Code)
		for name, want := range map[string]string{
			"Anthropic-Ratelimit-Requests-Limit":     "2",
			"Anthropic-Ratelimit-Requests-Remaining": "1",
			"Anthropic-Ratelimit-Requests-Reset":     "2000-01-01T00:00:31Z", // rounded up
			"Anthropic-Ratelimit-Tokens-Limit":       "600",
			"X-Ratelimit-Limit-Requests":             "",
			"X-Request-Id":                           "",
		} {
			assert.Equal(t, want, w.Header().Get(name), name)
		}
		assert.Equal(t, 200, s.do("POST", messagesPath, requestBody(hi)).Code)
		w = s.do("POST", messagesPath, requestBody(hi))
		assert.Equal(t, 429, w.Code)
		assert.Equal(t, "30", w.Header().Get("Retry-After"))
		assert.NotEmpty(t, w.Header().Get("Retry-After-Ms"))
		assert.Equal(t, "true", w.Header().Get("X-Should-Retry"))
		assert.Equal(t, "0", w.Header().Get("Anthropic-Ratelimit-Requests-Remaining"))
	})
}

// A key in X-Api-Key is accepted only on the paths of this protocol. Errors about keys
// have the form of this protocol.
func TestProtocol_KeyHeaders(t *testing.T) {
	keys := llmhttp.KeyStoreFunc(func(_ context.Context, secret string) (*llmhttp.Key, error) {
		if secret != "sk-good" {
			return nil, llmhttp.ErrKeyNotFound
		}
		return &llmhttp.Key{ID: "k", Scopes: []llmhttp.Scope{llmhttp.ScopeChat}}, nil
	})
	h := llmhttp.NewHandler(lister{Backend: llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream { return llm.Reply("Hi") })},
		keys, &llmhttp.Options{Protocols: []llmhttp.Protocol{messages.New(nil)}})
	s := &server{Handler: h}
	for _, test := range []struct {
		path   string
		header []string
		status int
	}{
		{messagesPath, []string{"X-Api-Key", "sk-good"}, 200},
		{messagesPath, []string{"Authorization", "Bearer sk-good"}, 200},
		{messagesPath, []string{"X-Api-Key", "sk-good", "Authorization", "Bearer sk-other"}, 200},
		{messagesPath, []string{"X-Api-Key", "sk-bad"}, 401},
		{messagesPath, nil, 401},
		{messagesPath + "/count_tokens", []string{"X-Api-Key", "sk-good"}, 200},
		{"/v1/chat/completions", []string{"X-Api-Key", "sk-good"}, 401},
	} {
		w := s.do(http.MethodPost, test.path, requestBody(hi), test.header...)
		assert.Equal(t, test.status, w.Code, "%s %v", test.path, test.header)
		if test.status != 200 && test.path == messagesPath {
			typ, _, err := readError(w.Body.Bytes())
			require.NoError(t, err)
			assert.Equal(t, "authentication_error", typ)
		}
	}
	for _, second := range []string{"sk-good", "sk-bad", ""} {
		r := httptest.NewRequest(http.MethodPost, messagesPath, strings.NewReader(requestBody(hi)))
		r.Header["X-Api-Key"] = []string{"sk-good", second}
		r.Header.Set("Authorization", "Bearer sk-good")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		assert.Equal(t, 401, w.Code, "two headers")
	}
	w := s.do("GET", "/v1/models", "", "X-Api-Key", "sk-good")
	assert.Equal(t, 403, w.Code, "the key has no scope for models")
	typ, _, err := readError(w.Body.Bytes())
	require.NoError(t, err)
	assert.Equal(t, "permission_error", typ)
}

// A Handler that shuts down refuses requests with an error of this protocol.
func TestProtocol_Shutdown(t *testing.T) {
	s := newServer(nil, nil)
	require.NoError(t, s.Handler.(*llmhttp.Handler).Shutdown(t.Context()))
	w := s.do("POST", messagesPath, requestBody(hi))
	assert.Equal(t, 529, w.Code)
	typ, _, err := readError(w.Body.Bytes())
	require.NoError(t, err)
	assert.Equal(t, "overloaded_error", typ)
	assert.NotEmpty(t, w.Header().Get("Retry-After"))
}

func TestProtocol_UsageRecordsAndObservations(t *testing.T) {
	s := newServer(nil, nil)
	s.do("POST", messagesPath, requestBody(hi))
	s.stream(requestBody(hi + `,"stream":true`))
	require.Len(t, s.usage, 2)
	require.Len(t, s.ends, 2)
	for i, end := range s.ends {
		assert.Equal(t, "messages", end.Record.Protocol)
		assert.Equal(t, i == 1, end.Streamed)
		assert.Equal(t, "m", s.usage[i].Model)
		assert.Equal(t, llmhttp.OperationChat, s.usage[i].Operation)
	}
}
