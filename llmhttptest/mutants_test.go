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
)

// A recorder is a testing.TB that remembers failures instead of failing.
type recorder struct {
	testing.TB
	mu      sync.Mutex
	faults  []string
	skipped bool
}

func (r *recorder) fail(s string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, s)
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.faults) > 0
}

func (r *recorder) Helper()                           {}
func (r *recorder) Log(args ...any)                   {}
func (r *recorder) Logf(format string, args ...any)   {}
func (r *recorder) Error(args ...any)                 { r.fail(fmt.Sprint(args...)) }
func (r *recorder) Errorf(format string, args ...any) { r.fail(fmt.Sprintf(format, args...)) }
func (r *recorder) Fail()                             { r.fail("Fail") }
func (r *recorder) FailNow()                          { r.fail("FailNow"); runtime.Goexit() }
func (r *recorder) Fatal(args ...any)                 { r.Error(args...); runtime.Goexit() }
func (r *recorder) Fatalf(format string, args ...any) { r.Errorf(format, args...); runtime.Goexit() }
func (r *recorder) SkipNow()                          { r.skipped = true; runtime.Goexit() }
func (r *recorder) Skip(args ...any)                  { r.SkipNow() }
func (r *recorder) Skipf(string, ...any)              { r.SkipNow() }
func (r *recorder) Skipped() bool                     { return r.skipped }

// record runs c in a bubble and returns what it found wrong. In a bubble
// mutants may be slow at no cost.
func record[S any](t *testing.T, c check[S], newS func(t testing.TB) S) (faults []string) {
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
		faults = slices.Clone(r.faults)
		time.Sleep(1000 * time.Hour) // whatever is left of a mutant ends meanwhile
	})
	return faults
}

// A mutant is an implementation with one fault, and a check that has to see
// it. Others may see it too.
type mutant[S any] struct {
	fault string
	check string
	newS  func(t testing.TB) S
}

// testMutants checks that the sound implementation passes all checks, that the
// check of each mutant sees its fault, and that there is no check without a
// mutant that it sees.
func testMutants[S any](t *testing.T, checks []check[S], sound func(t testing.TB) S, mutants []mutant[S]) {
	t.Helper()
	for _, c := range checks {
		t.Run("sound/"+c.name, func(t *testing.T) {
			for _, f := range record(t, c, sound) {
				t.Errorf("a sound implementation: %s", f)
			}
			if !slices.ContainsFunc(mutants, func(m mutant[S]) bool { return m.check == c.name }) {
				t.Error("no mutant shows that this check can fail")
			}
		})
	}
	for _, m := range mutants {
		t.Run(m.check+"/"+m.fault, func(t *testing.T) {
			i := slices.IndexFunc(checks, func(c check[S]) bool { return c.name == m.check })
			if i < 0 {
				t.Fatalf("there is no check %q", m.check)
			}
			faults := record(t, checks[i], m.newS)
			if len(faults) == 0 {
				t.Error("the check does not see the fault")
				return
			}
			first, _, _ := strings.Cut(faults[0], "\ngoroutine ")
			t.Logf("%d faults, first: %.400s", len(faults), first)
		})
	}
}

// TestSeed tests that random numbers can be repeated.
func TestSeed(t *testing.T) {
	t.Setenv(seedVariable, "42")
	if a, b := newRand(t).Uint64(), newRand(t).Uint64(); a != b {
		t.Errorf("the seed 42 gave %d and then %d", a, b)
	}
	t.Setenv(seedVariable, "")
	if a, b := newRand(t).Uint64(), newRand(t).Uint64(); a == b {
		t.Errorf("no seed gave %d twice", a)
	}
	t.Setenv(seedVariable, "x")
	faults := record(t, check[int]{run: func(t testing.TB, _ int) { newRand(t) }}, func(testing.TB) int { return 0 })
	if len(faults) != 1 {
		t.Errorf("a bad seed is reported as %q", faults)
	}
}
