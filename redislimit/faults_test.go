package redislimit

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
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

// clients are those that heed deadlines of contexts and those that do not,
// which is what they do by default.
func clients(t *testing.T, test func(t *testing.T, newClient func(s *servertest.Server) *redis.Client)) {
	for name, heed := range map[string]bool{"heeds": true, "default": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, func(s *servertest.Server) *redis.Client {
				c := redis.NewClient(&redis.Options{Addr: s.Addr(), ContextTimeoutEnabled: heed})
				t.Cleanup(func() { _ = c.Close() })
				return c
			})
		})
	}
}

// durable has a Redis keep all that it has answered, whenever it is killed.
var durable = servertest.Args("--appendonly", "yes", "--appendfsync", "always")

// Redis is killed and started again under load. One that keeps what it has
// admits no more for it, and all are served again.
func TestKill(t *testing.T) {
	t.Parallel()
	clients(t, func(t *testing.T, newClient func(*servertest.Server) *redis.Client) {
		const holds = 3000
		s := servertest.Redis(t, durable)
		l := newLimiter(t, newClient(s), &Options{Timeout: 5 * time.Second, Logger: new(logBuffer).logger()})
		id := unique()
		limits := llmhttp.Limits{Requests: slow(holds), Tokens: slow(1 << 20), Concurrent: 1000}
		h := newHandler(l, id, limits, nil)
		var statuses [600]atomic.Int64
		var wg sync.WaitGroup
		done := make(chan struct{})
		for range 8 {
			wg.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
						statuses[chat(h).Code].Add(1)
					}
				}
			})
		}
		progress := func(status int, n int64) {
			t.Helper()
			at := statuses[status].Load() + n
			eventually(t, "progress", func() bool { return statuses[status].Load() >= at })
		}
		for range 3 {
			progress(200, 200)
			s.Kill(t)
			progress(503, 20)
			s.Start(t)
		}
		progress(200, 200)
		progress(429, 1) // until nothing is left
		close(done)
		wg.Wait()
		admitted := statuses[200].Load()
		t.Logf("%d admitted of %d, %d lost with their answers; %d refused, %d refused because Redis was away",
			admitted, holds, holds-admitted, statuses[429].Load(), statuses[503].Load())
		assert.LessOrEqual(t, admitted, int64(holds))
		assert.GreaterOrEqual(t, admitted, int64(holds-3*8), "each kill loses at most what was under way")
		assert.Equal(t, admitted+statuses[429].Load()+statuses[503].Load(), total(&statuses), "no other status")
	})
}

func total(statuses *[600]atomic.Int64) (n int64) {
	for i := range statuses {
		n += statuses[i].Load()
	}
	return n
}

// A Redis that hangs costs the first requests a Timeout, and then next to
// nothing. When it goes on, so do they.
func TestHang(t *testing.T) {
	t.Parallel()
	clients(t, func(t *testing.T, newClient func(*servertest.Server) *redis.Client) {
		const timeout, calls = time.Second, 200
		s := servertest.Redis(t)
		l := newLimiter(t, newClient(s), &Options{Timeout: timeout})
		h := newHandler(l, unique(), llmhttp.Limits{Requests: slow(1 << 20)}, nil)
		require.Equal(t, 200, chat(h).Code)

		s.Pause(t)
		began := time.Now()
		for range calls {
			require.Less(t, time.Since(began), calls*timeout/8)
			w := chat(h)
			require.Equal(t, 503, w.Code)
			require.Equal(t, "1", w.Header().Get("Retry-After"))
			require.NotContains(t, w.Body.String(), s.Addr())
		}
		took := time.Since(began)
		t.Logf("%d requests took %v, where each would take %v", calls, took, timeout)

		s.Resume(t)
		eventually(t, "an answer", func() bool { return chat(h).Code == 200 })
		for range 20 {
			require.Equal(t, 200, chat(h).Code)
		}
	})
}

// Errors of a Redis that is away say so, and not where it is.
func TestAwayError(t *testing.T) {
	t.Parallel()
	clients(t, func(t *testing.T, newClient func(*servertest.Server) *redis.Client) {
		s := servertest.Redis(t)
		l := newLimiter(t, newClient(s), &Options{Timeout: 2 * time.Second})
		s.Kill(t)
		var texts []string
		for range 10 {
			_, err := l.Take(t.Context(), llmhttp.Draw{Bucket: unique(), Rate: slow(1), Cost: 1})
			require.Error(t, err)
			assert.NotContains(t, err.Error(), "127.0.0.1")
			texts = append(texts, err.Error())
		}
		assert.Contains(t, texts[0], "redislimit: Redis does not answer: ")
		assert.Contains(t, texts[9], "redislimit: Redis did not answer a moment ago: ")
	})
}

// A single failure does not have the calls after it fail.
func TestMoment(t *testing.T) {
	c := newClient(t, servertest.SharedRedis(t))
	l := newLimiter(t, c, nil)
	var fail atomic.Bool
	c.AddHook(processHook(func(next redis.ProcessHook) redis.ProcessHook {
		return func(ctx context.Context, cmd redis.Cmder) error {
			if fail.Load() {
				cmd.SetErr(io.ErrUnexpectedEOF)
				return io.ErrUnexpectedEOF
			}
			return next(ctx, cmd)
		}
	}))
	d := llmhttp.Draw{Bucket: unique(), Rate: slow(100), Cost: 1}
	for range 5 {
		for range patience - 1 {
			fail.Store(true)
			_, err := l.Take(t.Context(), d)
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		}
		fail.Store(false)
		take(t, l, d)
	}
}

// A client whose caller gave up is no sign that Redis is away.
func TestImpatientCallers(t *testing.T) {
	t.Parallel()
	clients(t, func(t *testing.T, newClient func(*servertest.Server) *redis.Client) {
		s := servertest.Redis(t)
		l := newLimiter(t, newClient(s), nil)
		d := llmhttp.Draw{Bucket: unique(), Rate: slow(100), Cost: 1}
		take(t, l, d)
		s.Pause(t)
		for range 2 * patience {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			_, err := l.Take(ctx, d)
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.False(t, errors.As(err, new(*failure)))
		}
		s.Resume(t)
		take(t, l, d)
	})
}

type processHook func(next redis.ProcessHook) redis.ProcessHook

func (processHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h processHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return h(next) }

func (processHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A hook that panics fails its call only.
func TestHookPanics(t *testing.T) {
	c := redis.NewClient(&redis.Options{Addr: servertest.SharedRedis(t).Addr()})
	defer c.Close()
	c.AddHook(processHook(func(redis.ProcessHook) redis.ProcessHook {
		return func(context.Context, redis.Cmder) error { panic("boom") }
	}))
	_, err := newLimiter(t, c, nil).Take(t.Context(), llmhttp.Draw{Bucket: unique(), Rate: slow(1), Cost: 1})
	assert.ErrorContains(t, err, "panic: boom")
}

// A cutter is a proxy that can lose answers: it closes the connection when one
// comes.
type cutter struct {
	net.Listener
	cut  atomic.Bool
	lost atomic.Int64
}

func newCutter(t *testing.T, to string) *cutter {
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
			wg.Go(func() {
				defer client.Close()
				server, err := net.Dial("tcp", to)
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
			})
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return p
}

// Where an answer is lost, Redis may have done what it was asked: it is not
// asked again.
func TestLostAnswers(t *testing.T) {
	s := servertest.SharedRedis(t)
	p := newCutter(t, s.Addr())
	c := redis.NewClient(&redis.Options{Addr: p.Addr().String(), ContextTimeoutEnabled: true, MaxRetries: 5})
	t.Cleanup(func() { _ = c.Close() })
	l, direct := newLimiter(t, c, nil), newLimiter(t, nil, nil)
	d := llmhttp.Draw{Bucket: unique(), Rate: slow(100), Cost: 10}
	take(t, l, d)

	p.cut.Store(true)
	_, err := l.Take(t.Context(), d)
	require.ErrorIs(t, err, io.EOF)
	p.cut.Store(false)
	require.EqualValues(t, 1, p.lost.Load())
	assert.Equal(t, 80, remaining(t, direct, d))

	take(t, l, d) // on a new connection
	p.cut.Store(true)
	d.Cost = -10
	require.Error(t, l.Adjust(t.Context(), d))
	p.cut.Store(false)
	require.EqualValues(t, 2, p.lost.Load())
	assert.Equal(t, 80, remaining(t, direct, d))
}

// As long as Redis is away the Fallback limits, and the log says so once.
func TestFallback(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fallback llmhttp.Limiter
		admitted int // of ten
	}{
		"local": {llmhttp.NewLimiter(), 4},
		"open":  {FailOpen(), 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log logBuffer
			s := servertest.Redis(t, durable)
			l := newLimiter(t, newClient(t, s), &Options{Timeout: 2 * time.Second, Fallback: tt.fallback, Logger: log.logger()})
			id := unique()
			limits := llmhttp.Limits{Requests: slow(4), Tokens: slow(1 << 20), Concurrent: 1}
			h := newHandler(l, id, limits, nil)
			require.Equal(t, 200, chat(h).Code)
			require.Empty(t, log.String())

			s.Kill(t)
			admitted := 0
			for range 10 {
				switch w := chat(h); w.Code {
				case 200:
					admitted++
				default:
					require.Equal(t, 429, w.Code)
				}
			}
			assert.Equal(t, tt.admitted, admitted)
			assert.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
			assert.Contains(t, log.String(), "the fallback limits")
			assert.NotContains(t, log.String(), s.Addr())

			s.Start(t)
			d := llmhttp.Draw{Bucket: id + ":requests", Rate: limits.Requests}
			eventually(t, "Redis", func() bool {
				levels, err := l.Take(t.Context(), d)
				return err == nil && levels[0].Remaining == 3
			})
			assert.Contains(t, log.String(), "Redis answers again")
			for range 3 {
				assert.Equal(t, 200, chat(h).Code)
			}
			assert.Equal(t, 429, chat(h).Code)
		})
	}
}

// With a Fallback, a process counts its own requests in progress while Redis
// is away, and tells Redis of them when it is back.
func TestFallbackInProgress(t *testing.T) {
	t.Parallel()
	s := servertest.Redis(t)
	l := newLimiter(t, newClient(t, s), &Options{
		Timeout: 2 * time.Second, Fallback: FailOpen(), Lease: 3 * time.Second, Logger: new(logBuffer).logger(),
	})
	bucket := unique()
	first := mustAcquire(t, l, bucket, 2)
	s.Kill(t)
	second := mustAcquire(t, l, bucket, 2)
	_, ok := acquire(t, l, bucket, 2)
	assert.False(t, ok)
	first()
	third := mustAcquire(t, l, bucket, 2)
	s.Start(t)
	eventually(t, "two leases", func() bool { return leasesIn(t, s, bucket) == 2 })
	second()
	third()
	eventually(t, "none", func() bool { return leasesIn(t, s, bucket) == 0 && l.leases.idle() })
}

func TestFailOpen(t *testing.T) {
	l := FailOpen()
	at := func(r llmhttp.Rate, cost int) llmhttp.Draw { return llmhttp.Draw{Bucket: "k:b", Rate: r, Cost: cost} }
	nothing := llmhttp.Rate{N: -1}
	assert.Equal(t, []llmhttp.Level{{Remaining: 7}, {Remaining: 5}}, take(t, l, at(slow(10), 3), at(slow(5), 0)))
	for _, d := range []llmhttp.Draw{at(nothing, 1), at(slow(10), 11)} {
		levels := take(t, l, d, at(slow(5), 1))
		assert.Equal(t, []llmhttp.Level{{Remaining: d.Rate.WithDefaults().Burst, RetryAfter: duration(-1)}, {Remaining: 5}}, levels)
	}
	assert.True(t, granted(take(t, l, at(nothing, 0))))
	assert.NoError(t, l.Adjust(t.Context(), at(slow(1), 5)))
}

// What goes wrong all the time is logged now and then.
func TestTrouble(t *testing.T) {
	var log logBuffer
	var tr trouble
	for range 1000 {
		tr.log(t.Context(), log.logger(), "trouble", io.EOF)
	}
	assert.Equal(t, 1, strings.Count(log.String(), "\n"))
	tr.next = time.Now()
	tr.log(t.Context(), log.logger(), "trouble", io.EOF)
	assert.Contains(t, log.String(), "skipped=999")
	tr.ended(t.Context(), log.logger())
	tr.ended(t.Context(), log.logger())
	assert.Equal(t, 3, strings.Count(log.String(), "\n"))
}
