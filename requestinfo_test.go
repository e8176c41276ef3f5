package llmhttp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/all"
	"github.com/llmhttp/llmhttp/llm"
)

const describedBody = `{"model":"demo-chat","stream":true,"temperature":0.5,"top_p":1,"top_k":40,"presence_penalty":-1,"frequency_penalty":2,` +
	`"seed":7,"stop":["a","b","c","d"],"max_tokens":9,"n":2,"messages":[{"role":"user","content":"Hello!"}]}`

func checkDescribed(t *testing.T, info *llmhttp.RequestInfo) {
	t.Helper()
	if !assert.NotNil(t, info) {
		return
	}
	assert.Regexp(t, "^req_", info.ID)
	assert.False(t, info.Arrived.IsZero())
	want := &llmhttp.RequestInfo{
		ID: info.ID, Arrived: info.Arrived,
		Account: "acme", KeyID: "key_1", Protocol: "chat", Operation: llmhttp.OperationChat, Model: "demo-chat", Conversation: "conv_1", Stream: true,
		Params: llmhttp.RequestParams{
			MaxTokens: 9, Choices: 2, Messages: 1, Temperature: new(0.5), TopP: new(1.0), TopK: new(40.0),
			PresencePenalty: new(-1.0), FrequencyPenalty: new(2.0), Seed: new(7), Stop: []string{"a", "b", "c", "d"},
		},
	}
	assert.Equal(t, want, info)
}

// A Backend gets the RequestInfo that Started gets, or that it would get if there were an
// Observer. What the Backend does with its request does not change it.
func TestRequestInfoFrom(t *testing.T) {
	var started *llmhttp.RequestInfo
	observe := func(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
		llmhttp.SetConversation(ctx, "conv_1")
		assert.Nil(t, llmhttp.RequestInfoFrom(ctx))
		return ctx, llmhttp.Observation{Started: func(ctx context.Context, info *llmhttp.RequestInfo) context.Context {
			assert.Same(t, info, llmhttp.RequestInfoFrom(ctx))
			started = info
			return ctx
		}}
	}
	for name, observer := range map[string]llmhttp.Observer{"Observer": observe, "no Observer": nil} {
		t.Run(name, func(t *testing.T) {
			var infos [8]*llmhttp.RequestInfo
			b := &stubBackend{chat: func(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
				*req.Temperature, req.Stop[0], req.Model = 0.1, "x", "other"
				clear(req.Extra)
				var callers sync.WaitGroup
				for i := range infos {
					callers.Go(func() { infos[i] = llmhttp.RequestInfoFrom(ctx) })
				}
				callers.Wait()
				return llm.Reply("Hello!")
			}}
			keys := llmhttp.KeyStoreFunc(func(ctx context.Context, _ string) (*llmhttp.Key, error) {
				llmhttp.SetConversation(ctx, "conv_1")
				assert.Nil(t, llmhttp.RequestInfoFrom(ctx))
				key := testKey()
				return &key, nil
			})
			h := llmhttp.NewHandler(b, keys, &llmhttp.Options{Observe: observer, Logger: noLog})
			w := httptest.NewRecorder()
			h.ServeHTTP(w, newChatRequest(describedBody))
			assert.Equal(t, 200, w.Code, w.Body)
			checkDescribed(t, infos[0])
			for _, info := range infos {
				assert.Same(t, infos[0], info)
			}
			if observer != nil {
				assert.Same(t, started, infos[0])
			}
		})
	}
}

// A client names the conversation in a header, unless the name is too long.
func TestConversationHeader(t *testing.T) {
	for _, test := range []struct{ header, want string }{{"trip", "trip"}, {"", ""}, {strings.Repeat("x", 128), strings.Repeat("x", 128)}, {strings.Repeat("x", 129), ""}} {
		b := llmhttp.BackendFunc(func(ctx context.Context, _ *llm.ChatRequest) llm.ChatStream {
			assert.Equal(t, test.want, llmhttp.RequestInfoFrom(ctx).Conversation)
			return llm.Reply("Hello!")
		})
		h := llmhttp.NewHandler(b, llmhttp.AllowAll(""), &llmhttp.Options{Observe: llmhttp.ConversationHeader("X-Conversation-Id"), Logger: noLog})
		r := newChatRequest(chatBody)
		r.Header.Set("X-Conversation-Id", test.header)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		assert.Equal(t, 200, w.Code, w.Body)
	}
}

// infoLimiter notes the RequestInfo that the methods of a Limiter see.
type infoLimiter struct {
	llmhttp.Limiter
	taken, adjusted []*llmhttp.RequestInfo
}

func (l *infoLimiter) Take(ctx context.Context, draws ...llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
	l.taken = append(l.taken, llmhttp.RequestInfoFrom(ctx))
	return l.Limiter.Take(ctx, draws...)
}

func (l *infoLimiter) Adjust(ctx context.Context, draws ...llmhttp.BucketAmount) error {
	l.adjusted = append(l.adjusted, llmhttp.RequestInfoFrom(ctx))
	return l.Limiter.Adjust(ctx, draws...)
}

// The stores that settle a request see what it is. The Limiter that admits it does not.
func TestRequestInfoFrom_Stores(t *testing.T) {
	for _, test := range append(slices.Clone(testOperations), testOperation{path: modelsPath}) { // which has no RequestInfo
		t.Run(test.path, func(t *testing.T) {
			var inBackend, recorded *llmhttp.RequestInfo
			see := func(ctx context.Context) { inBackend = llmhttp.RequestInfoFrom(ctx) }
			b := &stubBackend{
				call: func(ctx context.Context) error { see(ctx); return nil },
				models: func(ctx context.Context) ([]llm.Model, error) {
					see(ctx)
					return nil, nil
				},
			}
			limiter := &infoLimiter{Limiter: llmhttp.NewLimiter()}
			usage := &usageLog{before: func(ctx context.Context) error { recorded = llmhttp.RequestInfoFrom(ctx); return nil }}
			keys := limitedKeys(llmhttp.Limits{Requests: llmhttp.PerMinute(10), Tokens: llmhttp.PerMinute(1e6)})
			h := llmhttp.NewHandler(b, keys, &llmhttp.Options{Limiter: limiter, Usage: usage, Logger: noLog, Routes: all.Routes(nil)})
			method := "POST"
			if test.body == "" {
				method = "GET"
			}
			body, contentType := requestBody(t, test.path, test.body)
			r := httptest.NewRequest(method, test.path, strings.NewReader(body))
			r.Header.Set("Content-Type", contentType)
			r.Header.Set("Authorization", "Bearer "+testSecret)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			assert.Equal(t, 200, w.Code, w.Body)
			for _, info := range limiter.taken {
				assert.Nil(t, info)
			}
			if test.name == "" {
				assert.Nil(t, inBackend)
				return
			}
			if assert.NotNil(t, inBackend) {
				assert.Equal(t, test.name, inBackend.Operation)
			}
			assert.Same(t, inBackend, recorded)
			for _, info := range limiter.adjusted {
				assert.Same(t, inBackend, info)
			}
		})
	}
	assert.Nil(t, llmhttp.RequestInfoFrom(t.Context()))
}
