// Package llmhttptest tests and benchmarks implementations of the interfaces of
// [github.com/llmhttp/llmhttp], of its package manage and of its package responsestore.
//
// Each kit is a function to call from a test. The kits for stores and Limiters
// take a function that returns what to test, which the benchmarks share:
//
//	func newUsage(t testing.TB) llmhttp.UsageStore { return openTestDatabase(t) }
//
//	func TestUsage(t *testing.T)      { llmhttptest.TestUsageStore(t, newUsage) }
//	func BenchmarkUsage(b *testing.B) { llmhttptest.BenchmarkUsageStore(b, newUsage) }
//
// The kits use unique names for everything they store. Stores may therefore share a database that
// already has content, and nothing need be deleted between tests. Run the kits with the race
// detector too, because some faults show only there.
//
// A store says that it does not have something optional by not implementing the
// interface, or by an error that wraps [errors.ErrUnsupported]. Subtests that can
// test nothing else are skipped and tell what is missing.
//
// A failure names its usual cause, unless only its text tells what is wrong, such as the error of a
// store that is not reachable. A sequence of random calls that fails is reduced to a short one, for which
// the store is created again.
//
// Kits that use random numbers log the seed. To repeat a run, set the environment variable
// LLMHTTPTEST_SEED to it.
package llmhttptest

import (
	cryptorand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// A check tests one requirement of an interface.
type check[S any] struct {
	name  string
	cause string // the usual cause of failures, except of those that unexplained or usually report

	// test gets an S of its own and reports faults to t. It does not start subtests,
	// because it may run in a bubble of testing/synctest.
	test func(t testing.TB, s S)
}

// run calls c.test.
func (c check[S]) run(t testing.TB, s S) {
	t.Helper()
	c.test(usually(t, c.cause), s)
}

// A causeTB is a testing.TB whose failures name their usual cause.
type causeTB struct {
	testing.TB
	cause string
}

// usually returns a testing.TB that adds cause to each failure, and no other cause that t adds.
func usually(t testing.TB, cause string) testing.TB { return causeTB{unexplained(t), cause} }

// unexplained returns a testing.TB that does not add a cause to failures.
func unexplained(t testing.TB) testing.TB {
	if c, ok := t.(causeTB); ok {
		return c.TB
	}
	return t
}

func (t causeTB) Error(args ...any) {
	t.Helper()
	t.Errorf("%s", strings.TrimSuffix(fmt.Sprintln(args...), "\n"))
}

func (t causeTB) Errorf(format string, args ...any) {
	t.Helper()
	t.TB.Errorf("%s\nUsual cause: %s", fmt.Sprintf(format, args...), t.cause)
}

func (t causeTB) Fatal(args ...any) {
	t.Helper()
	t.Fatalf("%s", strings.TrimSuffix(fmt.Sprintln(args...), "\n"))
}

func (t causeTB) Fatalf(format string, args ...any) {
	t.Helper()
	t.TB.Fatalf("%s\nUsual cause: %s", fmt.Sprintf(format, args...), t.cause)
}

// Causes of failures that several checks can find.
const (
	causeShared    = "the state of one call is visible to others."
	causeBreak     = "the result of yield is ignored, or what follows an error is yielded."
	causeUnchecked = "what another server sends is passed on unchecked."
)

// runChecks runs each check as a subtest with a new S.
func runChecks[S any](t *testing.T, checks []check[S], newS func(t testing.TB) S) {
	t.Helper()
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) { c.run(t, newS(t)) })
	}
}

// unique returns a name that starts with prefix and has never been used.
func unique(prefix string) string { return prefix + "-" + cryptorand.Text() }

const seedVariable = "LLMHTTPTEST_SEED"

// newRand returns a source of random numbers and logs its seed.
func newRand(t testing.TB) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv(seedVariable); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("%s is not a valid seed: %v", seedVariable, err)
		}
	}
	t.Logf("to repeat this run, set %s=%d", seedVariable, seed)
	return rand.New(rand.NewPCG(seed, seed))
}

// fixedRand returns a source of random numbers that are the same in every run.
func fixedRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, seed)) }

// pick returns a random element of list.
func pick[T any](rng *rand.Rand, list ...T) T { return list[rng.IntN(len(list))] }

// runConcurrently calls f(0) to f(n-1) concurrently and waits for all of them. f must
// not call t.FailNow. A panic in f is reported as an error.
func runConcurrently(t testing.TB, n int, f func(i int)) {
	t.Helper()
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			defer func() {
				if r := recover(); r != nil {
					t.Errorf("panic: %v\n%s", r, debug.Stack())
				}
			}()
			<-start
			f(i)
		})
	}
	close(start)
	wg.Wait()
}

// trickyNames returns distinct texts that a store may confuse or fail to keep. They
// are valid UTF-8 and contain no NUL byte, which PostgreSQL refuses.
func trickyNames() []string {
	long := strings.Repeat("long ", 60)
	return []string{
		"plain", "PLAIN", "Plain", "plain ", " plain", "plai", "plainn", "plain\n", "plain:plain",
		"it's", `"quoted"`, "`quoted`", `back\slash`, `back\\slash`, "'; DROP TABLE usage; --", "/* c */",
		"%", "_", "pl%", "plai_", "*", "?", "$1", ":name", "@name", "{plain}", "{}", "[0]", "a,b", "a|b", "a;b", "a/b", "../a",
		"tab\t", "line\r\nbreak", "\x01\x1b\x7f", "\u00a0plain",
		"\u00e9", "e\u0301", "e", "\u00df", "ss", "\u0130", "i", "\u212a", "k", "\u6a21\u578b", "\U0001f642", "\U0001f643", "\u202eright to left",
		"null", "NULL", "true", "0", "00", "-0", "1e3", "1000",
		long, long + "x",
	}
}
