package redislimit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/servertest"
)

// twoSubjects returns a key and an account with draws of 4 tokens of 10 and with slots.
func twoSubjects() (key, account llmhttp.SubjectID, draws []llmhttp.BucketAmount, slots []llmhttp.SlotAmount) {
	key = keySubject(uniqueKey())
	account = llmhttp.SubjectID{Kind: llmhttp.KindAccount, ID: uniqueKey()}
	for _, s := range []llmhttp.SubjectID{key, account} {
		draws = append(draws, llmhttp.BucketAmount{Subject: s, Bucket: "bucket", Rate: slow(10), Amount: 4})
		slots = append(slots, llmhttp.SlotAmount{Subject: s, Name: "slot", Amount: 4, Limit: 10})
	}
	return key, account, draws, slots
}

// inUse returns what is in use of a slot in Redis.
func inUse(t testing.TB, l *Limiter, s llmhttp.SlotAmount) int64 {
	t.Helper()
	reply, err := l.client.run(context.WithoutCancel(t.Context()), leasesScript, []string{slotKey(l.opts.Prefix, s.Subject, s.Name)}, "count", 0)
	require.NoError(t, err)
	n, err := reply.Int64()
	require.NoError(t, err)
	return n
}

// failOn makes c fail instead of sending scripts for a subject with an operation, or with any
// if that is empty, while fails is set. It returns a counter of the calls that failed.
func failOn(c redis.UniversalClient, s llmhttp.SubjectID, operation string, fails *atomic.Bool) *atomic.Int64 {
	var n atomic.Int64
	c.AddHook(hooks{command: func(_ context.Context, cmd redis.Cmder, send func() error) error {
		args := cmd.Args()
		if fails.Load() && strings.Contains(fmt.Sprint(args...), hashTag(s)) && (operation == "" || slices.Contains(args, any(operation))) {
			n.Add(1)
			cmd.SetErr(io.ErrUnexpectedEOF)
			return io.ErrUnexpectedEOF
		}
		return send()
	}})
	return &n
}

// On one node of Redis, a call for several subjects is one script, so that it is atomic.
func TestSubjects_OneScriptOnOneNode(t *testing.T) {
	cluster := newClusterClient(t, servertest.RedisCluster(t, 3)[0])
	for name, l := range map[string]*Limiter{
		"single server":                  newLimiter(t, nil, nil),
		"cluster, prefix with hash tag":  newLimiter(t, cluster, &Options{Prefix: "a{b}c:"}),
		"cluster, prefix with one brace": newLimiter(t, cluster, &Options{Prefix: "a{bc:"}),
	} {
		t.Run(name, func(t *testing.T) {
			wantScripts := int64(1)
			if strings.HasSuffix(name, "one brace") {
				wantScripts = 2
			}
			_, _, draws, slots := twoSubjects()
			require.True(t, granted(take(t, l, draws...))) // sends the scripts if Redis does not have them
			release, _, err := l.Acquire(t.Context(), slots...)
			require.NoError(t, err)
			release()
			scripts := countScripts(l.client.redis)
			require.True(t, granted(take(t, l, draws...)))
			assert.Equal(t, wantScripts, scripts.Swap(0), "Take")
			require.NoError(t, l.Adjust(t.Context(), draws...))
			assert.Equal(t, wantScripts, scripts.Swap(0), "Adjust")
			release, _, err = l.Acquire(t.Context(), slots...)
			require.NoError(t, err)
			assert.Equal(t, wantScripts, scripts.Swap(0), "Acquire")
			release()
			for _, s := range slots {
				assert.Zero(t, inUse(t, l, s))
			}
		})
	}
}

// On a cluster, a subject after one that refuses is not asked, and those before get back what
// was taken before the call returns.
func TestSubjects_LaterOneRefuses(t *testing.T) {
	t.Parallel()
	l := newLimiter(t, newClusterClient(t, servertest.RedisCluster(t, 3)[0]), nil)
	for range 20 { // so that some subjects are on different nodes
		_, account, draws, slots := twoSubjects()
		full := one("", 10, 10)
		full.Subject = account
		require.True(t, granted(take(t, l, full)))
		last := llmhttp.BucketAmount{Subject: keySubject(uniqueKey()), Bucket: "bucket", Rate: slow(10), Amount: 4}
		levels := take(t, l, append(draws, last)...)
		assert.Equal(t, llmhttp.BucketLevel{Remaining: 10}, levels[0])
		assert.Positive(t, levels[1].RetryAfter)
		assert.Equal(t, llmhttp.BucketLevel{Unknown: true}, levels[2])
		assert.EqualValues(t, 10, remaining(t, l, draws[0]))
		assert.EqualValues(t, 10, remaining(t, l, last))

		release, _, err := l.Acquire(t.Context(), llmhttp.SlotAmount{Subject: account, Name: "slot", Amount: 7, Limit: 10})
		require.NoError(t, err)
		refused, full1, err := l.Acquire(t.Context(), slots...)
		require.NoError(t, err)
		require.Nil(t, refused)
		assert.Equal(t, 1, full1)
		assert.Zero(t, inUse(t, l, slots[0]))
		assert.EqualValues(t, 7, inUse(t, l, slots[1]))
		release()
		assert.Zero(t, inUse(t, l, slots[1]))
	}
}

// If the node of a later subject fails, the subjects before get back what was taken.
func TestSubjects_LaterOneFails(t *testing.T) {
	t.Parallel()
	nodes := servertest.RedisCluster(t, 3)
	for name, fallback := range map[string]llmhttp.Limiter{"no Fallback": nil, "Fallback": llmhttp.NewLimiter()} {
		t.Run(name, func(t *testing.T) {
			c := newClusterClient(t, nodes[0])
			l := newLimiter(t, c, &Options{Fallback: fallback})
			_, account, draws, slots := twoSubjects()
			var fails atomic.Bool
			fails.Store(true)
			failed := failOn(c, account, "", &fails)

			levels, err := l.Take(t.Context(), draws...)
			if fallback == nil {
				require.ErrorIs(t, err, io.ErrUnexpectedEOF)
			} else {
				require.NoError(t, err)
				assert.EqualValues(t, 6, levels[0].Remaining, "in the Fallback")
			}
			assert.EqualValues(t, 10, remaining(t, l, draws[0]), "in Redis")

			err = l.Adjust(t.Context(), draws[1], draws[0])
			if fallback == nil {
				require.ErrorIs(t, err, io.ErrUnexpectedEOF)
			} else {
				require.NoError(t, err)
				d := draws[1]
				d.Amount = 0
				assert.EqualValues(t, 2, take(t, fallback, d)[0].Remaining)
			}
			assert.EqualValues(t, 6, remaining(t, l, draws[0]), "the other subject is adjusted")

			release, _, err := l.Acquire(t.Context(), slots...)
			if fallback == nil {
				require.ErrorIs(t, err, io.ErrUnexpectedEOF)
				assert.Zero(t, inUse(t, l, slots[0]))
			} else {
				require.NoError(t, err)
				require.NotNil(t, release)
				slots[1].Amount = 7
				refused, full, err := l.Acquire(t.Context(), slots...)
				require.NoError(t, err)
				require.Nil(t, refused)
				assert.Equal(t, 1, full)
				assert.EqualValues(t, 4, inUse(t, l, slots[0]), "that of the first call")
				release()
			}
			assert.Positive(t, failed.Load())
			fails.Store(false)
			eventually(t, l.leases.idle, "leases are removed")
			for _, s := range slots {
				assert.Zero(t, inUse(t, l, s))
			}
		})
	}
}

// A Take whose tokens cannot be given back is refused nevertheless, and logged.
func TestSubjects_NotGivenBack(t *testing.T) {
	t.Parallel()
	c := newClusterClient(t, servertest.RedisCluster(t, 3)[0])
	var log logBuffer
	l := newLimiter(t, c, &Options{Logger: log.logger()})
	key, account, draws, _ := twoSubjects()
	full := one("", 10, 10)
	full.Subject = account
	require.True(t, granted(take(t, l, full)))
	var fails atomic.Bool
	fails.Store(true)
	failed := failOn(c, key, "adjust", &fails)
	assert.Positive(t, take(t, l, draws...)[1].RetryAfter)
	assert.EqualValues(t, 1, failed.Load())
	assert.Contains(t, log.String(), "tokens are not given back")
	assert.EqualValues(t, 6, remaining(t, l, draws[0]))
}

// Tokens are given back even if the client has left.
func TestSubjects_CanceledDuringTake(t *testing.T) {
	t.Parallel()
	c := newClusterClient(t, servertest.RedisCluster(t, 3)[0])
	l := newLimiter(t, c, &Options{Timeout: 10 * time.Second})
	_, account, draws, _ := twoSubjects()
	full := one("", 10, 10)
	full.Subject = account
	require.True(t, granted(take(t, l, full)))
	ctx, cancel := context.WithCancel(t.Context())
	c.AddHook(hooks{command: func(_ context.Context, _ redis.Cmder, next func() error) error {
		cancel()
		return next()
	}})
	levels, err := l.Take(ctx, draws...)
	require.NoError(t, err)
	assert.False(t, granted(levels))
	assert.EqualValues(t, 10, remaining(t, l, draws[0]))
}

// Amounts of leases that expire, that are restored and that are renewed add up.
func TestLeases_Amounts(t *testing.T) {
	c := newClient(t, servertest.SharedRedis(t))
	l, other := newLimiter(t, c, nil), newLimiter(t, c, nil)
	_, _, _, slots := twoSubjects()
	slot := slots[0]
	name := slotKey(l.opts.Prefix, slot.Subject, slot.Name)
	acquire := func(l *Limiter, amount int64) (release func()) {
		t.Helper()
		release, _, err := l.Acquire(t.Context(), llmhttp.SlotAmount{Subject: slot.Subject, Name: slot.Name, Amount: amount, Limit: 100})
		require.NoError(t, err)
		require.NotNil(t, release)
		return release
	}
	two, three := acquire(l, 2), acquire(l, 3)
	acquire(other, 40) // is not renewed
	assert.EqualValues(t, 45, inUse(t, l, slot))
	l.leases.renew()
	assert.EqualValues(t, 45, inUse(t, l, slot), "a renewal adds nothing")

	for _, z := range c.ZRangeWithScores(t.Context(), name, 0, -1).Val() {
		if strings.HasSuffix(z.Member.(string), ":40") {
			z.Score = 1
			require.NoError(t, c.ZAddXX(t.Context(), name, z).Err())
		}
	}
	assert.EqualValues(t, 5, inUse(t, l, slot), "a lease has expired")
	other.leases.renew()
	assert.EqualValues(t, 45, inUse(t, l, slot), "it is restored")
	require.NoError(t, c.Del(t.Context(), name).Err())
	l.leases.renew()
	assert.EqualValues(t, 5, inUse(t, l, slot), "Redis has lost all")
	two()
	two()
	assert.EqualValues(t, 3, inUse(t, l, slot))
	require.NoError(t, l.Close())
	assert.Zero(t, c.Exists(t.Context(), name).Val())
	three()
	require.NoError(t, other.Close())
	assert.Zero(t, c.Exists(t.Context(), name).Val())
}

// An Acquire that fails because Redis is out of memory changes nothing, and leases can be
// released meanwhile.
func TestLeases_OutOfMemory(t *testing.T) {
	t.Parallel()
	c := newClient(t, servertest.Redis(t))
	l := newLimiter(t, c, nil)
	_, _, _, slots := twoSubjects()
	release, _, err := l.Acquire(t.Context(), slots...)
	require.NoError(t, err)
	require.NoError(t, c.ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err())
	require.NoError(t, c.ConfigSet(t.Context(), "maxmemory", "1").Err())
	_, _, err = l.Acquire(t.Context(), slots...)
	require.ErrorContains(t, err, "OOM")
	require.False(t, errors.Is(err, context.Canceled))
	assert.EqualValues(t, 4, inUse(t, l, slots[0]))
	release()
	for _, s := range slots {
		assert.Zero(t, inUse(t, l, s))
	}
}
