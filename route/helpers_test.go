package route_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/llmhttp/llmhttp/route"
)

// A yieldFunc receives the chunks of a reply.
type yieldFunc = func(*llm.ChatChunk, error) bool

// A step is the reply of a fake Backend to one request.
type step func(ctx context.Context, yield yieldFunc)

// A fake is a Backend whose replies are its steps, in order. The last step is
// repeated.
type fake struct {
	calls atomic.Int64
	steps []step
}

func newFake(steps ...step) *fake { return &fake{steps: steps} }

func (f *fake) Chat(ctx context.Context, _ *llm.ChatRequest) llm.ChatStream {
	return func(yield yieldFunc) {
		n := int(f.calls.Add(1)) - 1
		f.steps[min(n, len(f.steps)-1)](ctx, yield)
	}
}

// say returns a step that replies with a chunk for each text.
func say(texts ...string) step {
	return func(_ context.Context, yield yieldFunc) {
		for _, text := range texts {
			if !yield(llm.TextChunk(text), nil) {
				return
			}
		}
	}
}

// sayChunk returns a step that replies with a copy of c, because the receiver of
// a chunk may change it.
func sayChunk(c llm.ChatChunk) step {
	return func(_ context.Context, yield yieldFunc) {
		c := c
		c.Choices = slices.Clone(c.Choices)
		yield(&c, nil)
	}
}

// fail returns a step that replies with an error.
func fail(err error) step {
	return func(_ context.Context, yield yieldFunc) { yield(nil, err) }
}

func failStatus(status int) step { return fail(llm.Errorf(status, "", "x")) }

// rateLimit returns a step that replies with a 429.
func rateLimit(retryAfter time.Duration) step {
	return fail(&llm.Error{Status: 429, Code: "rate_limit_exceeded", RetryAfter: retryAfter})
}

// hang waits until ctx is done and returns without an error.
func hang(ctx context.Context, _ yieldFunc) { <-ctx.Done() }

// pause returns a step that waits and ignores ctx.
func pause(d time.Duration) step {
	return func(context.Context, yieldFunc) { time.Sleep(d) }
}

// sequence returns a step that performs several steps, until the client leaves
// or one fails.
func sequence(steps ...step) step {
	return func(ctx context.Context, yield yieldFunc) {
		more := true
		for _, s := range steps {
			if !more {
				return
			}
			s(ctx, func(c *llm.ChatChunk, err error) bool {
				more = yield(c, err) && err == nil
				return more
			})
		}
	}
}

// errDial is an error whose text must not be logged.
var errDial = errors.New("dial tcp 10.0.0.1:443: key sk-secret")

// targets returns a target for each Backend. They are named a, b and so on.
func targets(backends ...llmhttp.Backend) []route.Target {
	list := make([]route.Target, len(backends))
	for i, b := range backends {
		list[i] = route.Target{Name: string(rune('a' + i)), Backend: b}
	}
	return list
}

// singleTarget returns one target, whose Backend calls the model by the given name.
func singleTarget(b llmhttp.Backend, model string) []route.Target {
	return []route.Target{{Name: "a", Backend: b, Model: model}}
}

// newRouter returns a Router that does not log, unless opts have a Logger.
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

// newInOrderRouter returns a Router with a route for the model m, whose targets are tried
// in order.
func newInOrderRouter(t testing.TB, opts *route.Options, backends ...llmhttp.Backend) *route.Router {
	t.Helper()
	return newRouter(t, opts, route.Route{Model: "m", Strategy: route.InOrder, Targets: targets(backends...)})
}

func newRequest(model string) *llm.ChatRequest {
	return &llm.ChatRequest{Model: model, Messages: []llm.Message{{Role: llm.RoleUser, Content: llm.TextContent("Hello!")}}}
}

// ask returns the text of b's reply to a request for the model m.
func ask(ctx context.Context, b llmhttp.Backend) (string, error) {
	resp, err := join.Collect(b.Chat(ctx, newRequest("m")))
	if len(resp.Choices) == 0 {
		return "", err
	}
	return resp.Choices[0].Message.Content.Text(), err
}

// askTimes makes n requests, which must succeed, and returns the texts of their
// replies.
func askTimes(t testing.TB, b llmhttp.Backend, n int) string {
	t.Helper()
	texts := ""
	for range n {
		text, err := ask(t.Context(), b)
		require.NoError(t, err)
		texts += text
	}
	return texts
}

// requireStatus checks that err is an [llm.Error] with a status.
func requireStatus(t testing.TB, err error, status int) *llm.Error {
	t.Helper()
	var e *llm.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, status, e.Status)
	return e
}

// summaries collects the RequestSummary of each request of a Handler.
type summaries struct {
	mu   sync.Mutex
	list []*llmhttp.RequestSummary
}

func (s *summaries) observe(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
	return ctx, llmhttp.Observation{Ended: func(e *llmhttp.RequestSummary) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.list = append(s.list, e)
	}}
}

func (s *summaries) all() []*llmhttp.RequestSummary {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*llmhttp.RequestSummary(nil), s.list...)
}

// newLogger returns a Logger and the buffer that it writes to. The buffer must not be
// read while something logs.
func newLogger() (*slog.Logger, *bytes.Buffer) {
	b := new(bytes.Buffer)
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug})), b
}

// assertNoSecrets checks that text does not contain the secrets in [errDial].
func assertNoSecrets(t testing.TB, text string) {
	t.Helper()
	assert.NotContains(t, text, "sk-secret")
	assert.NotContains(t, text, "10.0.0.1")
}
