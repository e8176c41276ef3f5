package route_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/modeltest"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/llmhttp/llmhttp/llmhttptest"
	"github.com/llmhttp/llmhttp/moderation"
	"github.com/llmhttp/llmhttp/rerank"
	"github.com/llmhttp/llmhttp/route"
)

func TestRouter_Conformance(t *testing.T) {
	models := []string{modeltest.Chat, modeltest.Embed, modeltest.Image, modeltest.Rerank, modeltest.Speak, modeltest.Hear, modeltest.Judge, modeltest.Finish}
	echo := func(model string) []route.Target {
		return []route.Target{{Name: "a", Backend: modeltest.New(), Model: model}, {Name: "b", Backend: modeltest.New(), Model: model}}
	}
	var exact, aliases []route.Route
	for i, m := range models {
		exact = append(exact, route.Route{Model: m, Targets: echo("")})
		aliases = append(aliases, route.Route{Model: fmt.Sprint("model-", i), Strategy: route.LeastInFlight, Targets: echo(m)})
	}
	for name, test := range map[string]struct {
		routes []route.Route
		models []string // for chats, embeddings, images, rerank, speech, transcriptions, moderations and completions
	}{
		"exact names": {exact, models},
		"aliases":     {aliases, []string{"model-0", "model-1", "model-2", "model-3", "model-4", "model-5", "model-6", "model-7"}},
		"a pattern":   {[]route.Route{{Model: "*", Strategy: route.InOrder, Targets: echo("")}}, models},
		"a prefix":    {[]route.Route{{Model: "x/*", Targets: echo("*")}}, []string{"x/" + models[0], "x/" + models[1], "x/" + models[2], "x/" + models[3], "x/" + models[4], "x/" + models[5], "x/" + models[6], "x/" + models[7]}},
	} {
		t.Run(name, func(t *testing.T) {
			llmhttptest.TestBackend(t, newRouter(t, nil, test.routes...),
				llmhttptest.BackendOptions{ChatModel: test.models[0], EmbeddingModel: test.models[1], ImageModel: test.models[2], ImageEditModel: test.models[2], RerankModel: test.models[3], SpeechModel: test.models[4], TranscriptionModel: test.models[5], ModerationModel: test.models[6], CompletionModel: test.models[7]})
		})
	}
}

func TestNew_Errors(t *testing.T) {
	valid := func() []route.Route {
		return []route.Route{
			{Model: "a", Targets: targets(modeltest.New(), modeltest.New())},
			{Model: "b/*", Targets: targets(modeltest.New())},
		}
	}
	_, err := route.New(valid(), nil)
	require.NoError(t, err)
	_, err = route.New(nil, nil)
	require.EqualError(t, err, "route: routes: must not be empty")
	for want, change := range map[string]func(r []route.Route){
		`routes[0].model: must not be empty`:                         func(r []route.Route) { r[0].Model = "" },
		`routes[1].model: routes[0] has the model "a" too`:           func(r []route.Route) { r[1].Model = "a" },
		`routes[1].targets: must not be empty`:                       func(r []route.Route) { r[1].Targets = nil },
		`routes[0].targets[1].name: must not be empty`:               func(r []route.Route) { r[0].Targets[1].Name = "" },
		`routes[0].targets[1].name: targets[0] has the name "a" too`: func(r []route.Route) { r[0].Targets[1].Name = "a" },
		`routes[0].targets[1].backend: must not be nil`:              func(r []route.Route) { r[0].Targets[1].Backend = nil },
		`routes[0].targets[0].backend: must not be nil`:              func(r []route.Route) { r[0].Targets[0].Backend = (*llmhttp.SwappableBackend)(nil) },
		`routes[1].targets[0].model: "**" has more than one *`:       func(r []route.Route) { r[1].Targets[0].Model = "**" },
		`routes[0].strategy: unknown strategy "fast", want one of ["weighted" "least-in-flight" "in-order" "affinity"]`: func(r []route.Route) {
			r[0].Strategy = "fast"
		},
		`routes[0].targets[0].weight: -1 is not between 0 and 1000000`: func(r []route.Route) {
			r[0].Targets[0].Weight = -1
		},
		`routes[0].targets[0].weight: 1000001 is not between 0 and 1000000`: func(r []route.Route) {
			r[0].Targets[0].Weight = 1_000_001
		},
		`routes[0].targets[0].model: "*" has a *, so the route's model "a" must have exactly one`: func(r []route.Route) {
			r[0].Targets[0].Model = "*"
		},
		`routes[1].targets[0].model: "*" has a *, so the route's model "*b*" must have exactly one`: func(r []route.Route) {
			r[1].Model, r[1].Targets[0].Model = "*b*", "*"
		},
	} {
		routes := valid()
		change(routes)
		r, err := route.New(routes, nil)
		assert.EqualError(t, err, "route: "+want)
		assert.Nil(t, r)
	}
}

func TestNew_CopiesItsArguments(t *testing.T) {
	routes := []route.Route{{Model: "m", Targets: targets(newFake(say("a")))}}
	opts := &route.Options{}
	r, err := route.New(routes, opts)
	require.NoError(t, err)
	routes[0].Model, routes[0].Targets[0].Backend, opts.Tries = "x", nil, -1
	assert.Equal(t, "a", askTimes(t, r, 1))
}

// A recorder is a Backend that records which models it is asked for. It replies
// with a name of its own for the model.
type recorder struct {
	mu     sync.Mutex
	models []string
}

func (r *recorder) record(model string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.models = append(r.models, model)
}

func (r *recorder) Chat(_ context.Context, req *llm.ChatRequest) llm.ChatStream {
	return func(yield yieldFunc) {
		r.record(req.Model)
		for range 2 {
			c := llm.TextChunk("x")
			c.Model = req.Model + "-2026"
			if !yield(c, nil) {
				return
			}
		}
	}
}

func (r *recorder) Embed(_ context.Context, req *llm.EmbeddingRequest) (*llm.EmbeddingResponse, error) {
	r.record(req.Model)
	return &llm.EmbeddingResponse{Model: req.Model + "-2026"}, nil
}

func (r *recorder) Rerank(_ context.Context, req *rerank.Request) (*rerank.Response, error) {
	r.record(req.Model)
	return &rerank.Response{Model: req.Model + "-2026"}, nil
}

func (r *recorder) Moderate(_ context.Context, req *moderation.Request) (*moderation.Response, error) {
	r.record(req.Model)
	return &moderation.Response{Model: req.Model + "-2026"}, nil
}

func TestRouter_ModelNames(t *testing.T) {
	for model, test := range map[string]struct {
		route  string // the Model of the route that must be used
		target string // the Model of its target
		sent   string // the model in the target's request
		reply  string // the model in the client's reply
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
		t.Run(model, func(t *testing.T) {
			right, wrong := new(recorder), new(recorder)
			var routes []route.Route
			models := []string{"1st/*", "*/2nd", "p/*", "p/exact"}
			if !slices.Contains(models, test.route) {
				models = append(models, test.route)
			}
			for _, m := range models {
				if m == test.route {
					routes = append(routes, route.Route{Model: m, Targets: singleTarget(right, test.target)})
				} else {
					routes = append(routes, route.Route{Model: m, Targets: targets(wrong)})
				}
			}
			r := newRouter(t, nil, routes...)
			req := newRequest(model)
			chunks := 0
			for c, err := range r.Chat(t.Context(), req) {
				require.NoError(t, err)
				assert.Equal(t, test.reply, c.Model)
				chunks++
			}
			assert.Equal(t, 2, chunks)
			resp, err := r.Embed(t.Context(), &llm.EmbeddingRequest{Model: model, Input: llm.EmbeddingInput{Texts: []string{"x"}}})
			require.NoError(t, err)
			assert.Equal(t, test.reply, resp.Model)
			ranking, err := r.Rerank(t.Context(), &rerank.Request{Model: model})
			require.NoError(t, err)
			assert.Equal(t, test.reply, ranking.Model)
			moderated, err := r.Moderate(t.Context(), &moderation.Request{Model: model})
			require.NoError(t, err)
			assert.Equal(t, test.reply, moderated.Model)
			assert.Equal(t, slices.Repeat([]string{test.sent}, 4), right.models)
			assert.Empty(t, wrong.models)
			assert.Equal(t, model, req.Model, "the caller's request is not changed")
		})
	}
}

func TestRouter_ErrorsHaveTheClientsModelName(t *testing.T) {
	original := &llm.Error{Status: 400, Param: "seed", Message: "llama-70b is not llama-70b-chat.", Err: errors.New("cause")}
	for name, err := range map[string]error{
		"final error":     original,
		"wrapped error":   fmt.Errorf("llama-70b: %w", original),
		"retryable error": &llm.Error{Status: 429, Param: "seed", Message: original.Message},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRouter(t, &route.Options{Rounds: 1}, route.Route{Model: "chat", Targets: singleTarget(newFake(fail(err)), "llama-70b")})
			w := post(llmhttp.NewHandler(r, llmhttp.AllowAll("a"), nil), "chat")
			assert.NotEqual(t, 200, w.Code)
			assert.Contains(t, w.Body.String(), `"message":"chat is not llama-70b-chat."`)
			assert.Contains(t, w.Body.String(), `"param":"seed"`)
		})
	}
	assert.Equal(t, "llama-70b is not llama-70b-chat.", original.Message, "the target's error is not changed")
}

func TestRouter_UnknownModel(t *testing.T) {
	r := newRouter(t, nil,
		route.Route{Model: "gone", Targets: singleTarget(modeltest.New(), "internal-name")},
		route.Route{Model: "p/*", Targets: targets(modeltest.New(), modeltest.New())})
	for _, model := range []string{"", "none", "gone", "p/x"} {
		_, err := join.Collect(r.Chat(t.Context(), newRequest(model)))
		assert.Equal(t, llm.ModelNotFound(model).Message, requireStatus(t, err, 404).Message)
	}
	for _, s := range r.Status() {
		assert.Equal(t, int64(1), s.Tries)
		assert.Zero(t, s.Failures)
	}
}

func TestRouter_SupportsEveryEndpoint(t *testing.T) {
	var got summaries
	r := newRouter(t, &route.Options{Failures: -1}, route.Route{Model: "*", Strategy: route.InOrder,
		Targets: []route.Target{{Name: "down", Backend: newMultimodal("", errDial)}, {Name: "up", Backend: modeltest.New()}}})
	h := llmhttp.NewHandler(r, llmhttp.AllowAll("acme"), &llmhttp.Options{Observe: got.observe})
	for _, test := range []struct{ path, body string }{
		{"chat/completions", `{"model":"demo-chat","messages":[{"role":"user","content":"x"}]}`},
		{"chat/completions", `{"model":"demo-chat","messages":[{"role":"user","content":"x"}],"stream":true}`},
		{"images/generations", `{"model":"demo-image-small","prompt":"x","size":"256x256"}`},
		{"embeddings", `{"model":"demo-embed","input":"x"}`},
	} {
		w := postJSON(h, "/v1/"+test.path, test.body)
		require.Equal(t, 200, w.Code, w.Body)
	}
	post(h, "none")
	all := got.all()
	require.Len(t, all, 5)
	for _, e := range all[:4] {
		assert.Equal(t, "up", e.Record.Target)
		assert.Len(t, e.Tries, 2)
	}
	assert.Equal(t, 500, all[4].Status, "the failure of one target takes precedence over the 404 of the other")
	assert.Equal(t, "down", all[4].Record.Target)
	assert.Len(t, all[4].Tries, 3)
}
