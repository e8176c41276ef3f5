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
	{
		"FrequentCalls",
		"each call rounds the tokens or the time down, so that frequent calls keep a bucket from refilling.",
		checkLimiterFrequentCalls,
	},
	{"RetryAfterSuffices", "RetryAfter or ResetAfter is rounded down, or does not count what the bucket holds.", checkLimiterRetryAfter},
	{"IdleBucket", "buckets that are not used for some time are evicted before they are full.", checkLimiterIdleBucket},
	{"ManySubjects", "subjects are forgotten to save memory although their buckets are not full.", checkLimiterManySubjects},
	{
		"Names",
		"kinds or IDs of subjects or names of buckets or slots are ignored, normalised, cut or parsed, or are joined without a safe separator.",
		checkLimiterNames,
	},
	{
		"LargeBuckets",
		"Remaining is rounded up, or is converted from a number that has not room for it.",
		checkLimiterLargeBuckets,
	},
	{"CancelledContext", "the Limiter checks the context in the middle of its work.", checkLimiterCancelled},
	{"ConcurrentTakes", "reading and writing the buckets of a Take is not one atomic step.", checkLimiterConcurrentTakes},
	{
		"ConcurrentSubjects",
		"what is given back to a subject when another one refuses is not what was taken.",
		checkLimiterConcurrentSubjects,
	},
	{"ConcurrentAdjusts", "reading and writing a bucket is not one atomic step in Adjust.", checkLimiterConcurrentAdjusts},
	{
		"ConcurrentAcquires",
		"checking what is in use and changing it is not one atomic step, or what other calls do meanwhile is lost.",
		checkLimiterConcurrentAcquires,
	},
	{"Linger", "what was settled is given back too early or never.", checkLimiterLinger},
}

// checkLimiterNames checks that subjects, buckets and slots with different names do not share tokens
// or what is in use.
func checkLimiterNames(t testing.TB, s limiterTest) {
	prefix := unique("key")
	type use struct {
		*tracker
		draw llmhttp.Draw
	}
	var uses []use
	seen := map[bucketID]bool{}
	add := func(l *tracker, bucket string) {
		if id := (bucketID{l.subject, bucket}); !seen[id] {
			seen[id] = true
			uses = append(uses, use{l, llmhttp.Draw{Bucket: bucket, Rate: slowRate(100), Amount: int64(len(uses) % 100)}})
		}
	}
	one := s.trackSubject(t, keySubject(prefix))
	add(one, "")
	for _, name := range trickyNames() {
		add(one, name)
		add(one, ":"+name) // with the key below, the same when joined
		add(one, name+":"+name)
		l := s.trackSubject(t, keySubject(prefix+":"+name))
		add(l, "")
		add(l, name)
		add(s.trackSubject(t, keySubject(prefix+name)), llmhttp.BucketTokens)
		for _, subject := range []llmhttp.SubjectID{
			{Kind: llmhttp.KindAccount, ID: prefix + name}, {Kind: "key-", ID: prefix + name},
			{Kind: "k", ID: "ey" + prefix + name}, {Kind: "k", ID: "ey:" + prefix + name},
		} {
			add(s.trackSubject(t, subject), llmhttp.BucketTokens)
		}
	}
	for _, u := range uses {
		u.mustTake(u.draw)
	}
	_, hasSlots := s.limiter.(llmhttp.ConcurrencyLimiter)
	for i, u := range uses {
		u.wantRemaining(int64(100-i%100), u.draw)
		for id := range 2 { // the second is refused
			if slot := (slotCall{u.subject.Kind, u.draw.Bucket, 1, int64(1 - id)}); hasSlots {
				u.checkAcquire(id, false, false, slot)
			}
		}
		if t.Failed() {
			return
		}
	}
}

// checkLimiterLargeBuckets checks what remains in buckets of many tokens: exactly up to 2^53, above it with the
// precision of a float64, and never more than there can be. A Take that lacks more than rounding explains is refused.
func checkLimiterLargeBuckets(t testing.TB, s limiterTest) {
	const exact, amount, rounding = 1 << 53, 3, 2048
	for _, size := range []int64{1<<31 - 1, 1<<40 + 1, exact - 1, math.MaxInt64} {
		burst := int(min(size, math.MaxInt))
		d := llmhttp.Draw{Subject: newSubject(), Bucket: "bucket", Rate: llmhttp.Rate{N: 1, Per: 10000 * time.Hour, Burst: burst}}
		for _, taken := range []int64{0, amount} {
			d.Amount = taken
			levels, err := s.limiter.Take(t.Context(), d)
			if err != nil || len(levels) != 1 {
				unexplained(t).Fatalf("Take returned the levels %+v and the error %v, want one level and nil", levels, err)
			}
			want, got := int64(burst)-taken, levels[0].Remaining
			least, most := want, want
			if want > exact {
				least, most = want-rounding, int64(burst)
			}
			if got < least || got > most {
				t.Errorf("%d tokens remain after a Take of %d of %d, want %d to %d", got, taken, burst, least, most)
			}
		}
		missing := int64(max(amount, 1e-14*float64(burst)))
		d.Amount = missing - amount
		s.takeUntracked(t, d)
		d.Amount = int64(burst)
		if levels := s.takeUntracked(t, d); levels != nil && isGranted(levels) {
			t.Errorf("a Take of all %d tokens was granted, want it refused, because %d of them were missing", burst, missing)
		}
	}
}

func checkLimiterCancelled(t testing.TB, s limiterTest) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	key := newSubject()
	d := llmhttp.Draw{Subject: key, Bucket: "bucket", Rate: slowRate(10), Amount: 3}
	levels, err := s.limiter.Take(ctx, d)
	if err == nil && (len(levels) != 1 || levels[0].RetryAfter != 0 || levels[0].Remaining != 7) {
		t.Errorf("Take of 3 of 10 tokens with a cancelled context returned the levels %+v, want an error or 7 remaining tokens", levels)
	}
	d.Amount = 0
	levels, errAfter := s.limiter.Take(t.Context(), d)
	if errAfter != nil || len(levels) != 1 {
		unexplained(t).Fatalf("Take returned the levels %+v and the error %v, want one level and nil", levels, errAfter)
	}
	if r := levels[0].Remaining; r != 7 && (err == nil || r != 10) {
		t.Errorf(
			"%d tokens remain after a Take of 3 of 10 with a cancelled context, which returned the error %v; want 7, or 10 after an error",
			r,
			err,
		)
	}
}

// takeUntracked calls Take for checks whose calls are concurrent, which a tracker cannot
// follow. It reports an error and returns nil unless there is one level for each draw.
func (l limiterTest) takeUntracked(t testing.TB, draws ...llmhttp.Draw) []llmhttp.Level {
	t.Helper()
	levels, err := l.limiter.Take(t.Context(), draws...)
	if err != nil || len(levels) != len(draws) {
		unexplained(t).Errorf("Take returned the levels %+v and the error %v, want %d levels and nil", levels, err, len(draws))
		return nil
	}
	return levels
}

// checkLimiterConcurrentTakes takes from two buckets, in both orders.
func checkLimiterConcurrentTakes(t testing.TB, s limiterTest) {
	const workers, small = 16, 30
	for _, large := range []int{small, 50} {
		key := newSubject()
		a := llmhttp.Draw{Subject: key, Bucket: "a", Rate: slowRate(small), Amount: 1}
		b := llmhttp.Draw{Subject: key, Bucket: "b", Rate: slowRate(large), Amount: 1}
		var granted atomic.Int64
		runConcurrently(t, workers, func(i int) {
			draws := []llmhttp.Draw{a, b}
			if i%2 == 1 {
				slices.Reverse(draws)
			}
			for range 4 {
				if levels := s.takeUntracked(t, draws...); levels != nil && isGranted(levels) {
					granted.Add(1)
				}
			}
		})
		if granted.Load() != small {
			t.Errorf("%d concurrent Takes were granted by buckets of %d and %d tokens, want %d", granted.Load(), small, large, small)
		}
		a.Amount, b.Amount = 0, 0
		if levels := s.takeUntracked(t, a, b); levels != nil && (levels[0].Remaining != 0 || levels[1].Remaining != int64(large-small)) {
			t.Errorf("the levels after concurrent Takes are %+v, want 0 and %d remaining tokens", levels, large-small)
		}
	}
}

// checkLimiterConcurrentSubjects takes from keys and from an account that they share, in both
// orders. A Take may be refused because of another one that is refused later, but what is left
// in the end is what was not granted.
func checkLimiterConcurrentSubjects(t testing.TB, s limiterTest) {
	const workers, calls = 8, 10
	for _, holds := range []int{10, workers * calls} { // of the account
		account := llmhttp.Draw{
			Subject: llmhttp.SubjectID{Kind: llmhttp.KindAccount, ID: unique("account")},
			Bucket:  "bucket",
			Rate:    slowRate(holds),
			Amount:  1,
		}
		var keys [workers]llmhttp.Draw
		var granted [workers]int64
		runConcurrently(t, workers, func(i int) {
			keys[i] = llmhttp.Draw{Subject: newSubject(), Bucket: "bucket", Rate: slowRate(1 + i), Amount: 1}
			draws := []llmhttp.Draw{account, keys[i]}
			if i%2 == 1 {
				slices.Reverse(draws)
			}
			for range calls {
				if levels := s.takeUntracked(t, draws...); levels != nil && isGranted(levels) {
					granted[i]++
				}
			}
		})
		wantLeft := func(d llmhttp.Draw, want int64) {
			t.Helper()
			d.Amount = 0
			if levels := s.takeUntracked(t, d); levels != nil && levels[0].Remaining != want {
				t.Errorf("%d tokens of a %s remain after concurrent Takes, want %d", levels[0].Remaining, d.Subject.Kind, want)
			}
		}
		sum := int64(0)
		for i, key := range keys {
			wantLeft(key, int64(key.Rate.N)-granted[i])
			sum += granted[i]
		}
		wantLeft(account, int64(holds)-sum)
	}
}

func checkLimiterConcurrentAdjusts(t testing.TB, s limiterTest) {
	const workers, rounds, holds = 8, 10, 1000
	key := newSubject()
	runConcurrently(t, workers, func(int) {
		for range rounds {
			for _, cost := range []int64{20, -15} { // never fills the bucket
				d := llmhttp.Draw{Subject: key, Bucket: "bucket", Rate: slowRate(holds), Amount: cost}
				if err := s.limiter.Adjust(t.Context(), d); err != nil {
					unexplained(t).Errorf("Adjust returned the error %v, want nil", err)
					return
				}
			}
		}
	})
	levels := s.takeUntracked(t, llmhttp.Draw{Subject: key, Bucket: "bucket", Rate: slowRate(holds)})
	if want := holds - workers*rounds*5; levels != nil && levels[0].Remaining != int64(want) {
		t.Errorf("%d tokens remain after concurrent Adjusts, want %d", levels[0].Remaining, want)
	}
}

// checkLimiterConcurrentAcquires acquires a slot of a key and one of an account that is shared. A call
// may be refused because of another one that is refused later, but in the end all slots are free.
func checkLimiterConcurrentAcquires(t testing.TB, s limiterTest) {
	l, ok := s.limiter.(llmhttp.ConcurrencyLimiter)
	if !ok {
		t.Skip("the Limiter is not a ConcurrencyLimiter")
	}
	const workers, limit = 8, 3
	slot := func(kind string, limit int64) llmhttp.Slot {
		return llmhttp.Slot{Subject: llmhttp.SubjectID{Kind: kind, ID: unique("subject")}, Name: llmhttp.SlotConcurrent, Amount: 1, Limit: limit}
	}
	acquire := func(slots ...llmhttp.Slot) (release func()) {
		release, _, err := l.Acquire(t.Context(), slots...)
		if err != nil {
			unexplained(t).Errorf("Acquire returned the error %v, want nil", err)
		}
		return release
	}
	account := slot(llmhttp.KindAccount, limit)
	var keys [workers]llmhttp.Slot
	for i := range keys {
		keys[i] = slot(llmhttp.KindKey, 1)
	}
	for range 3 {
		var releases [workers]func()
		runConcurrently(t, workers, func(i int) { releases[i] = acquire(account) })
		granted := slices.DeleteFunc(releases[:], func(f func()) bool { return f == nil })
		if len(granted) != limit {
			t.Errorf("%d of %d concurrent Acquires were granted, want %d", len(granted), workers, limit)
		}
		runConcurrently(t, len(granted), func(i int) { granted[i]() })
	}
	runConcurrently(t, workers, func(i int) {
		for range 10 {
			if release := acquire(keys[i], account); release != nil {
				release()
			}
		}
	})
	all := account
	all.Amount = limit
	if release := acquire(append(keys[:], all)...); release == nil {
		t.Error("Acquire of all slots was refused after all were released, want it granted")
	} else {
		release()
	}
}
