// Package mutanttest tests kits with mutants, which are implementations that have one fault each.
package mutanttest

import (
	"flag"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llmhttptest/internal/kit"
)

// A Mutant is an implementation with one fault. The check with the given name must fail; other checks
// may fail too.
type Mutant[S any] = struct {
	Fault string
	Check string
	New   func(t testing.TB) S
}

// A Run runs a check or sequences.
type Run[S any] = func(t testing.TB, newS func(t testing.TB) S)

// Runs returns the checks and sequences of a kit by name. random may be nil.
func Runs[S any](random Run[S], checks []kit.Check[S]) map[string]Run[S] {
	runs := make(map[string]Run[S])
	if random != nil {
		runs[kit.RandomCalls] = random
	}
	for _, c := range checks {
		runs[c.Name] = func(t testing.TB, newS func(t testing.TB) S) { c.Test(t, newS(t)) }
	}
	return runs
}

// form is that of the failures of kits: what was done, with a line for each call, what was seen and
// what was wanted.
var form = regexp.MustCompile(`^did:  .+(\n      .+)*\nsaw:  .*\nwant: .+$`)

// IsShort reports whether a failure tells in a few lines what was done, seen and wanted. The
// stack of a panic may be longer.
func IsShort(failure string) bool {
	const lines = 16
	return strings.Contains(failure, "panic: ") || strings.Count(failure, "\n") < lines && form.MatchString(failure)
}

// Test tests that a correct implementation passes all runs, that each mutant fails its own, with a
// first failure that isForm accepts, and that each run has a mutant.
func Test[S any](t *testing.T, runs map[string]Run[S], correct func(t testing.TB) S, mutants []Mutant[S], isForm func(failure string) bool) {
	t.Helper()
	for name, run := range runs {
		t.Run("correct/"+name, func(t *testing.T) {
			assert.Empty(t, FailuresOf(t, run, correct), "a correct implementation must pass")
			hasMutant := slices.ContainsFunc(mutants, func(m Mutant[S]) bool { return m.Check == name })
			assert.True(t, hasMutant, "no mutant shows that this check can fail")
		})
	}
	for _, m := range mutants {
		t.Run(m.Check+"/"+m.Fault, func(t *testing.T) {
			require.Contains(t, runs, m.Check, "there is no such check")
			failures := FailuresOf(t, runs[m.Check], m.New)
			for i := 0; len(failures) == 0 && m.Check == kit.RandomCalls && i < 9; i++ { // one run of random calls can miss a fault
				failures = FailuresOf(t, runs[m.Check], m.New)
			}
			require.NotEmpty(t, failures, "the check must find the fault")
			assert.True(t, slices.ContainsFunc(failures, isForm), "a failure has another form: %.1000s", failures[0])
			first, _, _ := strings.Cut(failures[0], "\ngoroutine ")
			t.Logf("%d failures, the first:\n%.1000s", len(failures), first)
		})
	}
}

// FailuresOf calls run in a bubble, where slow mutants take no real time, and returns the failures
// that it reports.
func FailuresOf[S any](t *testing.T, run Run[S], newS func(t testing.TB) S) (failures []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		failures = kit.Record(t, func(t testing.TB) { run(t, newS) })
		time.Sleep(1000 * time.Hour) // lets the goroutines of mutants end
	})
	return failures
}

// Bench tests that benchmarks succeed, with 3 rounds each.
func Bench(t *testing.T, benchmarks ...func(b *testing.B)) {
	t.Helper()
	benchtime := flag.Lookup("test.benchtime")
	before := benchtime.Value.String()
	defer func() { assert.NoError(t, benchtime.Value.Set(before)) }()
	require.NoError(t, benchtime.Value.Set("3x"))
	for i, f := range benchmarks {
		failed := true
		testing.Benchmark(func(b *testing.B) {
			f(b)
			failed = b.Failed()
		})
		assert.False(t, failed, "benchmark %d", i)
	}
}
