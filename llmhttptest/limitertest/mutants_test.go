package limitertest

import (
	"slices"
	"testing"

	"github.com/llmhttp/llmhttp/llmhttptest/internal/kit"
	"github.com/llmhttp/llmhttp/llmhttptest/internal/mutanttest"
)

type mutant[S any] = mutanttest.Mutant[S]

const randomCalls = kit.RandomCalls

// limiterMutants are all mutants, for checks in a bubble.
var limiterMutants = slices.Concat(countMutants, timeMutants, acquireMutants, reserveMutants)

func TestLimiterMutants(t *testing.T) {
	testMutants(t, reservingFixture(func(*reservingCounter) {}), limiterMutants)
}

// TestLimiterMutants_InexactTime checks which mutants TestLimiter detects. It must allow
// for clocks that differ, and cannot wait for days.
func TestLimiterMutants_InexactTime(t *testing.T) {
	inexact := func(newS func(testing.TB) limiterTest) func(testing.TB) limiterTest {
		return func(t testing.TB) limiterTest {
			s := newS(t)
			s.inBubble = false
			return s
		}
	}
	needBubble := []string{
		"RetryAfter is rounded down to milliseconds", "tokens are counted in millionths", "a bucket is evicted after a minute", "a bucket is evicted after Per",
	}
	var mutants []mutant[limiterTest]
	for _, m := range limiterMutants {
		if !slices.Contains(needBubble, m.Fault) {
			m.New = inexact(m.New)
			mutants = append(mutants, m)
		}
	}
	testMutants(t, inexact(reservingFixture(func(*reservingCounter) {})), mutants)
}

func testMutants(t *testing.T, correct func(testing.TB) limiterTest, mutants []mutant[limiterTest]) {
	t.Helper()
	mutanttest.Test(t, mutanttest.Runs(limiterSequences.Run, limiterChecks), correct, mutants, mutanttest.IsShort)
}
