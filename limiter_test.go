package llmhttp

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"
)

// key returns the subject of a key.
func key(id string) SubjectID { return SubjectID{KindKey, id} }

// take1 takes cost from one bucket and returns its level.
func take1(t testing.TB, l Limiter, r Rate, cost int64) BucketLevel {
	t.Helper()
	levels, err := l.Take(t.Context(), BucketAmount{key("key"), "bucket", r, cost})
	require.NoError(t, err)
	require.Len(t, levels, 1)
	return levels[0]
}

// adjust1 adjusts the bucket of take1.
func adjust1(t testing.TB, l Limiter, r Rate, cost int64) {
	t.Helper()
	require.NoError(t, l.Adjust(t.Context(), BucketAmount{key("key"), "bucket", r, cost}))
}

// assertNear allows for rounding of durations.
func assertNear(t testing.TB, want, got time.Duration, field string) {
	t.Helper()
	assert.InDelta(t, float64(want), float64(got), float64(2*time.Microsecond), "%s: want %v, got %v", field, want, got)
}

func TestLimiter_Refill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, r := NewLimiter(), Rate{N: 60, Per: time.Minute, Burst: 10}
		level := take1(t, l, r, 0)
		assert.Equal(t, BucketLevel{Remaining: 10}, level, "a new bucket is full")
		level = take1(t, l, r, 10)
		assert.EqualValues(t, 0, level.Remaining)
		assert.Zero(t, level.RetryAfter)
		assertNear(t, 10*time.Second, level.ResetAfter, "ResetAfter")

		level = take1(t, l, r, 3)
		assertNear(t, 3*time.Second, level.RetryAfter, "RetryAfter")
		assertNear(t, 10*time.Second, level.ResetAfter, "ResetAfter")
		time.Sleep(2500 * time.Millisecond)
		level = take1(t, l, r, 3)
		assertNear(t, 500*time.Millisecond, level.RetryAfter, "RetryAfter")
		assert.EqualValues(t, 2, level.Remaining)
		time.Sleep(level.RetryAfter)
		level = take1(t, l, r, 3)
		assert.Zero(t, level.RetryAfter)
		assert.EqualValues(t, 0, level.Remaining)

		time.Sleep(time.Hour)
		level = take1(t, l, r, 0)
		assert.Equal(t, BucketLevel{Remaining: 10}, level, "a bucket does not fill beyond its burst")
	})
}

func TestLimiter_CostAboveBurst(t *testing.T) {
	l, r := NewLimiter(), PerMinute(10)
	assert.Equal(t, BucketLevel{Remaining: 10, RetryAfter: never}, take1(t, l, r, 11))
	assert.Equal(t, BucketLevel{RetryAfter: never}, take1(t, l, Rate{N: -1}, 1), "a negative N permits nothing")
	assert.Zero(t, take1(t, l, Rate{N: -1}, 0).RetryAfter, "a cost of zero is always available")
}

func TestLimiter_HugeRatesDoNotOverflow(t *testing.T) {
	for _, n := range []int64{math.MaxInt, math.MaxInt - 1, min(1<<60, math.MaxInt), min(1<<53, math.MaxInt)} {
		l, r := NewLimiter(), PerMinute(int(n))
		for range 3 {
			level := take1(t, l, r, 1000)
			assert.Zero(t, level.RetryAfter)
			assert.Greater(t, level.Remaining, n/2)
			assert.Less(t, level.ResetAfter, time.Minute)
		}
		for _, cost := range []int64{math.MaxInt32, math.MaxInt64} {
			adjust1(t, l, r, cost)
			adjust1(t, l, r, -cost)
			assert.Greater(t, take1(t, l, r, 0).Remaining, n/2)
		}
	}
}

func TestLimiter_Debt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, r := NewLimiter(), Rate{N: 60, Per: time.Minute, Burst: 10}
		take1(t, l, r, 4)
		adjust1(t, l, r, 30) // more than the burst: 24 in debt
		level := take1(t, l, r, 1)
		assert.EqualValues(t, 0, level.Remaining, "a debt is not shown")
		assertNear(t, 25*time.Second, level.RetryAfter, "RetryAfter")
		assertNear(t, 34*time.Second, level.ResetAfter, "ResetAfter")
		time.Sleep(25*time.Second + time.Millisecond)
		assert.Zero(t, take1(t, l, r, 1).RetryAfter)

		adjust1(t, l, r, 600)
		time.Sleep(5 * time.Minute)
		assert.Positive(t, take1(t, l, r, 1).RetryAfter, "a bucket in debt is not evicted")
	})
}

func TestLimiter_NegativeAdjustReturnsTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, r := NewLimiter(), Rate{N: 60, Per: time.Minute, Burst: 10}
		take1(t, l, r, 8)
		adjust1(t, l, r, -5)
		assert.EqualValues(t, 7, take1(t, l, r, 0).Remaining)
		adjust1(t, l, r, -5)
		adjust1(t, l, r, -1000)
		assert.Equal(t, BucketLevel{Remaining: 10}, take1(t, l, r, 0), "tokens beyond the burst are lost")
		take1(t, l, r, 10)
		assert.Positive(t, take1(t, l, r, 1).RetryAfter)
		adjust1(t, l, r, 0)
		assert.EqualValues(t, 0, take1(t, l, r, 0).Remaining)

		adjust1(t, l, r, 100)
		adjust1(t, l, r, -95)
		level := take1(t, l, r, 0)
		assert.EqualValues(t, 0, level.Remaining)
		assertNear(t, 15*time.Second, level.ResetAfter, "ResetAfter of a bucket with 5 in debt")
	})
}

// The limiter relies on this undocumented behaviour of a rate.Limiter: a
// negative reservation returns tokens, and a reservation within a burst that
// is raised for the moment leaves a debt.
func TestRateLimiter_NegativeTokens(t *testing.T) {
	now := time.Now()
	l := rate.NewLimiter(1, 10)
	require.True(t, l.ReserveN(now, 8).OK())
	require.True(t, l.ReserveN(now, -5).OK())
	assert.Equal(t, 7.0, l.TokensAt(now))
	require.True(t, l.ReserveN(now, -100).OK())
	assert.Equal(t, 10.0, l.TokensAt(now))
	l.SetBurstAt(now, 20)
	assert.Equal(t, 10.0, l.TokensAt(now), "the tokens that were discarded do not come back")

	require.False(t, l.ReserveN(now, 100).OK())
	l.SetBurstAt(now, math.MaxInt)
	require.True(t, l.ReserveN(now, 100).OK())
	l.SetBurstAt(now, 10)
	assert.Equal(t, -90.0, l.TokensAt(now))
	assert.Equal(t, -30.0, l.TokensAt(now.Add(time.Minute)))
	require.True(t, l.ReserveN(now, -95).OK())
	assert.Equal(t, 5.0, l.TokensAt(now))
}

func TestLimiter_RateChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter()
		slow, fast := Rate{N: 10, Per: 10 * time.Second}, Rate{N: 100, Per: 10 * time.Second}
		take1(t, l, slow, 10)
		time.Sleep(2 * time.Second)
		assert.EqualValues(t, 2, take1(t, l, fast, 0).Remaining, "time before the change counts at the old rate")
		time.Sleep(time.Second)
		assert.EqualValues(t, 12, take1(t, l, fast, 0).Remaining)
		assert.EqualValues(t, 10, take1(t, l, slow, 0).Remaining, "the new burst is smaller")
		adjust1(t, l, slow, 25)
		assertNear(t, 1600*time.Millisecond, take1(t, l, fast, 1).RetryAfter, "RetryAfter with the debt of the old rate")
	})
}

func TestLimiter_RateChangeAfterHoursIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter()
		before := Rate{N: 2_000_000_011, Per: 7 * time.Hour}
		take1(t, l, before, int64(before.N))
		time.Sleep(6 * time.Hour)
		after := Rate{N: 2_000_000_000, Per: 2_000_000_000 * time.Second}
		missing := float64(after.N) - float64(before.N)*6/7
		assert.InEpsilon(t, missing, take1(t, l, after, 0).ResetAfter.Seconds(), 1e-12)
	})
}

func TestLimiter_TakeIsAllOrNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter()
		draws := []BucketAmount{{key("key"), "a", PerMinute(10), 1}, {key("key"), "b", PerMinute(5), 5}, {key("key"), "c", PerMinute(7), 2}}
		take := func() []BucketLevel {
			levels, err := l.Take(t.Context(), draws...)
			require.NoError(t, err)
			require.Len(t, levels, 3)
			assert.Equal(t, []int64{9, 0, 5}, []int64{levels[0].Remaining, levels[1].Remaining, levels[2].Remaining})
			return levels
		}
		take()
		for range 5 {
			levels := take()
			assert.Zero(t, levels[0].RetryAfter)
			assertNear(t, time.Minute, levels[1].RetryAfter, "RetryAfter")
			assert.Zero(t, levels[2].RetryAfter)
		}
	})
}

func TestLimiter_NoDraws(t *testing.T) {
	l := NewLimiter()
	levels, err := l.Take(t.Context())
	require.NoError(t, err)
	assert.Empty(t, levels)
	require.NoError(t, l.Adjust(t.Context()))
}

// Pairs of a key and a bucket name are different buckets even if their concatenations are
// equal.
func TestLimiter_DifferentNamesAreDifferentBuckets(t *testing.T) {
	l := NewLimiter()
	parts := []string{"", "a", "b", "ab", ":", "a:", ":a", "a:b", "A", " a", "\x00", "a\x00"}
	for i, id := range parts {
		for j, name := range parts {
			d := BucketAmount{key(id), name, Rate{N: 1000, Per: 1000 * time.Hour}, int64(i*len(parts) + j)}
			_, err := l.Take(t.Context(), d)
			require.NoError(t, err)
		}
	}
	for i, id := range parts {
		for j, name := range parts {
			levels, err := l.Take(t.Context(), BucketAmount{key(id), name, Rate{N: 1000, Per: 1000 * time.Hour}, 0})
			require.NoError(t, err)
			assert.EqualValues(t, 1000-i*len(parts)-j, levels[0].Remaining, "bucket %q of key %q", name, id)
		}
	}
}

// subjects returns the number of subjects in memory.
func (l *memoryLimiter) subjects() (n int) {
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		n += len(s.subjects)
		s.mu.Unlock()
	}
	return n
}

// timers returns the number of shards with a timer.
func (l *memoryLimiter) timers() (n int) {
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		if s.timer != nil {
			n++
		}
		s.mu.Unlock()
	}
	return n
}

func heapInUse() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

func TestLimiter_EvictsFullBuckets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 100_000
		l := NewLimiter().(*memoryLimiter)
		before := heapInUse()
		for i := range keys {
			_, err := l.Take(t.Context(), BucketAmount{key(strconv.Itoa(i)), "bucket", Rate{N: 60, Per: time.Second}, 1})
			require.NoError(t, err)
		}
		require.Equal(t, keys, l.subjects())
		used := heapInUse() - before
		time.Sleep(2 * evictEvery)
		synctest.Wait()
		require.Zero(t, l.subjects())
		require.Zero(t, l.timers(), "no timer runs without keys")
		assert.Less(t, heapInUse()-before, used/10, "memory in use after eviction")

		take1(t, l, PerMinute(1), 1)
		assert.Equal(t, 1, l.subjects())
		assert.Equal(t, 1, l.timers(), "the timer runs again")
		time.Sleep(3 * evictEvery)
		synctest.Wait()
		assert.Zero(t, l.subjects())
		assert.Zero(t, l.timers())
		runtime.KeepAlive(l)
	})
}

// End users who come and go leave nothing behind, and one in debt is not forgotten.
func TestLimiter_ManyEndUsers_NoRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const each = 10_000
		l := NewLimiter().(*memoryLimiter)
		limits := Limits{Requests: PerMinute(60), Tokens: PerMinute(1000)}
		owes := UserSubject("acme", "in debt")
		require.NoError(t, l.Adjust(t.Context(), BucketAmount{owes, BucketTokens, limits.Tokens, 100_000}))
		for round := range 50 {
			for i := range each {
				id := UserSubject("acme", fmt.Sprint(round, "-", i))
				_, err := l.Take(t.Context(), BucketAmount{id, BucketRequests, limits.Requests, 1}, BucketAmount{id, BucketTokens, limits.Tokens, 100})
				require.NoError(t, err)
			}
			time.Sleep(evictEvery)
			synctest.Wait()
			require.LessOrEqual(t, l.subjects(), 2*each+1)
		}
		levels, err := l.Take(t.Context(), BucketAmount{owes, BucketTokens, limits.Tokens, 1})
		require.NoError(t, err)
		assert.Equal(t, (100_000-50*1000-1000+1)*time.Minute/1000, levels[0].RetryAfter)
	})
}

// End users whose buckets are not full are bounded. Those in debt, those who have used most, and
// other subjects are not forgotten.
func TestLimiter_ForgetsEndUsers_NoRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter().(*memoryLimiter)
		slow := Rate{N: 100, Per: 1000 * time.Hour}
		take := func(id SubjectID, n int64) BucketLevel {
			levels, err := l.Take(t.Context(), BucketAmount{id, BucketTokens, slow, n})
			require.NoError(t, err)
			return levels[0]
		}
		owes, empty, other := UserSubject("acme", "in debt"), UserSubject("acme", "empty"), key("another")
		require.NoError(t, l.Adjust(t.Context(), BucketAmount{owes, BucketTokens, slow, 101}))
		take(empty, 100)
		take(other, 1)
		const most = limiterShards * maxShardUsers
		const users = 5 * most / 4
		for i := range users {
			take(UserSubject("acme", strconv.Itoa(i)), 2)
			if i%1000 == 0 {
				time.Sleep(time.Millisecond)
				require.LessOrEqual(t, l.subjects(), most+1000)
			}
		}
		assert.Greater(t, l.subjects(), most/2)
		assert.NotZero(t, take(owes, 1).RetryAfter)
		assert.EqualValues(t, 0, take(empty, 0).Remaining)
		assert.EqualValues(t, 99, take(other, 0).Remaining)
		assert.EqualValues(t, 100, take(UserSubject("acme", "0"), 0).Remaining, "the first was idle for longest")
		assert.EqualValues(t, 98, take(UserSubject("acme", strconv.Itoa(users-1)), 0).Remaining, "the last was not")
	})
}

// Users in debt are kept however many they are, and looked at seldom.
func TestLimiter_ManyEndUsersInDebt_NoRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter().(*memoryLimiter)
		const users = 9 * limiterShards * maxShardUsers / 8
		for i := range users {
			require.NoError(t, l.Adjust(t.Context(), BucketAmount{UserSubject("acme", strconv.Itoa(i)), BucketTokens, PerMinute(1), 5000}))
			if i%1000 == 0 {
				time.Sleep(time.Microsecond)
			}
		}
		time.Sleep(time.Minute)
		assert.Equal(t, users, l.subjects())
	})
}

// A bucket that is not full must not be evicted, because a new bucket is full. It must
// also survive when the maps that hold it grow and shrink.
func TestLimiter_KeepsBucketsThatAreNotFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys, burst = 5000, 3
		l := NewLimiter().(*memoryLimiter)
		slow := func(n int) Rate { return Rate{N: n, Per: 1000 * time.Hour} }
		granted := make([]int, keys)
		take := func(i int) {
			id := key(strconv.Itoa(i))
			levels, err := l.Take(t.Context(),
				BucketAmount{id, BucketRequests, slow(burst), 1}, BucketAmount{id, BucketTokens, slow(100), 10}, BucketAmount{id, BucketTokenCounts, slow(100), 10})
			require.NoError(t, err)
			if levels[0].RetryAfter == 0 {
				granted[i]++
			}
		}
		for round := range 3 {
			for key := range keys {
				take(key)
				take(key)
			}
			for n := range 10 * keys >> round {
				_, err := l.Take(t.Context(), BucketAmount{key(fmt.Sprintf("evicted-%d", n)), BucketRequests, PerMinute(600), 1})
				require.NoError(t, err)
			}
			time.Sleep(3 * evictEvery)
			synctest.Wait()
			require.Equal(t, keys, l.subjects())
		}
		for key, n := range granted {
			require.Equal(t, burst, n, "key %d", key)
		}
	})
}

// Waiting for RetryAfter always suffices to get the tokens, despite rounding.
func TestBucket_WaitOfRetryAfterSuffices(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	waits := 0
	for range 100_000 {
		n := int(math.Exp(rnd.Float64() * math.Log(1e15)))
		r := Rate{N: n, Per: time.Duration(1 + rnd.Int64N(int64(1000*time.Hour))), Burst: 1 + rnd.IntN(n)}
		b := bucket{"bucket", r, rate.NewLimiter(refillRate(r), r.Burst)}
		now := time.Now()
		for range 3 {
			b.take(rnd.Int64N(int64(2*r.Burst)), now)
			now = now.Add(time.Duration(rnd.Int64N(int64(r.Per))))
		}
		cost := 1 + rnd.Int64N(int64(r.Burst))
		wait := b.retryAfter(b.tokens.TokensAt(now), cost)
		if wait == 0 {
			continue
		}
		waits++
		now = now.Add(wait)
		require.Zero(t, b.retryAfter(b.tokens.TokensAt(now), cost), "%+v, cost %d, waited %v", r, cost, wait)
	}
	assert.Greater(t, waits, 10_000)
}

// A modelBucket is a simple token bucket to which TestLimiter_Model compares the Limiter.
type modelBucket struct {
	rate   Rate // with its defaults
	tokens float64
	at     time.Time
}

// refill adds the tokens that b has gained until now.
func (b *modelBucket) refill() {
	b.tokens += time.Since(b.at).Seconds() * float64(b.rate.N) / b.rate.Per.Seconds()
	b.tokens = min(b.tokens, float64(b.rate.Burst))
	b.at = time.Now()
}

func (b *modelBucket) full() bool { return b.tokens >= float64(b.rate.Burst)-1e-6 }

func (b *modelBucket) take(cost int64) { b.tokens = min(b.tokens-float64(cost), float64(b.rate.Burst)) }

// checkLevel checks the level that a Take of cost returned. lacked is the number of
// tokens that b lacked, or zero or less if the tokens were available.
func (b *modelBucket) checkLevel(t *testing.T, level BucketLevel, cost int64, lacked float64) {
	t.Helper()
	require.InDelta(t, max(math.Floor(b.tokens), 0), level.Remaining, 1.0001)
	if cost > int64(b.rate.Burst) {
		require.Equal(t, never, level.RetryAfter)
	}
	if b.rate.N == 0 {
		return
	}
	perToken := b.rate.Per.Seconds() / float64(b.rate.N)
	require.InDelta(t, (float64(b.rate.Burst)-b.tokens)*perToken, level.ResetAfter.Seconds(), 1e-4)
	if cost <= int64(b.rate.Burst) {
		require.InDelta(t, max(lacked, 0)*perToken, level.RetryAfter.Seconds(), 1e-4)
	}
}

// TestLimiter_Model compares the Limiter with a model of it, over random calls
// with several draws, adjustments, costs of zero and changes of rates.
func TestLimiter_Model(t *testing.T) {
	rates := []Rate{PerMinute(60), {N: 7, Per: time.Second}, {N: 100, Per: time.Hour, Burst: 20}, {N: 3, Per: 10 * time.Millisecond, Burst: 50}, {N: -1}}
	names := []string{"requests", "tokens", "quota"}
	subjects := []SubjectID{key("a"), key("b"), {KindAccount, "a"}}
	run := func(t *testing.T, rnd *rand.Rand) {
		l := NewLimiter()
		type bucketID struct {
			subject SubjectID
			name    string
		}
		model := map[bucketID]*modelBucket{}
		// lookup returns the bucket of d. It changes the rate of a bucket at
		// times, but not of a full one, which may have been evicted.
		lookup := func(d *BucketAmount) *modelBucket {
			id := bucketID{d.Subject, d.Bucket}
			b := model[id]
			if b == nil {
				r := rates[rnd.IntN(len(rates))].WithDefaults()
				b = &modelBucket{rate: r, tokens: float64(r.Burst), at: time.Now()}
				model[id] = b
			}
			b.refill()
			if !b.full() && rnd.IntN(10) == 0 {
				b.rate = rates[rnd.IntN(len(rates))].WithDefaults()
				b.tokens = min(b.tokens, float64(b.rate.Burst))
			}
			d.Rate = b.rate
			if b.rate.N == 0 {
				d.Rate.N = -1
			}
			return b
		}
		for step := range 400 {
			if rnd.IntN(4) == 0 {
				time.Sleep(time.Duration(rnd.Int64N(int64(20 * time.Second))))
			}
			adjust := rnd.IntN(4) == 0
			var draws []BucketAmount
			var buckets []*modelBucket
			granted, close := true, false
			for _, s := range rnd.Perm(len(subjects))[:1+rnd.IntN(3)] {
				for _, i := range rnd.Perm(len(names))[:1+rnd.IntN(3)] {
					d := BucketAmount{Subject: subjects[s], Bucket: names[i], Amount: rnd.Int64N(12)}
					if adjust {
						d.Amount = rnd.Int64N(200) - 100
					}
					b := lookup(&d)
					draws, buckets = append(draws, d), append(buckets, b)
					granted = granted && (d.Amount == 0 || b.tokens >= float64(d.Amount))
					close = close || math.Abs(b.tokens-float64(d.Amount)) < 1e-5
				}
			}
			if adjust {
				require.NoError(t, l.Adjust(t.Context(), draws...))
				for i, b := range buckets {
					b.take(draws[i].Amount)
				}
				continue
			}
			levels, err := l.Take(t.Context(), draws...)
			require.NoError(t, err)
			got := true
			for _, level := range levels {
				got = got && level.RetryAfter == 0
			}
			if !close { // rounding may decide otherwise
				require.Equal(t, granted, got, "step %d: %+v", step, draws)
			}
			for i, b := range buckets {
				lacked := float64(draws[i].Amount) - b.tokens
				if got {
					b.take(draws[i].Amount)
				}
				if got || draws[i].Amount == 0 {
					lacked = 0
				}
				b.checkLevel(t, levels[i], draws[i].Amount, lacked)
			}
		}
	}
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) { run(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

// Concurrent goroutines get no more tokens than the bucket held and gained. A limiter
// whose time ran backwards would refill tokens twice, as in BerriAI/litellm#24677.
func TestLimiter_ConcurrentTakesAreBounded(t *testing.T) {
	l := NewLimiter()
	r := Rate{N: 50_000, Per: time.Second, Burst: 5_000}
	var granted atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for range 200 {
		wg.Go(func() {
			for range 500 {
				levels, err := l.Take(t.Context(), BucketAmount{key("key"), "bucket", r, 1})
				if err == nil && levels[0].RetryAfter == 0 {
					granted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	most := float64(r.Burst) + time.Since(start).Seconds()*float64(r.N)
	assert.LessOrEqual(t, float64(granted.Load()), most*1.01)
}

// Several goroutines that draw on the same buckets of the same subjects in different orders do
// not deadlock.
func TestLimiter_ConcurrentUse(t *testing.T) {
	l := NewLimiter()
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(g), 2))
			for range 2000 {
				var draws []BucketAmount
				for _, s := range rnd.Perm(3)[:1+rnd.IntN(3)] {
					for _, i := range rnd.Perm(3)[:1+rnd.IntN(3)] {
						draws = append(draws, BucketAmount{key(strconv.Itoa(s)), strconv.Itoa(i), PerMinute(1 + i), rnd.Int64N(3)})
					}
				}
				_, err := l.Take(t.Context(), draws...)
				assert.NoError(t, err)
				assert.NoError(t, l.Adjust(t.Context(), draws...))
			}
		})
	}
	wg.Wait()
}

func TestRate_WithDefaults(t *testing.T) {
	for give, want := range map[Rate]Rate{
		{}:                                    {Per: time.Minute},
		{N: 5}:                                {5, time.Minute, 5},
		{N: 5, Burst: 9}:                      {5, time.Minute, 9},
		{N: 5, Per: -1, Burst: -1}:            {5, time.Minute, 5},
		{N: 5, Per: time.Second}:              {5, time.Second, 5},
		{N: -5, Per: time.Second, Burst: 100}: {0, time.Second, 0},
	} {
		assert.Equal(t, want, give.WithDefaults())
	}
	assert.Equal(t, Rate{N: 7, Per: time.Minute}, PerMinute(7))
}

// BenchmarkLimiter compares a Take of two buckets, as a Handler makes for each
// request, with two calls of rate.Limiter.AllowN that share a time.Now. It
// reports the ratio as "of-AllowN". It also reports the memory of a key, and
// the part of all memory that eviction gives back.
func BenchmarkLimiter(b *testing.B) {
	r := Rate{N: min(1<<40, math.MaxInt), Per: time.Second}
	var draws [2]BucketAmount
	ofKey := func(s SubjectID) []BucketAmount {
		draws = [2]BucketAmount{{s, BucketRequests, r, 1}, {s, BucketTokens, r, 300}}
		return draws[:]
	}
	requests, tokens := rate.NewLimiter(refillRate(r), r.N), rate.NewLimiter(refillRate(r), r.N)
	for _, keys := range []int{1, 1_000_000} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			b.ReportAllocs()
			key := func(i int) SubjectID { return SubjectID{KindKey, "key_" + strconv.Itoa(i)} }
			ctx := b.Context()
			before := heapInUse()
			l := NewLimiter().(*memoryLimiter)
			for i := range keys {
				_, _ = l.Take(ctx, ofKey(key(i))...)
			}
			used := heapInUse() - before

			// Rounds of both alternate, so that they meet the same conditions.
			var round [1000]SubjectID
			var taken, allowed time.Duration
			rnd := rand.New(rand.NewPCG(1, 2))
			for b.Loop() {
				for i := range round {
					round[i] = key(rnd.IntN(keys))
				}
				start := time.Now()
				for _, key := range round {
					if _, err := l.Take(ctx, ofKey(key)...); err != nil {
						b.Fatal(err)
					}
				}
				taken += time.Since(start)
				start = time.Now()
				for range round {
					now := time.Now()
					if !requests.AllowN(now, 1) || !tokens.AllowN(now, 300) {
						b.Fatal("refused")
					}
				}
				allowed += time.Since(start)
			}
			b.ReportMetric(float64(taken)/float64(allowed), "of-AllowN")
			b.ReportMetric(float64(taken)/float64(b.N*len(round)), "ns/Take")

			if keys == 1 { // too little to measure
				return
			}
			for i := range l.shards {
				l.shards[i].evict()
			}
			b.ReportMetric(used/float64(keys), "B/key")
			b.ReportMetric(1-(heapInUse()-before)/used, "given-back")
			runtime.KeepAlive(l)
		})
	}
}

// A key with many buckets has an index, so that the time to find a bucket does not grow
// with their number.
func TestLimiter_ManyBucketsOfAKey_NoRace(t *testing.T) {
	l := NewLimiter().(*memoryLimiter)
	const n = 50_000
	take := func(i int) BucketLevel {
		levels, err := l.Take(t.Context(), BucketAmount{Subject: key("key"), Bucket: fmt.Sprint("a bucket of which the name begins like others/", i), Rate: Rate{N: 3, Per: time.Hour}, Amount: 1})
		require.NoError(t, err)
		return levels[0]
	}
	for range 2 {
		for i := range n {
			take(i)
		}
	}
	for i := range n {
		require.Zero(t, take(i).Remaining)
	}
	require.Positive(t, take(n-1).RetryAfter)
	require.Len(t, l.shards[l.shardIndex(key("key"))].subjects[key("key")].index, n)
}
