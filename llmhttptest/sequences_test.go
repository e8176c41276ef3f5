package llmhttptest

import (
	"iter"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// adders are sequences of numbers to add to an int. fault reports whether a sum is wrong.
func adders(fault func(before, n int) bool) *sequences[*int, int] {
	return &sequences[*int, int]{
		count: 5,
		generate: func(rng *rand.Rand, _ *int, _ int) (calls []int) {
			for range 200 {
				calls = append(calls, rng.IntN(100))
			}
			return calls
		},
		begin: func(t testing.TB, sum *int) func(int) {
			return func(n int) {
				if fault(*sum, n) {
					t.Errorf("%d + %d is wrong", *sum, n)
				}
				*sum += n
			}
		},
		simpler: func(calls []int) iter.Seq[[]int] {
			return func(yield func([]int) bool) {
				for i, n := range calls {
					changed := slices.Clone(calls)
					if changed[i]--; n > 0 && !yield(changed) {
						return
					}
				}
			}
		},
		describe: func(n int) string { return "Add(" + strconv.Itoa(n) + ")" },
		causes: []cause[int]{
			{"small", func(calls []int) bool { return len(calls) == 1 }},
			{"large", func([]int) bool { return true }},
		},
	}
}

func newSum(testing.TB) *int { return new(int) }

func TestSequences_ReduceToShortest(t *testing.T) {
	for _, test := range []struct {
		name  string
		fault func(before, n int) bool
		want  string
		cause string
	}{
		{"one call", func(_, n int) bool { return n >= 70 }, "0 + 70 is wrong\nThe shortest sequence that was found to fail:\n    1. Add(70)", "small"},
		{"two calls", func(before, n int) bool { return before > 0 && n >= 50 }, "1 + 50 is wrong\nThe shortest sequence that was found to fail:\n    1. Add(1)\n    2. Add(50)", "large"},
	} {
		t.Run(test.name, func(t *testing.T) {
			failures := record(t, func(t testing.TB) { adders(test.fault).run(t, newSum) })
			assert.Equal(t, []string{test.want + "\nUsual cause: " + test.cause}, failures)
		})
	}
}

func TestSequences_FailureThatNeedsEarlierSequences(t *testing.T) {
	failures := record(t, func(t testing.TB) {
		adders(func(before, _ int) bool { return before >= 25_000 }).run(t, newSum)
	})
	require.Len(t, failures, 1)
	assert.Contains(t, failures[0], "The sequence does not fail in a new store:\n")
}

func TestSequences_NumberOfCallsIsBounded(t *testing.T) {
	calls := 0
	q := adders(func(before, _ int) bool { calls++; return before >= 9000 })
	assert.Len(t, record(t, func(t testing.TB) { q.run(t, newSum) }), 1)
	assert.Less(t, calls, reducedCalls+1000)
}

func TestSequences_NoFailure(t *testing.T) {
	assert.Empty(t, record(t, func(t testing.TB) { adders(func(int, int) bool { return false }).run(t, newSum) }))
}

func TestRecord_RunsCleanupsAfterPanic(t *testing.T) {
	cleaned := 0
	failures := record(t, func(t testing.TB) {
		t.Cleanup(func() { cleaned++ })
		t.Cleanup(func() { t.Error("from cleanup") })
		panic("fault")
	})
	require.Len(t, failures, 2)
	assert.Contains(t, failures[0], "panic: fault\n")
	assert.Equal(t, "from cleanup", failures[1])
	assert.Equal(t, 1, cleaned)
}
