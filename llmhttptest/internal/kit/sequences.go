// Random sequences of calls, whose results are compared with those of a model. One that fails is
// reduced to a short one.

package kit

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Sequences test an S by random sequences of calls, whose results they compare with those of
// a model. They reduce a sequence that fails to a shorter one that still fails.
type Sequences[S, Call any] struct {
	Count int // of sequences

	// Generate returns the random sequence with the index i, which may tell what it needs to
	// contain. It must be valid without some of its calls, too.
	Generate func(rng *rand.Rand, s S, i int) []Call

	// Begin returns a function that makes a call, with names that are new for each sequence,
	// and reports results that are wrong.
	Begin func(t testing.TB, s S) func(c Call)

	// Simpler returns sequences that are as long, but simpler. They must not become
	// simpler forever.
	Simpler  func(calls []Call) iter.Seq[[]Call]
	Describe func(c Call) string
}

// reducedCalls is how many calls sequences makes to reduce a sequence that has failed.
const reducedCalls = 5000

// Run tests new values of S. All sequences have the same one, unless they fail.
func (q *Sequences[S, Call]) Run(t testing.TB, newS func(t testing.TB) S) {
	t.Helper()
	rng := newRand(t)
	s := newS(t)
	for i := range q.Count {
		calls := q.Generate(rng, s, i)
		calls, fault := q.try(t, calls, func(testing.TB) S { return s })
		if fault == "" {
			continue
		}
		note := "\n      which does not fail in a new store"
		if again, repeated := q.try(t, calls, newS); repeated != "" {
			calls, fault = q.reduce(t, newS, again, repeated)
			note = ""
		}
		t.Error("did:  " + q.list(calls) + note + fault)
		return
	}
}

// SimplerEach returns a function for Sequences.Simpler: it replaces one call by one that simpler
// yields.
func SimplerEach[Call any](simpler func(c Call) iter.Seq[Call]) func(calls []Call) iter.Seq[[]Call] {
	return func(calls []Call) iter.Seq[[]Call] {
		return func(yield func([]Call) bool) {
			for i, c := range calls {
				for s := range simpler(c) {
					changed := slices.Clone(calls)
					if changed[i] = s; !yield(changed) {
						return
					}
				}
			}
		}
	}
}

// Without returns list without the element i.
func Without[E any](list []E, i int) []E { return slices.Concat(list[:i], list[i+1:]) }

// list has a line for each of calls, and an ellipsis in place of all but the last of many.
func (q *Sequences[S, Call]) list(calls []Call) string {
	const most = 12
	var lines []string
	for i, c := range calls {
		switch skipped := len(calls) - most; {
		case skipped <= 0 || i > skipped:
			lines = append(lines, fmt.Sprintf("%d. %s", i+1, shorten(q.Describe(c))))
		case i == skipped:
			lines = append(lines, "...")
		}
	}
	return strings.Join(lines, "\n      ")
}

// try makes calls until one fails. It returns the calls made and the fault, or "".
func (q *Sequences[S, Call]) try(t testing.TB, calls []Call, newS func(t testing.TB) S) (made []Call, fault string) {
	n := 0
	failures := Record(t, func(t testing.TB) {
		call := q.Begin(t, newS(t))
		for n < len(calls) && !t.Failed() {
			n++
			call(calls[n-1])
		}
	})
	if len(failures) > 0 {
		fault = withoutCall(failures[0])
	}
	return calls[:n:n], fault
}

// withoutCall returns what a failure says was seen and wanted.
func withoutCall(failure string) string {
	if i := strings.Index(failure, sawLine); i >= 0 {
		return failure[i:]
	}
	return sawLine + failure + wantLine + "no failure"
}

// reduce removes calls and simplifies the others while the sequence still fails.
func (q *Sequences[S, Call]) reduce(t testing.TB, newS func(t testing.TB) S, calls []Call, fault string) ([]Call, string) {
	left := reducedCalls
	fails := func(candidate []Call) bool {
		if left -= len(candidate); left < 0 {
			return false
		}
		made, f := q.try(t, candidate, newS)
		if f != "" {
			calls, fault = made, f
		}
		return f != ""
	}
	simplified := func() bool {
		for candidate := range q.Simpler(calls) {
			if fails(candidate) {
				return true
			}
		}
		return false
	}
	for before := 0; before != left; {
		before = left
		changed := false
		for size := len(calls) / 2; size > 0; size /= 2 {
			for i := len(calls) - size; i >= 0; i -= size {
				if i+size <= len(calls) && fails(slices.Concat(calls[:i], calls[i+size:])) {
					changed = true
				}
			}
		}
		for simplified() {
			changed = true
		}
		if !changed {
			break
		}
	}
	return calls, fault
}

// A recorder is a testing.TB that records failures instead of failing.
type recorder struct {
	testing.TB

	mu       sync.Mutex
	failures []string // guarded by mu
	cleanups []func() // guarded by mu
}

// Record calls f in a goroutine and returns the failures that it reports, with a panic as the
// last of them.
func Record(t testing.TB, f func(t testing.TB)) (failures []string) {
	r := &recorder{TB: t}
	protect := func(f func()) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() {
				if p := recover(); p != nil {
					r.fail(fmt.Sprintf("panic: %v\n%s", p, debug.Stack()))
				}
			}()
			f()
		}()
		<-done
	}
	protect(func() { f(r) })
	for _, cleanup := range slices.Backward(r.cleanups) {
		protect(cleanup)
	}
	return r.failures
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

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

func (r *recorder) Helper()                           {}
func (r *recorder) Log(...any)                        {}
func (r *recorder) Logf(string, ...any)               {}
func (r *recorder) Error(args ...any)                 { r.fail(fmt.Sprint(args...)) }
func (r *recorder) Errorf(format string, args ...any) { r.fail(fmt.Sprintf(format, args...)) }
func (r *recorder) Fail()                             { r.fail("Fail") }
func (r *recorder) FailNow() {
	if !r.Failed() {
		r.fail("FailNow")
	}
	runtime.Goexit()
}
func (r *recorder) Fatal(args ...any)                 { r.Error(args...); runtime.Goexit() }
func (r *recorder) Fatalf(format string, args ...any) { r.Errorf(format, args...); runtime.Goexit() }
func (r *recorder) SkipNow()                          { runtime.Goexit() }
func (r *recorder) Skip(...any)                       { runtime.Goexit() }
func (r *recorder) Skipf(string, ...any)              { runtime.Goexit() }
