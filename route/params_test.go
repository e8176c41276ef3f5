package route_test

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/route"
)

// A paramsTarget is a Backend that keeps the parameters of the last request.
type paramsTarget struct {
	*multimodal
	params string // without model, messages, input and prompt
}

func newParamsTarget(name string) *paramsTarget {
	b := &paramsTarget{multimodal: newMultimodal(name, nil)}
	chat, generate, embed := b.BackendFunc, b.generate, b.embed
	b.BackendFunc = func(ctx context.Context, r *llm.ChatRequest) llm.ChatStream { b.keep(r); return chat(ctx, r) }
	b.generate = func(ctx context.Context, r *llm.ImageRequest) (*llm.ImageResponse, error) {
		b.keep(r)
		return generate(ctx, r)
	}
	b.embed = func(ctx context.Context, r *llm.EmbeddingRequest) (*llm.EmbeddingResponse, error) {
		b.keep(r)
		resp, err := embed(ctx, r)
		resp.Vectors = [][]float32{{1}}
		return resp, err
	}
	return b
}

func (b *paramsTarget) keep(req any) {
	data, err := json.Marshal(req)
	if err != nil {
		panic(err)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		panic(err)
	}
	for _, name := range []string{"model", "messages", "input", "prompt"} {
		delete(members, name)
	}
	data, _ = json.Marshal(members)
	b.params = string(data)
}

func TestParams(t *testing.T) {
	newNames := route.ParamRules{Rename: map[string]string{"max_tokens": "max_completion_tokens"}}
	oldNames := route.ParamRules{Rename: map[string]string{"max_completion_tokens": "max_tokens"}}
	drop := route.ParamRules{Drop: []string{"temperature", "seed", "top_k"}}
	for name, test := range map[string]struct {
		rules            route.ParamRules
		path             string // empty means chat completions
		params           string // of the client
		want             string // what the target gets
		dropped, renamed string
	}{
		"no rules":          {route.ParamRules{}, "", `"max_tokens":5,"seed":1`, `{"max_tokens":5,"seed":1}`, "", ""},
		"rename":            {newNames, "", `"max_tokens":5`, `{"max_completion_tokens":5}`, "", "max_tokens=max_completion_tokens"},
		"rename back":       {oldNames, "", `"max_completion_tokens":5`, `{"max_tokens":5}`, "", "max_completion_tokens=max_tokens"},
		"nothing to rename": {oldNames, "", `"max_tokens":5`, `{"max_tokens":5}`, "", ""},
		"both names":        {newNames, "", `"max_tokens":5,"max_completion_tokens":6`, `{"max_completion_tokens":6}`, "max_tokens", ""},
		"to a member of Extra": {route.ParamRules{Rename: map[string]string{"stop": "stop_sequences", "seed": "random_seed"}}, "", `"stop":["a","b"],"seed":7`,
			`{"random_seed":7,"stop_sequences":["a","b"]}`, "", "seed=random_seed, stop=stop_sequences"},
		"from a member of Extra": {route.ParamRules{Rename: map[string]string{"num_predict": "max_tokens"}}, "", `"num_predict":7`,
			`{"max_tokens":7}`, "", "num_predict=max_tokens"},
		"drop":            {drop, "", `"temperature":0,"seed":1,"top_p":0.5`, `{"top_p":0.5}`, "temperature, seed", ""},
		"drop a null":     {drop, "", `"temperature":null,"seed":null`, `{"seed":null}`, "", ""},
		"drop and rename": {route.ParamRules{Drop: drop.Drop, Rename: newNames.Rename}, "", `"top_k":3,"max_tokens":5`, `{"max_completion_tokens":5}`, "top_k", "max_tokens=max_completion_tokens"},
		"a stream":        {drop, "", `"stream":true,"seed":1`, `{"stream":true}`, "seed", ""},
		"images":          {route.ParamRules{Drop: []string{"quality", "style"}}, "/v1/images/generations", `"prompt":"x","quality":"hd","style":"vivid","size":"256x256"`, `{"size":"256x256"}`, "quality, style", ""},
		"edits of images": {route.ParamRules{Drop: []string{"quality", "style"}, Rename: map[string]string{"count": "n"}}, "/v1/images/edits",
			`"prompt":"x","images":[{"image_url":"data:image/png;base64,eA=="}],"response_format":"url","quality":"hd","style":"vivid","count":2`,
			`{"n":2,"response_format":"url"}`, "quality, style", "count=n"},
		"embeddings":       {route.ParamRules{Drop: []string{"dimensions"}}, "/v1/embeddings", `"input":"x","dimensions":4`, `{}`, "dimensions", ""},
		"refuse is absent": {route.ParamRules{Refuse: []string{"logit_bias", "n"}}, "", `"logit_bias":null`, `{"logit_bias":null}`, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newParamsTarget("a")
			h := newHandler(newRouter(t, nil, route.Route{Model: "m", Targets: []route.Target{{Name: "a", Backend: b, Params: test.rules}}}))
			path, messages := test.path, ""
			if path == "" {
				path, messages = "/v1/chat/completions", `"messages":[{"role":"user","content":"x"}],`
			}
			w := postJSON(h, path, `{"model":"m",`+messages+test.params+`}`)
			require.Equal(t, http.StatusOK, w.Code, w.Body)
			assert.JSONEq(t, test.want, b.params)
			assert.Equal(t, test.dropped, w.Header().Get("X-Dropped-Params"))
			assert.Equal(t, test.renamed, w.Header().Get("X-Renamed-Params"))
			for header, value := range map[string]string{"X-Dropped-Params": test.dropped, "X-Renamed-Params": test.renamed} {
				assert.Equal(t, value != "", w.Header()[header] != nil, header)
			}
		})
	}
}

func TestParams_Refuse(t *testing.T) {
	const chat = `{"model":"m","messages":[{"role":"user","content":"x"}],"n":2,"logit_bias":{"1":2}}`
	refusing := func(b llmhttp.Backend, name string, params ...string) route.Target {
		return route.Target{Name: name, Backend: b, Params: route.ParamRules{Refuse: params}}
	}
	works, fails := newFake(say("x")), newFake(failStatus(503))
	for name, test := range map[string]struct {
		targets []route.Target
		status  int
		param   string
	}{
		"the only target":      {[]route.Target{refusing(works, "a", "seed", "n")}, 400, "n"},
		"a member of Extra":    {[]route.Target{refusing(works, "a", "logit_bias")}, 400, "logit_bias"},
		"all targets":          {[]route.Target{refusing(works, "a", "n"), refusing(works, "b", "logit_bias")}, 400, "logit_bias"},
		"another takes it":     {[]route.Target{refusing(fails, "a", "n"), refusing(works, "b")}, 200, ""},
		"another fails":        {[]route.Target{refusing(works, "a", "n"), refusing(fails, "b")}, 503, ""},
		"another has no model": {[]route.Target{refusing(works, "a", "n"), refusing(newFake(fail(llm.ModelNotFound("m"))), "b")}, 400, "n"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRouter(t, nil, route.Route{Model: "m", Strategy: route.InOrder, Targets: test.targets})
				w := postJSON(newHandler(r), "/v1/chat/completions", chat)
				assert.Equal(t, test.status, w.Code, w.Body)
				if test.param == "" {
					return
				}
				assert.JSONEq(t, `{"error":{"message":"Unsupported parameter: '`+test.param+`' is not supported with this model.",
					"type":"invalid_request_error","param":"`+test.param+`","code":"unsupported_parameter"}}`, w.Body.String())
				assert.Zero(t, r.Status()[0].Tries)
			})
		})
	}
}

// A parameter that gets another type by its new name is checked.
func TestParams_RenameChecks(t *testing.T) {
	for value, param := range map[string]string{`"many"`: "num_predict", `-1`: "max_tokens"} {
		b := newParamsTarget("a")
		h := newHandler(newRouter(t, nil, route.Route{Model: "m", Targets: []route.Target{
			{Name: "a", Backend: b, Params: route.ParamRules{Rename: map[string]string{"num_predict": "max_tokens"}}},
		}}))
		w := postJSON(h, "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"x"}],"num_predict":`+value+`}`)
		assert.Equal(t, 400, w.Code, w.Body)
		assert.Contains(t, w.Body.String(), `"param":"`+param+`"`)
		assert.Empty(t, b.params)
	}
}

// The headers are those of the target that has answered, and its request is not changed by the
// rules of others.
func TestParams_NextTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := newParamsTarget("b")
		r := newRouter(t, nil, route.Route{Model: "m", Strategy: route.InOrder, Targets: []route.Target{
			{Name: "a", Backend: newFake(failStatus(500)), Params: route.ParamRules{Drop: []string{"seed"}, Rename: map[string]string{"max_tokens": "x"}}},
			{Name: "b", Backend: next, Params: route.ParamRules{Drop: []string{"n"}}},
		}})
		w := postJSON(newHandler(r), "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"x"}],"n":1,"seed":1,"max_tokens":5}`)
		require.Equal(t, 200, w.Code, w.Body)
		assert.JSONEq(t, `{"seed":1,"max_tokens":5}`, next.params)
		assert.Equal(t, []string{"n"}, w.Header()["X-Dropped-Params"])
		assert.Equal(t, []string{""}, w.Header()["X-Renamed-Params"])
	})
}

func TestParams_Mistakes(t *testing.T) {
	for want, rules := range map[string]route.ParamRules{
		`drop: the name of a parameter must not be empty`:                                {Drop: []string{""}},
		`refuse: the parameter "messages" cannot be changed`:                             {Refuse: []string{"messages"}},
		`rename: the parameter "input" cannot be changed`:                                {Rename: map[string]string{"input": "x"}},
		`rename["x"]: the parameter "model" cannot be changed`:                           {Rename: map[string]string{"x": "model"}},
		`rename["x"]: the name of a parameter must not be empty`:                         {Rename: map[string]string{"x": ""}},
		`refuse: routes[0].targets[0].params.drop has a rule for "seed" too`:             {Drop: []string{"seed"}, Refuse: []string{"seed"}},
		`rename["x"]: routes[0].targets[0].params.drop has a rule for "seed" too`:        {Drop: []string{"seed"}, Rename: map[string]string{"x": "seed"}},
		`rename["y"]: routes[0].targets[0].params.rename["x"] has a rule for "seed" too`: {Rename: map[string]string{"x": "seed", "y": "seed"}},
		`rename["a"]: routes[0].targets[0].params.rename has a rule for "b" too`:         {Rename: map[string]string{"a": "b", "b": "c"}},
	} {
		_, err := route.New([]route.Route{{Model: "m", Targets: []route.Target{{Name: "a", Backend: newFake(say("a")), Params: rules}}}}, nil)
		assert.EqualError(t, err, "route: routes[0].targets[0].params."+want)
	}
}
