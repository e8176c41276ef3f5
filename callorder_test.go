package llmhttp_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/usagebuffer"
)

type hostValue struct{}

// A callLog notes the calls of what a host gives to a Handler, and what their contexts tell.
type callLog struct {
	mu    sync.Mutex // guards lines
	lines []string
}

func (l *callLog) add(ctx context.Context, call string) {
	var known []string
	if ctx.Value(hostValue{}) != nil {
		known = append(known, "host")
	}
	if llmhttp.RequestIDFrom(ctx) != "" {
		known = append(known, "ID")
	}
	if llmhttp.KeyFrom(ctx) != nil {
		known = append(known, "key")
	}
	if llmhttp.RequestInfoFrom(ctx) != nil {
		known = append(known, "info")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, strings.TrimSpace(fmt.Sprintf("%-32s %s", call, cmp.Or(strings.Join(known, ", "), "nothing"))))
}

func (l *callLog) middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := context.WithValue(r.Context(), hostValue{}, true)
		l.add(ctx, "middleware")
		next.ServeHTTP(w, r.WithContext(ctx))
		l.add(ctx, "middleware, after ServeHTTP")
	})
}

func (l *callLog) observe(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
	l.add(ctx, "Observer")
	return ctx, llmhttp.Observation{
		Started: func(ctx context.Context, _ *llmhttp.RequestInfo) context.Context {
			l.add(ctx, "Observation.Started")
			return ctx
		},
		Ended: func(*llmhttp.RequestSummary) { l.add(ctx, "Observation.Ended") },
	}
}

type loggedLimiter struct {
	llmhttp.Limiter
	log *callLog
}

func (l loggedLimiter) Take(ctx context.Context, draws ...llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
	l.log.add(ctx, "Limiter.Take, "+string(draws[0].Bucket))
	return l.Limiter.Take(ctx, draws...)
}

func (l loggedLimiter) Adjust(ctx context.Context, draws ...llmhttp.BucketAmount) error {
	l.log.add(ctx, "Limiter.Adjust, "+string(draws[0].Bucket))
	return l.Limiter.Adjust(ctx, draws...)
}

type loggedStore struct {
	llmhttp.UsageStore
	log *callLog
}

func (s loggedStore) Record(ctx context.Context, records ...llmhttp.UsageRecord) error {
	s.log.add(ctx, "UsageStore.Record")
	return s.UsageStore.Record(ctx, records...)
}

// docs/backends.md shows in which order a Handler calls what the host gives to it, and what the
// contexts of the calls know.
func TestCallOrder(t *testing.T) {
	log := new(callLog)
	keys := llmhttp.KeyStoreFunc(func(ctx context.Context, _ string) (*llmhttp.Key, error) {
		log.add(ctx, "KeyStore.Lookup")
		return &llmhttp.Key{ID: "k1", Account: "acme", Limits: llmhttp.Limits{Requests: llmhttp.PerMinute(9), Tokens: llmhttp.PerMinute(9000)}}, nil
	})
	backend := llmhttp.BackendFunc(func(ctx context.Context, _ *llm.ChatRequest) llm.ChatStream {
		log.add(ctx, "Backend.Chat")
		return llm.Reply("Hi")
	})
	serve := func(usage llmhttp.UsageStore) {
		h := llmhttp.NewHandler(backend, keys, &llmhttp.Options{
			Observe: log.observe, Limiter: loggedLimiter{llmhttp.NewLimiter(), log}, Usage: usage,
		})
		require.Equal(t, http.StatusOK, post(log.middleware(h), hello).StatusCode)
	}
	store := loggedStore{memory.NewUsageStore(), log}
	serve(store)
	text, err := os.ReadFile("docs/backends.md")
	require.NoError(t, err)
	var rows []string
	for _, row := range regexp.MustCompile(`(?m)^\| (.*) \| ((?:host|ID|key|info|, )+) \| .* \|$`).FindAllStringSubmatch(string(text), -1) {
		rows = append(rows, fmt.Sprintf("%-32s %s", row[1], row[2]))
	}
	assert.Equal(t, rows, log.lines)

	// A Buffer stores records after the request.
	buffer := usagebuffer.New(store, nil)
	log.lines = nil
	serve(buffer)
	require.NoError(t, buffer.Close(t.Context()))
	assert.Equal(t, "UsageStore.Record                nothing", log.lines[len(log.lines)-1])
}
