package kit

import (
	"errors"
	"iter"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// adders are sequences of numbers to add to an int. fault reports whether a sum is wrong.
func adders(fault func(before, n int) bool) *Sequences[*int, int] {
	return &Sequences[*int, int]{
		Count: 5,
		Generate: func(rng *rand.Rand, _ *int, _ int) (calls []int) {
			for range 200 {
				calls = append(calls, rng.IntN(100))
			}
			return calls
		},
		Begin: func(t testing.TB, sum *int) func(int) {
			return func(n int) {
				if fault(*sum, n) {
					Wrong(t, "Add", *sum+n, "another sum")
				}
				*sum += n
			}
		},
		Simpler: func(calls []int) iter.Seq[[]int] {
			return func(yield func([]int) bool) {
				for i, n := range calls {
					changed := slices.Clone(calls)
					if changed[i]--; n > 0 && !yield(changed) {
						return
					}
				}
			}
		},
		Describe: func(n int) string { return "Add(" + strconv.Itoa(n) + ")" },
	}
}

func newSum(testing.TB) *int { return new(int) }

func TestSequences_ReduceToShortest(t *testing.T) {
	for _, test := range []struct {
		name  string
		fault func(before, n int) bool
		want  string
	}{
		{"one call", func(_, n int) bool { return n >= 70 }, "did:  1. Add(70)\nsaw:  70\nwant: another sum"},
		{"two calls", func(before, n int) bool { return before > 0 && n >= 50 }, "did:  1. Add(1)\n      2. Add(50)\nsaw:  51\nwant: another sum"},
	} {
		t.Run(test.name, func(t *testing.T) {
			failures := Record(t, func(t testing.TB) { adders(test.fault).Run(t, newSum) })
			assert.Equal(t, []string{test.want}, failures)
		})
	}
}

// A failure that needs earlier sequences has as many lines as others.
func TestSequences_FailureThatNeedsEarlierSequences(t *testing.T) {
	failures := Record(t, func(t testing.TB) {
		adders(func(before, _ int) bool { return before >= 25_000 }).Run(t, newSum)
	})
	require.Len(t, failures, 1)
	assert.Regexp(t, `^did:  \.\.\.(\n      \d+\. Add\(\d+\)){11}\n      which does not fail in a new store\nsaw:  25\d\d\d\nwant: another sum$`, failures[0])
}

// A failure of another form, such as that of a constructor, is what was seen.
func TestSequences_OtherFailure(t *testing.T) {
	q := adders(nil)
	q.Begin = func(t testing.TB, _ *int) func(int) { return func(int) { t.Fatal("no sum") } }
	failures := Record(t, func(t testing.TB) { q.Run(t, newSum) })
	assert.Equal(t, []string{"did:  1. Add(0)\nsaw:  no sum\nwant: no failure"}, failures)
}

func TestSequences_NumberOfCallsIsBounded(t *testing.T) {
	calls := 0
	q := adders(func(before, _ int) bool { calls++; return before >= 9000 })
	assert.Len(t, Record(t, func(t testing.TB) { q.Run(t, newSum) }), 1)
	assert.Less(t, calls, reducedCalls+1000)
}

func TestSequences_NoFailure(t *testing.T) {
	assert.Empty(t, Record(t, func(t testing.TB) { adders(func(int, int) bool { return false }).Run(t, newSum) }))
}

func TestRecord_RunsCleanupsAfterPanic(t *testing.T) {
	cleaned := 0
	failures := Record(t, func(t testing.TB) {
		t.Cleanup(func() { cleaned++ })
		t.Cleanup(func() { t.Error("from cleanup") })
		panic("fault")
	})
	require.Len(t, failures, 2)
	assert.Contains(t, failures[0], "panic: fault\n")
	assert.Equal(t, "from cleanup", failures[1])
	assert.Equal(t, 1, cleaned)
}

func TestWrong(t *testing.T) {
	failures := Record(t, func(t testing.TB) {
		Wrong(t, "Lookup", errors.New("down"), nil)
		Wrong(t, "Lookup", nil, errors.New("not found"))
		Must(t, "Add", nil)
		Must(t, strings.Repeat("é", 600), errors.New("full"))
		Wrong(t, "Lookup", 1, 2)
	})
	assert.Equal(t, []string{
		"did:  Lookup\nsaw:  the error down\nwant: no error",
		"did:  Lookup\nsaw:  no error\nwant: the error not found",
		"did:  " + strings.Repeat("é", 500) + "...\nsaw:  the error full\nwant: no error",
	}, failures)
}

func TestNewRand_SeedRepeatsNumbers(t *testing.T) {
	t.Setenv(seedVariable, "42")
	assert.Equal(t, newRand(t).Uint64(), newRand(t).Uint64())
	t.Setenv(seedVariable, "")
	assert.NotEqual(t, newRand(t).Uint64(), newRand(t).Uint64())
	t.Setenv(seedVariable, "x")
	assert.Len(t, Record(t, func(t testing.TB) { newRand(t) }), 1, "a malformed seed must fail the test")
}
