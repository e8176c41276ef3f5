package redislimit

import (
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/servertest"
)

func TestFallback_DecidesWhileRedisIsUnavailable(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fallback llmhttp.Limiter
		admitted int // of ten
	}{
		"NewLimiter": {llmhttp.NewLimiter(), 4},
		"FailOpen":   {FailOpen(), 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log logBuffer
			s := servertest.Redis(t, durable)
			l, key := newLimiter(t, newClient(t, s), &Options{Fallback: tt.fallback, Logger: log.logger()}), uniqueKey()
			limits := llmhttp.Limits{Requests: slow(4), Tokens: slow(1 << 20), Concurrent: 1}
			h := newHandler(l, key, limits, nil)
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
			assert.Contains(t, log.String(), "the fallback limits")
			assert.NotContains(t, log.String(), s.Addr())

			s.Start(t)
			eventually(t, func() bool {
				d := llmhttp.BucketAmount{Subject: keySubject(key), Bucket: llmhttp.BucketRequests, Rate: limits.Requests}
				levels, err := l.Take(t.Context(), d)
				return err == nil && levels[0].Remaining == 3
			}, "Redis decides again")
			assert.Contains(t, log.String(), "Redis answers again")
			for range 3 {
				assert.Equal(t, 200, chat(h).Code)
			}
			assert.Equal(t, 429, chat(h).Code)
		})
	}
}

// With a Fallback, a process counts its own requests in progress while Redis is
// unavailable. They are added to Redis when it answers again.
func TestFallback_CountsRequestsInProgress(t *testing.T) {
	t.Parallel()
	s := servertest.Redis(t)
	l, key := newLimiter(t, newClient(t, s), &Options{Fallback: FailOpen()}), uniqueKey()
	first := mustAcquire(t, l, key, 2)
	s.Kill(t)
	second := mustAcquire(t, l, key, 2)
	mustNotAcquire(t, l, key, 2)
	first()
	third := mustAcquire(t, l, key, 2)
	s.Start(t)
	eventually(t, func() bool {
		l.leases.renew() // the timer would, too, but later
		return leaseCount(t, l, key) == 2
	}, "Redis has both leases")
	second()
	third()
	eventually(t, l.leases.idle, "the leases are removed")
	assert.Zero(t, leaseCount(t, l, key))
}

// Concurrent Acquires without Redis are not granted beyond the limit.
func TestFallback_ConcurrentAcquires(t *testing.T) {
	t.Parallel()
	s := servertest.Redis(t)
	l, key := newLimiter(t, newClient(t, s), &Options{Fallback: FailOpen()}), uniqueKey()
	s.Kill(t)
	var acquired atomic.Int64
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			release, _, err := l.Acquire(t.Context(), requests(key, 5))
			assert.NoError(t, err)
			if release != nil {
				acquired.Add(1)
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, 5, acquired.Load())
	s.Start(t)
}

func TestFailOpen(t *testing.T) {
	l := FailOpen()
	const key = "key"
	nothing := llmhttp.BucketAmount{Subject: keySubject(key), Bucket: "bucket", Rate: llmhttp.Rate{N: -1}, Amount: 1}
	assert.Equal(t, []llmhttp.BucketLevel{{Remaining: 7}, {Remaining: 5}}, take(t, l, one(key, 10, 3), one(key, 5, 0)))
	for _, d := range []llmhttp.BucketAmount{nothing, one(key, 10, 11)} {
		levels := take(t, l, d, one(key, 5, 1))
		assert.Equal(t, []llmhttp.BucketLevel{{Remaining: int64(d.Rate.WithDefaults().Burst), RetryAfter: duration(-1)}, {Remaining: 5}}, levels)
	}
	nothing.Amount = 0
	assert.True(t, granted(take(t, l, nothing)))
	assert.NoError(t, l.Adjust(t.Context(), one(key, 1, 5)))
}

func TestOutageLog_SkipsFrequentFailures(t *testing.T) {
	var log logBuffer
	o := outageLog{logger: log.logger()}
	o.failed(t.Context(), "failure", io.EOF)
	o.next = time.Now().Add(time.Hour)
	for range 999 {
		o.failed(t.Context(), "failure", io.EOF)
	}
	assert.Equal(t, 1, strings.Count(log.String(), "\n"))
	o.next = time.Time{}
	o.failed(t.Context(), "failure", io.EOF)
	assert.Contains(t, log.String(), "skipped=999")
	o.answered(t.Context())
	o.answered(t.Context())
	assert.Equal(t, 3, strings.Count(log.String(), "\n"))
}
