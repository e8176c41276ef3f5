// Package llmhttptest tests implementations of the interfaces of
// [github.com/llmhttp/llmhttp]: whether a Backend, a KeyStore, a UsageStore or
// a Limiter does what the documentation of its interface promises, and how
// fast it does.
//
// Each kit is a function to be called from a test, and takes one that makes
// what is to be tested. The same one serves the benchmarks:
//
//	func newUsage(t testing.TB) llmhttp.UsageStore { return openTestDatabase(t) }
//
//	func TestUsage(t *testing.T)      { llmhttptest.TestUsageStore(t, newUsage) }
//	func BenchmarkUsage(b *testing.B) { llmhttptest.BenchmarkUsageStore(b, newUsage) }
//
// Everything a kit stores has a name that nothing else has, so that the stores
// it tests may share a database, which need not be emptied before, between or
// after tests. Run the kits with the race detector as well: much of what they
// do is there for it to see.
//
// Where a kit draws random numbers it logs their seed. To repeat a run, set
// LLMHTTPTEST_SEED in the environment to that seed.
package llmhttptest

import (
	cryptorand "crypto/rand"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// A check is one of the things that a kit looks at. It reports to t what is
// wrong with s, of which it has one to itself.
//
// Checks may run in a bubble of [testing/synctest], and so use neither
// subtests nor anything else that is not allowed there.
type check[S any] struct {
	name string
	run  func(t testing.TB, s S)
}

// runChecks runs each of checks as a subtest, on an S of its own.
func runChecks[S any](t *testing.T, checks []check[S], newS func(t testing.TB) S) {
	t.Helper()
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) { c.run(t, newS(t)) })
	}
}

// unique returns a name that begins with prefix and that no store has heard of.
func unique(prefix string) string { return prefix + "-" + cryptorand.Text() }

const seedVariable = "LLMHTTPTEST_SEED"

// newRand returns a source of random numbers, and logs how to repeat them.
func newRand(t testing.TB) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv(seedVariable); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("%s: %v", seedVariable, err)
		}
	}
	t.Logf("%s=%d repeats these random numbers", seedVariable, seed)
	return rand.New(rand.NewPCG(seed, seed))
}

// together calls f(0) to f(n-1) at once, each on a goroutine, and waits for
// them. f must not call t.FailNow. A panic of f is an error.
func together(t testing.TB, n int, f func(i int)) {
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

// names returns texts that differ, some of them by so little that careless
// stores take one for the other, and some of which careless stores cannot
// keep. They are valid UTF-8 and have no NUL bytes, which PostgreSQL refuses.
func names() []string {
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
