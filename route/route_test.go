package route_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llmhttptest"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/route"
)

func TestBackend(t *testing.T) {
	models := []string{memory.ModelChat, memory.ModelEmbed, memory.ModelImageSmall}
	target := func(name, model string) route.Target {
		return route.Target{Name: name, Backend: memory.Echo(), Model: model}
	}
	exact, aliases := []route.Route{}, []route.Route{}
	for i, m := range models {
		exact = append(exact, route.Route{Model: m, Targets: []route.Target{target("a", ""), target("b", "")}})
		aliases = append(aliases, route.Route{Model: fmt.Sprint("model-", i), Strategy: route.LeastInFlight,
			Targets: []route.Target{target("a", m), target("b", m)}})
	}
	for name, test := range map[string]struct {
		routes []route.Route
		opts   llmhttptest.BackendOptions
	}{
		"exact":   {exact, llmhttptest.BackendOptions{ChatModel: models[0], EmbeddingModel: models[1], ImageModel: models[2]}},
		"aliases": {aliases, llmhttptest.BackendOptions{ChatModel: "model-0", EmbeddingModel: "model-1", ImageModel: "model-2"}},
		"a pattern": {
			[]route.Route{{Model: "*", Strategy: route.InOrder, Targets: []route.Target{target("a", ""), target("b", "")}}},
			llmhttptest.BackendOptions{ChatModel: models[0], EmbeddingModel: models[1], ImageModel: models[2]}},
		"a prefix": {
			[]route.Route{{Model: "x/*", Targets: []route.Target{target("a", "*"), target("b", "*")}}},
			llmhttptest.BackendOptions{ChatModel: "x/" + models[0], EmbeddingModel: "x/" + models[1], ImageModel: "x/" + models[2]}},
	} {
		t.Run(name, func(t *testing.T) { llmhttptest.TestBackend(t, newRouter(t, nil, test.routes...), test.opts) })
	}
}

func TestNewErrors(t *testing.T) {
	good := func() []route.Route {
		return []route.Route{
			{Model: "a", Targets: targets(memory.Echo(), memory.Echo())},
			{Model: "b/*", Targets: targets(memory.Echo())},
		}
	}
	_, err := route.New(good(), nil)
	require.NoError(t, err)
	_, err = route.New(nil, nil)
	require.EqualError(t, err, "route: routes: there must be at least one")
	for _, test := range []struct {
		change func(r []route.Route)
		want   string
	}{
		{func(r []route.Route) { r[0].Model = "" }, `route: routes[0].model: must not be empty`},
		{func(r []route.Route) { r[1].Model = "a" }, `route: routes[1].model: "a" is the model of routes[0] already`},
		{func(r []route.Route) { r[0].Strategy = "fast" }, `route: routes[0].strategy: "fast" is none of "weighted", "least-in-flight" and "in-order"`},
		{func(r []route.Route) { r[1].Targets = nil }, `route: routes[1].targets: there must be at least one`},
		{func(r []route.Route) { r[0].Targets[1].Name = "" }, `route: routes[0].targets[1].name: must not be empty`},
		{func(r []route.Route) { r[0].Targets[1].Name = "a" }, `route: routes[0].targets[1].name: "a" is the name of targets[0] already`},
		{func(r []route.Route) { r[0].Targets[1].Backend = nil }, `route: routes[0].targets[1].backend: must not be nil`},
		{func(r []route.Route) { r[0].Targets[0].Weight = -1 }, `route: routes[0].targets[0].weight: -1 is not from 0 to 1000000`},
		{func(r []route.Route) { r[0].Targets[0].Weight = 1_000_001 }, `route: routes[0].targets[0].weight: 1000001 is not from 0 to 1000000`},
		{func(r []route.Route) { r[0].Targets[0].Model = "*" }, `route: routes[0].targets[0].model: "*" has a *, but the route's model "a" has not exactly one`},
		{func(r []route.Route) { r[1].Model, r[1].Targets[0].Model = "*b*", "*" }, `route: routes[1].targets[0].model: "*" has a *, but the route's model "*b*" has not exactly one`},
		{func(r []route.Route) { r[1].Targets[0].Model = "**" }, `route: routes[1].targets[0].model: "**" has more than one *`},
	} {
		routes := good()
		test.change(routes)
		r, err := route.New(routes, nil)
		assert.EqualError(t, err, test.want)
		assert.Nil(t, r)
	}
}

// What a host does with its routes after New is its own affair.
func TestNewCopies(t *testing.T) {
	routes := []route.Route{{Model: "m", Targets: targets(steps(says("a")))}}
	opts := &route.Options{}
	r, err := route.New(routes, opts)
	require.NoError(t, err)
	routes[0].Model, routes[0].Targets[0].Backend, opts.Tries = "x", nil, -1
	text, err := say(t.Context(), r)
	require.NoError(t, err)
	assert.Equal(t, "a", text)
}

// A recorder is a Backend that keeps what it was asked, and replies with a
// name of its own for the model.
type recorder struct {
	mu     sync.Mutex
	models []string
}

func (r *recorder) record(model string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.models = append(r.models, model)
}

func (r *recorder) Chat(_ context.Context, req *llmhttp.ChatRequest) llmhttp.ChatStream {
	return func(yield func(*llmhttp.ChatChunk, error) bool) {
		r.record(req.Model)
		for range 2 {
			c := llmhttp.TextChunk("x")
			c.Model = req.Model + "-2026"
			if !yield(c, nil) {
				return
			}
		}
	}
}

func (r *recorder) Embed(_ context.Context, req *llmhttp.EmbeddingRequest) (*llmhttp.EmbeddingResponse, error) {
	r.record(req.Model)
	return &llmhttp.EmbeddingResponse{Model: req.Model + "-2026"}, nil
}

func TestModels(t *testing.T) {
	for name, test := range map[string]struct {
		route  string // whose model it is
		target string // the target's model
		sent   string // what the target is asked for
		reply  string // what the client is told
	}{
		"m":         {"m", "", "m", "m-2026"},
		"alias":     {"alias", "real", "real", "alias"},
		"same":      {"same", "same", "same", "same-2026"},
		"p/x":       {"p/*", "", "p/x", "p/x-2026"},
		"q/x":       {"q/*", "*", "x", "q/x"},
		"q/":        {"q/*", "*", "", "q/"},
		"r/x-y/z":   {"r/*/z", "new-*-old", "new-x-y-old", "r/x-y/z"},
		"fixed-any": {"fixed-*", "real", "real", "fixed-any"},
		"p/exact":   {"p/exact", "real", "real", "p/exact"},
		"1st/2nd":   {"1st/*", "a-*", "a-2nd", "1st/2nd"},
	} {
		t.Run(name, func(t *testing.T) {
			right, wrong := new(recorder), new(recorder)
			routes := []route.Route{
				{Model: "1st/*", Targets: targets(wrong)},
				{Model: "*/2nd", Targets: targets(wrong)},
				{Model: "p/*", Targets: targets(wrong)},
				{Model: "p/exact", Targets: targets(wrong)},
			}
			found := false
			for i := range routes {
				if routes[i].Model == test.route {
					routes[i].Targets, found = targets(right), true
					routes[i].Targets[0].Model = test.target
				}
			}
			if !found {
				routes = append(routes, route.Route{Model: test.route, Targets: []route.Target{{Name: "a", Backend: right, Model: test.target}}})
			}
			r := newRouter(t, nil, routes...)
			req := request()
			req.Model = name
			n := 0
			for c, err := range r.Chat(t.Context(), req) {
				require.NoError(t, err)
				assert.Equal(t, test.reply, c.Model)
				n++
			}
			assert.Equal(t, 2, n)
			resp, err := r.Embed(t.Context(), &llmhttp.EmbeddingRequest{Model: name, Input: llmhttp.EmbeddingInput{Texts: []string{"x"}}})
			require.NoError(t, err)
			assert.Equal(t, test.reply, resp.Model)
			assert.Equal(t, []string{test.sent, test.sent}, right.models)
			assert.Empty(t, wrong.models)
			assert.Equal(t, name, req.Model, "the request is as it was")
		})
	}
}

func TestUnknownModel(t *testing.T) {
	r := newRouter(t, nil,
		route.Route{Model: "gone", Targets: []route.Target{{Name: "a", Backend: memory.Echo(), Model: "internal-name"}}},
		route.Route{Model: "p/*", Targets: targets(memory.Echo(), memory.Echo())})
	for _, model := range []string{"", "none", "gone", "p/x"} {
		req := request()
		req.Model = model
		_, err := llmhttp.Collect(r.Chat(t.Context(), req))
		var e *llmhttp.Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, 404, e.Status)
		assert.Equal(t, llmhttp.ModelNotFound(model).Message, e.Message, "in the client's words")
	}
	for _, s := range r.Status() {
		assert.Equal(t, int64(1), s.Tries, "each was asked once")
		assert.Zero(t, s.Failures)
	}
}

func TestWeighted(t *testing.T) {
	a, b, c := steps(says("a")), steps(says("b")), steps(says("c"))
	list := targets(a, b, c)
	list[0].Weight, list[1].Weight = 5, 1 // and c has 1
	r := newRouter(t, nil, route.Route{Model: "m", Targets: list})
	order := ""
	for range 14 {
		text, err := say(t.Context(), r)
		require.NoError(t, err)
		order += text
	}
	assert.Equal(t, "aabacaaaabacaa", order, "evenly spread")

	var wg sync.WaitGroup
	for range 700 {
		wg.Go(func() {
			_, err := say(t.Context(), r)
			assert.NoError(t, err)
		})
	}
	wg.Wait()
	assert.Equal(t, []int64{510, 102, 102}, []int64{a.calls.Load(), b.calls.Load(), c.calls.Load()})
}

// What a target that is left alone would have got goes to the others, as their
// weights say.
func TestWeightedWithout(t *testing.T) {
	a, b, c := steps(status(503)), steps(says("b")), steps(says("c"))
	list := targets(a, b, c)
	list[1].Weight, list[2].Weight = 2, 1
	r := newRouter(t, &route.Options{Failures: 1, OpenFor: 1 << 40}, route.Route{Model: "m", Targets: list})
	for range 61 {
		_, err := say(t.Context(), r)
		require.NoError(t, err)
	}
	assert.Equal(t, int64(1), a.calls.Load())
	assert.InDelta(t, 40, b.calls.Load(), 1)
	assert.InDelta(t, 20, c.calls.Load(), 1)
}

func TestLeastInFlight(t *testing.T) {
	release := make(chan struct{})
	began := make(chan string)
	hold := func(name string) llmhttp.Backend {
		return steps(func(_ context.Context, yield func(*llmhttp.ChatChunk, error) bool) {
			began <- name
			<-release
			yield(llmhttp.TextChunk(name), nil)
		})
	}
	list := targets(hold("a"), hold("b"))
	list[0].Weight = 3
	r := newRouter(t, nil, route.Route{Model: "m", Strategy: route.LeastInFlight, Targets: list})
	var wg sync.WaitGroup
	order := ""
	for range 8 {
		wg.Go(func() {
			_, err := say(t.Context(), r)
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

// Targets that have as much to do take turns.
func TestLeastInFlightIdle(t *testing.T) {
	r := newRouter(t, nil, route.Route{Model: "m", Strategy: route.LeastInFlight, Targets: targets(steps(says("a")), steps(says("b")))})
	order := ""
	for range 4 {
		text, err := say(t.Context(), r)
		require.NoError(t, err)
		order += text
	}
	assert.Equal(t, "abab", order)
}

func TestInOrder(t *testing.T) {
	r := inOrder(t, nil, steps(says("a"), status(500), says("a")), steps(says("b")))
	order := ""
	for range 4 {
		text, err := say(t.Context(), r)
		require.NoError(t, err)
		order += text
	}
	assert.Equal(t, "abaa", order)
}
