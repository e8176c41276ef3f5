// Package kit has what the kits for stores, Limiters, Protocols and Backends share: checks, random
// sequences of calls, and failures that tell what was done, what was seen and what was wanted.
package kit

import (
	cryptorand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// A Check tests one requirement of an interface. Test gets an S of its own. It does not start
// subtests, because it may run in a bubble of testing/synctest.
type Check[S any] = struct {
	Name string
	Test func(t testing.TB, s S)
}

// RandomCalls is the name of the subtest that runs sequences.
const RandomCalls = "RandomCalls"

// Run tests random sequences of calls and each check as subtests, with new values of S.
func Run[S, Call any](t *testing.T, q *Sequences[S, Call], checks []Check[S], newS func(t testing.TB) S) {
	t.Helper()
	t.Run(RandomCalls, func(t *testing.T) { q.Run(t, newS) })
	for _, c := range checks {
		t.Run(c.Name, func(t *testing.T) { c.Test(t, newS(t)) })
	}
}

// Wrong reports that a call had another result than wanted. An error is named as one, and a nil saw
// or want is no error.
func Wrong(t testing.TB, did string, saw, want any) {
	t.Helper()
	t.Errorf("did:  %s%s%s%s%s", shorten(did), sawLine, shorten(result(saw)), wantLine, shorten(result(want)))
}

const sawLine, wantLine = "\nsaw:  ", "\nwant: "

// Must reports an error of a call that must succeed, and ends the test.
func Must(t testing.TB, did string, err error) {
	t.Helper()
	if err != nil {
		Wrong(t, did, err, nil)
		t.FailNow()
	}
}

func result(v any) string {
	switch v := v.(type) {
	case nil:
		return "no error"
	case error:
		return "the error " + v.Error()
	}
	return fmt.Sprint(v)
}

// shorten returns the beginning of s.
func shorten(s string) string {
	const limit = 1000
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "..."
}

// Unique returns a name that starts with prefix and has never been used.
func Unique(prefix string) string { return prefix + "-" + cryptorand.Text() }

const seedVariable = "LLMHTTPTEST_SEED"

// newRand returns a source of random numbers and logs its seed.
func newRand(t testing.TB) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv(seedVariable); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("%s is not a valid seed: %v", seedVariable, err)
		}
	}
	t.Logf("to repeat this run, set %s=%d", seedVariable, seed)
	return FixedRand(seed)
}

// FixedRand returns a source of random numbers that are the same in every run.
func FixedRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, seed)) }

// Pick returns a random element of list.
func Pick[T any](rng *rand.Rand, list ...T) T { return list[rng.IntN(len(list))] }

// Concurrently calls f(0) to f(n-1) concurrently and waits for all of them. f must not call
// t.FailNow. A panic in f is reported as an error.
func Concurrently(t testing.TB, n int, f func(i int)) {
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

// TrickyNames returns distinct texts that a store may confuse or fail to keep. Those that are most
// alike are next to each other. They are valid UTF-8 and contain no NUL byte, which PostgreSQL refuses.
func TrickyNames() []string {
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

// Bench measures f in a sub-benchmark. i counts the calls.
func Bench(b *testing.B, name string, f func(i uint64) error) {
	b.Run(name, func(b *testing.B) {
		b.ReportAllocs()
		for i := uint64(0); b.Loop(); i++ {
			if err := f(i); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchParallel measures concurrent calls of f in a sub-benchmark. No two calls get the same i.
func BenchParallel(b *testing.B, name string, f func(i uint64) error) {
	var workers atomic.Uint64
	b.Run(name, func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for i := workers.Add(1) << 40; pb.Next(); i++ {
				if err := f(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
}
