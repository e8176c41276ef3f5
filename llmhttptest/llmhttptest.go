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
	"fmt"
	"strings"
	"testing"

	"github.com/llmhttp/llmhttp/llmhttptest/internal/kit"
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
func unique(prefix string) string { return kit.Unique(prefix) }

// runConcurrently is [kit.Concurrently].
func runConcurrently(t testing.TB, n int, f func(i int)) {
	t.Helper()
	kit.Concurrently(t, n, f)
}
