package redislimit

import (
	"bytes"
	"context"
	"crypto/rand"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/servertest"
)

// patient is a Timeout that only a Redis runs into that is away.
const patient = 20 * time.Second

// newClient returns a client of s.
func newClient(t testing.TB, s *servertest.Server) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// newLimiter returns a Limiter on the Redis that tests share, if client is
// nil. Its Timeout is long unless opts has one: machines that run tests are
// slow at times.
func newLimiter(t testing.TB, client redis.UniversalClient, opts *Options) *Limiter {
	t.Helper()
	if client == nil {
		client = newClient(t, servertest.SharedRedis(t))
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Timeout == 0 {
		o.Timeout = patient
	}
	l := New(client, &o)
	l.redis.pause = 100 * time.Millisecond
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// unique returns the name of a bucket that nothing else draws on.
func unique() string { return rand.Text() + ":b" }

// slow permits n, up to a million, and gives nothing back while a test runs.
func slow(n int) llmhttp.Rate { return llmhttp.Rate{N: n, Per: 250 * 365 * 24 * time.Hour} }

// take takes, and returns the levels.
func take(t testing.TB, l llmhttp.Limiter, draws ...llmhttp.Draw) []llmhttp.Level {
	t.Helper()
	levels, err := l.Take(t.Context(), draws...)
	require.NoError(t, err)
	require.Len(t, levels, len(draws))
	return levels
}

// remaining returns how many tokens are left in d's bucket.
func remaining(t testing.TB, l llmhttp.Limiter, d llmhttp.Draw) int {
	t.Helper()
	d.Cost = 0
	return take(t, l, d)[0].Remaining
}

func granted(levels []llmhttp.Level) bool {
	for _, l := range levels {
		if l.RetryAfter != 0 {
			return false
		}
	}
	return true
}

// eventually waits until f is true.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// A logBuffer is what was logged.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func (b *logBuffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

// A counter counts the commands that a client sends.
type counter struct{ n atomic.Int64 }

func (c *counter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmd)
	}
}

func (c *counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmds)
	}
}

// leaked returns the stacks of goroutines that run code of this package, once
// they had time to end.
func leaked() string {
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		buf := make([]byte, 1<<20)
		stacks := strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")
		var left []string
		for _, s := range stacks[1:] {
			if strings.Contains(s, "/llmhttp/redislimit.") || strings.Contains(s, "go-redis") {
				left = append(left, s)
			}
		}
		if len(left) == 0 || time.Now().After(end) {
			return strings.Join(left, "\n\n")
		}
	}
}
