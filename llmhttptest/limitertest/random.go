// Random calls of a Limiter.

package limitertest

import (
	"context"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llmhttptest/internal/kit"
)

// A limiterCall is a call of a method after a pause. In the IDs of its subjects, # is that of the test.
type limiterCall struct {
	method  string // Settle calls the function that the Acquire or the Reserve with the same ID has returned
	Pause   time.Duration
	Draws   []llmhttp.BucketAmount
	ID      int
	Slots   []slotCall
	Cancel  bool // the context, before Take or when Acquire or Reserve has returned
	Linger  time.Duration
	Amounts []int64
}

var limiterSequences = kit.Sequences[limiterTest, limiterCall]{
	Count: 120, Generate: randomLimiterCalls, Begin: beginLimiterCalls, Simpler: kit.SimplerEach(limiterCall.simpler),
	Describe: func(c limiterCall) string { return c.method + kit.Describe(c) },
}

// beginLimiterCalls follows the buckets and slots with a tracker.
func beginLimiterCalls(t testing.TB, s limiterTest) func(limiterCall) {
	l := s.track(t)
	return func(c limiterCall) {
		time.Sleep(c.Pause)
		switch c.method {
		case "Take":
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if c.Cancel {
				cancel()
			}
			l.checkTake(ctx, c.Draws...)
		case "Adjust":
			l.checkAdjust(c.Draws...)
		case "Acquire", "Reserve":
			l.checkAcquire(c.ID, c.method == "Reserve", c.Cancel, c.Slots...)
		case "Settle":
			l.checkSettle(c.ID, c.Linger, c.Amounts...)
		}
	}
}

// Rates for random calls. Most refill so slowly that the number of tokens is certain.
var (
	slowRates = []llmhttp.Rate{
		slowRate(1), slowRate(10), slowRate(20),
		{N: 100, Per: 1000 * time.Hour, Burst: 5}, {N: 10, Per: 100 * time.Hour, Burst: 25}, {N: math.MaxInt32, Per: 1_000_000 * time.Hour},
		{N: -1}, {N: -1, Per: time.Microsecond, Burst: 100}, {N: -1_000_000, Per: time.Hour}, {N: 10, Per: 100 * time.Hour, Burst: -3},
	}
	fastRates = []llmhttp.Rate{
		{N: 200, Per: time.Second}, {N: 1500, Per: time.Second, Burst: 40}, {N: 13, Per: 40 * time.Millisecond, Burst: 70}, {N: 3, Per: 7 * time.Millisecond, Burst: 11},
		{N: 360_000, Per: time.Hour, Burst: 2}, {N: 1, Per: time.Millisecond, Burst: 2000}, {N: math.MaxInt32, Per: time.Millisecond},
		{N: 5}, {N: 5, Per: -1}, {N: 5, Burst: 50}, {N: 500, Burst: 5},
	}
)

// longRates are rates for tests in a bubble, where waiting costs nothing.
var longRates = []llmhttp.Rate{
	llmhttp.PerMinute(1), llmhttp.PerMinute(3), llmhttp.PerMinute(7), llmhttp.PerMinute(60), llmhttp.PerMinute(500), llmhttp.PerMinute(200_000),
	{N: 1_000_000, Per: day}, {N: 13, Per: 10 * day, Burst: 2}, {N: 1, Per: 5 * day}, {N: math.MaxInt32, Per: day},
	{N: math.MaxInt32}, {N: math.MaxInt32, Per: time.Second, Burst: 10}, {N: 30_000, Per: time.Millisecond}, {N: 17, Per: 17*time.Second + 1, Burst: 1},
}

// randomLimiterCalls returns calls with few subjects, buckets and rates. The Rate of a bucket
// that permits nothing does not change. Some sequences have calls for slots, too.
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
		rates = append(rates, kit.Pick(rng, kit.Pick(rng, pools...)...))
	}
	subjects, buckets := []llmhttp.SubjectID{{Kind: llmhttp.KindUser, ID: "#"}, keySubject("#"), {Kind: llmhttp.KindAccount, ID: "#"}}, []string{"a", "b", "c"}
	subjects = subjects[:kit.Pick(rng, 1, 2, 3)]
	methods := []string{"Take", "Take", "Adjust"}
	switch i % 4 {
	case 0:
		methods = slices.Concat(methods, slices.Repeat(s.slotMethods(), 3))
	case 1, 3:
		subjects, buckets = similarBuckets(rng, i/2)
		methods = slices.Concat(methods, s.slotMethods())
	}
	current := map[bucketID]llmhttp.Rate{}
	calls := make([]limiterCall, 40)
	for i := range calls {
		c := &calls[i]
		c.method = kit.Pick(rng, methods...)
		if rng.IntN(6) == 0 {
			c.Pause = pause()
		}
		for _, k := range rng.Perm(len(subjects))[:1+rng.IntN(min(len(subjects), 3))] {
			subject := subjects[k]
			switch c.method {
			case "Acquire", "Reserve":
				c.ID, c.Cancel = rng.IntN(2), rng.IntN(4) == 0
				c.Slots = append(c.Slots, randomSlots(rng, subject, buckets)...)
				if full := &c.Slots[rng.IntN(len(c.Slots))]; rng.IntN(3) == 0 {
					full.Room = full.Amount - kit.Pick[int64](rng, 1, 1, 1<<42)
				}
			case "Settle":
				c.ID, c.Linger, c.Amounts = rng.IntN(2), kit.Pick(rng, 0, 365*day, 365*day, 365*day, 365*day, 365*day, -day), nil
				for range kit.Pick(rng, 0, 6, 6, 6, 6, 6) {
					c.Amounts = append(c.Amounts, kit.Pick[int64](rng, 0, 1, 3, 1<<41, -9, -9, -1<<40))
				}
			default:
				c.Cancel = c.method == "Take" && rng.IntN(20) == 0
				c.Draws = append(c.Draws, randomDraws(rng, subject, buckets, c.method == "Adjust", rates, current)...)
			}
		}
	}
	return calls
}

// similarBuckets returns subjects and names of buckets or slots that a store may confuse, alone or
// together, if it joins or cuts them. They differ with n.
func similarBuckets(rng *rand.Rand, n int) (subjects []llmhttp.SubjectID, buckets []string) {
	all := kit.TrickyNames()
	a, b := all[n%len(all)], all[(n+1)%len(all)]
	others := []llmhttp.SubjectID{keySubject("#"), keySubject("#:" + b), {Kind: llmhttp.KindAccount, ID: "#" + b}, {Kind: "ke", ID: "y#" + b}}
	rng.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	buckets = []string{"", a, b, ":" + b, b + ":" + b}
	rng.Shuffle(len(buckets), func(i, j int) { buckets[i], buckets[j] = buckets[j], buckets[i] })
	return append(others[:2], keySubject("#"+a), keySubject("#"+b)), buckets[:4]
}

func slotName(s slotCall) bucketID { return bucketID{s.Subject, s.Name} }

// slotMethods returns the methods for slots that the Limiter has, or nil.
func (l limiterTest) slotMethods() (methods []string) {
	if _, ok := l.limiter.(llmhttp.ConcurrencyLimiter); ok {
		methods = []string{"Acquire", "Settle"}
	}
	if _, ok := l.limiter.(llmhttp.Reserver); ok {
		methods = append(methods, "Reserve", "Reserve", "Settle")
	}
	return methods
}

func randomSlots(rng *rand.Rand, subject llmhttp.SubjectID, names []string) (slots []slotCall) {
	for _, name := range rng.Perm(len(names) - 1)[:kit.Pick(rng, 1, 1, 2)] {
		s := slotCall{Subject: subject, Name: names[name], Amount: kit.Pick[int64](rng, 1, 2, 5, 1<<40)}
		s.Room = s.Amount + kit.Pick[int64](rng, 0, 0, 2)
		slots = append(slots, s)
	}
	return slots
}

// randomDraws returns draws of a subject. current has the rates of buckets, which it may change to
// another one of rates.
func randomDraws(rng *rand.Rand, subject llmhttp.SubjectID, names []string, adjust bool, rates []llmhttp.Rate, current map[bucketID]llmhttp.Rate) (draws []llmhttp.BucketAmount) {
	for _, bucket := range rng.Perm(len(names))[:kit.Pick(rng, 0, 1, 1, 2, 3)] {
		d := llmhttp.BucketAmount{Subject: subject, Bucket: names[bucket]}
		id := bucketID{d.Subject, d.Bucket}
		rate, ok := current[id]
		if changed := kit.Pick(rng, rates...); !ok || rng.IntN(8) == 0 && rate.N > 0 && changed.N > 0 {
			rate = changed
			current[id] = rate
		}
		d.Rate, d.Amount = rate, randomCost(rng, rate.WithDefaults().Burst)
		if adjust {
			d.Amount = randomAdjustment(rng, d.Amount)
		}
		draws = append(draws, d)
	}
	return draws
}

func randomCost(rng *rand.Rand, burst int) int64 {
	n := int64(burst)
	switch rng.IntN(8) {
	case 0:
		return 0
	case 1, 2:
		return n
	case 3:
		return min(n, math.MaxInt32-1) + 1
	case 4, 5:
		return rng.Int64N(n + 1)
	}
	return rng.Int64N(n/5 + 1)
}

func randomAdjustment(rng *rand.Rand, amount int64) int64 {
	return kit.Pick(rng, amount, amount, -amount, -amount, 2*amount, -math.MaxInt32, kit.Pick(rng, math.MaxInt32, int64(1<<20)))
}

// simpler yields calls with one field that is simpler, except that names and rates stay.
func (c limiterCall) simpler() iter.Seq[limiterCall] {
	return func(yield func(limiterCall) bool) {
		for s := range kit.SimplerFields(c) {
			renamed := slices.ContainsFunc(s.Draws, func(d llmhttp.BucketAmount) bool {
				return !slices.ContainsFunc(c.Draws, func(before llmhttp.BucketAmount) bool { before.Amount = d.Amount; return d == before })
			}) || slices.ContainsFunc(s.Slots, func(s slotCall) bool {
				return s.Amount == 0 || !slices.ContainsFunc(c.Slots, func(before slotCall) bool { return slotName(before) == slotName(s) })
			})
			if !renamed && (len(s.Slots) > 0 || len(c.Slots) == 0) && !yield(s) {
				return
			}
		}
	}
}
