package upstream_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/all"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/upstream"
)

// A gateway is a Handler with an upstream Backend. Tests can read its log and usage.
type gateway struct {
	*httptest.Server
	t       testing.TB
	backend *upstream.Backend
	usage   *memory.UsageStore
	log     *logBuffer

	mu        sync.Mutex // guards summaries
	summaries []*llmhttp.RequestSummary
}

// A logBuffer is a bytes.Buffer for concurrent use.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// newGateway starts a gateway to the server at base. At the end of the test, it checks
// that neither the log nor an error contains a secret.
func newGateway(t testing.TB, base string, opts *upstream.Options, change ...func(*llmhttp.Options)) *gateway {
	t.Helper()
	if opts == nil {
		opts = new(upstream.Options)
	}
	if opts.Key == "" && opts.KeyFunc == nil {
		opts.Key = serverKey
	}
	g := &gateway{t: t, backend: newBackend(t, base, opts), usage: memory.NewUsageStore(), log: new(logBuffer)}
	hopts := &llmhttp.Options{
		Routes: all.Routes(nil),
		Usage:  g.usage, Logger: slog.New(slog.NewJSONHandler(g.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Observe: func(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
			return ctx, llmhttp.Observation{Ended: func(s *llmhttp.RequestSummary) {
				g.mu.Lock()
				defer g.mu.Unlock()
				g.summaries = append(g.summaries, s)
			}}
		},
	}
	for _, f := range change {
		f(hopts)
	}
	keys := llmhttp.KeyStoreFunc(func(_ context.Context, secret string) (*llmhttp.Key, error) {
		if secret != clientKey {
			return nil, llmhttp.ErrKeyNotFound
		}
		return &llmhttp.Key{ID: "client", Account: "client"}, nil
	})
	g.Server = httptest.NewServer(llmhttp.NewHandler(g.backend, keys, hopts))
	host := strings.TrimSuffix(strings.TrimPrefix(base, "http://"), "/v1")
	t.Cleanup(func() {
		g.Close()
		g.checkNoSecrets("log", g.log.String(), host)
		for _, s := range g.ended() {
			if s.Err != nil {
				g.checkNoSecrets("error", s.Err.Error(), host)
			}
		}
	})
	return g
}

func (g *gateway) checkNoSecrets(what, text, host string) {
	g.t.Helper()
	for _, secret := range []string{clientKey, serverKey, host, "127.0.0.1"} {
		assert.NotContains(g.t, text, secret, what)
	}
}

// ended returns the summaries of the requests that have ended.
func (g *gateway) ended() []*llmhttp.RequestSummary {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.summaries)
}

// summary waits for the end of the only request, and returns its summary.
func (g *gateway) summary() *llmhttp.RequestSummary {
	g.t.Helper()
	eventually(g.t, func() bool { return len(g.ended()) > 0 }, "the request ends")
	list := g.ended()
	require.Len(g.t, list, 1)
	return list[0]
}

// recordedUsage waits for the end of n requests, and returns the usage that was recorded.
func (g *gateway) recordedUsage(n int) llmhttp.UsageSum {
	g.t.Helper()
	eventually(g.t, func() bool { return len(g.ended()) >= n }, "the requests end")
	sums, err := g.usage.Query(context.Background(), llmhttp.UsageQuery{
		Account: "client", From: time.Unix(0, 0), To: time.Now().Add(time.Hour)})
	require.NoError(g.t, err)
	var all llmhttp.UsageSum
	for _, s := range sums {
		all.Add(s)
	}
	return all
}

func (g *gateway) request(ctx context.Context, method, path, body string) *http.Request {
	g.t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, g.URL+path, strings.NewReader(body))
	require.NoError(g.t, err)
	r.Header.Set("Authorization", "Bearer "+clientKey)
	if body != "" {
		r.Header.Set("Content-Type", mediaJSON)
	}
	return r
}

// A reply is a response that the client of a gateway got, with its body.
type reply struct {
	*http.Response
	body string
	err  error // of reading the body
}

// do sends a request to the gateway and reads the reply.
func (g *gateway) do(method, path, body string) reply {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	return g.send(g.request(ctx, method, path, body))
}

// send sends a request to the gateway and reads the reply.
func (g *gateway) send(r *http.Request) reply {
	g.t.Helper()
	resp, err := g.Client().Do(r)
	require.NoError(g.t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return reply{resp, string(b), err}
}

func (g *gateway) chat(body string) reply { g.t.Helper(); return g.do("POST", chatPath, body) }

// requireComplete checks that the reply is a stream that ends with [DONE].
func (r reply) requireComplete(t testing.TB) {
	t.Helper()
	require.NoError(t, r.err)
	require.Equal(t, http.StatusOK, r.StatusCode, "%s", r.body)
	require.True(t, strings.HasSuffix(r.body, eventStream(done)), "%s", r.body)
}

// requireError checks that the reply is an error, and returns it.
func (r reply) requireError(t testing.TB, status int) apiError {
	t.Helper()
	require.NoError(t, r.err)
	require.Equal(t, status, r.StatusCode, "%s", r.body)
	return readError(t, r.body)
}

// An apiError is the error object of the API, with "" for null.
type apiError struct{ Message, Type, Param, Code string }

func readError(t testing.TB, body string) apiError {
	t.Helper()
	var v struct{ Error apiError }
	require.NoError(t, json.Unmarshal([]byte(body), &v), "%s", body)
	return v.Error
}
