package llmhttp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

func ExampleSetReplyHeader() {
	h := llmhttp.NewHandler(llmhttp.BackendFunc(func(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
		if err := llmhttp.SetReplyHeader(ctx, "X-Cache", "miss"); err != nil {
			return llm.Fail(err)
		}
		return llm.Reply("Hello!")
	}), llmhttp.AllowAll("demo"), nil)
	fmt.Println(post(h, hello).Header.Get("X-Cache"))
	// Output: miss
}

func TestSetReplyHeader(t *testing.T) {
	for name, test := range map[string]struct {
		path, body string
		status     int
		err        error
	}{
		"whole":      {chatPath, chatBody, 200, nil},
		"stream":     {chatPath, streamBody, 200, nil},
		"error":      {chatPath, chatBody, 500, errCause},
		"embeddings": {embeddingsPath, embeddingBody, 200, nil},
		"images":     {imagesPath, imageBody, 418, llm.Errorf(418, "", "teapot")},
	} {
		t.Run(name, func(t *testing.T) {
			set := func(ctx context.Context) {
				require.NoError(t, llmhttp.SetReplyHeader(ctx, "x-cache", "old"))
				done := make(chan struct{})
				go func() { // a Backend may do so on another goroutine
					defer close(done)
					assert.NoError(t, llmhttp.SetReplyHeader(ctx, "X-Cache", "hit"))
				}()
				<-done
			}
			var b stubBackend
			b.chat = func(ctx context.Context, _ *llm.ChatRequest) llm.ChatStream {
				set(ctx)
				if test.err != nil {
					return llm.Fail(test.err)
				}
				return llm.Reply("a")
			}
			b.embed = func(ctx context.Context, r *llm.EmbeddingRequest) (*llm.EmbeddingResponse, error) {
				set(ctx)
				return (&stubBackend{}).Embed(ctx, r)
			}
			b.images = func(ctx context.Context, r *llm.ImageRequest) (*llm.ImageResponse, error) {
				set(ctx)
				return nil, test.err
			}
			s := startServer(t, config{backend: &b})
			r := s.do("POST", test.path, test.body)
			assert.Equal(t, test.status, r.StatusCode)
			assert.Equal(t, []string{"hit"}, r.Header["X-Cache"])
			assert.NotEmpty(t, r.Header.Get("X-Request-Id"))
		})
	}
}

// A KeyStore can set headers too, of the reply with which its request is refused.
func TestSetReplyHeader_OfRefusal(t *testing.T) {
	s := startServer(t, config{keys: llmhttp.KeyStoreFunc(func(ctx context.Context, _ string) (*llmhttp.Key, error) {
		return nil, errors.Join(llmhttp.ErrKeyNotFound, llmhttp.SetReplyHeader(ctx, "X-Reason", "unknown"))
	})})
	r := s.chat(chatBody)
	assert.Equal(t, 401, r.StatusCode)
	assert.Equal(t, "unknown", r.Header.Get("X-Reason"))
}

func TestSetReplyHeader_AfterTheReplyHasBegun(t *testing.T) {
	var late context.Context
	s := startServer(t, config{backend: streamBackend(func(ctx context.Context, yield yieldFunc) {
		yield(llm.TextChunk("a"), nil)
		assert.ErrorContains(t, llmhttp.SetReplyHeader(ctx, "X-Cache", "hit"), "the reply has begun")
		late = ctx
	})})
	r := s.chat(streamBody)
	assert.Empty(t, r.Header.Get("X-Cache"))
	s.shutdown()
	assert.Error(t, llmhttp.SetReplyHeader(late, "X-Cache", "hit"))
	assert.ErrorContains(t, llmhttp.SetReplyHeader(t.Context(), "X-Cache", "hit"), "does not belong to a request")
}

// Many goroutines may set headers while the reply begins.
func TestSetReplyHeader_Concurrent(t *testing.T) {
	var running sync.WaitGroup
	s := startServer(t, config{backend: streamBackend(func(ctx context.Context, yield yieldFunc) {
		for i := range 8 {
			running.Go(func() { llmhttp.SetReplyHeader(ctx, fmt.Sprint("X-", i), "a") })
		}
		yield(llm.TextChunk("a"), nil)
	})})
	assert.Equal(t, 200, s.chat(streamBody).StatusCode)
	running.Wait()
}

func TestSetReplyHeader_Refused(t *testing.T) {
	s := startServer(t, config{backend: streamBackend(func(ctx context.Context, yield yieldFunc) {
		for _, name := range []string{
			"Content-Type", "content-length", "Transfer-Encoding", "Connection", "X-Request-ID", "Request-Id", "Trailer", "Upgrade", "Retry-After",
			"X-RateLimit-Limit-Requests", "anthropic-ratelimit-tokens-reset", "Trailer:X", "", "a b", "a:b", "a\nb", "é", "Content-Encoding",
		} {
			assert.Error(t, llmhttp.SetReplyHeader(ctx, name, "1"), "%q", name)
		}
		for _, value := range []string{"a\r\nX-Evil: 1", "a\nb", "\x00", "\x7f"} {
			assert.Error(t, llmhttp.SetReplyHeader(ctx, "X-Value", value), "%q", value)
		}
		assert.NoError(t, llmhttp.SetReplyHeader(ctx, "X-Value", "ü\t1"))
		yield(llm.TextChunk("a"), nil)
	})})
	r := s.chat(chatBody)
	assert.Equal(t, "ü\t1", r.Header.Get("X-Value"))
	assert.Empty(t, r.Header.Get("X-Evil"))
}

// No header that a Handler sets of itself can be set by a host.
func TestSetReplyHeader_OwnHeaders(t *testing.T) {
	key := testKey()
	key.Limits = llmhttp.Limits{Requests: llmhttp.PerMinute(1), Tokens: llmhttp.PerMinute(100000)}
	s := startServer(t, config{keys: keysFor(key)})
	own := make(http.Header)
	for _, r := range []reply{s.chat(streamBody), s.chat(chatBody), s.get("/v1/unknown"), s.do("PUT", chatPath, ""), s.chat(chatBody, withoutKey)} {
		for name := range r.Header {
			own[name] = nil
		}
	}
	require.Greater(t, len(own), 12)
	for name := range own {
		err := llmhttp.SetReplyHeader(t.Context(), name, "1")
		assert.ErrorContains(t, err, "is the Handler's", name)
	}
}
