// Checks of what random calls do not find.

package limitertest

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llmhttptest/internal/kit"
)

// limiterChecks test what random calls do not: many subjects, large numbers, the end of a time, and
// other calls at the same time.
var limiterChecks = []kit.Check[limiterTest]{
	{"ManySubjects", checkLimiterManySubjects},
	{"LargeBuckets", checkLimiterLargeBuckets},
	{"ConcurrentCalls", checkLimiterConcurrentCalls},
	{"Linger", checkLimiterLinger},
}

// checkLimiterManySubjects checks that an end user in debt, and one who has taken something, are
// not forgotten because of many others that come later.
func checkLimiterManySubjects(t testing.TB, s limiterTest) {
	l := s.track(t)
	user := func(id string) llmhttp.SubjectID { return llmhttp.SubjectID{Kind: llmhttp.KindUser, ID: id} }
	debt := llmhttp.BucketAmount{Subject: user("#"), Bucket: llmhttp.BucketTokens, Rate: slowRate(10), Amount: 25}
	used := llmhttp.BucketAmount{Subject: user("# too"), Bucket: llmhttp.BucketTokens, Rate: slowRate(10), Amount: 4}
	l.checkAdjust(debt)
	l.checkTake(t.Context(), used)
	for range 100 {
		var draws []llmhttp.BucketAmount
		for range 20 {
			draws = append(draws, llmhttp.BucketAmount{Subject: user(kit.Unique("user")), Bucket: llmhttp.BucketRequests, Rate: llmhttp.PerMinute(60), Amount: 1})
		}
		s.mustTake(t, draws...)
		if s.inBubble {
			time.Sleep(time.Second)
		}
	}
	l.checkTake(t.Context(), debt)
	l.checkTake(t.Context(), used)
}

// checkLimiterLargeBuckets checks what remains in buckets of many tokens: exactly up to 2^53, above it with the
// precision of a float64, and never more than there can be. A Take that lacks more than rounding explains is refused.
func checkLimiterLargeBuckets(t testing.TB, s limiterTest) {
	const exact, amount, rounding = 1 << 53, 3, 2048
	for _, size := range []int64{1<<31 - 1, 1<<40 + 1, exact - 1, math.MaxInt64} {
		burst := int(min(size, math.MaxInt))
		d := llmhttp.BucketAmount{Subject: newSubject(), Bucket: "bucket", Rate: llmhttp.Rate{N: 1, Per: 10000 * time.Hour, Burst: burst}}
		for _, taken := range []int64{0, amount} {
			d.Amount = taken
			least := int64(burst) - taken
			most := least
			if least > exact {
				least, most = least-rounding, int64(burst)
			}
			if got := s.mustTake(t, d)[0].Remaining; got < least || got > most {
				kit.Wrong(t, "Take"+kit.Describe(d), fmt.Sprint("Remaining ", got), fmt.Sprintf("%d to %d", least, most))
			}
		}
		missing := int64(max(amount, 1e-14*float64(burst)))
		d.Amount = missing - amount
		s.mustTake(t, d)
		d.Amount = int64(burst)
		if levels := s.mustTake(t, d); isGranted(levels) {
			kit.Wrong(t, "Take"+kit.Describe(d), "it granted", fmt.Sprintf("a refusal, because %d tokens were missing", missing))
		}
	}
}

// mustTake returns a level for each draw. A Take without ends the test, or the goroutine that called it.
func (l limiterTest) mustTake(t testing.TB, draws ...llmhttp.BucketAmount) []llmhttp.BucketLevel {
	t.Helper()
	levels, err := l.limiter.Take(t.Context(), draws...)
	if err != nil || len(levels) != len(draws) {
		kit.Wrong(t, "Take"+kit.Describe(draws), fmt.Sprintf("%d levels and the error %v", len(levels), err), fmt.Sprintf("%d and nil", len(draws)))
		runtime.Goexit()
	}
	return levels
}

// checkLimiterConcurrentCalls takes, adjusts and acquires from many goroutines, in several orders. A call for
// several subjects may be refused because of another one that is refused later, but what is left in the end is
// what was not granted.
func checkLimiterConcurrentCalls(t testing.TB, s limiterTest) {
	const workers, rounds = 16, 4
	slots, hasSlots := s.limiter.(llmhttp.ConcurrencyLimiter)
	acquire := func(slots ...llmhttp.SlotAmount) (release func()) { return nil }
	if hasSlots {
		acquire = func(list ...llmhttp.SlotAmount) (release func()) {
			release, _, err := slots.Acquire(t.Context(), list...)
			if err != nil {
				kit.Wrong(t, "Acquire, concurrently", err, nil)
			}
			return release
		}
	}
	for _, holds := range []int{30, workers*rounds - 2} { // which is less than workers ask for
		account := llmhttp.SubjectID{Kind: llmhttp.KindAccount, ID: kit.Unique("account")}
		draw := func(subject llmhttp.SubjectID, bucket string, holds int) llmhttp.BucketAmount {
			return llmhttp.BucketAmount{Subject: subject, Bucket: bucket, Rate: slowRate(holds), Amount: 1}
		}
		slot := func(subject llmhttp.SubjectID, name string, limit int64) llmhttp.SlotAmount {
			return llmhttp.SlotAmount{Subject: subject, Name: name, Amount: 1, Limit: limit}
		}
		wantLeft := func(d llmhttp.BucketAmount, want int64) {
			t.Helper()
			if d.Amount = 0; s.mustTake(t, d)[0].Remaining != want {
				kit.Wrong(t, "concurrent calls, then Take"+kit.Describe(d), fmt.Sprint("Remaining ", s.mustTake(t, d)[0].Remaining), want)
			}
		}
		a, b, adjusted, shared := draw(account, "a", holds), draw(account, "b", holds), draw(account, "adjusted", 1000), draw(account, "shared", holds)
		var ofOne, ofShared, held atomic.Int64
		var releases [workers]func()
		var keys [workers]llmhttp.SlotAmount
		kit.Concurrently(t, workers, func(i int) {
			key := newSubject()
			keys[i] = slot(key, "slot", 1)
			if releases[i] = acquire(slot(account, "held", 3)); releases[i] != nil {
				held.Add(1)
			}
			take := func(draws ...llmhttp.BucketAmount) (granted int64) {
				if i%2 == 1 {
					slices.Reverse(draws)
				}
				if isGranted(s.mustTake(t, draws...)) {
					granted = 1
				}
				return granted
			}
			own, ofOwn := draw(key, "own", 1+i), int64(0)
			for range rounds {
				ofOne.Add(take(a, b))
				n := take(shared, own)
				ofOwn += n
				ofShared.Add(n)
				for _, cost := range []int64{20, -15} { // never fills the bucket
					d := adjusted
					d.Amount = cost
					if err := s.limiter.Adjust(t.Context(), d); err != nil {
						kit.Wrong(t, "Adjust, concurrently", err, nil)
					}
				}
				if release := acquire(keys[i], slot(account, "slot", 3)); release != nil {
					release()
				}
			}
			wantLeft(own, int64(1+i)-ofOwn)
		})
		if got, want := ofOne.Load(), int64(holds); got != want {
			kit.Wrong(t, fmt.Sprintf("%d concurrent Takes of buckets that hold %d", workers*rounds, holds), fmt.Sprint(got, " granted"), want)
		}
		wantLeft(a, int64(holds)-ofOne.Load())
		wantLeft(b, int64(holds)-ofOne.Load())
		wantLeft(shared, int64(holds)-ofShared.Load())
		wantLeft(adjusted, 1000-workers*rounds*5)
		if !hasSlots {
			continue
		}
		if held.Load() != 3 {
			kit.Wrong(t, fmt.Sprintf("%d concurrent Acquires of 3 slots", workers), fmt.Sprint(held.Load(), " granted"), 3)
		}
		for _, release := range releases {
			if release != nil {
				release()
			}
		}
		all := slot(account, "slot", 3)
		all.Amount = 3
		if acquire(append(keys[:], all, slot(account, "held", 1))...) == nil {
			kit.Wrong(t, "concurrent calls, then Acquire of all slots", "a refusal", "it granted")
		}
	}
}

// checkLimiterLinger checks that what was settled is given back when its time has passed.
func checkLimiterLinger(t testing.TB, s limiterTest) {
	l, ok := s.limiter.(llmhttp.Reserver)
	if !ok {
		t.Skip("the Limiter is not a Reserver")
	}
	const linger = 200 * time.Millisecond
	did := fmt.Sprintf("Reserve, settle(%v, 1) and Acquire until it was granted", linger)
	slot := llmhttp.SlotAmount{Subject: newSubject(), Name: llmhttp.SlotQuotaTokens, Amount: 4, Limit: 4}
	settle, _, err := l.Reserve(t.Context(), slot)
	if err != nil || settle == nil {
		kit.Wrong(t, "Reserve", fmt.Sprintf("granted: %t, and the error %v", settle != nil, err), "true and nil")
		return
	}
	began := time.Now()
	settle(linger, 1)
	for {
		release, _, err := l.Acquire(t.Context(), slot)
		passed := time.Since(began)
		kit.Must(t, "Acquire", err)
		if release == nil && passed < linger+10*time.Second {
			time.Sleep(5 * time.Millisecond)
			continue
		}
		if release == nil || passed < linger-s.clockError() {
			kit.Wrong(t, did, fmt.Sprintf("granted: %t after %v", release != nil, passed), linger)
		}
		return
	}
}
