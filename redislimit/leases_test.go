package redislimit

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/internal/servertest"
)

// acquire acquires, and reports whether it was granted.
func acquire(t testing.TB, l *Limiter, bucket string, limit int) (release func(), ok bool) {
	t.Helper()
	release, err := l.Acquire(t.Context(), bucket, limit)
	require.NoError(t, err)
	return release, release != nil
}

func mustAcquire(t testing.TB, l *Limiter, bucket string, limit int) (release func()) {
	t.Helper()
	release, ok := acquire(t, l, bucket, limit)
	require.True(t, ok)
	return release
}

// leasesIn returns how many leases of a bucket there are, expired or not.
func leasesIn(t testing.TB, s *servertest.Server, bucket string) int {
	t.Helper()
	n, err := newClient(t, s).ZCard(t.Context(), leaseKey(bucket)).Result()
	require.NoError(t, err)
	return int(n)
}

func leaseKey(bucket string) string {
	group, rest := split(bucket)
	return "llmhttp:" + tag(group) + "/" + rest
}

// idle reports whether nothing is held or due, nor about to be sent.
func (s *leases) idle() bool {
	s.renewing.Lock() // while it goes on, what was due is not there any more
	defer s.renewing.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next.IsZero() && len(s.held) == 0 && len(s.due) == 0
}

// What is held is renewed, by nothing that runs when nothing is held.
func TestLeasesAreRenewed(t *testing.T) {
	t.Parallel()
	s := servertest.SharedRedis(t)
	l, other := newLimiter(t, nil, &Options{Lease: 3 * time.Second}), newLimiter(t, nil, nil)
	bucket := unique()
	var releases []func()
	for range 3 {
		releases = append(releases, mustAcquire(t, l, bucket, 3))
	}
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		_, ok := acquire(t, other, bucket, 3)
		require.False(t, ok)
	}
	for _, release := range releases {
		release()
	}
	eventually(t, "rest", l.leases.idle) // which a renewal keeps from it
	mustAcquire(t, other, bucket, 1)()
	assert.Zero(t, leasesIn(t, s, bucket))
}

// One that is released while it is renewed does not outlive it.
func TestReleaseWhileRenewing(t *testing.T) {
	s := servertest.SharedRedis(t)
	c := newClient(t, s)
	l := newLimiter(t, c, &Options{Lease: time.Hour})
	bucket := unique()
	release := mustAcquire(t, l, bucket, 1)
	c.AddHook(pipelineHook(func(send func() error) error {
		release() // after the list of what is to be renewed was made
		return send()
	}))
	l.renew()
	assert.Zero(t, leasesIn(t, s, bucket))
	assert.True(t, l.leases.idle())
}

// Nor does one whose renewal comes when it seemed to have failed.
func TestReleaseAfterFailedRenewal(t *testing.T) {
	s := servertest.SharedRedis(t)
	c := newClient(t, s)
	l := newLimiter(t, c, &Options{Lease: time.Hour})
	bucket := unique()
	first, second := mustAcquire(t, l, bucket, 2), mustAcquire(t, l, bucket, 2)
	calls := 0
	var renew func() error
	c.AddHook(pipelineHook(func(send func() error) error {
		switch calls++; calls {
		case 1:
			renew = send
			first()
			return errors.New("no answer")
		case 2: // to give back the first
			second()
			err := send()
			return errors.Join(err, renew())
		}
		return send()
	}))
	l.renew()
	eventually(t, "rest", l.leases.idle)
	assert.Zero(t, leasesIn(t, s, bucket))
	assert.GreaterOrEqual(t, calls, 3)
}

// A pipelineHook is called to send commands together.
type pipelineHook func(send func() error) error

func (pipelineHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (pipelineHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (h pipelineHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return h(func() error { return next(context.WithoutCancel(ctx), cmds) })
	}
}

// Those that a Redis has forgotten are there again when they are renewed.
func TestLeasesOutlastRedis(t *testing.T) {
	t.Parallel()
	s := servertest.Redis(t)
	l := newLimiter(t, newClient(t, s), &Options{Lease: time.Second, Timeout: 2 * time.Second, Logger: new(logBuffer).logger()})
	bucket := unique()
	release := mustAcquire(t, l, bucket, 1)
	defer release()
	s.Kill(t)
	s.Start(t)
	eventually(t, "the lease", func() bool { return leasesIn(t, s, bucket) == 1 })
	_, ok := acquire(t, l, bucket, 1)
	assert.False(t, ok)
}

// One that cannot be given back at once is as soon as Redis is back.
func TestReleaseWhileAway(t *testing.T) {
	t.Parallel()
	s := servertest.Redis(t, durable)
	var log logBuffer
	l := newLimiter(t, newClient(t, s), &Options{Timeout: 2 * time.Second, Logger: log.logger()})
	bucket := unique()
	release := mustAcquire(t, l, bucket, 1)
	s.Kill(t)
	release()
	_, err := l.Acquire(t.Context(), bucket, 1)
	require.Error(t, err)
	eventually(t, "a line of log", func() bool { return log.String() != "" })
	assert.Contains(t, log.String(), "leases are not renewed")
	s.Start(t)
	eventually(t, "its return", func() bool { return leasesIn(t, s, bucket) == 0 })
	eventually(t, "rest", l.leases.idle)
	assert.Contains(t, log.String(), "Redis answers again")
	assert.NotContains(t, log.String(), s.Addr())
	mustAcquire(t, l, bucket, 1)()
}

// A Redis that answers too late may have made a lease all the same. It is
// given back, and not only after Options.Lease.
func TestAcquireTooLate(t *testing.T) {
	t.Parallel()
	s := servertest.Redis(t)
	l := newLimiter(t, newClient(t, s), &Options{Timeout: 2 * time.Second, Lease: time.Hour, Logger: new(logBuffer).logger()})
	bucket := unique()
	mustAcquire(t, l, bucket, 1)()
	s.Pause(t)
	_, err := l.Acquire(t.Context(), bucket, 1)
	require.ErrorContains(t, err, "Redis does not answer")
	s.Resume(t)
	eventually(t, "its return", func() bool { return leasesIn(t, s, bucket) == 0 && l.leases.idle() })
	eventually(t, "another", func() bool {
		release, err := l.Acquire(t.Context(), bucket, 1)
		if err != nil || release == nil {
			return false
		}
		release()
		return true
	})
}

func TestClose(t *testing.T) {
	s := servertest.SharedRedis(t)
	l := newLimiter(t, nil, nil)
	buckets := []string{unique(), unique()}
	var releases []func()
	for _, bucket := range buckets {
		for range 700 { // more than are given back at a time
			releases = append(releases, mustAcquire(t, l, bucket, 700))
		}
	}
	require.NoError(t, l.Close())
	for _, bucket := range buckets {
		assert.Zero(t, leasesIn(t, s, bucket))
	}
	for _, release := range releases {
		release()
	}
	_, err := l.Acquire(t.Context(), buckets[0], 1)
	assert.ErrorIs(t, err, errClosed)
	assert.NoError(t, l.Close())
}

// Many leases are renewed, in pieces.
func TestManyLeases(t *testing.T) {
	s := servertest.SharedRedis(t)
	l := newLimiter(t, nil, nil)
	one := unique()
	var many []string
	for range 700 {
		mustAcquire(t, l, one, 700)
		many = append(many, unique())
		mustAcquire(t, l, many[len(many)-1], 1)
	}
	c := newClient(t, s)
	require.NoError(t, c.Del(t.Context(), leaseKey(one)).Err())
	for _, bucket := range many {
		require.NoError(t, c.Del(t.Context(), leaseKey(bucket)).Err())
	}
	l.renew()
	assert.Equal(t, 700, leasesIn(t, s, one))
	for _, bucket := range many {
		require.Equal(t, int64(1), c.ZCard(t.Context(), leaseKey(bucket)).Val())
	}
}
