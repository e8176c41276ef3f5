package llmhttp_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
)

const messageInternal = "The server had an error while processing your request. Sorry about that!"

// fxRound sends a request and returns all that comes back.
func fxRound(t testing.TB, c net.Conn, request string) string {
	t.Helper()
	defer c.Close()
	_, err := io.WriteString(c, request)
	require.NoError(t, err)
	b, err := io.ReadAll(c)
	require.NoError(t, err)
	return string(b)
}

func fxLocal(body string) *http.Request {
	r := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+fxSecret)
	return r
}

// A scriptedLimiter admits everything unless it is told otherwise.
type scriptedLimiter struct {
	take   func(ctx context.Context, draws []llmhttp.Draw) ([]llmhttp.Level, error)
	adjust func(context.Context) error
	see    func(context.Context)

	mu       sync.Mutex
	taken    [][]llmhttp.Draw
	adjusted [][]llmhttp.Draw
}

func (l *scriptedLimiter) Take(ctx context.Context, _ string, draws ...llmhttp.Draw) ([]llmhttp.Level, error) {
	if l.see != nil {
		l.see(ctx)
	}
	l.mu.Lock()
	l.taken = append(l.taken, append([]llmhttp.Draw(nil), draws...))
	l.mu.Unlock()
	if l.take != nil {
		return l.take(ctx, draws)
	}
	levels := make([]llmhttp.Level, len(draws))
	for i, d := range draws {
		levels[i].Remaining = d.Rate.WithDefaults().Burst - d.Cost
	}
	return levels, nil
}

func (l *scriptedLimiter) Adjust(ctx context.Context, _ string, draws ...llmhttp.Draw) error {
	if l.see != nil {
		l.see(ctx)
	}
	l.mu.Lock()
	l.adjusted = append(l.adjusted, append([]llmhttp.Draw(nil), draws...))
	l.mu.Unlock()
	if l.adjust != nil {
		return l.adjust(ctx)
	}
	return nil
}

func (l *scriptedLimiter) log() (taken, adjusted [][]llmhttp.Draw) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.taken, l.adjusted
}

// A Limiter that ignores its context is waited for, without a race.
func TestDeafLimiter(t *testing.T) {
	s := fxStart(t, fxConfig{keys: fxLimited(llmhttp.Limits{Requests: llmhttp.PerMinute(9)}), opts: llmhttp.Options{
		Timeout: 200 * time.Millisecond,
		Limiter: &scriptedLimiter{take: func(_ context.Context, draws []llmhttp.Draw) ([]llmhttp.Level, error) {
			time.Sleep(500 * time.Millisecond)
			return make([]llmhttp.Level, len(draws)), nil
		}}}})
	// ImageSizes was called before, so that the watch over the Backend runs.
	r := s.do("POST", "/v1/images/generations", `{"model":"m","prompt":"a"}`)
	assert.Contains(t, []int{200, 504}, r.StatusCode)
	r = s.chat(fxWhole)
	assert.Equal(t, 200, r.StatusCode)
	require.NoError(t, s.h.Shutdown(t.Context()))
}

// fxFail is a Backend whose every answer is err.
func fxFail(err error) *fxBackend {
	return &fxBackend{
		chat:   func(context.Context, *llmhttp.ChatRequest) llmhttp.ChatStream { return llmhttp.Fail(err) },
		models: func(context.Context) ([]llmhttp.Model, error) { return nil, err },
		embed:  func(context.Context, *llmhttp.EmbeddingRequest) (*llmhttp.EmbeddingResponse, error) { return nil, err },
		images: func(context.Context, *llmhttp.ImageRequest) (*llmhttp.ImageResponse, error) { return nil, err },
	}
}

// fxLevels is a Limiter that answers each Take alike.
func fxLevels(levels ...llmhttp.Level) llmhttp.Limiter {
	return &scriptedLimiter{take: func(_ context.Context, draws []llmhttp.Draw) ([]llmhttp.Level, error) {
		return levels[:len(draws)], nil
	}}
}
