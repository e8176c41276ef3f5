package llmhttptest

import (
	"context"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
)

var limiterChecks = []check[limiterTest]{
	{"Full", checkLimiterFull},
	{"Defaults", checkLimiterDefaults},
	{"AllOrNothing", checkLimiterAllOrNothing},
	{"Levels", checkLimiterLevels},
	{"ZeroCost", checkLimiterZeroCost},
	{"TooMuch", checkLimiterTooMuch},
	{"Nothing", checkLimiterNothing},
	{"NoDraws", checkLimiterNoDraws},
	{"Adjust", checkLimiterAdjust},
	{"Debt", checkLimiterDebt},
	{"Refill", checkLimiterRefill},
	{"Polled", checkLimiterPolled},
	{"RetryAfter", checkLimiterRetryAfter},
	{"Idle", checkLimiterIdle},
	{"RateChange", checkLimiterRateChange},
	{"Huge", checkLimiterHuge},
	{"Names", checkLimiterNames},
	{"Cancelled", checkLimiterCancelled},
	{"Random", checkLimiterRandom},
	{"Concurrent", checkLimiterConcurrent},
	{"ConcurrentSeveral", checkLimiterConcurrentSeveral},
	{"ConcurrentAdjust", checkLimiterConcurrentAdjust},
}

func checkLimiterFull(t testing.TB, s limiterTest) {
	l := s.ledger(t)
	bursty, damped := slow(10), slow(10)
	bursty.Burst, damped.Burst = 25, 4
	for _, rate := range []llmhttp.Rate{slow(1), slow(10), bursty, damped} {
		burst := rate.WithDefaults().Burst
		asked := llmhttp.Draw{Bucket: newBucket(), Rate: rate}
		l.expect(burst, asked)
		if level := l.mustTake(true, asked)[0]; level.ResetAfter != 0 {
			t.Errorf("a full bucket has a ResetAfter of %v", level.ResetAfter)
		}
		at := llmhttp.Draw{Bucket: newBucket(), Rate: rate, Cost: burst} // all at once
		if level := l.mustTake(true, at)[0]; level.Remaining != 0 {
			t.Errorf("%d tokens remain after all %d were taken", level.Remaining, burst)
		}
		at.Cost = 1
		l.mustTake(false, at)
		at.Bucket = newBucket() // one by one
		for i := range burst {
			if level := l.mustTake(true, at)[0]; level.Remaining != burst-1-i {
				t.Errorf("%d tokens remain after %d of %d were taken", level.Remaining, i+1, burst)
			}
		}
		l.mustTake(false, at)
	}
}

func checkLimiterDefaults(t testing.TB, s limiterTest) {
	l := s.ledger(t)
	for _, rate := range []llmhttp.Rate{
		{N: 5}, {N: 5, Per: -1}, {N: 5, Burst: -3}, {N: 5, Per: time.Hour}, {N: 5, Burst: 50}, {N: 500, Burst: 5}, llmhttp.PerMinute(7), {N: 1},
	} {
		at := llmhttp.Draw{Bucket: newBucket(), Rate: rate}
		l.mustTake(true, at)
		at.Cost = rate.WithDefaults().Burst
		l.mustTake(true, at)
		l.take(at) // at least its levels are known
		at.Cost++
		l.mustTake(false, at)
	}
}

func checkLimiterAllOrNothing(t testing.TB, s limiterTest) {
	for short := range 3 { // which of three buckets has too little
		l := s.ledger(t)
		var draws []llmhttp.Draw
		for i, bucket := range buckets(3) {
			draws = append(draws, llmhttp.Draw{Bucket: bucket, Rate: slow(10 + i), Cost: 4})
		}
		taken := draws[short]
		taken.Cost = 7 + short // all but three
		l.mustTake(true, taken)
		for range 3 {
			l.mustTake(false, draws...)
		}
		for i, d := range draws {
			if i != short {
				l.expect(10+i, d)
			}
		}
		l.expect(3, taken)
		draws[short].Cost = 3
		l.mustTake(true, draws...)
		for i, d := range draws {
			if i != short {
				l.expect(10+i-4, d)
			}
		}
		l.expect(0, taken)
		l.mustTake(false, draws...)
	}
}

func checkLimiterLevels(t testing.TB, s limiterTest) {
	l := s.ledger(t)
	var draws []llmhttp.Draw
	for i, bucket := range buckets(4) {
		draws = append(draws, llmhttp.Draw{Bucket: bucket, Rate: slow(10 * (i + 1)), Cost: i + 1})
	}
	for i, level := range l.mustTake(true, draws...) {
		if want := 9 * (i + 1); level.Remaining != want {
			t.Errorf("%d tokens remain in bucket %d, want %d", level.Remaining, i, want)
		}
	}
	slices.Reverse(draws)
	for i, level := range l.mustTake(true, draws...) {
		if want := 8 * (4 - i); level.Remaining != want {
			t.Errorf("%d tokens remain in bucket %d after draws in reverse, want %d", level.Remaining, i, want)
		}
	}
	draws[1].Cost, draws[2].Cost = 25, 17 // of 24 and 16
	for i, level := range l.mustTake(false, draws...) {
		if want := i == 1 || i == 2; (level.RetryAfter > 0) != want {
			t.Errorf("draw %d of a Take that was refused: RetryAfter is %v; whether its bucket has too little is %t", i, level.RetryAfter, want)
		}
		if want := 8 * (4 - i); level.Remaining != want {
			t.Errorf("%d tokens remain in bucket %d of a Take that was refused, want %d", level.Remaining, i, want)
		}
	}
}

func checkLimiterZeroCost(t testing.TB, s limiterTest) {
	l := s.ledger(t)
	names := buckets(2)
	empty := llmhttp.Draw{Bucket: names[0], Rate: slow(10), Cost: 10}
	other := llmhttp.Draw{Bucket: names[1], Rate: slow(10), Cost: 3}
	l.mustTake(true, empty)
	for range 3 {
		l.expect(0, empty)
	}
	empty.Cost = 0
	l.mustTake(true, other, empty) // one that has nothing keeps nobody from taking nothing
	l.expect(7, other)
	empty.Cost = 5
	l.adjust(empty)
	for range 3 {
		l.expect(0, empty)
	}
	empty.Cost = 0
	l.mustTake(true, empty, other)
	l.expect(4, other)
}

func checkLimiterTooMuch(t testing.TB, s limiterTest) {
	l := s.ledger(t)
	rate := slow(100)
	rate.Burst = 5
	names := buckets(2)
	other := llmhttp.Draw{Bucket: names[1], Rate: slow(10), Cost: 1}
	for _, cost := range []int{6, 100, 101, math.MaxInt32} {
		at := llmhttp.Draw{Bucket: names[0], Rate: rate, Cost: cost}
		l.mustTake(false, at)
		l.mustTake(false, other, at)
		l.expect(5, at)
		l.expect(10, other)
		if s.exact {
			time.Sleep(5000 * time.Hour)
			l.mustTake(false, at)
		}
	}
	l.mustTake(true, llmhttp.Draw{Bucket: names[0], Rate: rate, Cost: 5}, other)
}

func checkLimiterNothing(t testing.TB, s limiterTest) {
	l := s.ledger(t)
	for _, rate := range []llmhttp.Rate{{N: -1}, {N: -1, Per: time.Microsecond, Burst: 100}, {N: -1000000, Per: time.Hour}} {
		names := buckets(2)
		never := llmhttp.Draw{Bucket: names[0], Rate: rate, Cost: 1}
		other := llmhttp.Draw{Bucket: names[1], Rate: slow(10), Cost: 1}
		l.mustTake(false, never)
		l.mustTake(false, other, never)
		l.expect(0, never)
		l.expect(10, other)
		never.Cost = -5
		l.adjust(never)
		never.Cost = 1
		l.mustTake(false, never)
		l.adjust(never)
		l.mustTake(false, never)
		if s.exact {
			time.Sleep(10 * time.Hour)
		} else {
			time.Sleep(time.Millisecond)
		}
		l.mustTake(false, never)
		never.Cost = 0
		l.mustTake(true, never, other)
	}
}

func checkLimiterNoDraws(t testing.TB, s limiterTest) {
	l := s.ledger(t)
	l.mustTake(true)
	l.adjust()
}

func checkLimiterAdjust(t testing.TB, s limiterTest) {
	l := s.ledger(t)
	names := buckets(3)
	at := func(bucket, cost int) llmhttp.Draw {
		return llmhttp.Draw{Bucket: names[bucket], Rate: slow(10), Cost: cost}
	}
	l.mustTake(true, at(0, 6))
	l.adjust(at(0, 3)) // more was used than expected
	l.expect(1, at(0, 0))
	l.adjust(at(0, -4)) // less was used
	l.expect(5, at(0, 0))
	l.adjust(at(0, 0))
	l.expect(5, at(0, 0))
	l.adjust(at(0, -100)) // no more than there is room for
	l.expect(10, at(0, 0))
	l.mustTake(true, at(0, 10))
	l.mustTake(false, at(0, 1))

	l.adjust(at(1, 4)) // on one that is new, and so full
	l.expect(6, at(1, 0))
	l.adjust(at(2, -4))
	l.expect(10, at(2, 0))
	l.adjust(at(0, -2), at(1, 3), at(2, 9)) // several, each with its own
	l.expect(2, at(0, 0))
	l.expect(3, at(1, 0))
	l.expect(1, at(2, 0))
	l.adjust(at(1, 7), at(0, 0), at(2, -1)) // one that has too little is no hindrance
	l.expect(2, at(0, 0))
	l.expect(0, at(1, 0))
	l.expect(2, at(2, 0))
}

func checkLimiterDebt(t testing.TB, s limiterTest) {
	l := s.ledger(t)
	bucket := newBucket()
	draw := func(cost int) llmhttp.Draw { return llmhttp.Draw{Bucket: bucket, Rate: slow(10), Cost: cost} }
	l.adjust(draw(25)) // to -15
	l.expect(0, draw(0))
	l.mustTake(false, draw(1))
	l.adjust(draw(-15)) // to 0
	l.mustTake(false, draw(1))
	l.adjust(draw(-2))
	l.mustTake(true, draw(2))
	l.adjust(draw(1 << 20))
	l.mustTake(false, draw(1))
	l.adjust(draw(-1 << 20))
	l.adjust(draw(-3))
	l.expect(3, draw(0))

	// What comes in while in debt pays the debt.
	rate := llmhttp.Rate{N: 200, Per: time.Second, Burst: 40}
	bucket = newBucket()
	l.adjust(llmhttp.Draw{Bucket: bucket, Rate: rate, Cost: 50}) // to -10, which takes 50ms
	for range 12 {
		time.Sleep(10 * time.Millisecond)
		l.take(llmhttp.Draw{Bucket: bucket, Rate: rate, Cost: 1})
	}
}

func checkLimiterNames(t testing.TB, s limiterTest) {
	l := s.ledger(t)
	prefix := unique("bucket")
	var draws []llmhttp.Draw
	for _, name := range names() {
		draws = append(draws,
			llmhttp.Draw{Bucket: prefix + name + ":", Rate: slow(100)},
			llmhttp.Draw{Bucket: prefix + name + ":tokens", Rate: slow(100)},
			llmhttp.Draw{Bucket: prefix + ":" + name, Rate: slow(100)})
	}
	for i, d := range draws {
		d.Cost = i % 100
		l.mustTake(true, d)
	}
	for i, d := range draws {
		l.expect(100-i%100, d)
	}
}

func checkLimiterCancelled(t testing.TB, s limiterTest) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	at := llmhttp.Draw{Bucket: newBucket(), Rate: slow(10), Cost: 3}
	levels, err := s.Take(ctx, at)
	if err == nil && (len(levels) != 1 || levels[0].RetryAfter != 0 || levels[0].Remaining != 7) {
		t.Errorf("Take with a cancelled context: the levels are %+v, want 7 tokens to remain, or an error", levels)
	}
	at.Cost = 0
	levels, after := s.Take(t.Context(), at)
	if after != nil || len(levels) != 1 {
		t.Fatalf("Take: levels %+v, error %v", levels, after)
	}
	if r := levels[0].Remaining; r != 7 && (err == nil || r != 10) {
		t.Errorf("%d tokens remain after a Take of 3 of 10 with a cancelled context, whose error was %v", r, err)
	}
}

func checkLimiterConcurrent(t testing.TB, s limiterTest) {
	const workers, holds = 16, 50
	for _, cost := range []int{1, 3} {
		at := llmhttp.Draw{Bucket: newBucket(), Rate: slow(holds), Cost: cost}
		var granted atomic.Int64
		together(t, workers, func(int) {
			for range 2 * holds / workers {
				levels, err := s.Take(t.Context(), at)
				if err != nil || len(levels) != 1 {
					t.Errorf("Take: levels %+v, error %v", levels, err)
					return
				}
				if isGranted(levels) {
					granted.Add(1)
				}
			}
		})
		if want := int64(holds / cost); granted.Load() != want {
			t.Errorf("%d of %d concurrent Takes of %d were granted from a bucket of %d, want %d", granted.Load(), workers*(2*holds/workers), cost, holds, want)
		}
	}
}

// checkLimiterConcurrentSeveral draws on two buckets, in either order.
func checkLimiterConcurrentSeveral(t testing.TB, s limiterTest) {
	const workers, small = 16, 30
	for _, large := range []int{small, 50} {
		names := buckets(2)
		a := llmhttp.Draw{Bucket: names[0], Rate: slow(small), Cost: 1}
		b := llmhttp.Draw{Bucket: names[1], Rate: slow(large), Cost: 1}
		var granted atomic.Int64
		together(t, workers, func(i int) {
			draws := []llmhttp.Draw{a, b}
			if i%2 == 1 {
				slices.Reverse(draws)
			}
			for range 4 {
				levels, err := s.Take(t.Context(), draws...)
				if err != nil || len(levels) != 2 {
					t.Errorf("Take: levels %+v, error %v", levels, err)
					return
				}
				if isGranted(levels) {
					granted.Add(1)
				}
			}
		})
		if granted.Load() != small {
			t.Errorf("%d concurrent Takes were granted from buckets of %d and %d, want %d", granted.Load(), small, large, small)
		}
		a.Cost, b.Cost = 0, 0
		levels, err := s.Take(t.Context(), a, b)
		if err != nil || len(levels) != 2 || levels[0].Remaining != 0 || levels[1].Remaining != large-small {
			t.Errorf("after concurrent Takes: levels %+v, error %v, want 0 and %d tokens to remain", levels, err, large-small)
		}
	}
}

func checkLimiterConcurrentAdjust(t testing.TB, s limiterTest) {
	const workers, rounds, holds = 8, 10, 1000
	at := llmhttp.Draw{Bucket: newBucket(), Rate: slow(holds)}
	together(t, workers, func(int) {
		for range rounds {
			for _, cost := range []int{20, -15} { // which never fills the bucket
				d := at
				d.Cost = cost
				if err := s.Adjust(t.Context(), d); err != nil {
					t.Errorf("Adjust: error %v", err)
					return
				}
			}
		}
	})
	levels, err := s.Take(t.Context(), at)
	if want := holds - workers*rounds*5; err != nil || len(levels) != 1 || levels[0].Remaining != want {
		t.Errorf("after concurrent Adjusts: levels %+v, error %v, want %d tokens to remain", levels, err, want)
	}
}
