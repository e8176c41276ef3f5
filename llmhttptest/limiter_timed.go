package llmhttptest

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
)

func checkLimiterRefill(t testing.TB, s limiterTest) {
	l := s.ledger(t)
	names := buckets(3)
	draws := []llmhttp.Draw{
		{Bucket: names[0], Rate: llmhttp.Rate{N: 200, Per: time.Second}},
		{Bucket: names[1], Rate: llmhttp.Rate{N: 3, Per: 7 * time.Millisecond, Burst: 11}},
		{Bucket: names[2], Rate: llmhttp.Rate{N: 360_000, Per: time.Hour, Burst: 2}},
	}
	for _, d := range draws {
		d.Cost = d.Rate.WithDefaults().Burst
		l.mustTake(true, d)
	}
	for i := range 12 {
		time.Sleep(time.Duration(i+1) * 2 * time.Millisecond)
		l.take(draws...)
		if i%4 == 3 {
			for _, d := range draws {
				d.Cost = 2
				l.take(d)
			}
		}
	}
}

// checkLimiterPolled checks that asking often takes nothing away.
func checkLimiterPolled(t testing.TB, s limiterTest) {
	l := s.ledger(t)
	unit := time.Millisecond
	if s.exact {
		unit = time.Second
	}
	at := llmhttp.Draw{Bucket: newBucket(), Rate: llmhttp.Rate{N: 10, Per: 200 * unit}, Cost: 10}
	l.mustTake(true, at)
	began := time.Now()
	for i := 0; time.Since(began) < 150*unit; i++ {
		at.Cost = i % 2 * 10
		l.take(at)
		time.Sleep(unit / 10)
	}
}

// checkLimiterRetryAfter checks that there are enough when a Limiter said so.
func checkLimiterRetryAfter(t testing.TB, s limiterTest) {
	rates := []llmhttp.Rate{
		{N: 3, Per: 20 * time.Millisecond}, {N: 7, Per: 30 * time.Millisecond, Burst: 2}, {N: 1, Per: 3 * time.Millisecond, Burst: 9},
	}
	inexact := clockError
	if s.exact {
		inexact = time.Microsecond // which tokens in a float64 may need
		rates = append(rates, longRates...)
	}
	l := s.ledger(t)
	for _, rate := range rates {
		burst := rate.WithDefaults().Burst
		for _, cost := range slices.Compact([]int{1, max(1, burst/3), burst}) {
			at := llmhttp.Draw{Bucket: newBucket(), Rate: rate, Cost: burst}
			l.mustTake(true, at)
			l.adjust(llmhttp.Draw{Bucket: at.Bucket, Rate: rate, Cost: burst / 7})
			at.Cost = cost
			level := l.takeOne(at)
			if s.exact && level.RetryAfter > clockError && !t.Failed() {
				time.Sleep(level.RetryAfter - clockError) // which is too early, unless tokens come faster
				level = l.takeOne(at)
			}
			if wait := level.RetryAfter; wait > 0 && !t.Failed() {
				time.Sleep(wait + inexact)
				l.mustTake(true, at)
			}
			at.Cost = 0
			if wait := l.takeOne(at).ResetAfter; !t.Failed() {
				time.Sleep(wait + inexact)
				at.Cost = burst
				l.mustTake(true, at)
			}
			if t.Failed() {
				return // rather than wait for as long as a faulty Limiter says
			}
		}
	}
}

func (l *ledger) takeOne(d llmhttp.Draw) llmhttp.Level {
	l.t.Helper()
	levels, _ := l.take(d)
	return levels[0]
}

// longRates are for when time costs nothing.
var longRates = []llmhttp.Rate{
	llmhttp.PerMinute(1), llmhttp.PerMinute(3), llmhttp.PerMinute(7), llmhttp.PerMinute(60), llmhttp.PerMinute(500), llmhttp.PerMinute(200_000),
	{N: 1_000_000, Per: day}, {N: 13, Per: 10 * day, Burst: 2}, {N: 1, Per: 5 * day}, {N: math.MaxInt32, Per: day},
	{N: math.MaxInt32}, {N: math.MaxInt32, Per: time.Second, Burst: 10}, {N: 30_000, Per: time.Millisecond}, {N: 17, Per: 17*time.Second + 1, Burst: 1},
}

// checkLimiterIdle checks that a bucket is not forgotten before it is full.
func checkLimiterIdle(t testing.TB, s limiterTest) {
	if !s.exact {
		t.Skip("this takes days: see TestLimiterInBubble")
	}
	l := s.ledger(t)
	empty := llmhttp.Draw{Bucket: newBucket(), Rate: llmhttp.Rate{N: 10, Per: 100 * time.Hour}, Cost: 10}
	l.mustTake(true, empty)
	debt := llmhttp.Draw{Bucket: newBucket(), Rate: llmhttp.PerMinute(10), Cost: 20_000}
	l.adjust(debt)
	for range 20 {
		time.Sleep(50 * time.Minute)
		l.take(llmhttp.Draw{Bucket: newBucket(), Rate: llmhttp.PerMinute(10), Cost: 1})
	}
	l.expect(1, empty)
	l.expect(0, debt)
	time.Sleep(100 * time.Hour)
	l.expect(10, empty)
	l.expect(10, debt)
}

func checkLimiterRateChange(t testing.TB, s limiterTest) {
	l := s.ledger(t)
	at := llmhttp.Draw{Bucket: newBucket(), Rate: slow(10), Cost: 10}
	l.mustTake(true, at)
	for _, rate := range []llmhttp.Rate{slow(20), slow(5), {N: 10, Per: 300 * time.Hour}, {N: 30, Per: 100 * time.Hour, Burst: 90}, slow(1)} {
		at.Rate = rate
		l.expect(0, at) // it is still empty
	}
	at = llmhttp.Draw{Bucket: newBucket(), Rate: slow(10), Cost: 3}
	l.mustTake(true, at)
	at.Rate = slow(20)
	l.expect(7, at)
	at.Rate = slow(4)
	l.expect(4, at) // no more than there is room for
	at.Cost = 5
	l.mustTake(false, at)
	at.Cost = 4
	l.mustTake(true, at)
	at.Rate, at.Cost = slow(10), 15
	l.adjust(at)
	at.Rate, at.Cost = slow(40), 1
	l.mustTake(false, at) // debts remain
	at.Rate, at.Cost = slow(10), -16
	l.adjust(at)
	l.expect(1, at)

	// Buckets refill at the Rate of the last draw.
	at = llmhttp.Draw{Bucket: newBucket(), Rate: llmhttp.Rate{N: 1000, Per: time.Second}, Cost: 1000}
	l.mustTake(true, at)
	at.Cost = 0
	for _, rate := range []llmhttp.Rate{slow(1000), {N: 1000, Per: time.Second}, {N: 100, Per: time.Second}, {N: 2000, Per: time.Second, Burst: 300}} {
		at.Rate = rate
		l.take(at)
		time.Sleep(20 * time.Millisecond)
		l.take(at)
		time.Sleep(10 * time.Millisecond)
	}
}

func checkLimiterHuge(t testing.TB, s limiterTest) {
	l := s.ledger(t)
	at := llmhttp.Draw{Bucket: newBucket(), Rate: llmhttp.Rate{N: math.MaxInt32, Per: 1_000_000 * time.Hour}, Cost: math.MaxInt32}
	l.take(at)
	l.take(at)

	// Waits that are longer than a Duration can be are long, not negative.
	at = llmhttp.Draw{Bucket: newBucket(), Rate: slow(1), Cost: math.MaxInt32}
	l.adjust(at)
	at.Cost = 1
	l.mustTake(false, at)
	at.Cost = math.MaxInt32
	l.adjust(at)
	at.Cost = 1
	l.mustTake(false, at)

	at = llmhttp.Draw{Bucket: newBucket(), Rate: llmhttp.Rate{N: math.MaxInt32, Per: time.Millisecond}, Cost: math.MaxInt32}
	for range 5 {
		l.take(at)
		time.Sleep(100 * time.Microsecond)
	}
}

// checkLimiterRandom checks that no sequence of draws leads astray.
func checkLimiterRandom(t testing.TB, s limiterTest) {
	rng := newRand(t)
	rounds, calls := 1, 250
	rates := []llmhttp.Rate{
		{N: 200, Per: time.Second}, {N: 1500, Per: time.Second, Burst: 40}, {N: 13, Per: 40 * time.Millisecond, Burst: 70}, {N: 9, Per: 17 * time.Millisecond},
		slow(1000), {N: 100, Per: 10 * time.Second}, {N: -1}, {N: 1, Per: time.Millisecond, Burst: 2000},
	}
	pause := func() time.Duration { return time.Duration(rng.IntN(3000)) * time.Microsecond }
	if s.exact {
		rounds, calls = 6, 250
		rates = append(rates, longRates...)
		pause = func() time.Duration { return time.Duration(math.Exp(rng.Float64() * math.Log(float64(day)))) }
	}
	for range rounds {
		l := s.ledger(t)
		names := buckets(4)
		current := make([]llmhttp.Rate, len(names))
		for i := range current {
			current[i] = rates[rng.IntN(len(rates))]
		}
		for range calls {
			var draws []llmhttp.Draw
			for _, i := range rng.Perm(len(names))[:1+rng.IntN(3)] {
				if rng.IntN(50) == 0 && current[i].N > 0 {
					if changed := rates[rng.IntN(len(rates))]; changed.N > 0 {
						current[i] = changed
					}
				}
				draws = append(draws, llmhttp.Draw{Bucket: names[i], Rate: current[i], Cost: randomCost(rng, current[i].WithDefaults().Burst)})
			}
			if rng.IntN(3) == 0 {
				for i := range draws {
					draws[i].Cost *= 1 - 2*rng.IntN(2)
				}
				l.adjust(draws...)
			} else {
				l.take(draws...)
			}
			if rng.IntN(2) == 0 {
				time.Sleep(pause())
			}
			if t.Failed() {
				return
			}
		}
	}
}

func randomCost(rng *rand.Rand, burst int) int {
	switch rng.IntN(8) {
	case 0:
		return 0
	case 1:
		return burst
	case 2:
		return min(burst, math.MaxInt32-1) + 1
	case 3, 4:
		return int(rng.Int64N(int64(burst) + 1))
	}
	return rng.IntN(burst/5 + 1)
}
