package route_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/llmhttp/llmhttp/route"
)

func TestUpdate_KeepsWhatStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down, busy, works := newFake(failStatus(500)), newFake(rateLimit(time.Hour)), newFake(say("c"))
		list := targets(down, busy, works)
		r := newRouter(t, &route.Options{Failures: 1, OpenFor: time.Hour}, route.Route{Model: "m", Strategy: route.InOrder, Targets: list})
		assert.Equal(t, "c", askTimes(t, r, 1))
		before := r.Status()
		require.Equal(t, route.StateOpen, before[0].State)
		require.NotZero(t, before[1].RestUntil)

		// The order, the weights, the strategy and the other routes change.
		slices.Reverse(list)
		list[0].Weight = 7
		added := route.Target{Name: "d", Backend: newFake(say("d"))}
		require.NoError(t, r.Update([]route.Route{
			{Model: "other", Targets: targets(works)},
			{Model: "m", Strategy: route.Weighted, Targets: append(list, added)},
		}))
		after := r.Status()
		assert.Equal(t, route.TargetStatus{Route: "other", Target: "a", State: route.StateClosed}, after[0], "each route has its own state")
		slices.Reverse(before)
		assert.Equal(t, before, after[1:4])
		assert.Equal(t, route.TargetStatus{Route: "m", Target: "d", State: route.StateClosed}, after[4])

		const n = 80
		texts := askTimes(t, r, n)
		assert.Equal(t, []int{70, 10}, []int{strings.Count(texts, "c"), strings.Count(texts, "d")})
		assert.Equal(t, []int64{1, 1}, []int64{down.calls.Load(), busy.calls.Load()})

		// A target that was gone for a while is new.
		require.NoError(t, r.Update([]route.Route{{Model: "m", Targets: targets(works)[:1]}}))
		require.NoError(t, r.Update([]route.Route{{Model: "m", Strategy: route.InOrder, Targets: targets(down, works)}}))
		assert.Equal(t, route.StateClosed, r.Status()[0].State)
	})
}

// A target whose Backend is another one is new.
func TestUpdate_OtherBackend(t *testing.T) {
	failing := llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream { return llm.Fail(errDial) })
	for name, test := range map[string]struct {
		old, new llmhttp.Backend
		want     route.State
	}{
		"the same pointer":        {&wrapper{failing}, nil, route.StateOpen},
		"equal values":            {named{"a"}, named{"a"}, route.StateOpen},
		"another pointer":         {newFake(fail(errDial)), newFake(fail(errDial)), route.StateClosed},
		"another value":           {named{"a"}, named{"b"}, route.StateClosed},
		"cannot be compared":      {failing, nil, route.StateClosed},
		"contains what cannot be": {wrapper{failing}, nil, route.StateClosed},
	} {
		t.Run(name, func(t *testing.T) {
			works := newFake(say("b"))
			r := newInOrderRouter(t, &route.Options{Failures: 1}, test.old, works)
			askTimes(t, r, 1)
			require.Equal(t, route.StateOpen, r.Status()[0].State)
			b := test.new
			if b == nil {
				b = test.old
			}
			require.NoError(t, r.Update([]route.Route{{Model: "m", Strategy: route.InOrder, Targets: targets(b, works)}}))
			assert.Equal(t, test.want, r.Status()[0].State)
		})
	}
}

// A wrapper is a Backend around another one.
type wrapper struct{ llmhttp.Backend }

// A named is a Backend that fails and can be compared by its value.
type named struct{ name string }

func (named) Chat(context.Context, *llm.ChatRequest) llm.ChatStream {
	return llm.Fail(errDial)
}

// A request in progress ends with the routes with which it has begun, and counts in the new ones.
func TestUpdate_RequestsInProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := newFake(sequence(say("a"), pause(time.Hour), fail(errDial)))
		waiting := newFake(sequence(pause(time.Hour), fail(errDial)))
		r := newRouter(t, &route.Options{TryTimeout: -1, Failures: 1},
			route.Route{Model: "m", Targets: targets(slow)},
			route.Route{Model: "n", Strategy: route.InOrder, Targets: targets(waiting, newFake(say("old")))})
		var texts [2]string
		var errs [2]error
		var running sync.WaitGroup
		for i, model := range []string{"m", "n"} {
			running.Go(func() {
				resp, err := join.Collect(r.Chat(t.Context(), newRequest(model)))
				errs[i] = err
				if len(resp.Choices) > 0 {
					texts[i] = resp.Choices[0].Message.Content.Text()
				}
			})
		}
		synctest.Wait()

		other := newFake(say("new"))
		for range 2 {
			require.NoError(t, r.Update([]route.Route{{Model: "m", Strategy: route.LeastInFlight, Targets: targets(slow, other)}}))
		}
		assert.Equal(t, 1, r.Status()[0].InFlight)
		assert.Equal(t, "newnew", askTimes(t, r, 2), "the other target has fewer requests in flight")
		_, err := join.Collect(r.Chat(t.Context(), newRequest("n")))
		requireStatus(t, err, 404)

		running.Wait()
		assert.Equal(t, [2]string{"a", "old"}, texts)
		assert.ErrorIs(t, errs[0], errDial)
		assert.NoError(t, errs[1], "the route that is gone has another target")
		s := r.Status()[0]
		assert.Zero(t, s.InFlight)
		assert.Equal(t, int64(1), s.Failures, "the failure counts for the target, which stayed")
	})
}

func TestUpdate_MistakeChangesNothing(t *testing.T) {
	a := newFake(say("a"))
	r := newInOrderRouter(t, nil, a)
	askTimes(t, r, 1)
	before := r.Status()
	for want, routes := range map[string][]route.Route{
		"route: routes: must not be empty":                     nil,
		"route: routes[1].model: must not be empty":            {{Model: "x", Targets: targets(a)}, {Targets: targets(a)}},
		"route: routes[0].targets[0].backend: must not be nil": {{Model: "m", Targets: []route.Target{{Name: "a"}}}},
	} {
		assert.EqualError(t, r.Update(routes), want)
	}
	assert.Equal(t, before, r.Status())
	assert.Equal(t, "a", askTimes(t, r, 1))
}

func TestUpdate_ModelLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept, gone, added := newLister("kept"), newLister("gone"), newLister("added")
		r := newRouter(t, nil, route.Route{Model: "*", Targets: targets(kept, gone)})
		assert.Equal(t, []string{"kept of kept", "gone of gone"}, listIDs(t, r))
		require.NoError(t, r.Update([]route.Route{{Model: "x/*", Targets: []route.Target{
			{Name: "new name", Backend: kept, Model: "*"}, {Name: "b", Backend: added, Model: "*"},
		}}}))
		assert.Equal(t, []string{"x/kept of kept", "x/added of added"}, listIDs(t, r))
		assert.Equal(t, []int64{1, 1, 1}, []int64{kept.calls.Load(), gone.calls.Load(), added.calls.Load()})
		time.Sleep(time.Hour)
		listIDs(t, r)
		synctest.Wait()
		assert.Equal(t, []int64{2, 1, 2}, []int64{kept.calls.Load(), gone.calls.Load(), added.calls.Load()}, "lists of targets that are gone are not refreshed")
	})
}

// Updates while requests run lose no request and no count.
func TestUpdate_Concurrent(t *testing.T) {
	a, b, down := newSingleModel("a", "m"), newFake(say("b")), newFake(failStatus(500))
	configs := [][]route.Target{
		{{Name: "a", Backend: a}, {Name: "down", Backend: down}},
		{{Name: "down", Backend: down, Weight: 9}, {Name: "a", Backend: a}, {Name: "b", Backend: b}},
	}
	strategies := []route.Strategy{route.Weighted, route.LeastInFlight, route.InOrder}
	r := newRouter(t, &route.Options{Failures: 1, OpenFor: time.Hour}, route.Route{Model: "*", Targets: configs[0]})
	for range 2 { // the second request is sent to down if the first was sent to a
		askTimes(t, r, 1)
	}
	require.Equal(t, route.StateOpen, r.Status()[1].State)

	var running sync.WaitGroup
	done := make(chan struct{})
	for range 4 {
		running.Go(func() {
			for range 300 {
				_, err := ask(t.Context(), r)
				assert.NoError(t, err)
				r.ListModels(t.Context())
				r.Status()
			}
		})
	}
	go func() { running.Wait(); close(done) }()
	for i := 0; ; i++ {
		select {
		case <-done:
			require.NoError(t, r.Update([]route.Route{{Model: "*", Targets: configs[1]}}))
			for _, s := range r.Status() {
				assert.Zero(t, s.InFlight, s.Target)
			}
			assert.Equal(t, int64(1), down.calls.Load(), "no update forgets the breaker")
			return
		default:
			assert.NoError(t, r.Update([]route.Route{{Model: "*", Strategy: strategies[i%3], Targets: configs[i%2]}}))
		}
	}
}

// A target that is a SwappableBackend has what its Backend has at the time of a request.
func TestTarget_Swap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		swap := llmhttp.NewSwappableBackend(newFake(say("a")))
		r := newRouter(t, nil, route.Route{Model: "*", Targets: targets(swap)})
		embed := func() error {
			_, err := r.Embed(t.Context(), &llm.EmbeddingRequest{Model: "m", Input: llm.EmbeddingInput{Texts: []string{"a"}}})
			return err
		}
		require.ErrorIs(t, embed(), errors.ErrUnsupported)
		models, err := r.ListModels(t.Context())
		require.NoError(t, err)
		assert.Empty(t, models)

		swap.Replace(listing{newMultimodal("b", nil)})
		require.NoError(t, embed())
		time.Sleep(time.Minute)
		_, err = r.ListModels(t.Context()) // begins to refresh the list
		require.NoError(t, err)
		synctest.Wait()
		models, err = r.ListModels(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []llm.Model{{ID: "m"}}, models)
	})
}

// A listing lists one model.
type listing struct{ *multimodal }

func (listing) ListModels(context.Context) ([]llm.Model, error) { return []llm.Model{{ID: "m"}}, nil }
