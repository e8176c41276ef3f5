package redislimit

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/servertest"
)

// requests returns the slot of a request in progress.
func requests(key string, limit int64) llmhttp.SlotAmount {
	return llmhttp.SlotAmount{Subject: keySubject(key), Name: llmhttp.SlotConcurrent, Amount: 1, Limit: limit}
}

func mustAcquire(t testing.TB, l *Limiter, key string, limit int64) (release func()) {
	t.Helper()
	release, _, err := l.Acquire(t.Context(), requests(key, limit))
	require.NoError(t, err)
	require.NotNil(t, release)
	return release
}

func mustNotAcquire(t testing.TB, l *Limiter, key string, limit int64) {
	t.Helper()
	release, _, err := l.Acquire(t.Context(), requests(key, limit))
	require.NoError(t, err)
	require.Nil(t, release)
}

// leasesKey returns the name in Redis of the leases of a key.
func (l *Limiter) leasesKey(key string) string {
	return slotKey(l.opts.Prefix, keySubject(key), llmhttp.SlotConcurrent)
}

// leaseCount returns the number of leases of key in Redis, expired or not.
func leaseCount(t testing.TB, l *Limiter, key string) int {
	t.Helper()
	n, err := l.client.redis.ZCount(context.WithoutCancel(t.Context()), l.leasesKey(key), "(0", "+inf").Result()
	require.NoError(t, err)
	return int(n)
}

// Concurrent counts the leases of all processes that have not expired.
func TestLeases_Concurrent(t *testing.T) {
	t.Parallel()
	c := newClient(t, servertest.SharedRedis(t))
	key := uniqueKey()
	one, two := newLimiter(t, c, nil), newLimiter(t, c, nil)
	assertCount := func(want int64) {
		t.Helper()
		n, err := one.Concurrent(t.Context(), keySubject(key))
		require.NoError(t, err)
		assert.Equal(t, want, n)
	}
	assertCount(0)
	release := mustAcquire(t, one, key, 5)
	mustAcquire(t, two, key, 5)
	assertCount(2)
	release()
	assertCount(1)
	mustAcquire(t, two, key, 5)
	expired := c.ZRange(t.Context(), one.leasesKey(key), -1, -1).Val()
	require.NoError(t, c.ZAddXX(t.Context(), one.leasesKey(key), redis.Z{Score: 1, Member: expired[0]}).Err())
	assertCount(1)
}

// expiries returns when the leases of key expire, in milliseconds.
func expiries(t testing.TB, l *Limiter, key string) (list []float64) {
	t.Helper()
	leases, err := l.client.redis.ZRangeByScoreWithScores(t.Context(), l.leasesKey(key), &redis.ZRangeBy{Min: "(0", Max: "+inf"}).Result()
	require.NoError(t, err)
	for _, e := range leases {
		list = append(list, e.Score)
	}
	return list
}

// idle reports whether there is nothing to renew or remove.
func (s *leases) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.renewing && s.next.IsZero() && len(s.held) == 0 && len(s.toRemove) == 0
}

func TestLeases_AreRenewed(t *testing.T) {
	t.Parallel()
	l, key := newLimiter(t, nil, &Options{Lease: time.Hour}), uniqueKey()
	require.Equal(t, 20*time.Minute, l.leases.interval)
	l.leases.interval = 10 * time.Millisecond
	var releases []func()
	for range 3 {
		releases = append(releases, mustAcquire(t, l, key, 3))
	}
	first := expiries(t, l, key)
	require.Len(t, first, 3)
	for range 2 {
		eventually(t, func() bool {
			latest := expiries(t, l, key)
			require.Len(t, latest, 3)
			for _, e := range latest {
				if e <= first[2] {
					return false
				}
			}
			first = latest
			return true
		}, "all leases are renewed")
	}
	for _, release := range releases {
		release()
	}
	eventually(t, l.leases.idle, "the timer stops")
	assert.Zero(t, leaseCount(t, l, key))
}

func TestLeases_Expire(t *testing.T) {
	t.Parallel()
	l, key := newLimiter(t, nil, nil), uniqueKey()
	// acquire acquires like a process that dies afterwards.
	acquire := func(milliseconds int) {
		_, err := l.client.run(t.Context(), leasesScript, []string{l.leasesKey(key)}, "renew", milliseconds, "lease:1")
		require.NoError(t, err)
	}
	acquire(600_000)
	mustNotAcquire(t, l, key, 1)
	acquire(1)
	eventually(t, func() bool {
		release, _, err := l.Acquire(t.Context(), requests(key, 1))
		require.NoError(t, err)
		if release != nil {
			release()
		}
		return release != nil
	}, "the lease expires")
}

// A lease that is released while it is renewed is not left in Redis.
func TestLeases_ReleaseDuringRenewal(t *testing.T) {
	c := newClient(t, servertest.SharedRedis(t))
	l, key := newLimiter(t, c, &Options{Lease: time.Hour}), uniqueKey()
	release := mustAcquire(t, l, key, 1)
	c.AddHook(hooks{pipeline: func(ctx context.Context, send func(context.Context) error) error {
		release()
		return send(ctx)
	}})
	l.leases.renew()
	eventually(t, l.leases.idle, "the lease is removed")
	assert.Zero(t, leaseCount(t, l, key))
}

// A lease that was released after a failed renewal is not left in Redis, even if Redis
// executes the renewal late.
func TestLeases_ReleaseAfterFailedRenewal(t *testing.T) {
	c := newClient(t, servertest.SharedRedis(t))
	l, key := newLimiter(t, c, &Options{Lease: time.Hour}), uniqueKey()
	first, second := mustAcquire(t, l, key, 2), mustAcquire(t, l, key, 2)
	calls := 0
	var renew func() error
	c.AddHook(hooks{pipeline: func(ctx context.Context, send func(context.Context) error) error {
		calls++
		switch calls {
		case 1:
			renew = func() error { return send(context.WithoutCancel(ctx)) }
			first()
			return errors.New("no answer")
		case 2: // removes the first
			second()
			return errors.Join(send(ctx), renew())
		}
		return send(ctx)
	}})
	l.leases.renew()
	eventually(t, l.leases.idle, "the leases are removed")
	assert.Zero(t, leaseCount(t, l, key))
	assert.GreaterOrEqual(t, calls, 3)
}

func TestLeases_RestoredAfterRedisLostThem(t *testing.T) {
	t.Parallel()
	s := servertest.Redis(t)
	l, key := newLimiter(t, newClient(t, s), &Options{Lease: 5 * time.Minute}), uniqueKey()
	defer mustAcquire(t, l, key, 1)()
	s.Kill(t)
	s.Start(t)
	eventually(t, func() bool {
		l.leases.renew() // the timer would, too, but later
		return leaseCount(t, l, key) == 1
	}, "the lease is restored")
	mustNotAcquire(t, l, key, 1)
}

// A lease that is released while Redis is unavailable is removed when Redis answers
// again.
func TestLeases_ReleaseWhileRedisIsUnavailable(t *testing.T) {
	t.Parallel()
	s := servertest.Redis(t, durable)
	var log logBuffer
	l, key := newLimiter(t, newClient(t, s), &Options{Logger: log.logger()}), uniqueKey()
	release := mustAcquire(t, l, key, 1)
	s.Kill(t)
	release()
	_, _, err := l.Acquire(t.Context(), requests(key, 1))
	require.Error(t, err)
	eventually(t, func() bool { return log.String() != "" }, "a warning is logged")
	assert.Contains(t, log.String(), "leases are not renewed")
	s.Start(t)
	eventually(t, l.leases.idle, "the lease is removed")
	assert.Zero(t, leaseCount(t, l, key))
	assert.Contains(t, log.String(), "Redis answers again")
	assert.NotContains(t, log.String(), s.Addr())
	mustAcquire(t, l, key, 1)()
}

// Redis may execute an Acquire that it answers too late. Its lease is removed
// before it expires.
func TestLeases_AcquireTimesOut(t *testing.T) {
	t.Parallel()
	s := servertest.Redis(t)
	c := newClient(t, s)
	l, key := newLimiter(t, c, nil), uniqueKey()
	hasty := newLimiter(t, c, &Options{Timeout: 50 * time.Millisecond, Lease: time.Hour})
	mustAcquire(t, l, key, 1)()
	s.Pause(t)
	_, _, err := hasty.Acquire(t.Context(), requests(key, 1))
	require.ErrorContains(t, err, "Redis does not answer")
	s.Resume(t)
	eventually(t, func() bool { return hasty.leases.idle() && leaseCount(t, l, key) == 0 }, "the lease is removed")
	mustAcquire(t, l, key, 1)()
}

func TestLeases_CloseRemovesThem(t *testing.T) {
	l, other := newLimiter(t, nil, nil), newLimiter(t, nil, nil)
	keys := []string{uniqueKey(), uniqueKey()}
	var releases []func()
	for _, key := range keys {
		for range batchSize + 200 {
			releases = append(releases, mustAcquire(t, l, key, batchSize+200))
		}
	}
	require.NoError(t, l.Close())
	for _, key := range keys {
		assert.Zero(t, leaseCount(t, other, key))
	}
	for _, release := range releases {
		release()
	}
	_, _, err := l.Acquire(t.Context(), requests(keys[0], 1))
	assert.ErrorIs(t, err, errClosed)
	assert.NoError(t, l.Close())
}

// More leases than fit in a batch, of one key and of many, are all renewed.
func TestLeases_RenewalInBatches(t *testing.T) {
	const n = batchSize + 200
	c := newClient(t, servertest.SharedRedis(t))
	l, key := newLimiter(t, c, nil), uniqueKey()
	var keys []string
	for range n {
		mustAcquire(t, l, key, n)
		keys = append(keys, uniqueKey())
		mustAcquire(t, l, keys[len(keys)-1], 1)
	}
	for _, k := range append(keys, key) {
		require.NoError(t, c.Del(t.Context(), l.leasesKey(k)).Err())
	}
	l.leases.renew()
	assert.Equal(t, n, leaseCount(t, l, key))
	for _, key := range keys {
		require.Equal(t, 1, leaseCount(t, l, key))
	}
}
