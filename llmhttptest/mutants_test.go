package llmhttptest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// failuresOf calls run in a bubble, where slow mutants take no real time, and returns the
// failures that it reports.
func failuresOf[S any](t *testing.T, run runFunc[S], newS func(t testing.TB) S) (failures []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		failures = record(t, func(t testing.TB) { run(t, newS) })
		time.Sleep(1000 * time.Hour) // lets the goroutines of mutants end
	})
	return failures
}

// A runFunc runs a check or sequences.
type runFunc[S any] func(t testing.TB, newS func(t testing.TB) S)

// A mutant is an implementation with one fault. The check with the given name
// must fail; other checks may fail too.
type mutant[S any] struct {
	fault string
	check string
	newS  func(t testing.TB) S
}

// testMutants tests that a correct implementation passes all checks and random, which may be
// nil, that each mutant fails its check, and that each check has a mutant. The name of random
// is RandomCalls.
func testMutants[S any](t *testing.T, random runFunc[S], checks []check[S], correct func(t testing.TB) S, mutants []mutant[S]) {
	t.Helper()
	byName := make(map[string]runFunc[S])
	if random != nil {
		byName[randomCalls] = random
	}
	for _, c := range checks {
		byName[c.name] = func(t testing.TB, newS func(t testing.TB) S) { c.run(t, newS(t)) }
	}
	for name, run := range byName {
		t.Run("correct/"+name, func(t *testing.T) {
			assert.Empty(t, failuresOf(t, run, correct), "a correct implementation must pass")
			hasMutant := slices.ContainsFunc(mutants, func(m mutant[S]) bool { return m.check == name })
			assert.True(t, hasMutant, "no mutant shows that this check can fail")
		})
	}
	for _, m := range mutants {
		t.Run(m.check+"/"+m.fault, func(t *testing.T) {
			require.Contains(t, byName, m.check, "there is no such check")
			failures := failuresOf(t, byName[m.check], m.newS)
			require.NotEmpty(t, failures, "the check must find the fault")
			first, _, _ := strings.Cut(failures[0], "\ngoroutine ")
			t.Logf("%d failures, the first: %.1000s", len(failures), first)
		})
	}
}

func TestCheck_LogsCauseOfFailure(t *testing.T) {
	for _, test := range []struct {
		name  string
		run   func(t testing.TB, _ int)
		cause bool
	}{
		{"a check that passes", func(testing.TB, int) {}, false},
		{"a check that fails", func(t testing.TB, _ int) { t.Error("fault") }, true},
		{"a check that stops", func(t testing.TB, _ int) { t.Fatal("fault") }, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			logged := &logRecorder{recorder: recorder{TB: t}}
			var wg sync.WaitGroup
			wg.Go(func() { check[int]{"Check", "a bug.", test.run}.run(logged, 0) })
			wg.Wait()
			assert.Equal(t, test.cause, slices.Contains(logged.logs, "Usual cause: a bug."))
		})
	}
}

// A logRecorder is a recorder that also records what is logged.
type logRecorder struct {
	recorder
	logs []string
}

func (r *logRecorder) Log(args ...any) { r.logs = append(r.logs, fmt.Sprint(args...)) }

func TestNewRand_SeedRepeatsNumbers(t *testing.T) {
	t.Setenv(seedVariable, "42")
	assert.Equal(t, newRand(t).Uint64(), newRand(t).Uint64())
	t.Setenv(seedVariable, "")
	assert.NotEqual(t, newRand(t).Uint64(), newRand(t).Uint64())
	t.Setenv(seedVariable, "x")
	malformed := func(t testing.TB, _ func(testing.TB) int) { newRand(t) }
	assert.Len(t, failuresOf(t, malformed, func(testing.TB) int { return 0 }), 1, "a malformed seed must fail the test")
}
