package llmhttptest

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
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
			for i := 0; len(failures) == 0 && m.check == randomCalls && i < 9; i++ { // one run of random calls can miss a fault
				failures = failuresOf(t, byName[m.check], m.newS)
			}
			require.NotEmpty(t, failures, "the check must find the fault")
			isNamed := func(failure string) bool { return strings.Contains(failure, "\nUsual cause: ") }
			assert.True(t, slices.ContainsFunc(failures, isNamed), "a failure must name its usual cause: %.1000s", failures[0])
			first, _, _ := strings.Cut(failures[0], "\ngoroutine ")
			t.Logf("%d failures, the first: %.1000s", len(failures), first)
		})
	}
}

// A cause belongs to the failure that it explains, whatever else fails in the check.
func TestCheck_NamesCauseOfFailure(t *testing.T) {
	failures := record(t, func(t testing.TB) {
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
		failures := record(t, func(t testing.TB) { check[int]{"Check", "a bug.", func(t testing.TB, _ int) { stop(t) }}.run(t, 0) })
		assert.Equal(t, []string{"fault\nUsual cause: a bug."}, failures)
	}
	assert.Empty(t, record(t, func(t testing.TB) { check[int]{"Check", "a bug.", func(testing.TB, int) {}}.run(t, 0) }))
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
			failures := record(t, func(t testing.TB) { backendChecks[i].run(t, b) })
			var named bool
			for _, f := range failures {
				named = named || strings.HasSuffix(f, "\nUsual cause: "+test.cause)
				assert.Equal(t, strings.Contains(f, "yielded after") || strings.Contains(f, "valid JSON"), strings.HasSuffix(f, test.cause), f)
			}
			assert.True(t, named, failures)
		})
	}
}

// A store that is not reachable has no fault that a cause could explain.
func TestChecks_StoreIsDown(t *testing.T) {
	down := KeyStoreFixture{Store: llmhttp.KeyStoreFunc(nil), Add: func(*llmhttp.Key) (string, error) { return "", errors.New("down") }}
	for _, c := range keyChecks {
		failures := record(t, func(t testing.TB) { c.run(t, down) })
		assert.NotEmpty(t, failures, c.name)
		assert.NotContains(t, strings.Join(failures, "\n"), "Usual cause", c.name)
	}
}

func TestNewRand_SeedRepeatsNumbers(t *testing.T) {
	t.Setenv(seedVariable, "42")
	assert.Equal(t, newRand(t).Uint64(), newRand(t).Uint64())
	t.Setenv(seedVariable, "")
	assert.NotEqual(t, newRand(t).Uint64(), newRand(t).Uint64())
	t.Setenv(seedVariable, "x")
	malformed := func(t testing.TB, _ func(testing.TB) int) { newRand(t) }
	assert.Len(t, failuresOf(t, malformed, func(testing.TB) int { return 0 }), 1, "a malformed seed must fail the test")
}
