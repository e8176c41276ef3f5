package llmhttptest

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
)

// The checks in this file depend on the passing of time. The tracker bounds
// what may be right, however long the calls take.

func checkLimiterRefill(t testing.TB, s limiterTest) {
	l := s.track(t)
	draws := []llmhttp.Draw{
		{Bucket: l.newBucket(), Rate: llmhttp.Rate{N: 200, Per: time.Second}},
		{Bucket: l.newBucket(), Rate: llmhttp.Rate{N: 3, Per: 7 * time.Millisecond, Burst: 11}},
		{Bucket: l.newBucket(), Rate: llmhttp.Rate{N: 360_000, Per: time.Hour, Burst: 2}},
	}
	for _, d := range draws {
		d.Amount = int64(d.Rate.WithDefaults().Burst)
		l.mustTake(d)
	}
	for i := range 12 {
		time.Sleep(time.Duration(i+1) * 2 * time.Millisecond)
		l.checkTake(draws...)
		if i%4 == 3 {
			for _, d := range draws {
				d.Amount = 2
				l.checkTake(d)
			}
		}
	}
}

// checkLimiterFrequentCalls checks that neither peeks nor refused Takes slow
// the refill.
func checkLimiterFrequentCalls(t testing.TB, s limiterTest) {
	l := s.track(t)
	unit := time.Millisecond
	if s.inBubble {
		unit = time.Second
	}
	d := llmhttp.Draw{Bucket: l.newBucket(), Rate: llmhttp.Rate{N: 10, Per: 200 * unit}, Amount: 10}
	l.mustTake(d)
	began := time.Now()
	for i := 0; time.Since(began) < 150*unit; i++ {
		d.Amount = int64(i % 2 * 10)
		l.checkTake(d)
		time.Sleep(unit / 10)
	}
}

// checkLimiterRetryAfter checks that a bucket holds enough after a wait of
// RetryAfter, and its burst after a wait of ResetAfter.
func checkLimiterRetryAfter(t testing.TB, s limiterTest) {
	rates := []llmhttp.Rate{
		{N: 3, Per: 20 * time.Millisecond}, {N: 7, Per: 30 * time.Millisecond, Burst: 2}, {N: 1, Per: 3 * time.Millisecond, Burst: 9},
	}
	tolerance := clockError
	if s.inBubble {
		tolerance = time.Microsecond // for rounding
		rates = append(rates, longRates...)
	}
	l := s.track(t)
	for _, rate := range rates {
		burst := int64(rate.WithDefaults().Burst)
		for _, cost := range slices.Compact([]int64{1, max(1, burst/3), burst}) {
			d := llmhttp.Draw{Bucket: l.newBucket(), Rate: rate, Amount: burst}
			l.mustTake(d)
			l.checkAdjust(llmhttp.Draw{Bucket: d.Bucket, Rate: rate, Amount: burst / 7})
			d.Amount = cost
			level := l.checkTakeOne(d)
			if s.inBubble && level.RetryAfter > clockError && !t.Failed() {
				time.Sleep(level.RetryAfter - clockError) // too early, except at fast rates
				level = l.checkTakeOne(d)
			}
			if wait := level.RetryAfter; wait > 0 && !t.Failed() {
				time.Sleep(wait + tolerance)
				l.mustTake(d)
			}
			d.Amount = 0
			if wait := l.checkTakeOne(d).ResetAfter; !t.Failed() {
				time.Sleep(wait + tolerance)
				d.Amount = burst
				l.mustTake(d)
			}
			if t.Failed() {
				return // a faulty wait may be very long
			}
		}
	}
}

// longRates are rates for tests in a bubble, where waiting costs nothing.
var longRates = []llmhttp.Rate{
	llmhttp.PerMinute(1), llmhttp.PerMinute(3), llmhttp.PerMinute(7), llmhttp.PerMinute(60), llmhttp.PerMinute(500), llmhttp.PerMinute(200_000),
	{N: 1_000_000, Per: day}, {N: 13, Per: 10 * day, Burst: 2}, {N: 1, Per: 5 * day}, {N: math.MaxInt32, Per: day},
	{N: math.MaxInt32}, {N: math.MaxInt32, Per: time.Second, Burst: 10}, {N: 30_000, Per: time.Millisecond}, {N: 17, Per: 17*time.Second + 1, Burst: 1},
}

// checkLimiterIdleBucket checks that a bucket is not evicted before it is full.
func checkLimiterIdleBucket(t testing.TB, s limiterTest) {
	if !s.inBubble {
		t.Skip("only TestLimiterInBubble can run this check, which takes days")
	}
	l := s.track(t)
	empty := llmhttp.Draw{Bucket: l.newBucket(), Rate: llmhttp.Rate{N: 10, Per: 100 * time.Hour}, Amount: 10}
	l.mustTake(empty)
	debt := llmhttp.Draw{Bucket: l.newBucket(), Rate: llmhttp.PerMinute(10), Amount: 20_000}
	l.checkAdjust(debt)
	for range 20 {
		time.Sleep(50 * time.Minute)
		l.checkTake(llmhttp.Draw{Bucket: l.newBucket(), Rate: llmhttp.PerMinute(10), Amount: 1})
	}
	l.wantRemaining(1, empty)
	l.wantRemaining(0, debt)
	time.Sleep(100 * time.Hour)
	l.wantRemaining(10, empty)
	l.wantRemaining(10, debt)
}

// checkLimiterManySubjects checks that an end user in debt, and one who has taken something, are
// not forgotten because of many others that come later.
func checkLimiterManySubjects(t testing.TB, s limiterTest) {
	newUser := func() llmhttp.SubjectID { return llmhttp.SubjectID{Kind: llmhttp.KindUser, ID: unique("user")} }
	l, other := s.trackSubject(t, newUser()), s.trackSubject(t, newUser())
	debt := llmhttp.Draw{Bucket: llmhttp.BucketTokens, Rate: slowRate(10), Amount: 25}
	l.checkAdjust(debt)
	used := llmhttp.Draw{Bucket: llmhttp.BucketTokens, Rate: slowRate(10), Amount: 4}
	other.mustTake(used)
	for range 100 {
		var draws []llmhttp.Draw
		for range 20 {
			draws = append(draws, llmhttp.Draw{Subject: newUser(), Bucket: llmhttp.BucketRequests, Rate: llmhttp.PerMinute(60), Amount: 1})
		}
		s.takeUntracked(t, draws...)
		if s.inBubble {
			time.Sleep(time.Second)
		}
	}
	debt.Amount = 1
	l.mustRefuse(debt)
	other.wantRemaining(6, used)
}

func checkLimiterRateChange(t testing.TB, s limiterTest) {
	l := s.track(t)
	d := llmhttp.Draw{Bucket: l.newBucket(), Rate: slowRate(10), Amount: 10}
	l.mustTake(d)
	for _, rate := range []llmhttp.Rate{slowRate(20), slowRate(5), {N: 10, Per: 300 * time.Hour}, {N: 30, Per: 100 * time.Hour, Burst: 90}, slowRate(1)} {
		d.Rate = rate
		l.wantRemaining(0, d) // an empty bucket stays empty
	}

	d = llmhttp.Draw{Bucket: l.newBucket(), Rate: slowRate(10), Amount: 3}
	l.mustTake(d)
	d.Rate = slowRate(20)
	l.wantRemaining(7, d)
	d.Rate = slowRate(4)
	l.wantRemaining(4, d) // the new burst
	d.Amount = 5
	l.mustRefuse(d)
	d.Amount = 4
	l.mustTake(d)
	d.Rate, d.Amount = slowRate(10), 15
	l.checkAdjust(d)
	d.Rate, d.Amount = slowRate(40), 1
	l.mustRefuse(d) // a debt stays
	d.Rate, d.Amount = slowRate(10), -16
	l.checkAdjust(d)
	l.wantRemaining(1, d)

	// A bucket refills at the Rate of the latest draw.
	d = llmhttp.Draw{Bucket: l.newBucket(), Rate: llmhttp.Rate{N: 1000, Per: time.Second}, Amount: 1000}
	l.mustTake(d)
	d.Amount = 0
	for _, rate := range []llmhttp.Rate{slowRate(1000), {N: 1000, Per: time.Second}, {N: 100, Per: time.Second}, {N: 2000, Per: time.Second, Burst: 300}} {
		d.Rate = rate
		l.checkTake(d)
		time.Sleep(20 * time.Millisecond)
		l.checkTake(d)
		time.Sleep(10 * time.Millisecond)
	}
}

func checkLimiterLargeNumbers(t testing.TB, s limiterTest) {
	l := s.track(t)
	d := llmhttp.Draw{Bucket: l.newBucket(), Rate: llmhttp.Rate{N: math.MaxInt32, Per: 1_000_000 * time.Hour}, Amount: math.MaxInt32}
	l.checkTake(d)
	l.checkTake(d)

	// A wait longer than the longest Duration must not become negative.
	d = llmhttp.Draw{Bucket: l.newBucket(), Rate: slowRate(1), Amount: math.MaxInt32}
	for range 2 {
		d.Amount = math.MaxInt32
		l.checkAdjust(d)
		d.Amount = 1
		l.mustRefuse(d)
	}

	d = llmhttp.Draw{Bucket: l.newBucket(), Rate: llmhttp.Rate{N: math.MaxInt32, Per: time.Millisecond}, Amount: math.MaxInt32}
	for range 5 {
		l.checkTake(d)
		time.Sleep(100 * time.Microsecond)
	}
}

func checkLimiterRandom(t testing.TB, s limiterTest) {
	rng := newRand(t)
	rounds := 1
	rates := []llmhttp.Rate{
		{N: 200, Per: time.Second}, {N: 1500, Per: time.Second, Burst: 40}, {N: 13, Per: 40 * time.Millisecond, Burst: 70}, {N: 9, Per: 17 * time.Millisecond},
		slowRate(1000), {N: 100, Per: 10 * time.Second}, {N: -1}, {N: 1, Per: time.Millisecond, Burst: 2000},
	}
	pause := func() time.Duration { return time.Duration(rng.IntN(3000)) * time.Microsecond }
	if s.inBubble {
		rounds = 6
		rates = append(rates, longRates...)
		pause = func() time.Duration { return time.Duration(math.Exp(rng.Float64() * math.Log(float64(day)))) }
	}
	for range rounds {
		l := s.track(t)
		buckets := make([]llmhttp.Draw, 4) // with the current Rate of each
		for i := range buckets {
			buckets[i] = llmhttp.Draw{Bucket: l.newBucket(), Rate: pick(rng, rates...)}
		}
		for range 250 {
			l.randomCall(rng, buckets, rates)
			if rng.IntN(2) == 0 {
				time.Sleep(pause())
			}
			if t.Failed() {
				return
			}
		}
	}
}

// randomCall calls Take or Adjust for some of the buckets, and now and then changes the
// Rate of one. The Rate of a bucket that permits nothing does not change.
func (l *tracker) randomCall(rng *rand.Rand, buckets []llmhttp.Draw, rates []llmhttp.Rate) {
	l.t.Helper()
	var draws []llmhttp.Draw
	for _, i := range rng.Perm(len(buckets))[:1+rng.IntN(3)] {
		b := &buckets[i]
		if changed := pick(rng, rates...); rng.IntN(50) == 0 && b.Rate.N > 0 && changed.N > 0 {
			b.Rate = changed
		}
		draws = append(draws, llmhttp.Draw{Bucket: b.Bucket, Rate: b.Rate, Amount: randomCost(rng, b.Rate.WithDefaults().Burst)})
	}
	if rng.IntN(3) > 0 {
		l.checkTake(draws...)
		return
	}
	for i := range draws {
		draws[i].Amount *= pick[int64](rng, 1, -1)
	}
	l.checkAdjust(draws...)
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
