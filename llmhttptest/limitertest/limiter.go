// Package limitertest tests and benchmarks implementations of [llmhttp.Limiter], and of
// [llmhttp.ConcurrencyLimiter] and [llmhttp.Reserver] if the Limiter is one.
//
//	func newLimiter(t testing.TB) llmhttp.Limiter { return NewMyLimiter(testAddress) }
//
//	func TestMyLimiter(t *testing.T)      { limitertest.TestLimiter(t, newLimiter) }
//	func BenchmarkMyLimiter(b *testing.B) { limitertest.BenchmarkLimiter(b, newLimiter) }
//
// Run the tests with the race detector too, because some faults show only there.
//
// A failure tells what was done, what was seen and what was wanted. A sequence of random calls that fails
// is reduced to a short one, for which the Limiter is created again. The kit logs the seed of its random
// numbers. To repeat a run, set the environment variable LLMHTTPTEST_SEED to it.
package limitertest

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llmhttptest/internal/kit"
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
	kit.Run(t, &limiterSequences, limiterChecks, newTest)
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
	t.Run(kit.RandomCalls, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { limiterSequences.Run(t, newTest) })
	})
	for _, c := range limiterChecks {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.Test(t, newTest(t)) })
		})
	}
}

// A limiterTest is the Limiter that a check tests.
type limiterTest struct {
	limiter  llmhttp.Limiter
	inBubble bool // time passes only in time.Sleep
}

// clockError returns how far times of the Limiter may be off. It allows for a clock that counts
// milliseconds, or for rounding in a bubble.
func (l limiterTest) clockError() time.Duration {
	if l.inBubble {
		return time.Microsecond
	}
	return 2 * time.Millisecond
}

const day = 24 * time.Hour

const (
	// driftError is the fraction by which two clocks may differ in speed.
	driftError = 0.001

	// floatError is the fraction by which numbers may differ because of rounding.
	floatError = 1e-9
)

func isGranted(levels []llmhttp.BucketLevel) bool {
	return !slices.ContainsFunc(levels, func(l llmhttp.BucketLevel) bool { return l.RetryAfter != 0 })
}

// newSubject returns a key that has never been used.
func newSubject() llmhttp.SubjectID { return keySubject(kit.Unique("key")) }

func keySubject(id string) llmhttp.SubjectID { return llmhttp.SubjectID{Kind: llmhttp.KindKey, ID: id} }

// slowRate returns a Rate of n that gains less than a token while a test runs.
func slowRate(n int) llmhttp.Rate {
	return llmhttp.Rate{N: n, Per: time.Duration(n) * 10 * time.Hour}
}
