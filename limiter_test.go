package llmhttp

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func take1(t testing.TB, l Limiter, r Rate, cost int) Level {
	t.Helper()
	levels, err := l.Take(t.Context(), Draw{"k:b", r, cost})
	require.NoError(t, err)
	require.Len(t, levels, 1)
	return levels[0]
}

func adjust1(t testing.TB, l Limiter, r Rate, cost int) {
	t.Helper()
	require.NoError(t, l.Adjust(t.Context(), Draw{"k:b", r, cost}))
}

// near allows for what floating point takes from durations.
func near(t testing.TB, want, got time.Duration, what string) {
	t.Helper()
	assert.InDelta(t, float64(want), float64(got), float64(2*time.Microsecond), "%s: want %v, got %v", what, want, got)
}

func TestLimiterRefills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, r := NewLimiter(), Rate{N: 60, Per: time.Minute, Burst: 10}
		lv := take1(t, l, r, 0)
		assert.Equal(t, Level{Remaining: 10}, lv, "full at first")
		lv = take1(t, l, r, 10)
		assert.Equal(t, 0, lv.Remaining)
		assert.Zero(t, lv.RetryAfter)
		near(t, 10*time.Second, lv.ResetAfter, "ResetAfter")

		lv = take1(t, l, r, 3)
		near(t, 3*time.Second, lv.RetryAfter, "RetryAfter")
		near(t, 10*time.Second, lv.ResetAfter, "ResetAfter")
		time.Sleep(2500 * time.Millisecond)
		lv = take1(t, l, r, 3)
		near(t, 500*time.Millisecond, lv.RetryAfter, "RetryAfter")
		assert.Equal(t, 2, lv.Remaining)
		time.Sleep(lv.RetryAfter)
		lv = take1(t, l, r, 3)
		assert.Zero(t, lv.RetryAfter)
		assert.Equal(t, 0, lv.Remaining)

		time.Sleep(time.Hour)
		lv = take1(t, l, r, 0)
		assert.Equal(t, Level{Remaining: 10}, lv, "no fuller than full")
	})
}

func TestLimiterNeverAboveBurst(t *testing.T) {
	l, r := NewLimiter(), PerMinute(10)
	lv := take1(t, l, r, 11)
	assert.Equal(t, never, lv.RetryAfter)
	assert.Equal(t, 10, lv.Remaining)
	lv = take1(t, l, Rate{N: -1}, 1)
	assert.Equal(t, never, lv.RetryAfter)
	assert.Equal(t, 0, lv.Remaining)
	assert.Zero(t, take1(t, l, Rate{N: -1}, 0).RetryAfter, "to ask is free")
}

// A rate that is meant as no limit does not overflow.
func TestLimiterHuge(t *testing.T) {
	for _, n := range []int{math.MaxInt, math.MaxInt - 1, 1 << 60, 1 << 53} {
		l, r := NewLimiter(), PerMinute(n)
		for range 3 {
			lv := take1(t, l, r, 1000)
			assert.Zero(t, lv.RetryAfter)
			assert.Greater(t, lv.Remaining, n/2)
			assert.Less(t, lv.ResetAfter, time.Minute)
		}
		adjust1(t, l, r, math.MaxInt32)
		adjust1(t, l, r, -math.MaxInt32)
		assert.Greater(t, take1(t, l, r, 0).Remaining, n/2)
	}
}

func TestLimiterDebt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, r := NewLimiter(), Rate{N: 60, Per: time.Minute, Burst: 10}
		take1(t, l, r, 4)
		adjust1(t, l, r, 30) // far more than it can hold
		lv := take1(t, l, r, 1)
		assert.Equal(t, 0, lv.Remaining, "never below zero")
		near(t, 25*time.Second, lv.RetryAfter, "RetryAfter")
		near(t, 34*time.Second, lv.ResetAfter, "ResetAfter")
		time.Sleep(25*time.Second + time.Millisecond)
		assert.Zero(t, take1(t, l, r, 1).RetryAfter)

		// A debt survives the sweep.
		adjust1(t, l, r, 600)
		time.Sleep(5 * time.Minute)
		assert.Positive(t, take1(t, l, r, 1).RetryAfter)
	})
}

func TestLimiterGivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, r := NewLimiter(), Rate{N: 60, Per: time.Minute, Burst: 10}
		take1(t, l, r, 8)
		adjust1(t, l, r, -5)
		assert.Equal(t, 7, take1(t, l, r, 0).Remaining)
		adjust1(t, l, r, -5)
		adjust1(t, l, r, -1000)
		lv := take1(t, l, r, 0)
		assert.Equal(t, Level{Remaining: 10}, lv, "no more than it can hold")
		take1(t, l, r, 10)
		assert.Positive(t, take1(t, l, r, 1).RetryAfter)
		adjust1(t, l, r, 0)
		assert.Equal(t, 0, take1(t, l, r, 0).Remaining)
	})
}

func TestLimiterRateChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter()
		slow, fast := Rate{N: 10, Per: 10 * time.Second}, Rate{N: 100, Per: 10 * time.Second}
		take1(t, l, slow, 10)
		time.Sleep(2 * time.Second)
		lv := take1(t, l, fast, 0)
		assert.Equal(t, 2, lv.Remaining, "what was gained at the old rate, no more")
		time.Sleep(time.Second)
		assert.Equal(t, 12, take1(t, l, fast, 0).Remaining)
		lv = take1(t, l, slow, 0)
		assert.Equal(t, 10, lv.Remaining, "as much as it can hold now")
	})
}

func TestLimiterAllOrNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter()
		a, b, c := Draw{"k:a", PerMinute(10), 1}, Draw{"k:b", PerMinute(5), 5}, Draw{"other:c", PerMinute(7), 2}
		levels, err := l.Take(t.Context(), a, b, c)
		require.NoError(t, err)
		assert.Equal(t, []int{9, 0, 5}, []int{levels[0].Remaining, levels[1].Remaining, levels[2].Remaining})
		for range 5 {
			levels, err = l.Take(t.Context(), a, b, c)
			require.NoError(t, err)
			assert.Equal(t, []int{9, 0, 5}, []int{levels[0].Remaining, levels[1].Remaining, levels[2].Remaining})
			assert.Zero(t, levels[0].RetryAfter)
			near(t, time.Minute, levels[1].RetryAfter, "RetryAfter")
			assert.Zero(t, levels[2].RetryAfter)
		}
		levels, err = l.Take(t.Context())
		require.NoError(t, err)
		assert.Empty(t, levels)
		require.NoError(t, l.Adjust(t.Context()))
	})
}

func (l *limiter) len() (n int) {
	for i := range l.shards {
		l.shards[i].mu.Lock()
		n += l.shards[i].used
		l.shards[i].mu.Unlock()
	}
	return n
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A million keys that came once do not stay in memory.
func TestLimiterForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := 1_000_000
		if underRace || testing.Short() {
			keys = 100_000
		}
		l := NewLimiter().(*limiter)
		before := heapInUse()
		for i := range keys {
			if _, err := l.Take(t.Context(), Draw{fmt.Sprintf("key_%d:requests", i), Rate{N: 60, Per: time.Second}, 1}); err != nil {
				t.Fatal(err)
			}
		}
		require.Equal(t, keys, l.len())
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		require.Zero(t, l.len())
		after := heapInUse()
		assert.Less(t, int64(after)-int64(before), int64(4<<20), "the heap is back")
		// It serves on, and looks again.
		take1(t, l, PerMinute(1), 1)
		assert.Equal(t, 1, l.len())
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		assert.Zero(t, l.len())
		runtime.KeepAlive(l)
	})
}

// Buckets that are not full are not forgotten: that would fill them.
func TestLimiterRemembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter().(*limiter)
		day := Rate{N: 24, Per: 24 * time.Hour}
		take1(t, l, day, 24)
		for i := range 1000 {
			_, err := l.Take(t.Context(), Draw{fmt.Sprintf("x%d:b", i), PerMinute(600), 1})
			require.NoError(t, err)
		}
		time.Sleep(90 * time.Minute)
		synctest.Wait()
		assert.Equal(t, 1, l.len())
		assert.Equal(t, 1, take1(t, l, day, 0).Remaining)
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		assert.Zero(t, l.len())
	})
}

// A key of more buckets than fit in a pair keeps all of them when the tables
// grow and shrink around it.
func TestLimiterThreeBucketsOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys, burst = 5000, 3
		l := NewLimiter().(*limiter)
		slow := func(n int) Rate { return Rate{N: n, Per: 1000 * time.Hour} }
		granted := make([]int, keys)
		take := func(key int) {
			name := fmt.Sprintf("key%d", key)
			levels, err := l.Take(t.Context(), Draw{name + ":requests", slow(burst), 1}, Draw{name + ":tokens", slow(100), 10}, Draw{name + ":quota", slow(100), 10})
			require.NoError(t, err)
			if levels[0].RetryAfter == 0 {
				granted[key]++
			}
		}
		for round := range 3 {
			for key := range keys {
				take(key)
				take(key)
			}
			for n := range 10 * keys >> round {
				_, err := l.Take(t.Context(), Draw{fmt.Sprintf("passing%d:requests", n), PerMinute(600), 1})
				require.NoError(t, err)
			}
			time.Sleep(3 * sweepEvery)
			synctest.Wait()
			require.Equal(t, 2*keys, l.len())
		}
		for key, n := range granted {
			require.Equal(t, burst, n, "key %d", key)
		}
	})
}

// What a bucket gained before its Rate changed is exact, however long that took.
func TestLimiterRateChangesExactly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter()
		before := Rate{N: 2_000_000_011, Per: 7 * time.Hour}
		take1(t, l, before, before.N)
		time.Sleep(6 * time.Hour)
		after := Rate{N: 2_000_000_000, Per: 2_000_000_000 * time.Second}
		missing := float64(after.N) - float64(before.N)*6/7
		assert.InEpsilon(t, missing, take1(t, l, after, 0).ResetAfter.Seconds(), 1e-12)
	})
}

// rates returns how many Rates l knows, and for how many it has room.
func (l *limiter) rates() (known, room int) {
	for i := range l.shards {
		l.shards[i].mu.Lock()
		known += len(l.shards[i].rates.ids)
		room += len(l.shards[i].rates.list)
		l.shards[i].mu.Unlock()
	}
	return known, room
}

// Rates that no bucket has any more are forgotten.
func TestLimiterForgetsRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter().(*limiter)
		for n := range 10_000 {
			take1(t, l, PerMinute(n+1), 1)
		}
		known, room := l.rates()
		assert.Equal(t, 1, known)
		assert.LessOrEqual(t, room, 3)

		day := Rate{N: 24, Per: 24 * time.Hour}
		for n := range 10_000 {
			draws := []Draw{
				{fmt.Sprintf("x%d:fast", n), PerMinute(600 + n), 1},
				{fmt.Sprintf("x%d:slow", n), PerMinute(2), n % 2},
				{fmt.Sprintf("y%d:slow", n%100), day, 1},
			}
			_, err := l.Take(t.Context(), draws...)
			require.NoError(t, err)
		}
		known, _ = l.rates()
		assert.Greater(t, known, 10_000)
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		assert.Equal(t, 100, l.len())
		known, _ = l.rates()
		assert.LessOrEqual(t, known, 64, "one Rate is left, in each shard")
		for i := range l.shards {
			s := &l.shards[i]
			uses := 0
			for _, r := range s.rates.list {
				uses += r.buckets
			}
			assert.Equal(t, s.used, uses)
		}
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		_, room = l.rates()
		assert.Zero(t, room)
	})
}

// The in-process Limiter does what a simple model of it does, whatever comes.
func TestLimiterModel(t *testing.T) {
	type modelBucket struct {
		tokens float64
		at     time.Time
		rate   Rate
	}
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			l := NewLimiter()
			model := map[string]*modelBucket{}
			rates := []Rate{PerMinute(60), {N: 7, Per: time.Second}, {N: 100, Per: time.Hour, Burst: 20}, {N: 3, Per: 10 * time.Millisecond, Burst: 50}, {N: -1}}
			// Rates do not change here: a bucket that is full may have been
			// forgotten, and then is full at its new rate.
			names := []string{"a:requests", "a:tokens", "a:quota", "b:requests", "b:tokens", "plain"}
			look := func(d Draw) *modelBucket {
				r := d.Rate.WithDefaults()
				b := model[d.Bucket]
				if b == nil {
					b = &modelBucket{float64(r.Burst), time.Now(), r}
					model[d.Bucket] = b
				}
				b.tokens = min(b.tokens+time.Since(b.at).Seconds()*float64(b.rate.N)/b.rate.Per.Seconds(), float64(b.rate.Burst))
				b.at = time.Now()
				b.rate = r
				b.tokens = min(b.tokens, float64(r.Burst))
				return b
			}
			for step := range 400 {
				var draws []Draw
				for _, i := range rnd.Perm(len(names))[:1+rnd.IntN(3)] {
					draws = append(draws, Draw{names[i], rates[(i+int(seed))%len(rates)], rnd.IntN(12)})
				}
				switch rnd.IntN(5) {
				case 0:
					time.Sleep(time.Duration(rnd.Int64N(int64(20 * time.Second))))
				case 1:
					for i := range draws {
						draws[i].Cost = rnd.IntN(200) - 100
						b := look(draws[i])
						b.tokens = min(b.tokens-float64(draws[i].Cost), float64(b.rate.Burst))
					}
					require.NoError(t, l.Adjust(t.Context(), draws...))
				default:
					granted, close := true, false
					for _, d := range draws {
						b := look(d)
						if d.Cost > 0 && b.tokens < float64(d.Cost) {
							granted = false
						}
						close = close || math.Abs(b.tokens-float64(d.Cost)) < 1e-6
					}
					levels, err := l.Take(t.Context(), draws...)
					require.NoError(t, err)
					got := true
					for _, lv := range levels {
						got = got && lv.RetryAfter == 0
					}
					if !close {
						require.Equal(t, granted, got, "step %d: %+v", step, draws)
					}
					for i, d := range draws {
						b := look(d)
						short := float64(d.Cost) - b.tokens
						if got {
							b.tokens -= float64(d.Cost)
						}
						require.InDelta(t, max(math.Floor(b.tokens), 0), levels[i].Remaining, 1.0001)
						if b.rate.N > 0 {
							perToken := b.rate.Per.Seconds() / float64(b.rate.N)
							require.InDelta(t, (float64(b.rate.Burst)-b.tokens)*perToken, levels[i].ResetAfter.Seconds(), 1e-4)
							if !got && !close && short > 0 && d.Cost > 0 && d.Cost <= b.rate.Burst {
								require.InDelta(t, short*perToken, levels[i].RetryAfter.Seconds(), 1e-4)
							}
						}
						if d.Cost > b.rate.Burst {
							require.Equal(t, never, levels[i].RetryAfter)
						}
					}
				}
			}
		})
	}
}

// However many ask at once, nobody gets more than the bucket held and gained:
// time must not run backwards for a bucket, as what was gained would be gained
// again. BerriAI/litellm#24677.
func TestLimiterHoldsUnderContention(t *testing.T) {
	l := NewLimiter()
	r := Rate{N: 50_000, Per: time.Second, Burst: 5_000}
	ctx := t.Context()
	var granted atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for range 200 {
		wg.Go(func() {
			for time.Since(start) < 500*time.Millisecond {
				levels, err := l.Take(ctx, Draw{"k:b", r, 1})
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

// Buckets of one key and of several, drawn on from all sides, do not deadlock.
func TestLimiterConcurrent(t *testing.T) {
	l := NewLimiter()
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(g), 2))
			for range 2000 {
				var draws []Draw
				for _, i := range rnd.Perm(9)[:1+rnd.IntN(3)] {
					draws = append(draws, Draw{fmt.Sprintf("k%d:b%d", i/3, i%3), PerMinute(1 + i), rnd.IntN(3)})
				}
				if _, err := l.Take(t.Context(), draws...); err != nil {
					t.Error(err)
				}
				if err := l.Adjust(t.Context(), draws...); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func TestRateNormal(t *testing.T) {
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
