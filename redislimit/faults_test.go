package redislimit

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/servertest"
)

// withClients runs test with clients that respect the deadlines of contexts, and with
// clients that do not, which is their default.
func withClients(t *testing.T, test func(t *testing.T, newClient func(s *servertest.Server) *redis.Client)) {
	for name, enabled := range map[string]bool{"ContextTimeoutEnabled": true, "default options": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, func(s *servertest.Server) *redis.Client {
				c := redis.NewClient(&redis.Options{Addr: s.Addr(), ContextTimeoutEnabled: enabled})
				t.Cleanup(func() { _ = c.Close() })
				return c
			})
		})
	}
}

// durable is the configuration of a Redis that keeps all writes that it has acknowledged.
var durable = servertest.Args("--appendonly", "yes", "--appendfsync", "always")

// A Redis that keeps its data is killed and restarted under load. No more requests are
// admitted than without the restart, and later requests are served.
func TestFaults_RedisIsKilled(t *testing.T) {
	t.Parallel()
	withClients(t, func(t *testing.T, newClient func(*servertest.Server) *redis.Client) {
		const holds, workers, kills = 2000, 8, 3
		s := servertest.Redis(t, durable)
		l := newLimiter(t, newClient(s), nil)
		limits := llmhttp.Limits{Requests: slow(holds), Tokens: slow(1 << 20), Concurrent: 1000}
		h := newHandler(l, uniqueKey(), limits, nil)
		var statuses [600]atomic.Int64
		var wg sync.WaitGroup
		done := make(chan struct{})
		for range workers {
			wg.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
					}
					status := chat(h).Code
					statuses[status].Add(1)
					if status != 200 {
						time.Sleep(time.Millisecond) // leaves the CPU to a Redis that starts
					}
				}
			})
		}
		awaitMore := func(status int, n int64) {
			t.Helper()
			want := statuses[status].Load() + n
			eventually(t, func() bool { return statuses[status].Load() >= want }, "more requests are answered")
		}
		for range kills {
			awaitMore(200, 100)
			s.Kill(t)
			awaitMore(503, 20)
			s.Start(t)
		}
		awaitMore(200, 100)
		awaitMore(429, 1) // the bucket is empty
		close(done)
		wg.Wait()
		admitted, refused, failed := statuses[200].Load(), statuses[429].Load(), statuses[503].Load()
		t.Logf("%d admitted of %d, %d refused, %d failed", admitted, holds, refused, failed)
		assert.LessOrEqual(t, admitted, int64(holds))
		assert.GreaterOrEqual(t, admitted, int64(holds-kills*workers), "a kill loses at most the requests in progress")
		var all int64
		for i := range statuses {
			all += statuses[i].Load()
		}
		assert.Equal(t, admitted+refused+failed, all, "requests with other statuses")
	})
}

// If Redis hangs, a few requests wait for the Timeout. Then the circuit breaker opens,
// and requests fail without being sent.
func TestFaults_RedisHangs(t *testing.T) {
	t.Parallel()
	withClients(t, func(t *testing.T, newClient func(*servertest.Server) *redis.Client) {
		s := servertest.Redis(t)
		c := newClient(s)
		l := newLimiter(t, c, &Options{Timeout: 100 * time.Millisecond})
		h := newHandler(l, uniqueKey(), llmhttp.Limits{Requests: slow(1 << 20)}, nil)
		eventually(t, func() bool { return chat(h).Code == 200 }, "Redis answers")

		s.Pause(t)
		l.client.mu.Lock()
		l.client.retryInterval = time.Hour
		l.client.mu.Unlock()
		scripts := countScripts(c)
		for range 100 {
			w := chat(h)
			require.Equal(t, 503, w.Code)
			require.Equal(t, "1", w.Header().Get("Retry-After"))
			require.NotContains(t, w.Body.String(), s.Addr())
		}
		assert.EqualValues(t, failureThreshold, scripts.Load(), "scripts that were sent")

		s.Resume(t)
		assert.Equal(t, 503, chat(h).Code, "the breaker is open until the retry interval has passed")
		l.client.mu.Lock()
		l.client.retryInterval, l.client.retryAt = 0, time.Now()
		l.client.mu.Unlock()
		eventually(t, func() bool { return chat(h).Code == 200 }, "Redis answers again")
	})
}

func TestFaults_ErrorsWithoutAddresses(t *testing.T) {
	t.Parallel()
	withClients(t, func(t *testing.T, newClient func(*servertest.Server) *redis.Client) {
		s := servertest.Redis(t)
		l := newLimiter(t, newClient(s), nil)
		l.client.retryInterval = time.Hour
		s.Kill(t)
		var texts []string
		for range 10 {
			_, err := l.Take(t.Context(), one(uniqueKey(), 1, 1))
			require.Error(t, err)
			assert.NotContains(t, err.Error(), "127.0.0.1")
			texts = append(texts, err.Error())
		}
		assert.Contains(t, texts[0], "redislimit: Redis does not answer: ")
		assert.Contains(t, texts[9], "redislimit: Redis did not answer a moment ago: ")
	})
}

// Fewer consecutive failures than the threshold do not open the circuit breaker.
func TestFaults_SingleFailures(t *testing.T) {
	c := newClient(t, servertest.SharedRedis(t))
	l, key := newLimiter(t, c, nil), uniqueKey()
	var fail atomic.Bool
	c.AddHook(hooks{command: func(_ context.Context, cmd redis.Cmder, send func() error) error {
		if fail.Load() {
			cmd.SetErr(io.ErrUnexpectedEOF)
			return io.ErrUnexpectedEOF
		}
		return send()
	}})
	for range 5 {
		for range failureThreshold - 1 {
			fail.Store(true)
			_, err := l.Take(t.Context(), one(key, 100, 1))
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		}
		fail.Store(false)
		take(t, l, one(key, 100, 1))
	}
}

// A call that ends because its context is done does not count as a failure of Redis.
func TestFaults_CallerGivesUp(t *testing.T) {
	t.Parallel()
	withClients(t, func(t *testing.T, newClient func(*servertest.Server) *redis.Client) {
		s := servertest.Redis(t)
		l, key := newLimiter(t, newClient(s), nil), uniqueKey()
		take(t, l, one(key, 100, 1))
		s.Pause(t)
		for range 2 * failureThreshold {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			_, err := l.Take(ctx, one(key, 100, 1))
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.False(t, errors.As(err, new(*callError)))
		}
		s.Resume(t)
		take(t, l, one(key, 100, 1))
	})
}

// A Take whose context is canceled after Redis received the call still returns what was
// taken.
func TestFaults_CanceledDuringTake(t *testing.T) {
	c, key := newClient(t, servertest.SharedRedis(t)), uniqueKey()
	ctx, cancel := context.WithCancel(t.Context())
	c.AddHook(hooks{command: func(_ context.Context, _ redis.Cmder, next func() error) error {
		cancel()
		return next()
	}})
	l := newLimiter(t, c, &Options{Timeout: 10 * time.Second})
	levels, err := l.Take(ctx, one(key, 10, 4))
	require.NoError(t, err)
	assert.True(t, granted(levels))
	assert.EqualValues(t, 6, remaining(t, l, one(key, 10, 4)))
}

func TestFaults_HookPanics(t *testing.T) {
	c := newClient(t, servertest.SharedRedis(t))
	c.AddHook(hooks{command: func(context.Context, redis.Cmder, func() error) error { panic("boom") }})
	_, err := newLimiter(t, c, nil).Take(t.Context(), one(uniqueKey(), 1, 1))
	assert.ErrorContains(t, err, "panic: boom")
}

// A cutter is a TCP proxy. While cut is set, it closes a connection instead of
// passing an answer on.
type cutter struct {
	net.Listener
	cut  atomic.Bool
	lost atomic.Int64 // answers
}

func newCutter(t *testing.T, addr string) *cutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &cutter{Listener: l}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { p.serve(client, addr, &wg) })
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return p
}

func (p *cutter) serve(client net.Conn, addr string, wg *sync.WaitGroup) {
	defer client.Close()
	server, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer server.Close()
	wg.Go(func() {
		_, _ = io.Copy(server, client)
		server.Close()
	})
	b := make([]byte, 64<<10)
	for {
		n, err := server.Read(b)
		if err != nil {
			return
		}
		if p.cut.Load() {
			p.lost.Add(1)
			return
		}
		if _, err := client.Write(b[:n]); err != nil {
			return
		}
	}
}

// A call whose answer is lost is not repeated, whatever the MaxRetries of the
// client, because Redis may have executed it.
func TestFaults_AnswerIsLost(t *testing.T) {
	p := newCutter(t, servertest.SharedRedis(t).Addr())
	c := redis.NewClient(&redis.Options{Addr: p.Addr().String(), ContextTimeoutEnabled: true, MaxRetries: 5})
	t.Cleanup(func() { _ = c.Close() })
	l, direct, key := newLimiter(t, c, nil), newLimiter(t, nil, nil), uniqueKey()
	take(t, l, one(key, 100, 10))

	p.cut.Store(true)
	_, err := l.Take(t.Context(), one(key, 100, 10))
	require.ErrorIs(t, err, io.EOF)
	p.cut.Store(false)
	require.EqualValues(t, 1, p.lost.Load())
	assert.EqualValues(t, 80, remaining(t, direct, one(key, 100, 0)))

	take(t, l, one(key, 100, 10)) // on a new connection
	p.cut.Store(true)
	require.Error(t, l.Adjust(t.Context(), one(key, 100, -10)))
	p.cut.Store(false)
	require.EqualValues(t, 2, p.lost.Load())
	assert.EqualValues(t, 80, remaining(t, direct, one(key, 100, 0)))
}
