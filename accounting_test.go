package llmhttp_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
)

// What becomes of a request's tokens, and of its record, when all does not go
// as it should.

// A UsageStore that fails, panics or is slow spoils no reply.
func TestUsageStoreFails(t *testing.T) {
	tests := []struct {
		name   string
		before func(context.Context) error
		logged bool
	}{
		{"error", func(context.Context) error { return errors.New("marker-of-the-cause") }, true},
		{"panic", func(context.Context) error { panic("marker-of-the-cause") }, true},
		{"slow", func(context.Context) error { time.Sleep(100 * time.Millisecond); return nil }, false},
	}
	for _, tt := range tests {
		for name, body := range map[string]string{"whole": fxWhole, "stream": fxStream} {
			t.Run(tt.name+"/"+name, func(t *testing.T) {
				fxNoLeaks(t)
				s := fxStart(t, fxConfig{usage: &fxUsage{before: tt.before}})
				r := s.chat(body)
				require.NoError(t, r.err)
				assert.Equal(t, 200, r.StatusCode)
				assert.Contains(t, r.body, "Hello!")
				assert.NotContains(t, r.body, "marker")
				assert.Equal(t, tt.logged, strings.Contains(s.log.String(), "marker-of-the-cause"))
				assert.Equal(t, 1, s.usage.count(), "Record is called once")
				assert.NoError(t, s.watch.only(t).Err)
			})
		}
	}
}

// A store that never returns is given 10 seconds, and told so.
func TestUsageStoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var took time.Duration
		s, dial, done := fxServePipe(t, fxConfig{usage: &fxUsage{before: func(ctx context.Context) error {
			start := time.Now()
			<-ctx.Done()
			took = time.Since(start)
			return ctx.Err()
		}}})
		defer done()
		r := fxParse(t, "POST", fxRound(t, dial(), fxPost("HTTP/1.1", "/v1/chat/completions", fxWhole, "Connection: close")))
		assert.Equal(t, 200, r.StatusCode)
		assert.Equal(t, 10*time.Second, took)
		assert.Contains(t, s.log.String(), "usage not recorded")
	})
}

// Once a client has its whole reply, its usage is on record.
func TestUsageIsRecordedBeforeTheReplyEnds(t *testing.T) {
	s := fxStart(t, fxConfig{})
	for i, body := range []string{fxWhole, fxStream} {
		r := s.chat(body)
		require.NoError(t, r.err)
		require.Len(t, s.usage.all(), i+1)
	}
}

// A Limiter that hangs when a request is settled takes its own time, not the
// store's.
func TestHangingAdjust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dial, done := fxServePipe(t, fxConfig{keys: fxLimited(llmhttp.Limits{Tokens: llmhttp.PerMinute(1000)}),
			opts: llmhttp.Options{Limiter: &scriptedLimiter{adjust: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}}})
		defer done()
		fxRound(t, dial(), fxPost("HTTP/1.1", "/v1/chat/completions", fxWhole, "Connection: close"))
		s.usage.only(t)
		assert.Contains(t, s.log.String(), "limits not settled")
		assert.NotContains(t, s.log.String(), "usage not recorded")
	})
}

// An error is told, however slow those are that settle the request, and
// whatever deadline its write has.
func TestSlowSettlingOfAnError(t *testing.T) {
	for name, limiter := range map[string]llmhttp.Limiter{
		"store": nil,
		"release": &acquirer{acquire: func(context.Context, string, int) (func(), error) {
			return func() { time.Sleep(40 * time.Second) }, nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, dial, done := fxServePipe(t, fxConfig{
					backend: fxFail(llmhttp.Errorf(422, "", "no")), keys: fxLimited(llmhttp.Limits{Concurrent: 5}),
					usage:  &fxUsage{before: func(context.Context) error { time.Sleep(9 * time.Second); return nil }},
					opts:   llmhttp.Options{Limiter: limiter, WriteTimeout: 3 * time.Second, Timeout: 30 * time.Second},
					server: func(srv *http.Server) { srv.WriteTimeout = time.Hour },
				})
				defer done()
				r := fxParse(t, "POST", fxRound(t, dial(), fxPost("HTTP/1.1", "/v1/chat/completions", fxWhole, "Connection: close")))
				require.NoError(t, r.err)
				assert.Equal(t, 422, r.StatusCode)
				s.usage.only(t)
			})
		})
	}
}

// A client that leaves before the Backend was called owes nothing, and what was
// reserved is given back.
func TestLeavesBeforeTheBackend(t *testing.T) {
	for path, body := range map[string]string{
		"/v1/chat/completions":   fxWhole,
		"/v1/images/generations": `{"model":"m","prompt":"aaaa bbbb cccc"}`,
		"/v1/embeddings":         `{"model":"m","input":"aaaa bbbb cccc"}`,
	} {
		t.Run(path, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			l := &scriptedLimiter{}
			l.take = func(ctx context.Context, draws []llmhttp.Draw) ([]llmhttp.Level, error) {
				cancel()
				<-ctx.Done() // the levels come as the client leaves
				return make([]llmhttp.Level, len(draws)), nil
			}
			called := false
			fb := &fxBackend{
				chat: func(context.Context, *llmhttp.ChatRequest) llmhttp.ChatStream {
					called = true
					return llmhttp.Reply("x")
				},
				images: func(context.Context, *llmhttp.ImageRequest) (*llmhttp.ImageResponse, error) {
					called = true
					return nil, nil
				},
				embed: func(context.Context, *llmhttp.EmbeddingRequest) (*llmhttp.EmbeddingResponse, error) {
					called = true
					return nil, nil
				},
			}
			s := fxStart(t, fxConfig{backend: fb, keys: fxLimited(llmhttp.Limits{Tokens: llmhttp.PerMinute(1000)}), opts: llmhttp.Options{Limiter: l}})
			_, err := s.open(ctx, "POST", path, body)
			require.Error(t, err)
			e := s.watch.only(t)
			assert.Equal(t, 499, e.Status)
			assert.False(t, called)
			assert.Empty(t, s.usage.all())
			l.mu.Lock()
			defer l.mu.Unlock()
			require.Len(t, l.adjusted, 1)
			assert.Equal(t, -l.taken[0][0].Cost, l.adjusted[0][0].Cost)
		})
	}
}

// What a Backend has made and reports is recorded, though the client has left.
func TestLeavesWhatIsPaidFor(t *testing.T) {
	for path, body := range map[string]string{
		"/v1/images/generations": `{"model":"m","prompt":"aaaa bbbb cccc","n":3}`,
		"/v1/embeddings":         `{"model":"m","input":"aaaa bbbb cccc"}`,
	} {
		t.Run(path, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			want := llmhttp.Usage{PromptTokens: 50, CompletionTokens: 4000, TotalTokens: 4050}
			s := fxStart(t, fxConfig{backend: &fxBackend{
				images: func(ctx context.Context, _ *llmhttp.ImageRequest) (*llmhttp.ImageResponse, error) {
					cancel()
					<-ctx.Done()
					return &llmhttp.ImageResponse{Data: make([]llmhttp.Image, 3), Usage: &want}, nil
				},
				embed: func(ctx context.Context, _ *llmhttp.EmbeddingRequest) (*llmhttp.EmbeddingResponse, error) {
					cancel()
					<-ctx.Done()
					return &llmhttp.EmbeddingResponse{Vectors: make([][]float32, 1), Usage: &want}, nil
				},
			}})
			_, err := s.open(ctx, "POST", path, body)
			require.Error(t, err)
			record := s.usage.only(t)
			assert.Equal(t, want, record.Usage)
			assert.False(t, record.Estimated)
			assert.Equal(t, map[bool]int{true: 3}[path == "/v1/images/generations"], record.Images)
		})
	}
}

// Images are drawn even if there is no place for them.
func TestImageURLFails(t *testing.T) {
	s := fxStart(t, fxConfig{opts: llmhttp.Options{ImageURL: func(context.Context, []byte, string) (string, error) {
		return "", fmt.Errorf("link: %w", errors.ErrUnsupported)
	}}})
	s.do("POST", "/v1/images/generations", `{"model":"m","prompt":"a","n":3}`)
	assert.Equal(t, 3, s.usage.only(t).Images)
}

// Sums of what a Backend reports do not overflow.
func TestHugeUsage(t *testing.T) {
	l := &scriptedLimiter{}
	s := fxStart(t, fxConfig{backend: fxUsed(math.MaxInt, math.MaxInt), keys: fxLimited(llmhttp.Limits{Tokens: llmhttp.PerMinute(1000)}), opts: llmhttp.Options{Limiter: l}})
	assert.Equal(t, 200, s.chat(fxWhole).StatusCode)
	assert.Positive(t, s.usage.only(t).Usage.TotalTokens)
	l.mu.Lock()
	defer l.mu.Unlock()
	assert.Positive(t, l.adjusted[0][0].Cost)
}

// A Limiter or a CountTokens that panics when a request is settled does not
// take its record along.
func TestSettlingPanics(t *testing.T) {
	t.Run("Adjust", func(t *testing.T) {
		s := fxStart(t, fxConfig{keys: fxLimited(llmhttp.Limits{Tokens: llmhttp.PerMinute(1000)}),
			opts: llmhttp.Options{Limiter: &scriptedLimiter{adjust: func(context.Context) error { panic("adjust") }}}})
		r := s.chat(fxWhole)
		assert.Equal(t, 200, r.StatusCode)
		s.watch.only(t)
		assert.Len(t, s.usage.all(), 1, "spend vanished")
	})
	t.Run("Adjust fails", func(t *testing.T) {
		s := fxStart(t, fxConfig{keys: fxLimited(llmhttp.Limits{Tokens: llmhttp.PerMinute(1000)}),
			opts: llmhttp.Options{Limiter: &scriptedLimiter{adjust: func(context.Context) error { return errors.New("adjust") }}}})
		r := s.chat(fxWhole)
		assert.Equal(t, 200, r.StatusCode)
		s.watch.only(t)
		assert.Len(t, s.usage.all(), 1)
		assert.Contains(t, s.log.String(), "limits not settled")
	})
	t.Run("CountTokens", func(t *testing.T) {
		s := fxStart(t, fxConfig{opts: llmhttp.Options{CountTokens: func(_, text string) int {
			if text == "Hello!" {
				panic("count")
			}
			return 1
		}}})
		r := s.chat(fxWhole)
		assert.Equal(t, 200, r.StatusCode)
		s.watch.only(t)
		require.NoError(t, s.h.Shutdown(t.Context()))
		assert.Len(t, s.usage.all(), 1, "spend vanished")
		assert.Contains(t, s.log.String(), "usage not counted")
	})
}
