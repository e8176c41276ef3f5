package llmhttptest

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
)

// The checks in this file depend on the passing of time. The tracker bounds what may be right,
// however long the calls take.

// checkLimiterFrequentCalls checks that neither peeks nor refused Takes slow the refill.
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
	llmhttp.PerMinute(
		1,
	), llmhttp.PerMinute(3), llmhttp.PerMinute(7), llmhttp.PerMinute(60), llmhttp.PerMinute(500), llmhttp.PerMinute(200_000),
	{N: 1_000_000, Per: day}, {N: 13, Per: 10 * day, Burst: 2}, {N: 1, Per: 5 * day}, {N: math.MaxInt32, Per: day},
	{
		N: math.MaxInt32,
	}, {N: math.MaxInt32, Per: time.Second, Burst: 10}, {N: 30_000, Per: time.Millisecond}, {N: 17, Per: 17*time.Second + 1, Burst: 1},
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

// checkLimiterLinger checks that what was settled is given back when its time has passed.
func checkLimiterLinger(t testing.TB, s limiterTest) {
	l, ok := s.limiter.(llmhttp.Reserver)
	if !ok {
		t.Skip("the Limiter is not a Reserver")
	}
	const linger = 200 * time.Millisecond
	slot := llmhttp.Slot{Subject: newSubject(), Name: llmhttp.SlotQuotaTokens, Amount: 4, Limit: 4}
	settle, _, err := l.Reserve(t.Context(), slot)
	if err != nil || settle == nil {
		t.Fatalf("Reserve returned the error %v, granted is %t, want nil and true", err, settle != nil)
	}
	began := time.Now()
	settle(linger, 1)
	for {
		release, _, err := l.Acquire(t.Context(), slot)
		passed := time.Since(began)
		switch {
		case err != nil || passed > linger+10*time.Second:
			t.Fatalf("what was settled is in use after %v, want %v; Acquire returned the error %v", passed, linger, err)
		case release != nil && passed < linger-clockError:
			t.Errorf("what was settled was given back after %v, want %v", passed, linger)
			fallthrough
		case release != nil:
			release()
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}
