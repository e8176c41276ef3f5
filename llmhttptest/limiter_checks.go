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
	{"NewBucketIsFull", "a new bucket does not hold its burst, or a Level is not the state after the call.", checkLimiterNewBucket},
	{"RateDefaults", "the Limiter does not read rates through Rate.WithDefaults.", checkLimiterDefaults},
	{"AllOrNothing", "the Limiter takes from one bucket before it has checked the others, and does not return the tokens.", checkLimiterAllOrNothing},
	{"SeveralSubjects", "the subject of a draw is ignored, or the subjects before one that refuses do not get their tokens back.", checkLimiterSeveralSubjects},
	{"LevelOfEachDraw", "levels are not in the order of the draws, or RetryAfter is not computed for each bucket alone.", checkLimiterLevels},
	{"ZeroCost", "a cost of zero is treated like other costs, so that an empty bucket or one in debt refuses it.", checkLimiterZeroCost},
	{"CostAboveBurst", "the cost is not compared with the burst, or is an error.", checkLimiterCostAboveBurst},
	{"NegativeRate", "a negative N is not read as permitting nothing, with a burst of zero. Rate.WithDefaults does that.", checkLimiterNegativeRate},
	{"NoDraws", "the Limiter uses the first draw without checking that there is one.", checkLimiterNoDraws},
	{"Adjust", "Adjust refuses what the bucket does not hold, ignores negative costs, or returns tokens beyond the burst.", checkLimiterAdjust},
	{"Debt", "the number of tokens has a lower bound, or a bucket in debt gains tokens before the debt is paid.", checkLimiterDebt},
	{"Refill", "buckets do not refill evenly at N per Per, up to their burst.", checkLimiterRefill},
	{"FrequentCalls", "each call rounds the tokens or the time down, so that frequent calls keep a bucket from refilling.", checkLimiterFrequentCalls},
	{"RetryAfterSuffices", "RetryAfter or ResetAfter is rounded down, or does not count what the bucket holds.", checkLimiterRetryAfter},
	{"IdleBucket", "buckets that are not used for some time are evicted before they are full.", checkLimiterIdleBucket},
	{"ManySubjects", "subjects are forgotten to save memory although their buckets are not full.", checkLimiterManySubjects},
	{"RateChange", "a new Rate resets or scales the bucket, or is ignored.", checkLimiterRateChange},
	{"LargeNumbers", "a sum, product or duration overflows.", checkLimiterLargeNumbers},
	{"Names", "kinds or IDs of subjects or bucket names are ignored, normalised, cut or parsed, or are joined without a safe separator.", checkLimiterNames},
	{"CancelledContext", "the Limiter checks the context in the middle of its work.", checkLimiterCancelled},
	{"RandomCalls", "an unusual sequence of calls; the seed repeats it.", checkLimiterRandom},
	{"ConcurrentTakes", "reading and writing a bucket is not one atomic step.", checkLimiterConcurrentTakes},
	{"ConcurrentTakesOfSeveral", "the buckets of a Take are not changed in one atomic step.", checkLimiterConcurrentSeveral},
	{"ConcurrentSubjects", "what is given back to a subject when another one refuses is not what was taken.", checkLimiterConcurrentSubjects},
	{"ConcurrentAdjusts", "reading and writing a bucket is not one atomic step in Adjust.", checkLimiterConcurrentAdjusts},
}

func checkLimiterNewBucket(t testing.TB, s limiterTest) {
	l := s.track(t)
	large, small := slowRate(10), slowRate(10)
	large.Burst, small.Burst = 25, 4
	for _, rate := range []llmhttp.Rate{slowRate(1), slowRate(10), large, small} {
		burst := int64(rate.WithDefaults().Burst)
		peek := llmhttp.Draw{Bucket: l.newBucket(), Rate: rate}
		l.wantRemaining(burst, peek)
		if level := l.mustTake(peek)[0]; level.ResetAfter != 0 {
			t.Errorf("ResetAfter of a full bucket is %v, want 0", level.ResetAfter)
		}

		all := llmhttp.Draw{Bucket: l.newBucket(), Rate: rate, Amount: burst}
		if level := l.mustTake(all)[0]; level.Remaining != 0 {
			t.Errorf("%d tokens remain after all %d were taken, want 0", level.Remaining, burst)
		}
		all.Amount = 1
		l.mustRefuse(all)

		one := llmhttp.Draw{Bucket: l.newBucket(), Rate: rate, Amount: 1}
		for i := range burst {
			if level := l.mustTake(one)[0]; level.Remaining != burst-1-i {
				t.Errorf("%d tokens remain after %d of %d were taken, want %d", level.Remaining, i+1, burst, burst-1-i)
			}
		}
		l.mustRefuse(one)
	}
}

func checkLimiterDefaults(t testing.TB, s limiterTest) {
	l := s.track(t)
	for _, rate := range []llmhttp.Rate{
		{N: 5}, {N: 5, Per: -1}, {N: 5, Burst: -3}, {N: 5, Per: time.Hour}, {N: 5, Burst: 50}, {N: 500, Burst: 5}, llmhttp.PerMinute(7), {N: 1},
	} {
		d := llmhttp.Draw{Bucket: l.newBucket(), Rate: rate}
		l.mustTake(d)
		d.Amount = int64(rate.WithDefaults().Burst)
		l.mustTake(d)
		l.checkTake(d) // may be granted at a fast rate, but its level is known
		d.Amount++
		l.mustRefuse(d)
	}
}

func checkLimiterAllOrNothing(t testing.TB, s limiterTest) {
	for short := range 3 { // the bucket that holds too little
		l := s.track(t)
		var draws []llmhttp.Draw
		for i := range 3 {
			draws = append(draws, llmhttp.Draw{Bucket: l.newBucket(), Rate: slowRate(10 + i), Amount: 4})
		}
		wantOthers := func(taken int64) {
			t.Helper()
			for i, d := range draws {
				if i != short {
					l.wantRemaining(int64(10+i)-taken, d)
				}
			}
		}
		first := draws[short]
		first.Amount = int64(7 + short) // leaves three
		l.mustTake(first)
		for range 3 {
			l.mustRefuse(draws...)
		}
		wantOthers(0)
		l.wantRemaining(3, first)
		draws[short].Amount = 3
		l.mustTake(draws...)
		wantOthers(4)
		l.wantRemaining(0, first)
		l.mustRefuse(draws...)
	}
}

// checkLimiterSeveralSubjects takes from two buckets of each of three subjects with the same ID.
func checkLimiterSeveralSubjects(t testing.TB, s limiterTest) {
	id := unique("subject")
	newDraws := func(l *tracker) (draws []llmhttp.Draw) {
		names := []string{l.newBucket(), l.newBucket()}
		for i, kind := range []string{llmhttp.KindUser, llmhttp.KindKey, llmhttp.KindAccount} {
			for k, name := range names {
				draws = append(draws, llmhttp.Draw{Subject: llmhttp.SubjectID{Kind: kind, ID: id}, Bucket: name, Rate: slowRate(10 + i), Amount: int64(1 + k)})
			}
		}
		return draws
	}
	l := s.track(t)
	for short := range 6 { // the draw whose bucket holds too little
		draws := newDraws(l)
		wantTaken := func(calls int64, except int) {
			t.Helper()
			for i, d := range draws {
				if i != except {
					l.wantRemaining(int64(d.Rate.N)-calls*d.Amount, d)
				}
			}
		}
		rest := draws[short]
		rest.Amount = int64(rest.Rate.N)
		l.mustTake(rest)
		for range 3 {
			l.mustRefuse(draws...)
		}
		wantTaken(0, short)
		l.checkAdjust(draws[short]) // a debt refuses in the same way
		l.mustRefuse(draws...)
		wantTaken(0, short)

		peek := slices.Clone(draws)
		for i := range peek {
			peek[i].Amount = 0
		}
		for i, level := range l.mustTake(peek...) {
			if level.Unknown {
				t.Errorf("level %d of a Take whose costs are zero is Unknown, want it known", i)
			}
		}
		peek[(short+2)%len(peek)].Amount = 1 // of another subject
		l.mustTake(peek...)
		peek[(short+2)%len(peek)].Amount = -1
		l.checkAdjust(peek...)

		rest.Amount = -rest.Amount - draws[short].Amount
		l.checkAdjust(rest)
		for _, level := range l.mustTake(draws...) {
			if level.Unknown {
				t.Errorf("the levels of a granted Take are Unknown, want them known")
			}
		}
		wantTaken(1, -1)
		l.checkAdjust(draws...)
		wantTaken(2, -1)
		slices.Reverse(draws)
		l.mustTake(draws...)
		wantTaken(3, -1)
	}
}

func checkLimiterLevels(t testing.TB, s limiterTest) {
	l := s.track(t)
	var draws []llmhttp.Draw
	for i := range 4 {
		draws = append(draws, llmhttp.Draw{Bucket: l.newBucket(), Rate: slowRate(10 * (i + 1)), Amount: int64(i + 1)})
	}
	wantLevels := func(levels []llmhttp.Level, want ...int64) {
		t.Helper()
		for i, level := range levels {
			if level.Remaining != want[i] {
				t.Errorf("Remaining of draw %d is %d, want %d", i, level.Remaining, want[i])
			}
		}
	}
	wantLevels(l.mustTake(draws...), 9, 18, 27, 36)
	slices.Reverse(draws)
	wantLevels(l.mustTake(draws...), 32, 24, 16, 8)
	draws[1].Amount, draws[2].Amount = 25, 17
	levels := l.mustRefuse(draws...)
	wantLevels(levels, 32, 24, 16, 8)
	for i, level := range levels {
		if lacks := i == 1 || i == 2; (level.RetryAfter > 0) != lacks {
			t.Errorf("RetryAfter of draw %d is %v, want more than 0 only for the draws 1 and 2, whose buckets hold too little", i, level.RetryAfter)
		}
	}
}

func checkLimiterZeroCost(t testing.TB, s limiterTest) {
	l := s.track(t)
	d := llmhttp.Draw{Bucket: l.newBucket(), Rate: slowRate(10), Amount: 10}
	peek := llmhttp.Draw{Bucket: d.Bucket, Rate: d.Rate}
	other := llmhttp.Draw{Bucket: l.newBucket(), Rate: slowRate(10), Amount: 3}
	l.mustTake(d)
	for range 3 {
		l.wantRemaining(0, peek)
	}
	l.mustTake(other, peek)
	l.wantRemaining(7, other)
	d.Amount = 5
	l.checkAdjust(d) // leaves a debt
	for range 3 {
		l.wantRemaining(0, peek)
	}
	l.mustTake(peek, other)
	l.wantRemaining(4, other)
}

func checkLimiterCostAboveBurst(t testing.TB, s limiterTest) {
	l := s.track(t)
	rate := slowRate(100)
	rate.Burst = 5
	d := llmhttp.Draw{Bucket: l.newBucket(), Rate: rate}
	other := llmhttp.Draw{Bucket: l.newBucket(), Rate: slowRate(10), Amount: 1}
	for _, cost := range []int64{6, 100, 101, math.MaxInt32} {
		d.Amount = cost
		l.mustRefuse(d)
		l.mustRefuse(other, d)
		l.wantRemaining(5, d)
		l.wantRemaining(10, other)
		if s.inBubble {
			time.Sleep(5000 * time.Hour)
			l.mustRefuse(d)
		}
	}
	d.Amount = 5
	l.mustTake(d, other)
}

func checkLimiterNegativeRate(t testing.TB, s limiterTest) {
	l := s.track(t)
	wait := time.Millisecond
	if s.inBubble {
		wait = 10 * time.Hour
	}
	for _, rate := range []llmhttp.Rate{{N: -1}, {N: -1, Per: time.Microsecond, Burst: 100}, {N: -1000000, Per: time.Hour}} {
		d := llmhttp.Draw{Bucket: l.newBucket(), Rate: rate, Amount: 1}
		other := llmhttp.Draw{Bucket: l.newBucket(), Rate: slowRate(10), Amount: 1}
		l.mustRefuse(d)
		l.mustRefuse(other, d)
		l.wantRemaining(0, d)
		l.wantRemaining(10, other)
		d.Amount = -5
		l.checkAdjust(d)
		d.Amount = 1
		l.mustRefuse(d)
		l.checkAdjust(d)
		l.mustRefuse(d)
		time.Sleep(wait)
		l.mustRefuse(d)
		d.Amount = 0
		l.mustTake(d, other)
	}
}

func checkLimiterNoDraws(t testing.TB, s limiterTest) {
	l := s.track(t)
	l.mustTake()
	l.checkAdjust()
}

func checkLimiterAdjust(t testing.TB, s limiterTest) {
	l := s.track(t)
	names := []string{l.newBucket(), l.newBucket(), l.newBucket()}
	draw := func(bucket int, cost int64) llmhttp.Draw {
		return llmhttp.Draw{Bucket: names[bucket], Rate: slowRate(10), Amount: cost}
	}
	l.mustTake(draw(0, 6))
	l.checkAdjust(draw(0, 3))
	l.wantRemaining(1, draw(0, 0))
	l.checkAdjust(draw(0, -4))
	l.wantRemaining(5, draw(0, 0))
	l.checkAdjust(draw(0, 0))
	l.wantRemaining(5, draw(0, 0))
	l.checkAdjust(draw(0, -100)) // more than there is room for
	l.wantRemaining(10, draw(0, 0))
	l.mustTake(draw(0, 10))
	l.mustRefuse(draw(0, 1))

	l.checkAdjust(draw(1, 4)) // new buckets
	l.wantRemaining(6, draw(1, 0))
	l.checkAdjust(draw(2, -4))
	l.wantRemaining(10, draw(2, 0))

	l.checkAdjust(draw(0, -2), draw(1, 3), draw(2, 9)) // several
	l.wantRemaining(2, draw(0, 0))
	l.wantRemaining(3, draw(1, 0))
	l.wantRemaining(1, draw(2, 0))
	l.checkAdjust(draw(1, 7), draw(0, 0), draw(2, -1)) // one of which holds too little
	l.wantRemaining(2, draw(0, 0))
	l.wantRemaining(0, draw(1, 0))
	l.wantRemaining(2, draw(2, 0))
}

func checkLimiterDebt(t testing.TB, s limiterTest) {
	l := s.track(t)
	bucket := l.newBucket()
	draw := func(cost int64) llmhttp.Draw { return llmhttp.Draw{Bucket: bucket, Rate: slowRate(10), Amount: cost} }
	l.checkAdjust(draw(25)) // 15 in debt
	l.wantRemaining(0, draw(0))
	l.mustRefuse(draw(1))
	l.checkAdjust(draw(-15)) // empty
	l.mustRefuse(draw(1))
	l.checkAdjust(draw(-2))
	l.mustTake(draw(2))
	l.checkAdjust(draw(1 << 20))
	l.mustRefuse(draw(1))
	l.checkAdjust(draw(-1 << 20))
	l.checkAdjust(draw(-3))
	l.wantRemaining(3, draw(0))

	// Refilling pays a debt first. Here that takes 50 ms.
	rate := llmhttp.Rate{N: 200, Per: time.Second, Burst: 40}
	bucket = l.newBucket()
	l.checkAdjust(llmhttp.Draw{Bucket: bucket, Rate: rate, Amount: 50})
	for range 12 {
		time.Sleep(10 * time.Millisecond)
		l.checkTake(llmhttp.Draw{Bucket: bucket, Rate: rate, Amount: 1})
	}
}

// checkLimiterNames checks that subjects and buckets with different names do not
// share tokens.
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
	for i, u := range uses {
		u.wantRemaining(int64(100-i%100), u.draw)
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
		t.Fatalf("Take returned the levels %+v and the error %v, want one level and nil", levels, errAfter)
	}
	if r := levels[0].Remaining; r != 7 && (err == nil || r != 10) {
		t.Errorf("%d tokens remain after a Take of 3 of 10 with a cancelled context, which returned the error %v; want 7, or 10 after an error", r, err)
	}
}

// takeUntracked calls Take for checks whose calls are concurrent, which a tracker cannot
// follow. It reports an error and returns nil unless there is one level for each draw.
func (l limiterTest) takeUntracked(t testing.TB, draws ...llmhttp.Draw) []llmhttp.Level {
	t.Helper()
	levels, err := l.limiter.Take(t.Context(), draws...)
	if err != nil || len(levels) != len(draws) {
		t.Errorf("Take returned the levels %+v and the error %v, want %d levels and nil", levels, err, len(draws))
		return nil
	}
	return levels
}

func checkLimiterConcurrentTakes(t testing.TB, s limiterTest) {
	const workers, holds = 16, 50
	for _, cost := range []int64{1, 3} {
		key := newSubject()
		d := llmhttp.Draw{Subject: key, Bucket: "bucket", Rate: slowRate(holds), Amount: cost}
		var granted atomic.Int64
		runConcurrently(t, workers, func(int) {
			for range 2 * holds / workers {
				if levels := s.takeUntracked(t, d); levels != nil && isGranted(levels) {
					granted.Add(1)
				}
			}
		})
		if want := int64(holds / cost); granted.Load() != want {
			t.Errorf("%d of %d concurrent Takes of %d tokens were granted by a bucket of %d, want %d", granted.Load(), workers*(2*holds/workers), cost, holds, want)
		}
	}
}

// checkLimiterConcurrentSeveral takes from two buckets, in both orders.
func checkLimiterConcurrentSeveral(t testing.TB, s limiterTest) {
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
		account := llmhttp.Draw{Subject: llmhttp.SubjectID{Kind: llmhttp.KindAccount, ID: unique("account")}, Bucket: "bucket", Rate: slowRate(holds), Amount: 1}
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
					t.Errorf("Adjust returned the error %v, want nil", err)
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
