package responses_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/responses"
)

// A hangingStore answers when the context ends.
type hangingStore struct{ llmhttp.ResponseStore }

func (hangingStore) SaveResponse(ctx context.Context, _ *llmhttp.StoredResponse) error {
	<-ctx.Done()
	return ctx.Err()
}

func (hangingStore) LoadResponse(ctx context.Context, _, _ string) (*llmhttp.StoredResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestStored_StoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := llmhttp.NewHandler(memory.Echo(), llmhttp.AllowAll("acme"), &llmhttp.Options{
			Protocols: []llmhttp.Protocol{responses.New(&responses.Options{Store: hangingStore{}})},
			Logger:    slog.New(slog.DiscardHandler),
			KeepAlive: 3 * time.Second,
		})
		start := time.Now()
		w, cut := serve(h, []byte(`{"model":"demo-chat","input":"Hi","stream":true}`))
		r, err := accumulate(readEvents(t, w.Body.String()))
		assert.NoError(t, err)
		assert.True(t, cut)
		assert.Equal(t, "failed", r["status"])
		assert.Nil(t, r["completed_at"])
		assert.Equal(t, "We could not store the response. Please try again.", r["error"].(object)["message"])
		assert.Contains(t, w.Body.String(), ": keep-alive\n")
		assert.Equal(t, 10*time.Second, time.Since(start))

		w, _ = serve(h, []byte(`{"model":"demo-chat","input":"Hi","previous_response_id":"resp_1"}`))
		assert.Equal(t, 503, w.Code)
		assert.Contains(t, w.Body.String(), "We could not reach the stored responses.")
		assert.Equal(t, 20*time.Second, time.Since(start))
	})
}

// A response that has started before the Backend's first chunk keeps its identity.
func TestCreate_SlowBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(llmhttp.BackendFunc(func(context.Context, *llmhttp.ChatRequest) llmhttp.ChatStream {
			return func(yield func(*llmhttp.ChatChunk, error) bool) {
				time.Sleep(20 * time.Second)
				c := llmhttp.TextChunk("Hello")
				c.ID, c.Model, c.Created = "chatcmpl-1", "another name", 1
				yield(c, nil)
			}
		}))
		w, cut := serve(h, []byte(`{"model":"demo-chat","input":"Hi","stream":true}`))
		assert.False(t, cut)
		r, err := accumulate(readEvents(t, w.Body.String()))
		assert.NoError(t, err)
		assert.Equal(t, "demo-chat", r["model"])
		assert.Equal(t, map[string]string{"text": "Hello"}, textsOf(r))
		assert.Contains(t, w.Body.String(), ": keep-alive\n")
	})
}
