package redislimit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
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
	"github.com/llmhttp/llmhttp/llmhttptest"
)

func TestMain(m *testing.M) {
	if os.Getenv(hostVariable) != "" {
		os.Exit(runHost())
	}
	status := m.Run()
	servertest.Close()
	if left := leaked(); left != "" {
		fmt.Fprintf(os.Stderr, "goroutines are left:\n%s\n", left)
		status = 1
	}
	os.Exit(status)
}

func TestLimiter(t *testing.T) {
	t.Parallel()
	llmhttptest.TestLimiter(t, func(t testing.TB) llmhttp.Limiter { return newLimiter(t, nil, nil) })
}

// A client as its package makes it by default, too, keeps to a Limiter's time.
func TestLimiterOnCluster(t *testing.T) {
	t.Parallel()
	s := servertest.Redis(t, servertest.Cluster())
	llmhttptest.TestLimiter(t, func(t testing.TB) llmhttp.Limiter { return newLimiter(t, newCluster(t, s), nil) })
}

func newCluster(t testing.TB, s *servertest.Server) *redis.ClusterClient {
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.Addr()}})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestLimiterOnRing(t *testing.T) {
	t.Parallel()
	addrs := map[string]string{"a": servertest.Redis(t).Addr(), "b": servertest.Redis(t).Addr()}
	llmhttptest.TestLimiter(t, func(t testing.TB) llmhttp.Limiter {
		c := redis.NewRing(&redis.RingOptions{Addrs: addrs, ContextTimeoutEnabled: true})
		t.Cleanup(func() { _ = c.Close() })
		return newLimiter(t, c, nil)
	})
}

func TestNewPanics(t *testing.T) {
	assert.PanicsWithValue(t, "redislimit: nil client", func() { New(nil, nil) })
	c := redis.NewClient(&redis.Options{})
	defer c.Close()
	assert.Panics(t, func() { New(c, &Options{Prefix: "a{}b:"}) })
	assert.NotPanics(t, func() { New(c, &Options{Prefix: "{a}b:"}) })
}

// Buckets of one key share a slot, whatever it is called.
func TestKeys(t *testing.T) {
	t.Parallel()
	s := servertest.Redis(t, servertest.Cluster())
	c := newCluster(t, s)
	groups := []string{"plain", "", "}", "{", "{}", "}{", "a}b", "{a}", "a{b}c", `\`, `\}`, `\\`, "a:b", ":", "{a", "{a}:", "/"}
	for _, prefix := range []string{"", "{app}:", "a{b:", "}x:"} {
		l := newLimiter(t, c, &Options{Prefix: prefix})
		for _, group := range groups {
			var draws []llmhttp.Draw
			for i, rest := range []string{":", ":requests", ":to}kens", ":{quota}"} {
				draws = append(draws, llmhttp.Draw{Bucket: group + rest, Rate: slow(10), Cost: i + 1})
			}
			require.True(t, granted(take(t, l, draws...)), "%q", group)
			for i, d := range draws {
				assert.Equal(t, 9-i, remaining(t, l, d), "%q", d.Bucket)
			}
			release, err := l.Acquire(t.Context(), group+":", 1)
			require.NoError(t, err)
			require.NotNil(t, release, "%q", group)
			defer release()
		}
	}
}

// hashTag returns what a cluster looks at to find the slot of a key.
func hashTag(key string) string {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			return tag
		}
	}
	return key
}

// No two buckets have the same key, and those of one group have a hash tag in
// common.
func FuzzKeys(f *testing.F) {
	names := []string{"k:requests", "k:tokens", "k", "", ":", ":a", "}:a", "}", "{}:a", "{", `\:a`, `\}:a`, "a}b:c", "a}:b:c", "a}/:b", "a/:b", "{a}:b", "{a}/:b"}
	for _, a := range names {
		for _, b := range names {
			f.Add(a, b)
		}
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		groupA, restA := split(a)
		groupB, restB := split(b)
		keys := []string{tag(groupA) + restA, tag(groupA) + "/" + restA, tag(groupB) + restB, tag(groupB) + "/" + restB}
		assert.Equal(t, a == b, keys[0] == keys[2])
		assert.Equal(t, a == b, keys[1] == keys[3])
		assert.NotEqual(t, keys[0], keys[3])
		assert.NotEqual(t, keys[1], keys[2])
		assert.NotEqual(t, keys[0], keys[1])
		for i, key := range keys {
			assert.NotEqual(t, key, hashTag(key), "it has a tag")
			if groupA == groupB {
				assert.Equal(t, hashTag(keys[0]), hashTag(keys[i]))
			}
		}
	})
}

func TestDifferentGroups(t *testing.T) {
	l := newLimiter(t, nil, nil)
	draws := []llmhttp.Draw{{Bucket: "one:requests", Rate: slow(1), Cost: 1}, {Bucket: "two:requests", Rate: slow(1), Cost: 1}}
	_, err := l.Take(t.Context(), draws...)
	assert.ErrorContains(t, err, `draws on "one:requests" and "two:requests"`)
	assert.Error(t, l.Adjust(t.Context(), draws...))
	assert.Equal(t, 1, remaining(t, l, draws[0]))

	// That is no trouble of Redis's.
	l = newLimiter(t, nil, &Options{Fallback: FailOpen()})
	_, err = l.Take(t.Context(), draws...)
	assert.Error(t, err)
}

// A bucket that is drawn on twice has to hold both costs.
func TestSameBucketTwice(t *testing.T) {
	l := newLimiter(t, nil, nil)
	d := llmhttp.Draw{Bucket: unique(), Rate: slow(10), Cost: 6}
	levels := take(t, l, d, d)
	assert.Zero(t, levels[0].RetryAfter)
	assert.Equal(t, duration(-1), levels[1].RetryAfter)
	assert.Equal(t, 10, levels[1].Remaining)
	d.Cost = 5
	levels = take(t, l, d, d)
	assert.True(t, granted(levels))
	assert.Equal(t, []int{0, 0}, []int{levels[0].Remaining, levels[1].Remaining})
	require.NoError(t, l.Adjust(t.Context(), llmhttp.Draw{Bucket: d.Bucket, Rate: d.Rate, Cost: -3}, llmhttp.Draw{Bucket: d.Bucket, Rate: d.Rate, Cost: 1}))
	assert.Equal(t, 2, remaining(t, l, d))
}

// A rate that is meant as no limit does not overflow.
func TestHuge(t *testing.T) {
	for _, n := range []int{math.MaxInt, math.MaxInt - 1, 1 << 60, 1 << 53} {
		l := newLimiter(t, nil, nil)
		d := llmhttp.Draw{Bucket: unique(), Rate: llmhttp.PerMinute(n), Cost: 1000}
		for range 3 {
			level := take(t, l, d)[0]
			assert.Zero(t, level.RetryAfter)
			assert.Greater(t, level.Remaining, n/2)
			assert.Less(t, level.ResetAfter, time.Minute)
		}
		for _, cost := range []int{math.MaxInt, -math.MaxInt} {
			d.Cost = cost
			require.NoError(t, l.Adjust(t.Context(), d))
		}
		assert.Greater(t, remaining(t, l, d), n/2)
	}
}

// A clock that goes back neither fills a bucket nor keeps it from filling.
func TestClockGoesBack(t *testing.T) {
	l := newLimiter(t, nil, nil)
	now := time.Now().UnixMicro()
	l.now = func() int64 { return now }
	d := llmhttp.Draw{Bucket: unique(), Rate: llmhttp.Rate{N: 60, Per: time.Hour}, Cost: 60}
	require.True(t, granted(take(t, l, d)))
	now -= (10 * time.Hour).Microseconds()
	assert.Equal(t, 0, remaining(t, l, d))
	now += (5 * time.Minute).Microseconds()
	assert.Equal(t, 5, remaining(t, l, d))
}

// A bucket is kept until it is full, and not longer.
func TestExpiry(t *testing.T) {
	c := newClient(t, servertest.SharedRedis(t))
	l := newLimiter(t, c, &Options{Prefix: "expiry:"})
	group := unique()
	key := func(rest string) string { return "expiry:" + tag(group) + rest }
	ttl := func(rest string) time.Duration { return c.PTTL(t.Context(), key(rest)).Val() }
	exists := func(rest string) bool { return c.Exists(t.Context(), key(rest)).Val() == 1 }

	at := llmhttp.Draw{Bucket: group + ":slow", Rate: llmhttp.Rate{N: 10, Per: time.Hour}}
	take(t, l, at)
	assert.False(t, exists(":slow"), "to ask stores nothing")
	at.Cost = 5
	take(t, l, at)
	assert.InDelta(t, 30*time.Minute, ttl(":slow"), float64(time.Minute))
	at.Cost = 15
	require.NoError(t, l.Adjust(t.Context(), at))
	assert.InDelta(t, 2*time.Hour, ttl(":slow"), float64(time.Minute), "a debt is kept, too")
	at.Rate, at.Cost = llmhttp.Rate{N: 10, Per: 10 * time.Hour}, 0
	take(t, l, at)
	assert.InDelta(t, 20*time.Hour, ttl(":slow"), float64(10*time.Minute), "at its new rate")
	at.Cost = -20
	require.NoError(t, l.Adjust(t.Context(), at))
	assert.False(t, exists(":slow"), "it is full")

	// What is never full again is kept for long, but not for ever.
	never := llmhttp.Draw{Bucket: group + ":never", Rate: llmhttp.Rate{N: -1}, Cost: 1}
	require.NoError(t, l.Adjust(t.Context(), never))
	assert.Greater(t, ttl(":never"), 300*24*time.Hour)

	fast := llmhttp.Draw{Bucket: group + ":fast", Rate: llmhttp.Rate{N: 10, Per: 300 * time.Millisecond}, Cost: 10}
	require.True(t, granted(take(t, l, fast)))
	eventually(t, "its end", func() bool { return !exists(":fast") })
	assert.True(t, granted(take(t, l, fast)), "and it is full")
}

// Each call is a round trip, and to be refused writes nothing.
func TestRoundTrips(t *testing.T) {
	c := newClient(t, servertest.SharedRedis(t))
	l := newLimiter(t, c, nil)
	group := unique()
	draws := []llmhttp.Draw{
		{Bucket: group + ":requests", Rate: slow(10), Cost: 1}, {Bucket: group + ":tokens", Rate: slow(10), Cost: 1},
		{Bucket: group + ":quota", Rate: slow(10), Cost: 1},
	}
	take(t, l, draws...) // Redis knows the script after that, at the latest
	var n counter
	c.AddHook(&n)
	for range 3 {
		require.True(t, granted(take(t, l, draws...)))
		require.NoError(t, l.Adjust(t.Context(), draws...))
	}
	assert.EqualValues(t, 6, n.n.Load())
	draws[1].Cost = 10
	require.False(t, granted(take(t, l, draws...)))
	assert.EqualValues(t, 7, n.n.Load())

	// Where the scripts are lost it takes one more, once.
	require.NoError(t, c.ScriptFlush(t.Context()).Err())
	n.n.Store(0)
	for range 3 {
		take(t, l, draws...)
	}
	assert.EqualValues(t, 4, n.n.Load())
}

func TestCancelled(t *testing.T) {
	c := newClient(t, servertest.SharedRedis(t))
	l := newLimiter(t, c, &Options{Fallback: FailOpen()})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var n counter
	c.AddHook(&n)
	d := llmhttp.Draw{Bucket: unique(), Rate: slow(10), Cost: 1}
	_, err := l.Take(ctx, d)
	assert.ErrorIs(t, err, context.Canceled)
	assert.ErrorIs(t, l.Adjust(ctx, d), context.Canceled)
	_, err = l.Acquire(ctx, d.Bucket, 1)
	assert.ErrorIs(t, err, context.Canceled)
	assert.Zero(t, n.n.Load())
}

// What Redis refuses is told, and is not asked of it less often.
func TestRefusal(t *testing.T) {
	c := newClient(t, servertest.SharedRedis(t))
	l := newLimiter(t, c, nil)
	d := llmhttp.Draw{Bucket: unique(), Rate: slow(10), Cost: 1}
	group, rest := split(d.Bucket)
	key := "llmhttp:" + tag(group) + rest
	require.NoError(t, c.Set(t.Context(), key, "no bucket", 0).Err())
	var n counter
	c.AddHook(&n)
	for range 10 {
		_, err := l.Take(t.Context(), d)
		require.ErrorContains(t, err, "redislimit: Redis refuses: ")
	}
	assert.EqualValues(t, 10, n.n.Load())
	require.NoError(t, c.Del(t.Context(), key).Err())
	assert.True(t, granted(take(t, l, d)))
}

// A Redis that must not write, as it is a replica or has no memory left, refuses
// at once what would be written, and does so no longer than that lasts.
func TestNoWrites(t *testing.T) {
	s := servertest.Redis(t)
	c := newClient(t, s)
	l := newLimiter(t, c, nil)
	d := llmhttp.Draw{Bucket: unique(), Rate: slow(10), Cost: 1}
	group, _ := split(d.Bucket)
	other := llmhttp.Draw{Bucket: group + ":other", Rate: slow(10), Cost: 1}
	take(t, l, d)
	require.NoError(t, c.ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err())
	left := 9
	for want, change := range map[string][2]func() error{
		"READONLY": {
			func() error { return c.ReplicaOf(t.Context(), "127.0.0.1", "1").Err() },
			func() error { return c.ReplicaOf(t.Context(), "NO", "ONE").Err() },
		},
		"OOM": {
			func() error { return c.ConfigSet(t.Context(), "maxmemory", "1").Err() },
			func() error { return c.ConfigSet(t.Context(), "maxmemory", "0").Err() },
		},
	} {
		require.NoError(t, change[0]())
		for range 2 * patience {
			_, err := l.Take(t.Context(), d, other)
			require.ErrorContains(t, err, "redislimit: Redis refuses: "+want)
			require.ErrorContains(t, l.Adjust(t.Context(), d), "redislimit: Redis refuses: "+want)
		}
		require.NoError(t, change[1]())
		take(t, l, d, other)
		left--
		assert.Equal(t, left, remaining(t, l, d))
		assert.Equal(t, left+1, remaining(t, l, other), "nothing was taken of one alone")
	}
}

// Scripts that are lost under load cost no more than another round trip.
func TestScriptsLost(t *testing.T) {
	s := servertest.Redis(t)
	l, admin := newLimiter(t, newClient(t, s), nil), newClient(t, s)
	const holds = 500
	d := llmhttp.Draw{Bucket: unique(), Rate: slow(holds), Cost: 1}
	var admitted atomic.Int64
	var flushing, taking sync.WaitGroup
	done := make(chan struct{})
	flushing.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				assert.NoError(t, admin.ScriptFlush(context.WithoutCancel(t.Context())).Err())
			}
		}
	})
	for range 8 {
		taking.Go(func() {
			for range holds / 4 {
				levels, err := l.Take(t.Context(), d)
				if assert.NoError(t, err) && granted(levels) {
					admitted.Add(1)
				}
			}
		})
	}
	taking.Wait()
	close(done)
	flushing.Wait()
	assert.EqualValues(t, holds, admitted.Load())
}

// Names are bytes.
func TestHostileNames(t *testing.T) {
	l := newLimiter(t, nil, nil)
	names := []string{"\x00", "a\x00b", "\xff\xfe", "\r\n*1\r\n$8\r\nFLUSHALL\r\n", "'", "\"", "]]", strings.Repeat("x", 1<<20), strings.Repeat("x", 1<<20) + "y"}
	id := unique()
	for _, name := range names {
		d := llmhttp.Draw{Bucket: id + name + ":b" + name, Rate: slow(10), Cost: 4}
		assert.Equal(t, 6, take(t, l, d)[0].Remaining, "%.20q", name)
		assert.Equal(t, 6, remaining(t, l, d))
		release := mustAcquire(t, l, d.Bucket, 1)
		_, ok := acquire(t, l, d.Bucket, 1)
		assert.False(t, ok)
		release()
	}
}

// Errors name neither hosts nor addresses.
func TestDescribe(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{&net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 6379}, Err: os.NewSyscallError("connect", errors.New("connection refused"))}, "dial: connect: connection refused"},
		{fmt.Errorf("wrapped with 10.1.2.3: %w", &net.OpError{Op: "read", Err: errors.New("reset")}), "read: reset"},
		{&net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "redis.internal", Server: "10.1.2.3:53"}}, "dial: no such host"},
		{errors.New("MOVED 3999 10.1.2.3:6381"), "MOVED"},
		{errors.New("LOADING Redis is loading the dataset in memory"), "LOADING Redis is loading the dataset in memory"},
	} {
		assert.Equal(t, tt.want, describe(tt.err))
	}
}
