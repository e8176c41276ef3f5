package llmhttptest

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llmhttp/llmhttp"
)

// TestLimiter tests a [llmhttp.Limiter]. It calls newLimiter for each of its
// subtests, which draw on buckets that nothing else draws on.
//
// Most subtests draw on buckets that refill so slowly that it does not matter
// how long they take. Where time matters, a subtest looks at the clock before
// and after each call, and reports what cannot be right whatever the Limiter's
// own clock showed in between. That clock need not be this machine's, but must
// run as fast, and may be read in milliseconds.
//
// When the Rate of a bucket changes, the bucket is to keep what it holds, as
// far as there is room. If it may have been full, it may be full again.
//
// The subtest Acquire is for a [llmhttp.ConcurrencyLimiter], and skipped for
// others.
func TestLimiter(t *testing.T, newLimiter func(t testing.TB) llmhttp.Limiter) {
	t.Helper()
	runChecks(t, limiterChecks, func(t testing.TB) limiterTest {
		return limiterTest{Limiter: newLimiter(t)}
	})
	t.Run("Acquire", func(t *testing.T) {
		if _, ok := newLimiter(t).(llmhttp.ConcurrencyLimiter); !ok {
			t.Skip("it is no ConcurrencyLimiter")
		}
		runChecks(t, acquireChecks, func(t testing.TB) llmhttp.ConcurrencyLimiter {
			return newLimiter(t).(llmhttp.ConcurrencyLimiter)
		})
	})
}

// TestLimiterInBubble is [TestLimiter] for a Limiter that runs in this process
// and goes by this process's clock. It calls newLimiter, and the Limiter, in a
// bubble of [testing/synctest], where time is exact, so that it sees smaller
// faults than TestLimiter does and some that take days to show.
//
// The bubble waits for the goroutines of a Limiter: newLimiter must have them
// end, by t.Cleanup.
func TestLimiterInBubble(t *testing.T, newLimiter func(t testing.TB) llmhttp.Limiter) {
	t.Helper()
	for _, c := range limiterChecks {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.run(t, limiterTest{Limiter: newLimiter(t), exact: true})
			})
		})
	}
}

// A limiterTest is what a check of a Limiter is to use.
type limiterTest struct {
	llmhttp.Limiter
	exact bool // time passes only in time.Sleep
}

const (
	// clockError is how far off a Limiter may be that counts milliseconds.
	clockError = 2 * time.Millisecond

	// driftError is by how much two machines' clocks may differ in speed.
	driftError = 0.001

	// floatError allows for rounding, in proportion.
	floatError = 1e-9
)

// A ledger draws on buckets and reports what cannot be right. It is for one
// goroutine, and must see all that is drawn.
type ledger struct {
	limiterTest
	t       testing.TB
	buckets map[string]*bucket
}

func (l limiterTest) ledger(t testing.TB) *ledger {
	return &ledger{l, t, map[string]*bucket{}}
}

// A bucket is what is known of one: how much it holds at least and at most.
type bucket struct {
	rate        llmhttp.Rate // with its defaults
	least, most float64
	begin, end  time.Time // of the last call that drew on it
}

// perSecond returns how many tokens come in a second.
func (b *bucket) perSecond() float64 { return float64(b.rate.N) / b.rate.Per.Seconds() }

// slack returns by how much tokens, of which there are about n, may be off.
func (b *bucket) slack(n float64) float64 {
	return clockError.Seconds()*b.perSecond() + floatError*(math.Abs(n)+float64(b.rate.Burst))
}

// lacks reports whether b cannot, or must, hold less than cost.
func (b *bucket) lacks(cost int) (cannot, must bool) {
	c := float64(cost)
	switch {
	case cost == 0:
		return true, false
	case cost > b.rate.Burst:
		return false, true
	}
	return b.least >= c+b.slack(c), b.most < c-b.slack(c)
}

// bucket returns the bucket d is of, as it was when a call had that lasted
// from begin to end.
func (l *ledger) bucket(d llmhttp.Draw, begin, end time.Time) *bucket {
	rate := d.Rate.WithDefaults()
	full := float64(rate.Burst)
	b := l.buckets[d.Bucket]
	if b == nil {
		b = &bucket{rate: rate, least: full, most: full}
		l.buckets[d.Bucket] = b
	} else {
		drift := driftError
		if l.exact {
			drift = 0
		}
		was := float64(b.rate.Burst)
		b.least = min(was, b.least+b.perSecond()*begin.Sub(b.end).Seconds()*(1-drift))
		b.most = min(was, b.most+b.perSecond()*end.Sub(b.begin).Seconds()*(1+drift))
		if b.rate != rate {
			if b.most >= was-b.slack(was) {
				b.most = max(b.most, full) // it may have been full, and forgotten
			}
			b.rate = rate
			b.least, b.most = min(b.least, full), min(b.most, full)
		}
	}
	b.begin, b.end = begin, end
	return b
}

// take takes, and reports whether it was granted.
func (l *ledger) take(draws ...llmhttp.Draw) ([]llmhttp.Level, bool) {
	l.t.Helper()
	passed := slices.Clone(draws)
	begin := time.Now()
	levels, err := l.Take(l.t.Context(), passed...)
	end := time.Now()
	what := "Take" + describeDraws(draws)
	switch {
	case err != nil:
		l.t.Fatalf("%s: error %v", what, err)
	case len(levels) != len(draws):
		l.t.Fatalf("%s: %d levels for %d draws", what, len(levels), len(draws))
	case !slices.Equal(passed, draws):
		l.t.Errorf("%s changed its draws to %s", what, describeDraws(passed))
	}
	granted := isGranted(levels)
	for i, d := range draws {
		b := l.bucket(d, begin, end)
		cannot, must := b.lacks(d.Cost)
		said := levels[i].RetryAfter > 0
		if said && cannot {
			l.t.Errorf("%s: draw %d has a RetryAfter of %v, although its bucket held %s", what, i, levels[i].RetryAfter, b.holds())
		}
		if !said && must {
			l.t.Errorf("%s: draw %d has no RetryAfter, although its bucket held %s", what, i, b.holds())
		}
		need := float64(d.Cost) // of what there was
		if granted {
			b.least -= float64(d.Cost)
			b.most -= float64(d.Cost)
			need = 0
		}
		l.checkLevel(fmt.Sprintf("%s: level %d", what, i), levels[i], b, need, said && d.Cost <= b.rate.Burst)
	}
	return levels, granted
}

// checkLevel checks a level of b, which lacks up to need tokens if lacking.
func (l *ledger) checkLevel(what string, level llmhttp.Level, b *bucket, need float64, lacking bool) {
	l.t.Helper()
	if level.Remaining < 0 || level.RetryAfter < 0 || level.ResetAfter < 0 {
		l.t.Errorf("%s has a negative field: %+v", what, level)
		return
	}
	least := math.Floor(max(0, b.least-b.slack(b.least)))
	most := math.Floor(max(0, b.most+b.slack(b.most)))
	if r := float64(level.Remaining); r < least || r > most {
		l.t.Errorf("%s: %d tokens remain, although the bucket holds %s", what, level.Remaining, b.holds())
	}
	if b.rate.N == 0 {
		return
	}
	until := func(tokens float64) (least, most time.Duration) {
		least = min(seconds((tokens-b.most)/b.perSecond()*(1-floatError))-clockError, 100*365*day)
		most = seconds((tokens - b.least) / b.perSecond() * (1 + floatError))
		return least, most + min(clockError, math.MaxInt64-most)
	}
	if least, most := until(float64(b.rate.Burst)); level.ResetAfter < least || level.ResetAfter > most {
		l.t.Errorf("%s: ResetAfter is %v, although the bucket holds %s", what, level.ResetAfter, b.holds())
	}
	if !lacking {
		return
	}
	if least, most := until(need); level.RetryAfter < least || level.RetryAfter > most {
		l.t.Errorf("%s: RetryAfter is %v, although the bucket holds %s", what, level.RetryAfter, b.holds())
	}
}

// seconds returns s as a Duration, or the longest there is.
func seconds(s float64) time.Duration {
	if s *= float64(time.Second); s < math.MaxInt64 {
		return time.Duration(s)
	}
	return math.MaxInt64
}

func (b *bucket) holds() string {
	return fmt.Sprintf("%.6g to %.6g tokens of %d, and gets %d in %v", b.least, b.most, b.rate.Burst, b.rate.N, b.rate.Per)
}

// mustTake is take of what has to be granted, or not.
func (l *ledger) mustTake(want bool, draws ...llmhttp.Draw) []llmhttp.Level {
	l.t.Helper()
	levels, granted := l.take(draws...)
	if granted != want {
		l.t.Errorf("Take%s: granted is %t, want %t; the levels are %+v", describeDraws(draws), granted, want, levels)
	}
	return levels
}

// expect reports an error unless so many tokens are left in the bucket of d,
// whose Cost does not matter.
func (l *ledger) expect(remaining int, d llmhttp.Draw) {
	l.t.Helper()
	d.Cost = 0
	if levels := l.mustTake(true, d); levels[0].Remaining != remaining {
		l.t.Errorf("%d tokens remain in the bucket %.40q, want %d", levels[0].Remaining, d.Bucket, remaining)
	}
}

func (l *ledger) adjust(draws ...llmhttp.Draw) {
	l.t.Helper()
	passed := slices.Clone(draws)
	begin := time.Now()
	err := l.Adjust(l.t.Context(), passed...)
	end := time.Now()
	if err != nil {
		l.t.Fatalf("Adjust%s: error %v", describeDraws(draws), err)
	}
	if !slices.Equal(passed, draws) {
		l.t.Errorf("Adjust%s changed its draws to %s", describeDraws(draws), describeDraws(passed))
	}
	for _, d := range draws {
		b := l.bucket(d, begin, end)
		b.least = min(float64(b.rate.Burst), b.least-float64(d.Cost))
		b.most = min(float64(b.rate.Burst), b.most-float64(d.Cost))
	}
}

func isGranted(levels []llmhttp.Level) bool {
	return !slices.ContainsFunc(levels, func(l llmhttp.Level) bool { return l.RetryAfter != 0 })
}

// describeDraws writes draws as costs and rates, as in (3 of 10 in 1m0s).
func describeDraws(draws []llmhttp.Draw) string {
	s := "("
	for i, d := range draws {
		if i > 0 {
			s += ", "
		}
		s += fmt.Sprintf("%d at %d in %v", d.Cost, d.Rate.N, d.Rate.Per)
		if d.Rate.Burst != 0 {
			s += fmt.Sprintf(" bursting %d", d.Rate.Burst)
		}
	}
	return s + ")"
}

// slow is a Rate of which nothing comes back while a test lasts.
func slow(n int) llmhttp.Rate {
	return llmhttp.Rate{N: n, Per: time.Duration(n) * 10 * time.Hour}
}

// buckets returns the names of n buckets, which may be drawn on together.
func buckets(n int) []string {
	prefix := unique("bucket")
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("%s:%d", prefix, i)
	}
	return list
}

func newBucket() string { return buckets(1)[0] }
