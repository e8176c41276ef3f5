package storetest

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llmhttptest/internal/kit"
	"github.com/llmhttp/llmhttp/llmhttptest/internal/mutanttest"
)

type mutant[S any] = mutanttest.Mutant[S]

const randomCalls = kit.RandomCalls

func testMutants[S any](t *testing.T, random mutanttest.Run[S], checks []kit.Check[S], correct func(t testing.TB) S, mutants []mutant[S]) {
	t.Helper()
	mutanttest.Test(t, mutanttest.Runs(random, checks), correct, mutants, mutanttest.IsShort)
}

// A store that is not reachable says so.
func TestKeyStore_StoreIsDown(t *testing.T) {
	down := KeyStoreFixture{Store: llmhttp.KeyStoreFunc(nil), Add: func(*llmhttp.Key) (string, error) { return "", errors.New("down") }}
	failures := kit.Record(t, func(t testing.TB) { checkKeyConcurrent(t, down) })
	assert.Contains(t, strings.Join(failures, "\n"), "down")
}
