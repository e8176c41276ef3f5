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

// longTimeout is a Timeout that a slow machine does not exceed.
const longTimeout = time.Minute

// newClient returns a redis client of s.
func newClient(t testing.TB, s *servertest.Server) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// newLimiter returns a Limiter with a long Timeout, unless opts sets one. If
// client is nil, it uses the Redis that the tests share.
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
		o.Timeout = longTimeout
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	l, err := New(client, &o)
	require.NoError(t, err)
	l.client.retryInterval = 100 * time.Millisecond
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// uniqueKey returns the ID of a key that nothing else uses.
func uniqueKey() string { return rand.Text() }

// slow returns a Rate of n, up to a million, that gains nothing during a test.
func slow(n int) llmhttp.Rate { return llmhttp.Rate{N: n, Per: 250 * 365 * 24 * time.Hour} }

func keySubject(id string) llmhttp.SubjectID { return llmhttp.SubjectID{Kind: llmhttp.KindKey, ID: id} }

// one returns a draw of cost on a bucket of n tokens.
func one(key string, n int, cost int64) llmhttp.BucketAmount { return bucketOf(key, "bucket", n, cost) }

// bucketOf returns a draw of cost on a bucket of n tokens with a name.
func bucketOf(key, name string, n int, cost int64) llmhttp.BucketAmount {
	return llmhttp.BucketAmount{Subject: keySubject(key), Bucket: name, Rate: slow(n), Amount: cost}
}

func take(t testing.TB, l llmhttp.Limiter, draws ...llmhttp.BucketAmount) []llmhttp.BucketLevel {
	t.Helper()
	levels, err := l.Take(t.Context(), draws...)
	require.NoError(t, err)
	require.Len(t, levels, len(draws))
	return levels
}

// remaining returns the tokens in the bucket of d.
func remaining(t testing.TB, l llmhttp.Limiter, d llmhttp.BucketAmount) int64 {
	t.Helper()
	d.Amount = 0
	return take(t, l, d)[0].Remaining
}

func granted(levels []llmhttp.BucketLevel) bool {
	for _, l := range levels {
		if l.RetryAfter != 0 {
			return false
		}
	}
	return true
}

// eventually waits until condition returns true, for at most three minutes.
func eventually(t testing.TB, condition func() bool, what string) {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("did not happen: %s", what)
		}
	}
}

// A logBuffer keeps what is logged.
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

// hooks are functions that a redis client calls instead of sending a command,
// or commands together. send sends them.
type hooks struct {
	command  func(ctx context.Context, cmd redis.Cmder, send func() error) error
	pipeline func(ctx context.Context, send func(context.Context) error) error
}

func (hooks) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h hooks) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	if h.command == nil {
		return next
	}
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h.command(ctx, cmd, func() error { return next(ctx, cmd) })
	}
}

func (h hooks) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	if h.pipeline == nil {
		return next
	}
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return h.pipeline(ctx, func(ctx context.Context) error { return next(ctx, cmds) })
	}
}

// countScripts returns a counter of the scripts that c sends from now on.
func countScripts(c redis.UniversalClient) *atomic.Int64 {
	var n atomic.Int64
	c.AddHook(hooks{command: func(_ context.Context, cmd redis.Cmder, send func() error) error {
		if cmd.Name() == "evalsha" || cmd.Name() == "eval" {
			n.Add(1)
		}
		return send()
	}})
	return &n
}

// leakedGoroutines returns the stacks of goroutines that still run code of
// this package or of its client when they had time to end.
func leakedGoroutines() string {
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		buf := make([]byte, 1<<20)
		stacks := strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")
		var leaked []string
		for _, s := range stacks[1:] {
			if strings.Contains(s, "/llmhttp/redislimit.") || strings.Contains(s, "go-redis") {
				leaked = append(leaked, s)
			}
		}
		if len(leaked) == 0 || time.Now().After(end) {
			return strings.Join(leaked, "\n\n")
		}
	}
}
