package llmhttptest

import (
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
)

// A limiterCall is a call of Take or Adjust after a pause. The IDs of its subjects are those of
// the test.
type limiterCall struct {
	pause  time.Duration
	adjust bool
	draws  []llmhttp.Draw
}

var limiterSequences = sequences[limiterTest, limiterCall]{
	count: 100, generate: randomLimiterCalls, begin: beginLimiterCalls,
	simpler: simplerLimiterCalls, describe: limiterCall.String,
	causes: []cause[limiterCall]{
		{
			"a negative N is not read as permitting nothing, with a burst of zero. Rate.WithDefaults does that.",
			anyDraw(func(d llmhttp.Draw) bool { return d.Rate.N < 0 }),
		},
		{
			"the Limiter does not read rates through Rate.WithDefaults.",
			anyDraw(func(d llmhttp.Draw) bool { return d.Rate != d.Rate.WithDefaults() }),
		},
		{"a new Rate resets or scales the bucket, or is ignored.", changesRate},
		{
			"a Take or an Adjust without draws fails, or uses the first draw without checking that there is one.",
			anyCall(func(c limiterCall) bool { return len(c.draws) == 0 }),
		},
		{
			"the subject of a draw is ignored, or the subjects before one that refuses do not get their tokens back.",
			anyCall(hasSeveralSubjects),
		},
		{
			"the Limiter takes from one bucket before it has checked the others, levels are not in the order of the draws, or RetryAfter is not computed for each bucket alone.",
			anyCall(func(c limiterCall) bool { return len(c.draws) > 1 }),
		},
		{
			"a sum, product or duration overflows.",
			anyDraw(func(d llmhttp.Draw) bool { return max(d.Amount, -d.Amount, int64(d.Rate.N)) > 1<<15 }),
		},
		{
			"buckets do not refill evenly at N per Per, up to their burst; or a bucket in debt gains tokens before the debt is paid.",
			anyCall(func(c limiterCall) bool { return c.pause > 0 }),
		},
		{
			"Adjust refuses what the bucket does not hold, ignores negative costs, or returns tokens beyond the burst; or the number of tokens has a lower bound.",
			anyCall(func(c limiterCall) bool { return c.adjust }),
		},
		{
			"the cost is not compared with the burst, or one above it is an error.",
			anyDraw(func(d llmhttp.Draw) bool { return d.Amount > int64(d.Rate.Burst) }),
		},
		{
			"a new bucket does not hold its burst, a Level is not the state after the call, or a cost of zero is not always granted.",
			anyCall(func(limiterCall) bool { return true }),
		},
	},
}

func (c limiterCall) String() string {
	call := "Take"
	if c.adjust {
		call = "Adjust"
	}
	call += describeDraws(c.draws)
	if c.pause > 0 {
		call = fmt.Sprintf("Sleep(%v); %s", c.pause, call)
	}
	return call
}

func anyCall[Call any](has func(c Call) bool) func([]Call) bool {
	return func(calls []Call) bool { return slices.ContainsFunc(calls, has) }
}

func anyDraw(has func(d llmhttp.Draw) bool) func([]limiterCall) bool {
	return anyCall(func(c limiterCall) bool { return slices.ContainsFunc(c.draws, has) })
}

func hasSeveralSubjects(c limiterCall) bool {
	return slices.ContainsFunc(c.draws, func(d llmhttp.Draw) bool { return d.Subject != c.draws[0].Subject })
}

// changesRate reports whether a bucket has several rates.
func changesRate(calls []limiterCall) bool {
	rates := map[bucketID]llmhttp.Rate{}
	return anyDraw(func(d llmhttp.Draw) bool {
		id := bucketID{d.Subject, d.Bucket}
		before, ok := rates[id]
		rates[id] = d.Rate
		return ok && before != d.Rate
	})(calls)
}

// beginLimiterCalls follows the buckets with a tracker.
func beginLimiterCalls(t testing.TB, s limiterTest) func(limiterCall) {
	l := s.track(t)
	return func(c limiterCall) {
		draws := slices.Clone(c.draws)
		for i := range draws {
			draws[i].Subject.ID = l.subject.ID
		}
		time.Sleep(c.pause)
		if c.adjust {
			l.checkAdjust(draws...)
		} else {
			l.checkTake(draws...)
		}
	}
}

// Rates for random calls. Most refill so slowly that the number of tokens is certain.
var (
	slowRates = []llmhttp.Rate{
		slowRate(
			1,
		), slowRate(10), slowRate(20), {N: 100, Per: 1000 * time.Hour, Burst: 5}, {N: 10, Per: 100 * time.Hour, Burst: 25}, {N: math.MaxInt32, Per: 1_000_000 * time.Hour},
		{N: -1}, {N: -1, Per: time.Microsecond, Burst: 100}, {N: -1_000_000, Per: time.Hour}, {N: 10, Per: 100 * time.Hour, Burst: -3},
	}
	fastRates = []llmhttp.Rate{
		{
			N:   200,
			Per: time.Second,
		}, {N: 1500, Per: time.Second, Burst: 40}, {N: 13, Per: 40 * time.Millisecond, Burst: 70}, {N: 3, Per: 7 * time.Millisecond, Burst: 11},
		{N: 360_000, Per: time.Hour, Burst: 2}, {N: 1, Per: time.Millisecond, Burst: 2000}, {N: math.MaxInt32, Per: time.Millisecond},
		{N: 5}, {N: 5, Per: -1}, {N: 5, Burst: 50}, {N: 500, Burst: 5},
	}
)

// randomLimiterCalls returns calls with few subjects, buckets and rates. The Rate of a bucket
// that permits nothing does not change.
func randomLimiterCalls(rng *rand.Rand, s limiterTest, i int) []limiterCall {
	pools := [][]llmhttp.Rate{slowRates, slowRates, fastRates}
	pause := func() time.Duration { return time.Duration(rng.IntN(2000)) * time.Microsecond }
	if s.inBubble {
		pools = append(pools, longRates)
		pause = func() time.Duration { return time.Duration(math.Exp(rng.Float64() * math.Log(float64(day)))) }
	}
	all := slices.Concat(pools[1:]...)
	rates := []llmhttp.Rate{all[i%len(all)]}
	for range rng.IntN(4) {
		rates = append(rates, pick(rng, pick(rng, pools...)...))
	}
	kinds := []string{llmhttp.KindUser, llmhttp.KindKey, llmhttp.KindAccount}[:pick(rng, 1, 2, 3)]
	current := map[bucketID]llmhttp.Rate{}
	calls := make([]limiterCall, 40)
	for i := range calls {
		c := &calls[i]
		c.adjust = rng.IntN(3) == 0
		if rng.IntN(6) == 0 {
			c.pause = pause()
		}
		rng.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
		for _, kind := range kinds[:1+rng.IntN(len(kinds))] {
			for _, bucket := range rng.Perm(3)[:pick(rng, 0, 1, 1, 2, 3)] {
				d := llmhttp.Draw{Subject: llmhttp.SubjectID{Kind: kind}, Bucket: "abc"[bucket : bucket+1]}
				id := bucketID{d.Subject, d.Bucket}
				rate, ok := current[id]
				if changed := pick(rng, rates...); !ok || rng.IntN(8) == 0 && rate.N > 0 && changed.N > 0 {
					rate = changed
					current[id] = rate
				}
				d.Rate, d.Amount = rate, randomCost(rng, rate.WithDefaults().Burst)
				if c.adjust {
					d.Amount = randomAdjustment(rng, d.Amount)
				}
				c.draws = append(c.draws, d)
			}
		}
	}
	return calls
}

func randomCost(rng *rand.Rand, burst int) int64 {
	n := int64(burst)
	switch rng.IntN(8) {
	case 0:
		return 0
	case 1:
		return n
	case 2:
		return min(n, math.MaxInt32-1) + 1
	case 3, 4:
		return rng.Int64N(n + 1)
	}
	return rng.Int64N(n/5 + 1)
}

func randomAdjustment(rng *rand.Rand, amount int64) int64 {
	return pick(rng, amount, amount, -amount, -amount, 2*amount, -math.MaxInt32, pick(rng, math.MaxInt32, int64(1<<20)))
}

// simplerLimiterCalls yields calls with fewer draws, other rates, no pauses, and other amounts.
func simplerLimiterCalls(calls []limiterCall) iter.Seq[[]limiterCall] {
	change := func(i int, f func(c *limiterCall)) []limiterCall {
		changed := slices.Clone(calls)
		changed[i].draws = slices.Clone(changed[i].draws)
		f(&changed[i])
		return changed
	}
	return func(yield func([]limiterCall) bool) {
		for i, c := range calls {
			for k := range c.draws {
				if !yield(change(i, func(c *limiterCall) { c.draws = without(c.draws, k) })) {
					return
				}
			}
			if c.pause > 0 && !yield(change(i, func(c *limiterCall) { c.pause = 0 })) {
				return
			}
		}
		for changed := range simplerRates(calls) {
			if !yield(changed) {
				return
			}
		}
		for i, c := range calls {
			for k, d := range c.draws {
				for _, amount := range []int64{0, 1, int64(d.Rate.WithDefaults().Burst), d.Amount / 2} {
					if max(amount, 0) < max(d.Amount, -d.Amount) && !yield(change(i, func(c *limiterCall) { c.draws[k].Amount = amount })) {
						return
					}
				}
			}
		}
	}
}

// simplerRates yields calls in which one Rate is replaced everywhere.
func simplerRates(calls []limiterCall) iter.Seq[[]limiterCall] {
	simplest := slowRate(10).WithDefaults()
	return func(yield func([]limiterCall) bool) {
		for _, c := range calls {
			for _, d := range c.draws {
				for _, rate := range []llmhttp.Rate{simplest, d.Rate.WithDefaults()} {
					if rate == d.Rate || d.Rate == simplest || d.Rate.N < 0 {
						continue
					}
					changed := slices.Clone(calls)
					for i := range changed {
						changed[i].draws = slices.Clone(changed[i].draws)
						for k := range changed[i].draws {
							if draw := &changed[i].draws[k]; draw.Rate == d.Rate {
								draw.Rate = rate
							}
						}
					}
					if !yield(changed) {
						return
					}
				}
			}
		}
	}
}
