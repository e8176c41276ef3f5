package llmhttptest

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

// sequences tests an S by random sequences of calls, whose results it compares with those of
// a model. It reduces a sequence that fails to a shorter one that still fails. What is left
// in that tells the cause.
type sequences[S, Call any] struct {
	count int // of sequences

	// generate returns the random sequence with the index i, which may tell what it needs to
	// contain. It must be valid without some of its calls, too.
	generate func(rng *rand.Rand, s S, i int) []Call

	// begin returns a function that makes a call, with names that are new for each sequence,
	// and reports results that are wrong.
	begin func(t testing.TB, s S) func(c Call)

	// simpler returns sequences that are as long, but simpler. They must not become
	// simpler forever.
	simpler  func(calls []Call) iter.Seq[[]Call]
	describe func(c Call) string

	// causes are the usual causes of failures. The first that a reduced sequence has is named.
	causes []cause[Call]
}

// A cause is the usual cause of the failure of reduced sequences that need something.
type cause[Call any] struct {
	text  string
	needs func(calls []Call) bool
}

// randomCalls is the name of the subtest that runs sequences.
const randomCalls = "RandomCalls"

// reducedCalls is how many calls sequences makes to reduce a sequence that has failed.
const reducedCalls = 5000

// run tests new values of S. All sequences have the same one, unless they fail.
func (q *sequences[S, Call]) run(t testing.TB, newS func(t testing.TB) S) {
	t.Helper()
	rng := newRand(t)
	s := newS(t)
	for i := range q.count {
		calls := q.generate(rng, s, i)
		calls, fault := q.try(t, calls, func(testing.TB) S { return s })
		if fault == "" {
			continue
		}
		if again, repeated := q.try(t, calls, newS); repeated != "" {
			calls, fault = q.reduce(t, newS, again, repeated)
			usually(t, q.cause(calls)).Errorf("%s\nThe shortest sequence that was found to fail:\n%s", fault, q.list(calls))
			return
		}
		const cause = "calls for other subjects change the result, or it depends on how long calls take."
		usually(t, cause).Errorf("%s\nThe sequence does not fail in a new store:\n%s", fault, q.list(calls))
		return
	}
}

// simplerEach returns a function for sequences.simpler: it replaces one call by one that simpler
// yields.
func simplerEach[Call any](simpler func(c Call) iter.Seq[Call]) func(calls []Call) iter.Seq[[]Call] {
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

// without returns list without the element i.
func without[E any](list []E, i int) []E { return slices.Concat(list[:i], list[i+1:]) }

func (q *sequences[S, Call]) list(calls []Call) string {
	lines := make([]string, len(calls))
	for i, c := range calls {
		lines[i] = fmt.Sprintf("%5d. %s", i+1, q.describe(c))
	}
	return strings.Join(lines, "\n")
}

func (q *sequences[S, Call]) cause(calls []Call) string {
	for _, c := range q.causes {
		if c.needs(calls) {
			return c.text
		}
	}
	return "one of many; this is the simplest call."
}

// try makes calls until one fails. It returns the calls made and the fault, or "".
func (q *sequences[S, Call]) try(t testing.TB, calls []Call, newS func(t testing.TB) S) (made []Call, fault string) {
	n := 0
	failures := record(t, func(t testing.TB) {
		call := q.begin(t, newS(t))
		for n < len(calls) && !t.Failed() {
			n++
			call(calls[n-1])
		}
	})
	if len(failures) > 0 {
		fault = failures[0]
	}
	return calls[:n:n], fault
}

// reduce removes calls and simplifies the others while the sequence still fails.
func (q *sequences[S, Call]) reduce(t testing.TB, newS func(t testing.TB) S, calls []Call, fault string) ([]Call, string) {
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
		for candidate := range q.simpler(calls) {
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

// record calls f in a goroutine and returns the failures that it reports, with a panic as the
// last of them.
func record(t testing.TB, f func(t testing.TB)) (failures []string) {
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
func (r *recorder) FailNow()                          { r.fail("FailNow"); runtime.Goexit() }
func (r *recorder) Fatal(args ...any)                 { r.Error(args...); runtime.Goexit() }
func (r *recorder) Fatalf(format string, args ...any) { r.Errorf(format, args...); runtime.Goexit() }
func (r *recorder) SkipNow()                          { runtime.Goexit() }
func (r *recorder) Skip(...any)                       { runtime.Goexit() }
func (r *recorder) Skipf(string, ...any)              { runtime.Goexit() }
