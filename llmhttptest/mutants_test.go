package llmhttptest

import (
	"strings"
	"testing"

	"github.com/llmhttp/llmhttp/llmhttptest/internal/mutanttest"
)

// A mutant is an implementation with one fault, which the check with the given name must find.
type mutant[S any] = mutanttest.Mutant[S]

func failuresOf[S any](t *testing.T, run mutanttest.Run[S], newS func(t testing.TB) S) []string {
	t.Helper()
	return mutanttest.FailuresOf(t, run, newS)
}

// testMutants tests checks, and random calls unless they are nil, with mutants: see [mutanttest.Test].
func testMutants[S any](t *testing.T, random mutanttest.Run[S], checks []check[S], correct func(t testing.TB) S, mutants []mutant[S]) {
	t.Helper()
	runs := mutanttest.Runs(random, nil)
	for _, c := range checks {
		runs[c.name] = func(t testing.TB, newS func(t testing.TB) S) { c.test(t, newS(t)) }
	}
	mutanttest.Test(t, runs, correct, mutants, isShort)
}

// isShort reports whether a failure tells in a few lines what was done, seen and wanted.
func isShort(failure string) bool {
	return mutanttest.IsShort(failure) || strings.Count(failure, "\n") < 4 && strings.Contains(failure, "want ")
}
