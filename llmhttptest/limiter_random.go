package llmhttptest

import (
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
)

// A limiterCall is a call of a method after a pause. The IDs of its subjects are those of the test.
type limiterCall struct {
	method  string // Settle calls the function that the Acquire or the Reserve with the same ID has returned
	Pause   time.Duration
	Draws   []llmhttp.Draw
	ID      int
	Slots   []slotCall
	Cancel  bool // the context, when Acquire or Reserve has returned
	Linger  time.Duration
	Amounts []int64
}

var limiterSequences = sequences[limiterTest, limiterCall]{
	count: 80, generate: randomLimiterCalls, begin: beginLimiterCalls, simpler: simplerLimiterCalls,
	describe: func(c limiterCall) string { return c.method + describe(c) },
	causes: []cause[limiterCall]{
		{
			"tokens and slots are stored under the same name.",
			func(calls []limiterCall) bool {
				return anyCall(usesSlots)(calls) && anyCall(func(c limiterCall) bool { return len(c.Draws) > 0 })(calls)
			},
		},
		{
			"the context of Acquire or Reserve is used for more than the call: its end gives the slots back, or keeps them.",
			anyCall(func(c limiterCall) bool { return c.Cancel }),
		},
		{
			"slots before one that is full are kept, full is not the index of one that is, or what is given back are not all slots of the call.",
			anyCall(func(c limiterCall) bool { return len(c.Slots) > 1 }),
		},
		{"a second call gives the slots back again.", settlesTwice},
		{
			"settle keeps what was reserved, not the Amount for the same slot, or what is not positive or has no time to linger.",
			anyCall(func(c limiterCall) bool { return c.method == "Reserve" }),
		},
		{
			"the Amount or the Limit of a Slot is not used, is cut to 32 bits, or is kept for later calls; or nothing is given back.",
			anyCall(usesSlots),
		},
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
			anyCall(func(c limiterCall) bool { return len(c.Draws) == 0 }),
		},
		{
			"the subject of a draw is ignored, or the subjects before one that refuses do not get their tokens back.",
			anyCall(hasSeveralSubjects),
		},
		{
			"the Limiter takes from one bucket before it has checked the others, levels are not in the order of the draws, or RetryAfter is not computed for each bucket alone.",
			anyCall(func(c limiterCall) bool { return len(c.Draws) > 1 }),
		},
		{
			"a sum, product or duration overflows.",
			anyDraw(func(d llmhttp.Draw) bool { return max(d.Amount, -d.Amount, int64(d.Rate.N)) > 1<<15 }),
		},
		{
			"buckets do not refill evenly at N per Per, up to their burst; or a bucket in debt gains tokens before the debt is paid.",
			anyCall(func(c limiterCall) bool { return c.Pause > 0 }),
		},
		{
			"Adjust refuses what the bucket does not hold, ignores negative costs, or returns tokens beyond the burst; or the number of tokens has a lower bound.",
			anyCall(func(c limiterCall) bool { return c.method == "Adjust" }),
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

func anyCall[Call any](has func(c Call) bool) func([]Call) bool {
	return func(calls []Call) bool { return slices.ContainsFunc(calls, has) }
}

func anyDraw(has func(d llmhttp.Draw) bool) func([]limiterCall) bool {
	return anyCall(func(c limiterCall) bool { return slices.ContainsFunc(c.Draws, has) })
}

func hasSeveralSubjects(c limiterCall) bool {
	return slices.ContainsFunc(c.Draws, func(d llmhttp.Draw) bool { return d.Subject != c.Draws[0].Subject })
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

func usesSlots(c limiterCall) bool { return len(c.Slots) > 0 }

func settlesTwice(calls []limiterCall) bool {
	settled := map[int]bool{}
	return anyCall(func(c limiterCall) bool {
		if c.method != "Settle" {
			return false
		}
		twice := settled[c.ID]
		settled[c.ID] = true
		return twice
	})(calls)
}

// beginLimiterCalls follows the buckets and slots with a tracker.
func beginLimiterCalls(t testing.TB, s limiterTest) func(limiterCall) {
	l := s.track(t)
	return func(c limiterCall) {
		draws := slices.Clone(c.Draws)
		for i := range draws {
			draws[i].Subject.ID = l.subject.ID
		}
		time.Sleep(c.Pause)
		switch c.method {
		case "Take":
			l.checkTake(draws...)
		case "Adjust":
			l.checkAdjust(draws...)
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
		rates = append(rates, pick(rng, pick(rng, pools...)...))
	}
	methods, slotMethods := []string{"Take", "Take", "Adjust"}, s.slotMethods()
	if i%2 == 1 && slotMethods != nil {
		methods = slices.Concat(methods, slotMethods, slotMethods, slotMethods)
	}
	kinds := []string{llmhttp.KindUser, llmhttp.KindKey, llmhttp.KindAccount}[:pick(rng, 1, 2, 3)]
	current := map[bucketID]llmhttp.Rate{}
	calls := make([]limiterCall, 40)
	for i := range calls {
		c := &calls[i]
		c.method = pick(rng, methods...)
		if rng.IntN(6) == 0 {
			c.Pause = pause()
		}
		rng.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
		for _, kind := range kinds[:1+rng.IntN(len(kinds))] {
			switch c.method {
			case "Acquire", "Reserve":
				c.ID, c.Cancel = rng.IntN(2), rng.IntN(4) == 0
				c.Slots = append(c.Slots, randomSlots(rng, kind)...)
				if full := &c.Slots[rng.IntN(len(c.Slots))]; rng.IntN(3) == 0 {
					full.Room = full.Amount - pick[int64](rng, 1, 1, 1<<42)
				}
			case "Settle":
				c.ID, c.Linger, c.Amounts = rng.IntN(2), pick(rng, 0, 365*day, 365*day, 365*day, 365*day, 365*day, -day), nil
				for range pick(rng, 0, 6, 6, 6, 6, 6) {
					c.Amounts = append(c.Amounts, pick[int64](rng, 0, 1, 3, 1<<41, -9, -9, -1<<40))
				}
			default:
				c.Draws = append(c.Draws, randomDraws(rng, kind, c.method == "Adjust", rates, current)...)
			}
		}
	}
	return calls
}

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

func randomSlots(rng *rand.Rand, kind string) (slots []slotCall) {
	for _, name := range rng.Perm(2)[:pick(rng, 1, 1, 2)] {
		s := slotCall{Kind: kind, Name: "ab"[name : name+1], Amount: pick[int64](rng, 1, 2, 5, 1<<40)}
		s.Room = s.Amount + pick[int64](rng, 0, 0, 2)
		slots = append(slots, s)
	}
	return slots
}

// randomDraws returns draws of a subject. current has the rates of buckets, which it may change to
// another one of rates.
func randomDraws(rng *rand.Rand, kind string, adjust bool, rates []llmhttp.Rate, current map[bucketID]llmhttp.Rate) (draws []llmhttp.Draw) {
	for _, bucket := range rng.Perm(3)[:pick(rng, 0, 1, 1, 2, 3)] {
		d := llmhttp.Draw{Subject: llmhttp.SubjectID{Kind: kind}, Bucket: "abc"[bucket : bucket+1]}
		id := bucketID{d.Subject, d.Bucket}
		rate, ok := current[id]
		if changed := pick(rng, rates...); !ok || rng.IntN(8) == 0 && rate.N > 0 && changed.N > 0 {
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
	return pick(rng, amount, amount, -amount, -amount, 2*amount, -math.MaxInt32, pick(rng, math.MaxInt32, int64(1<<20)))
}

// simplerLimiterCalls yields calls with one field that is simpler, except that names stay, and a Rate
// is replaced everywhere.
func simplerLimiterCalls(calls []limiterCall) iter.Seq[[]limiterCall] {
	return func(yield func([]limiterCall) bool) {
		for changed := range simplerEach(limiterCall.simpler)(calls) {
			if !yield(changed) {
				return
			}
		}
		simplerRates(calls)(yield)
	}
}

func (c limiterCall) simpler() iter.Seq[limiterCall] {
	return func(yield func(limiterCall) bool) {
		for s := range simplerFields(c) {
			renamed := slices.ContainsFunc(s.Draws, func(d llmhttp.Draw) bool {
				return !slices.ContainsFunc(c.Draws, func(before llmhttp.Draw) bool { before.Amount = d.Amount; return d == before })
			}) || slices.ContainsFunc(s.Slots, func(s slotCall) bool {
				return s.Amount == 0 || !slices.ContainsFunc(c.Slots, func(before slotCall) bool { return before.Kind == s.Kind && before.Name == s.Name })
			})
			if !renamed && (len(s.Slots) > 0 || len(c.Slots) == 0) && !yield(s) {
				return
			}
		}
	}
}

// simplerRates yields calls in which one Rate is replaced everywhere.
func simplerRates(calls []limiterCall) iter.Seq[[]limiterCall] {
	simplest := slowRate(10).WithDefaults()
	return func(yield func([]limiterCall) bool) {
		for _, c := range calls {
			for _, d := range c.Draws {
				for _, rate := range []llmhttp.Rate{simplest, d.Rate.WithDefaults()} {
					if rate == d.Rate || d.Rate == simplest || d.Rate.N < 0 {
						continue
					}
					changed := slices.Clone(calls)
					for i := range changed {
						changed[i].Draws = slices.Clone(changed[i].Draws)
						for k := range changed[i].Draws {
							if draw := &changed[i].Draws[k]; draw.Rate == d.Rate {
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
