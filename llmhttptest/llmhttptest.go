// Package llmhttptest tests implementations of [llmhttp.Backend] and [llmhttp.Protocol], and wrappers of
// Backends that refuse texts. A kit is a function to call from a test:
//
//	func TestMyBackend(t *testing.T) {
//		llmhttptest.TestBackend(t, NewMyBackend(), llmhttptest.BackendOptions{ChatModel: "my-model"})
//	}
//
// The kits of stores are in package storetest, and those of Limiters in package limitertest. Run them
// with the race detector too, because some faults show only there.
//
// A failure tells what was done, what was seen and what was wanted. A sequence of random calls that fails
// is reduced to a short one. Kits that use random numbers log the seed. To repeat a run, set the
// environment variable LLMHTTPTEST_SEED to it.
package llmhttptest

import (
	"testing"

	"github.com/llmhttp/llmhttp/llmhttptest/internal/kit"
)

// A check tests one requirement of an interface.
type check[S any] struct {
	name string

	// test gets an S of its own and reports faults to t. It does not start subtests,
	// because it may run in a bubble of testing/synctest.
	test func(t testing.TB, s S)
}

// runChecks runs each check as a subtest with a new S.
func runChecks[S any](t *testing.T, checks []check[S], newS func(t testing.TB) S) {
	t.Helper()
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) { c.test(t, newS(t)) })
	}
}

// unique returns a name that starts with prefix and has never been used.
func unique(prefix string) string { return kit.Unique(prefix) }

// runConcurrently is [kit.Concurrently].
func runConcurrently(t testing.TB, n int, f func(i int)) {
	t.Helper()
	kit.Concurrently(t, n, f)
}
