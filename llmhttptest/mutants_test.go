package llmhttptest

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmhttptest/internal/kit"
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
		runs[c.name] = func(t testing.TB, newS func(t testing.TB) S) { c.run(t, newS(t)) }
	}
	mutanttest.Test(t, runs, correct, mutants, func(failure string) bool {
		return mutanttest.IsShort(failure) || strings.Contains(failure, "\nUsual cause: ")
	})
}

// A cause belongs to the failure that it explains, whatever else fails in the check.
func TestCheck_NamesCauseOfFailure(t *testing.T) {
	failures := kit.Record(t, func(t testing.TB) {
		check[int]{"Check", "a bug.", func(t testing.TB, _ int) {
			t.Error("a fault", 1)
			t.Errorf("fault %d", 2)
			unexplained(t).Errorf("the server is down")
			other := usually(t, "another bug.")
			other.Error("100%")
			unexplained(other).Error("still down")
			t.Fatalf("the last %s", "fault")
		}}.run(t, 0)
	})
	assert.Equal(t, []string{
		"a fault 1\nUsual cause: a bug.",
		"fault 2\nUsual cause: a bug.",
		"the server is down",
		"100%\nUsual cause: another bug.",
		"still down",
		"the last fault\nUsual cause: a bug.",
	}, failures)
	for _, stop := range []func(t testing.TB){func(t testing.TB) { t.Fatal("fault") }, func(t testing.TB) { usually(t, "a bug.").Fatal("fault") }} {
		failures := kit.Record(t, func(t testing.TB) { check[int]{"Check", "a bug.", func(t testing.TB, _ int) { stop(t) }}.run(t, 0) })
		assert.Equal(t, []string{"fault\nUsual cause: a bug."}, failures)
	}
	assert.Empty(t, kit.Record(t, func(t testing.TB) { check[int]{"Check", "a bug.", func(testing.TB, int) {}}.run(t, 0) }))
}

// A Backend has a fault that the check is not about. The cause is that of the fault.
func TestChecks_FaultOfAnotherKind(t *testing.T) {
	malformed := llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream {
		return func(yield func(*llm.ChatChunk, error) bool) {
			c := llm.TextChunk("Hello")
			c.Extra = llm.Extra{"x": json.RawMessage("{")}
			yield(c, nil)
		}
	})
	deaf := llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream {
		return func(yield func(*llm.ChatChunk, error) bool) {
			for yield(llm.TextChunk("Hello"), nil) {
			}
			yield(llm.TextChunk("there"), nil)
		}
	})
	for _, test := range []struct {
		check, cause string
		backend      llmhttp.Backend
	}{
		{"ChatChoices", causeUnchecked, malformed},
		{"ChatTokenLimit", causeUnchecked, malformed},
		{"ChatCancel", causeBreak, deaf},
	} {
		t.Run(test.check, func(t *testing.T) {
			i := slices.IndexFunc(backendChecks, func(c check[backendTest]) bool { return c.name == test.check })
			require.GreaterOrEqual(t, i, 0)
			b := newBackendTest(test.backend, BackendOptions{ChatModel: "m"})
			failures := kit.Record(t, func(t testing.TB) { backendChecks[i].run(t, b) })
			var named bool
			for _, f := range failures {
				named = named || strings.HasSuffix(f, "\nUsual cause: "+test.cause)
				assert.Equal(t, strings.Contains(f, "yielded after") || strings.Contains(f, "valid JSON"), strings.HasSuffix(f, test.cause), f)
			}
			assert.True(t, named, failures)
		})
	}
}
