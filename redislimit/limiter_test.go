package redislimit

import (
	"context"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/servertest"
	"github.com/llmhttp/llmhttp/llmhttptest/limitertest"
)

func TestMain(m *testing.M) {
	if os.Getenv(hostVariable) != "" {
		os.Exit(runHost())
	}
	logging.Disable() // of the redis client
	status := m.Run()
	servertest.Close()
	if leaked := leakedGoroutines(); leaked != "" {
		fmt.Fprintf(os.Stderr, "goroutines are left:\n%s\n", leaked)
		status = 1
	}
	os.Exit(status)
}

func TestLimiter(t *testing.T) {
	t.Parallel()
	limitertest.TestLimiter(t, func(t testing.TB) llmhttp.Limiter { return newLimiter(t, nil, nil) })
}

// The cluster client has the default options, without ContextTimeoutEnabled.
func TestLimiter_OnCluster(t *testing.T) {
	t.Parallel()
	nodes := servertest.RedisCluster(t, 3)
	limitertest.TestLimiter(t, func(t testing.TB) llmhttp.Limiter { return newLimiter(t, newClusterClient(t, nodes[0]), nil) })
	for _, s := range nodes {
		c := redis.NewClient(&redis.Options{Addr: s.Addr()})
		defer c.Close()
		stats := c.InfoMap(t.Context(), "commandstats").Item("Commandstats", "cmdstat_evalsha")
		assert.NotEmpty(t, stats, "a node that has no keys")
	}
}

// After a restart of a killed node, keys of all nodes are served.
func TestLimiter_OnClusterWhoseNodeRestarts(t *testing.T) {
	t.Parallel()
	nodes := servertest.RedisCluster(t, 3)
	l := newLimiter(t, newClusterClient(t, nodes[0]), &Options{Timeout: 10 * time.Second})
	take := func(key string) (err error) {
		_, err = l.Take(t.Context(), one(key, 10, 1))
		return err
	}
	for i := range 30 {
		require.NoError(t, take(strconv.Itoa(i)))
	}
	nodes[2].Kill(t)
	nodes[2].Start(t)
	for i := range 30 {
		require.EventuallyWithT(t, func(c *assert.CollectT) { require.NoError(c, take(strconv.Itoa(i))) }, time.Minute, 10*time.Millisecond)
	}
}

func newClusterClient(t testing.TB, s *servertest.Server) *redis.ClusterClient {
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.Addr()}})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestLimiter_OnRing(t *testing.T) {
	t.Parallel()
	addrs := map[string]string{"a": servertest.Redis(t).Addr(), "b": servertest.Redis(t).Addr()}
	limitertest.TestLimiter(t, func(t testing.TB) llmhttp.Limiter {
		c := redis.NewRing(&redis.RingOptions{Addrs: addrs, ContextTimeoutEnabled: true})
		t.Cleanup(func() { _ = c.Close() })
		return newLimiter(t, c, nil)
	})
}

func TestNew_Invalid(t *testing.T) {
	_, err := New(nil, nil)
	assert.EqualError(t, err, "redislimit: nil client")
	_, err = New((*redis.Client)(nil), nil)
	assert.EqualError(t, err, "redislimit: nil client")
	c := redis.NewClient(&redis.Options{})
	defer c.Close()
	_, err = New(c, &Options{Prefix: "a{}b:"})
	assert.EqualError(t, err, "redislimit: Options.Prefix has an empty hash tag")
	_, err = New(c, &Options{Fallback: (*Limiter)(nil)})
	assert.EqualError(t, err, "redislimit: Options.Fallback holds a nil *redislimit.Limiter")
	_, err = New(c, &Options{Prefix: "{a}b:"})
	assert.NoError(t, err)
}

func TestOptions_Defaults(t *testing.T) {
	for _, tt := range []struct{ give, want Options }{
		{Options{}, Options{Prefix: "llmhttp:", Timeout: 250 * time.Millisecond, Lease: 30 * time.Second}},
		{Options{Prefix: "p", Timeout: time.Hour, Lease: time.Hour}, Options{Prefix: "p", Timeout: time.Hour, Lease: time.Hour}},
		{Options{Timeout: -1, Lease: -1}, Options{Prefix: "llmhttp:", Timeout: forever, Lease: forever}},
		{Options{Timeout: 1, Lease: 1}, Options{Prefix: "llmhttp:", Timeout: 1, Lease: time.Second}},
	} {
		tt.give.setDefaults()
		assert.NotNil(t, tt.give.Logger)
		tt.give.Logger = nil
		assert.Equal(t, tt.want, tt.give)
	}
}

func TestLimiter_WithoutTimeoutAndExpiry(t *testing.T) {
	c := newClient(t, servertest.SharedRedis(t))
	l := newLimiter(t, c, &Options{Timeout: -1, Lease: -1})
	key := uniqueKey()
	assert.True(t, granted(take(t, l, one(key, 1, 1))))
	release := mustAcquire(t, l, key, 1)
	assert.Greater(t, c.PTTL(t.Context(), l.leasesKey(key)).Val(), 10*365*24*time.Hour)
	release()
	assert.Zero(t, leaseCount(t, l, key))
}

// A cluster refuses a script whose names are on different nodes.
func TestLimiter_BucketsOfAKeyShareASlot(t *testing.T) {
	t.Parallel()
	s := servertest.Redis(t, servertest.Cluster())
	c := newClusterClient(t, s)
	keys := []string{"plain", "", "}", "{", "{}", "}{", "a}b", "{a}", "a{b}c", `\`, "%", "%7D", "a:b", ":", "{a", "{a}:", "/"}
	for _, prefix := range []string{"", "{app}:", "a{b:", "}x:"} {
		l := newLimiter(t, c, &Options{Prefix: prefix})
		for _, key := range keys {
			var draws []llmhttp.BucketAmount
			for i, bucket := range []string{"", "requests", "to}kens", "{quota}"} {
				draws = append(draws, llmhttp.BucketAmount{Subject: keySubject(key), Bucket: bucket, Rate: slow(10), Amount: int64(i + 1)})
			}
			require.True(t, granted(take(t, l, draws...)), "key %q", key)
			for i, d := range draws {
				assert.EqualValues(t, 9-i, remaining(t, l, d), "bucket %q of key %q", d.Bucket, key)
			}
			defer mustAcquire(t, l, key, 1)()
		}
	}
}

// clusterTag returns the part of a name by which a cluster finds its slot.
func clusterTag(name string) string {
	if _, rest, ok := strings.Cut(name, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			return tag
		}
	}
	return name
}

// FuzzNames checks that different buckets and slots have different names in Redis, and
// that all names of a subject have the same hash tag.
func FuzzNames(f *testing.F) {
	seeds := []string{"k", "", ":", ":a", "}:a", "}", "{}", "{", "a}b", "a}:b", "a}/concurrent", "a", "b}:c", "%", "%25", "%2F", "/concurrent", "concurrent", "/a", "k/a", "\x00", " "}
	for _, a := range seeds {
		for _, b := range seeds {
			f.Add("key", a, b, "key", b, a)
			f.Add("key", a, b, "key", a, a)
			f.Add("key", a, b, "account", a, b)
			f.Add(a, b, "tokens", b, a, "tokens")
			f.Add(a, b, "tokens", a+b, "", "tokens")
		}
	}
	f.Fuzz(func(t *testing.T, kindA, idA, nameA, kindB, idB, nameB string) {
		a, b := llmhttp.SubjectID{Kind: kindA, ID: idA}, llmhttp.SubjectID{Kind: kindB, ID: idB}
		names := []string{
			hashTag(a) + ":" + nameA, slotKey("", a, nameA),
			hashTag(b) + ":" + nameB, slotKey("", b, nameB),
		}
		same := a == b && nameA == nameB
		assert.Equal(t, same, names[0] == names[2])
		assert.Equal(t, same, names[1] == names[3])
		for _, bucket := range []string{names[0], names[2]} {
			for _, slot := range []string{names[1], names[3]} {
				assert.NotEqual(t, bucket, slot)
			}
		}
		for i, name := range names {
			assert.NotEqual(t, name, clusterTag(name), "no hash tag")
			assert.Equal(t, clusterTag(names[i|1]), clusterTag(name))
		}
		assert.Equal(t, a == b, clusterTag(names[0]) == clusterTag(names[2]))
	})
}

func TestLimiter_HugeRatesDoNotOverflow(t *testing.T) {
	for _, n := range []int{math.MaxInt, math.MaxInt - 1, min(1<<60, math.MaxInt), min(1<<53, math.MaxInt)} {
		l, key := newLimiter(t, nil, nil), uniqueKey()
		d := llmhttp.BucketAmount{Subject: keySubject(key), Bucket: "bucket", Rate: llmhttp.PerMinute(n), Amount: 1000}
		for range 3 {
			level := take(t, l, d)[0]
			assert.Zero(t, level.RetryAfter)
			assert.Greater(t, level.Remaining, int64(n/2))
			assert.Less(t, level.ResetAfter, time.Minute)
		}
		for _, cost := range []int64{math.MaxInt64, -math.MaxInt64} {
			d.Amount = cost
			require.NoError(t, l.Adjust(t.Context(), d))
		}
		assert.Greater(t, remaining(t, l, d), int64(n/2))
	}
}

// A clock that is set back neither fills a bucket nor stops its refill.
func TestLimiter_ClockSetBack(t *testing.T) {
	l, key := newLimiter(t, nil, nil), uniqueKey()
	now := time.Now().UnixMicro()
	l.now = func() int64 { return now }
	d := llmhttp.BucketAmount{Subject: keySubject(key), Bucket: "bucket", Rate: llmhttp.Rate{N: 60, Per: time.Hour}, Amount: 60}
	require.True(t, granted(take(t, l, d)))
	now -= (10 * time.Hour).Microseconds()
	assert.EqualValues(t, 0, remaining(t, l, d))
	now += (5 * time.Minute).Microseconds()
	assert.EqualValues(t, 5, remaining(t, l, d))
}

// A bucket expires in Redis when it is full.
func TestLimiter_BucketExpiry(t *testing.T) {
	c := newClient(t, servertest.SharedRedis(t))
	l, key := newLimiter(t, c, &Options{Prefix: "expiry:"}), uniqueKey()
	name := func(bucket string) string { return "expiry:{key/" + key + "}:" + bucket }
	expiry := func(bucket string) time.Duration { return c.PTTL(t.Context(), name(bucket)).Val() }
	exists := func(bucket string) bool { return c.Exists(t.Context(), name(bucket)).Val() == 1 }

	d := llmhttp.BucketAmount{Subject: keySubject(key), Bucket: "slow", Rate: llmhttp.Rate{N: 10, Per: time.Hour}}
	take(t, l, d)
	assert.False(t, exists("slow"), "a peek stores nothing")
	d.Amount = 5
	take(t, l, d)
	assert.InDelta(t, 30*time.Minute, expiry("slow"), float64(3*time.Minute))
	d.Amount = 15
	require.NoError(t, l.Adjust(t.Context(), d))
	assert.InDelta(t, 2*time.Hour, expiry("slow"), float64(3*time.Minute), "a bucket in debt")
	d.Rate, d.Amount = llmhttp.Rate{N: 10, Per: 10 * time.Hour}, 0
	take(t, l, d)
	assert.InDelta(t, 20*time.Hour, expiry("slow"), float64(30*time.Minute), "a bucket with a new rate")
	d.Amount = -20
	require.NoError(t, l.Adjust(t.Context(), d))
	assert.False(t, exists("slow"), "a full bucket is not stored")

	d = llmhttp.BucketAmount{Subject: keySubject(key), Bucket: "never", Rate: llmhttp.Rate{N: -1}, Amount: 1}
	require.NoError(t, l.Adjust(t.Context(), d))
	assert.Greater(t, expiry("never"), 300*24*time.Hour, "a bucket that is never full")

	d = llmhttp.BucketAmount{Subject: keySubject(key), Bucket: "fast", Rate: llmhttp.Rate{N: 10, Per: 300 * time.Millisecond}, Amount: 10}
	require.True(t, granted(take(t, l, d)))
	eventually(t, func() bool { return !exists("fast") }, "the bucket expires")
	assert.True(t, granted(take(t, l, d)), "a bucket that expired is full")
}

func TestLimiter_OneRoundTripPerCall(t *testing.T) {
	c := newClient(t, servertest.SharedRedis(t))
	l, key := newLimiter(t, c, nil), uniqueKey()
	draws := []llmhttp.BucketAmount{
		one(key, 10, 1), bucketOf(key, "tokens", 10, 1), bucketOf(key, "quota", 10, 1),
	}
	take(t, l, draws...) // sends the script if Redis does not have it
	scripts := countScripts(c)
	for range 3 {
		require.True(t, granted(take(t, l, draws...)))
		require.NoError(t, l.Adjust(t.Context(), draws...))
	}
	assert.EqualValues(t, 6, scripts.Load())
	draws[1].Amount = 10
	require.False(t, granted(take(t, l, draws...)))
	assert.EqualValues(t, 7, scripts.Load())

	require.NoError(t, c.ScriptFlush(t.Context()).Err())
	scripts.Store(0)
	for range 3 {
		take(t, l, draws...)
	}
	assert.EqualValues(t, 4, scripts.Load(), "one more call sends the script again")
}

func TestLimiter_CancelledContextSendsNothing(t *testing.T) {
	c := newClient(t, servertest.SharedRedis(t))
	l, key := newLimiter(t, c, &Options{Fallback: FailOpen()}), uniqueKey()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	scripts := countScripts(c)
	_, err := l.Take(ctx, one(key, 10, 1))
	assert.ErrorIs(t, err, context.Canceled)
	assert.ErrorIs(t, l.Adjust(ctx, one(key, 10, 1)), context.Canceled)
	_, _, err = l.Acquire(ctx, requests(key, 1))
	assert.ErrorIs(t, err, context.Canceled)
	assert.Zero(t, scripts.Load())
}

// An error that Redis returns does not open the circuit breaker.
func TestLimiter_RefusedByRedis(t *testing.T) {
	c := newClient(t, servertest.SharedRedis(t))
	l, key := newLimiter(t, c, nil), uniqueKey()
	name := "llmhttp:{key/" + key + "}:bucket"
	require.NoError(t, c.Set(t.Context(), name, "not a bucket", 0).Err())
	scripts := countScripts(c)
	for range 10 {
		_, err := l.Take(t.Context(), one(key, 10, 1))
		require.ErrorContains(t, err, "redislimit: Redis refuses: ")
	}
	assert.EqualValues(t, 10, scripts.Load())
	require.NoError(t, c.Del(t.Context(), name).Err())
	assert.True(t, granted(take(t, l, one(key, 10, 1))))
}

// If Redis does not write, because it is a replica or out of memory, calls fail only as
// long as that lasts, and take from no bucket.
func TestLimiter_RedisDoesNotWrite(t *testing.T) {
	s := servertest.Redis(t)
	c := newClient(t, s)
	l, key := newLimiter(t, c, nil), uniqueKey()
	d := one(key, 10, 1)
	other := llmhttp.BucketAmount{Subject: keySubject(key), Bucket: "other", Rate: slow(10), Amount: 1}
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
		for range 2 * failureThreshold {
			_, err := l.Take(t.Context(), d, other)
			require.ErrorContains(t, err, "redislimit: Redis refuses: "+want)
			require.ErrorContains(t, l.Adjust(t.Context(), d), "redislimit: Redis refuses: "+want)
		}
		require.NoError(t, change[1]())
		take(t, l, d, other)
		left--
		assert.EqualValues(t, left, remaining(t, l, d))
		assert.EqualValues(t, left+1, remaining(t, l, other))
	}
}

// Calls during which Redis loses its scripts are executed once.
func TestLimiter_ScriptsLostUnderLoad(t *testing.T) {
	s := servertest.Redis(t)
	l, key := newLimiter(t, newClient(t, s), nil), uniqueKey()
	admin := newClient(t, s)
	const holds = 500
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
				levels, err := l.Take(t.Context(), one(key, holds, 1))
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

// Names may contain any bytes.
func TestLimiter_UnusualNames(t *testing.T) {
	l := newLimiter(t, nil, nil)
	prefix := uniqueKey()
	for _, name := range []string{"\x00", "a\x00b", "\xff\xfe", "\r\n*1\r\n$8\r\nFLUSHALL\r\n", "'", "\"", "]]", strings.Repeat("x", 1<<20), strings.Repeat("x", 1<<20) + "y"} {
		key := prefix + name
		d := llmhttp.BucketAmount{Subject: keySubject(key), Bucket: name, Rate: slow(10), Amount: 4}
		assert.EqualValues(t, 6, take(t, l, d)[0].Remaining, "%.20q", name)
		assert.EqualValues(t, 6, remaining(t, l, d))
		release := mustAcquire(t, l, key, 1)
		mustNotAcquire(t, l, key, 1)
		release()
	}
}
