package route_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/route"
)

func TestWeighted_DistributesByWeight(t *testing.T) {
	a, b, c := newFake(say("a")), newFake(say("b")), newFake(say("c"))
	list := targets(a, b, c)
	list[0].Weight, list[1].Weight = 5, 1 // the weight of c is 1 by default
	r := newRouter(t, nil, route.Route{Model: "m", Targets: list})
	assert.Equal(t, "aabacaaaabacaa", askTimes(t, r, 14))

	var wg sync.WaitGroup
	for range 700 {
		wg.Go(func() {
			_, err := ask(t.Context(), r)
			assert.NoError(t, err)
		})
	}
	wg.Wait()
	assert.Equal(t, []int64{510, 102, 102}, []int64{a.calls.Load(), b.calls.Load(), c.calls.Load()})
}

// The share of a target whose breaker is open goes to the others, in proportion
// to their weights.
func TestWeighted_OpenBreaker(t *testing.T) {
	a, b, c := newFake(failStatus(503)), newFake(say("b")), newFake(say("c"))
	list := targets(a, b, c)
	list[1].Weight, list[2].Weight = 2, 1
	r := newRouter(t, &route.Options{Failures: 1, OpenFor: 1 << 40}, route.Route{Model: "m", Targets: list})
	askTimes(t, r, 61)
	assert.Equal(t, int64(1), a.calls.Load())
	assert.InDelta(t, 40, b.calls.Load(), 1)
	assert.InDelta(t, 20, c.calls.Load(), 1)
}

func TestLeastInFlight_DistributesByLoad(t *testing.T) {
	release, began := make(chan struct{}), make(chan string)
	block := func(name string) llmhttp.Backend {
		return newFake(func(_ context.Context, yield yieldFunc) {
			began <- name
			<-release
			yield(llm.TextChunk(name), nil)
		})
	}
	list := targets(block("a"), block("b"))
	list[0].Weight = 3
	r := newRouter(t, nil, route.Route{Model: "m", Strategy: route.LeastInFlight, Targets: list})
	var wg sync.WaitGroup
	order := ""
	for range 8 {
		wg.Go(func() {
			_, err := ask(t.Context(), r)
			assert.NoError(t, err)
		})
		order += <-began
	}
	assert.Equal(t, "aaabaaab", order)
	s := r.Status()
	assert.Equal(t, []int{6, 2}, []int{s[0].InFlight, s[1].InFlight})
	close(release)
	wg.Wait()
	s = r.Status()
	assert.Equal(t, []int{0, 0}, []int{s[0].InFlight, s[1].InFlight})
}

func TestLeastInFlight_EqualLoadsTakeTurns(t *testing.T) {
	r := newRouter(t, nil, route.Route{Model: "m", Strategy: route.LeastInFlight, Targets: targets(newFake(say("a")), newFake(say("b")))})
	assert.Equal(t, "abab", askTimes(t, r, 4))
}

func TestInOrder_PrefersTheFirst(t *testing.T) {
	r := newInOrderRouter(t, nil, newFake(say("a"), failStatus(500), say("a")), newFake(say("b")))
	assert.Equal(t, "abaa", askTimes(t, r, 4))
}
