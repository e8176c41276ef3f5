package llmhttptest

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A recorder is a testing.TB that records failures instead of failing.
type recorder struct {
	testing.TB

	mu       sync.Mutex
	failures []string // guarded by mu
}

func (r *recorder) fail(s string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, s)
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.failures) > 0
}

func (r *recorder) Helper()                           {}
func (r *recorder) Log(...any)                        {}
func (r *recorder) Logf(string, ...any)               {}
func (r *recorder) Error(args ...any)                 { r.fail(fmt.Sprint(args...)) }
func (r *recorder) Errorf(format string, args ...any) { r.fail(fmt.Sprintf(format, args...)) }
func (r *recorder) Fail()                             { r.fail("Fail") }
func (r *recorder) FailNow()                          { r.fail("FailNow"); runtime.Goexit() }
func (r *recorder) Fatal(args ...any)                 { r.Error(args...); runtime.Goexit() }
func (r *recorder) Fatalf(format string, args ...any) { r.Errorf(format, args...); runtime.Goexit() }
func (r *recorder) SkipNow()                          { runtime.Goexit() }
func (r *recorder) Skip(...any)                       { runtime.Goexit() }
func (r *recorder) Skipf(string, ...any)              { runtime.Goexit() }

// failuresOf runs c in a bubble, where slow mutants take no real time, and returns the
// failures that it reports.
func failuresOf[S any](t *testing.T, c check[S], newS func(t testing.TB) S) (failures []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() {
				if p := recover(); p != nil {
					r.fail(fmt.Sprintf("panic: %v\n%s", p, debug.Stack()))
				}
			}()
			c.run(r, newS(r))
		}()
		<-done
		failures = slices.Clone(r.failures)
		time.Sleep(1000 * time.Hour) // lets the goroutines of mutants end
	})
	return failures
}

// A mutant is an implementation with one fault. The check with the given name
// must fail; other checks may fail too.
type mutant[S any] struct {
	fault string
	check string
	newS  func(t testing.TB) S
}

// testMutants tests that a correct implementation passes all checks, that each
// mutant fails its check, and that each check has a mutant.
func testMutants[S any](t *testing.T, checks []check[S], correct func(t testing.TB) S, mutants []mutant[S]) {
	t.Helper()
	byName := make(map[string]check[S])
	for _, c := range checks {
		byName[c.name] = c
		t.Run("correct/"+c.name, func(t *testing.T) {
			assert.Empty(t, failuresOf(t, c, correct), "a correct implementation must pass")
			hasMutant := slices.ContainsFunc(mutants, func(m mutant[S]) bool { return m.check == c.name })
			assert.True(t, hasMutant, "no mutant shows that this check can fail")
		})
	}
	for _, m := range mutants {
		t.Run(m.check+"/"+m.fault, func(t *testing.T) {
			require.Contains(t, byName, m.check, "there is no such check")
			failures := failuresOf(t, byName[m.check], m.newS)
			require.NotEmpty(t, failures, "the check must find the fault")
			first, _, _ := strings.Cut(failures[0], "\ngoroutine ")
			t.Logf("%d failures, the first: %.400s", len(failures), first)
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
	malformed := check[int]{test: func(t testing.TB, _ int) { newRand(t) }}
	assert.Len(t, failuresOf(t, malformed, func(testing.TB) int { return 0 }), 1, "a malformed seed must fail the test")
}
