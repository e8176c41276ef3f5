package llmhttptest

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llmhttp/llmhttp"
)

// TestLimiter tests a [llmhttp.Limiter]. It calls newLimiter once for each
// subtest. The Limiters may share a store, because each subtest uses subjects of
// its own.
//
// Most subtests use buckets that refill so slowly that the duration of the test does not matter.
// The others read the clock before and after each call, and accept every result that is right for
// some time in between. The Limiter may use the clock of another machine, provided that it runs at
// the same speed, and may round times to milliseconds.
//
// If the Limiter is a [llmhttp.ConcurrencyLimiter] or a [llmhttp.Reserver], its slots are tested,
// too. Subtests of these are skipped for other Limiters.
func TestLimiter(t *testing.T, newLimiter func(t testing.TB) llmhttp.Limiter) {
	t.Helper()
	newTest := func(t testing.TB) limiterTest { return limiterTest{limiter: newLimiter(t)} }
	t.Run(randomCalls, func(t *testing.T) { limiterSequences.run(t, newTest) })
	runChecks(t, limiterChecks, newTest)
}

// TestLimiterInBubble is [TestLimiter] for a Limiter that runs in this process
// and uses its clock. It runs in a bubble of [testing/synctest], where time
// passes only while the test sleeps. There it finds smaller errors than
// TestLimiter, and also those that take days to show.
//
// The bubble waits for all goroutines that newLimiter and the Limiter start.
// newLimiter must stop them in t.Cleanup.
func TestLimiterInBubble(t *testing.T, newLimiter func(t testing.TB) llmhttp.Limiter) {
	t.Helper()
	newTest := func(t testing.TB) limiterTest { return limiterTest{limiter: newLimiter(t), inBubble: true} }
	t.Run(randomCalls, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { limiterSequences.run(t, newTest) })
	})
	for _, c := range limiterChecks {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.run(t, newTest(t)) })
		})
	}
}

// A limiterTest is the Limiter that a check tests.
type limiterTest struct {
	limiter  llmhttp.Limiter
	inBubble bool // time passes only in time.Sleep
}

const (
	// clockError is how far times of a Limiter may be off. It allows for a clock that counts
	// milliseconds.
	clockError = 2 * time.Millisecond

	// driftError is the fraction by which two clocks may differ in speed.
	driftError = 0.001

	// floatError is the fraction by which numbers may differ because of rounding.
	floatError = 1e-9
)

func isGranted(levels []llmhttp.Level) bool {
	return !slices.ContainsFunc(levels, func(l llmhttp.Level) bool { return l.RetryAfter != 0 })
}

// newSubject returns a key that has never been used.
func newSubject() llmhttp.SubjectID { return keySubject(unique("key")) }

func keySubject(id string) llmhttp.SubjectID { return llmhttp.SubjectID{Kind: llmhttp.KindKey, ID: id} }

// slowRate returns a Rate of n that gains less than a token while a test runs.
func slowRate(n int) llmhttp.Rate {
	return llmhttp.Rate{N: n, Per: time.Duration(n) * 10 * time.Hour}
}
