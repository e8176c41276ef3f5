package route_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/route"
)

// chat sends h a chat.
func chat(h http.Handler, model string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(
		`{"model":"`+model+`","messages":[{"role":"user","content":"Hello!"}]}`))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// request returns a chat of the model m.
func request() *llmhttp.ChatRequest {
	return &llmhttp.ChatRequest{Model: "m", Messages: []llmhttp.Message{{Role: llmhttp.RoleUser, Content: llmhttp.Text("Hello!")}}}
}

// say returns what a Backend of the model m says, or why it failed.
func say(ctx context.Context, b llmhttp.Backend) (string, error) {
	resp, err := llmhttp.Collect(b.Chat(ctx, request()))
	if len(resp.Choices) == 0 {
		return "", err
	}
	return resp.Choices[0].Message.Content.Text(), err
}

// A step is what a fake does when it is called.
type step func(ctx context.Context, yield func(*llmhttp.ChatChunk, error) bool)

// A fake is a Backend that performs steps, a call each, the last of them for
// ever.
type fake struct {
	calls atomic.Int64
	steps []step
}

func steps(list ...step) *fake { return &fake{steps: list} }

func (f *fake) Chat(ctx context.Context, _ *llmhttp.ChatRequest) llmhttp.ChatStream {
	return func(yield func(*llmhttp.ChatChunk, error) bool) {
		n := int(f.calls.Add(1)) - 1
		f.steps[min(n, len(f.steps)-1)](ctx, yield)
	}
}

// says is the step of a reply in several chunks.
func says(texts ...string) step {
	return func(_ context.Context, yield func(*llmhttp.ChatChunk, error) bool) {
		for _, text := range texts {
			if !yield(llmhttp.TextChunk(text), nil) {
				return
			}
		}
	}
}

func fails(err error) step {
	return func(_ context.Context, yield func(*llmhttp.ChatChunk, error) bool) { yield(nil, err) }
}

func status(code int) step { return fails(llmhttp.Errorf(code, "", "told")) }

// limited is the step of a target that is asked too often.
func limited(retryAfter time.Duration) step {
	return fails(&llmhttp.Error{Status: 429, Code: "rate_limit_exceeded", RetryAfter: retryAfter})
}

// hangs is the step of a target that never answers, and does not say that its
// context was done.
func hangs(ctx context.Context, _ func(*llmhttp.ChatChunk, error) bool) { <-ctx.Done() }

// then performs one step after the other.
func then(list ...step) step {
	return func(ctx context.Context, yield func(*llmhttp.ChatChunk, error) bool) {
		more := true
		for _, s := range list {
			if !more {
				return
			}
			s(ctx, func(c *llmhttp.ChatChunk, err error) bool {
				more = yield(c, err) && err == nil
				return more
			})
		}
	}
}

var errBoom = errors.New("dial tcp 10.0.0.1:443: key sk-secret")

// targets returns a Target for each of backends, named a, b and so on.
func targets(backends ...llmhttp.Backend) []route.Target {
	list := make([]route.Target, len(backends))
	for i, b := range backends {
		list[i] = route.Target{Name: string(rune('a' + i)), Backend: b}
	}
	return list
}

// inOrder returns a Router of one route, of the model m, whose targets are
// tried in order.
func inOrder(t testing.TB, opts *route.Options, backends ...llmhttp.Backend) *route.Router {
	t.Helper()
	return newRouter(t, opts, route.Route{Model: "m", Strategy: route.InOrder, Targets: targets(backends...)})
}

func newRouter(t testing.TB, opts *route.Options, routes ...route.Route) *route.Router {
	t.Helper()
	var o route.Options
	if opts != nil {
		o = *opts
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	r, err := route.New(routes, &o)
	require.NoError(t, err)
	return r
}

// A logBuffer is what a Logger wrote.
type logBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newLogger() (*slog.Logger, *logBuffer) {
	b := new(logBuffer)
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug})), b
}
