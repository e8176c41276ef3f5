package route_test

import (
	"context"
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

// A singleModel is a server that lists one model, and answers with its own for every name.
type singleModel struct {
	*fake
	llmhttp.ModelLister
}

func newSingleModel(answer string, ids ...string) singleModel {
	return singleModel{newFake(say(answer)), newLister(ids...)}
}

func (s singleModel) CountTokens(context.Context, *llm.ChatRequest) (int, error) {
	return len(s.ModelLister.(*lister).mustIDs()), nil
}

// mustIDs returns the IDs that l lists.
func (l *lister) mustIDs() (ids []string) {
	models, err := l.list(context.Background())
	if err != nil {
		panic(err)
	}
	for _, m := range models {
		ids = append(ids, m.ID)
	}
	return ids
}

// askFor sends n requests for a model and returns the answers one after another.
func askFor(t testing.TB, r *route.Router, model string, n int) (answers string) {
	t.Helper()
	for range n {
		resp, err := join.Collect(r.Chat(t.Context(), newRequest(model)))
		require.NoError(t, err)
		answers += resp.Choices[0].Message.Content.Text()
	}
	return answers
}

// A request for a listed ID is sent to the targets that list it.
func TestListModels_RequestsReachTheListedModel(t *testing.T) {
	for name, test := range map[string]struct {
		route route.Route
		want  map[string]string // the answers to four requests for each model
	}{
		"one target each": {
			route.Route{Model: "*", Targets: targets(newSingleModel("a", "m-a"), newSingleModel("b", "m-b"))},
			map[string]string{"m-a": "aaaa", "m-b": "bbbb"},
		},
		"both": {
			route.Route{Model: "*", Targets: targets(newSingleModel("a", "m", "m-a"), newSingleModel("b", "m"))},
			map[string]string{"m": "abab", "m-a": "aaaa"},
		},
		"other names": {
			route.Route{Model: "x/*", Targets: []route.Target{
				{Name: "a", Backend: newSingleModel("a", "new-m"), Model: "new-*"}, {Name: "b", Backend: newSingleModel("b", "m", "n"), Model: "*"},
			}},
			map[string]string{"x/m": "abab", "x/n": "bbbb"},
		},
		"targets without a list": {
			route.Route{Model: "*", Targets: targets(newSingleModel("a", "m-a"), newFake(say("b")))},
			map[string]string{"m-a": "abab"},
		},
		"a target with one model": {
			route.Route{Model: "*", Targets: []route.Target{
				{Name: "a", Backend: newSingleModel("a", "m-a")}, {Name: "b", Backend: newSingleModel("b", "other"), Model: "other"},
			}},
			map[string]string{"m-a": "abab"},
		},
		"nobody lists it": {
			route.Route{Model: "*", Targets: targets(newSingleModel("a", "m-a"), newSingleModel("b", "m-b"))},
			map[string]string{"m-c": "abab"},
		},
		"an exact name": {
			route.Route{Model: "m-a", Targets: targets(newSingleModel("a", "m-a"), newSingleModel("b", "m-b"))},
			map[string]string{"m-a": "abab"},
		},
	} {
		for model, want := range test.want {
			t.Run(name+"/"+model, func(t *testing.T) {
				r := newRouter(t, nil, test.route)
				listIDs(t, r)
				assert.Equal(t, want, askFor(t, r, model, 4))
			})
		}
	}
}

func TestListModels_TokensAreCountedByTheListedModel(t *testing.T) {
	r := newRouter(t, nil, route.Route{Model: "*", Targets: targets(newSingleModel("a", "m-a"), newSingleModel("b", "m-b", "n-b"))})
	listIDs(t, r)
	n, err := r.CountTokens(t.Context(), newRequest("m-b"))
	require.NoError(t, err)
	assert.Equal(t, 2, n)
}

// A client may have the list from another process. So requests fetch the lists, but not
// more often than every five seconds.
func TestListModels_RequestsRefreshLists(t *testing.T) {
	for name, ttl := range map[string]time.Duration{"default": 0, "not kept": -1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := newSingleModel("a", "m-a"), newSingleModel("b", "m-b")
				r := newRouter(t, &route.Options{ModelsTTL: ttl}, route.Route{Model: "*", Targets: targets(a, b)})
				time.Sleep(time.Hour)
				askFor(t, r, "m-b", 1)
				synctest.Wait()
				assert.Equal(t, "bbbb", askFor(t, r, "m-b", 4))
				synctest.Wait()
				assert.Equal(t, int64(1), b.ModelLister.(*lister).calls.Load())
				time.Sleep(time.Minute)
				askFor(t, r, "m-b", 1)
				synctest.Wait()
				assert.Equal(t, int64(2), b.ModelLister.(*lister).calls.Load())
			})
		})
	}
}

// Of several targets, the list has what is true of all that tell something.
func TestListModels_Details(t *testing.T) {
	lists := func(models ...llm.Model) *lister {
		return &lister{list: func(context.Context) ([]llm.Model, error) { return models, nil }}
	}
	type capabilities = []llm.Capability
	large := llm.Model{ID: "m", Created: 1, OwnedBy: "a", DisplayName: "M", ContextWindow: 9, OutputLimit: 3,
		Capabilities: capabilities{"tools", "vision"}, Extra: llm.Extra{"x": []byte("1"), "max_model_len": []byte("9")}}
	small := llm.Model{ID: "m", Created: 2, OwnedBy: "b", DisplayName: "M", ContextWindow: 8, OutputLimit: 4,
		Capabilities: capabilities{"vision", "thinking"}, Extra: llm.Extra{"x": []byte("1"), "max_model_len": []byte("8"), "y": []byte("2")}}
	unknown := llm.Model{ID: "m", DisplayName: "Other", ContextWindow: -1}
	both := llm.Model{ID: "m", Created: 1, OwnedBy: "a", DisplayName: "M", ContextWindow: 8, OutputLimit: 3,
		Capabilities: capabilities{"vision"}, Extra: llm.Extra{"x": []byte("1")}}
	with := func(m llm.Model, change func(*llm.Model)) llm.Model { change(&m); return m }
	none := with(both, func(m *llm.Model) { m.DisplayName, m.Extra = "", llm.Extra{} })
	renamed := func(id, displayName string) llm.Model {
		return with(large, func(m *llm.Model) { m.ID, m.DisplayName = id, displayName })
	}
	for name, test := range map[string]struct {
		route route.Route
		want  llm.Model
	}{
		"one target":       {route.Route{Model: "m", Targets: targets(lists(large))}, large},
		"two targets":      {route.Route{Model: "m", Targets: targets(lists(large), lists(small))}, both},
		"a pattern":        {route.Route{Model: "*", Targets: targets(lists(large), lists(small))}, both},
		"one does not say": {route.Route{Model: "m", Targets: targets(lists(large), lists(small), lists(unknown))}, none},
		"the first does not say": {route.Route{Model: "m", Targets: targets(lists(unknown), lists(large))},
			llm.Model{ID: "m", ContextWindow: 9, OutputLimit: 3, Capabilities: large.Capabilities}},
		"nothing in common": {route.Route{Model: "m", Targets: targets(lists(large), lists(llm.Model{ID: "m", Capabilities: capabilities{}}))},
			llm.Model{ID: "m", Created: 1, OwnedBy: "a", ContextWindow: 9, OutputLimit: 3, Capabilities: capabilities{}, Extra: llm.Extra{}}},
		"an alias":  {route.Route{Model: "chat", Targets: singleTarget(lists(large), "m")}, renamed("chat", "")},
		"a prefix":  {route.Route{Model: "x/*", Targets: singleTarget(lists(large), "*")}, renamed("x/m", "M")},
		"not found": {route.Route{Model: "n", Targets: targets(lists(large))}, llm.Model{ID: "n"}},
		"a fixed model of a pattern": {route.Route{Model: "*", Targets: []route.Target{{Name: "a", Backend: lists(large)}, {Name: "b", Backend: lists(
			with(small, func(m *llm.Model) { m.ID, m.DisplayName = "x", "M" })), Model: "x"}}}, with(both, func(m *llm.Model) { m.DisplayName = "" })},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRouter(t, nil, test.route)
			list, err := r.ListModels(t.Context())
			require.NoError(t, err)
			require.Len(t, list, 1)
			assert.Equal(t, test.want, list[0])
			if len(list[0].Capabilities) > 0 {
				list[0].Capabilities[0] = "changed"
				again, err := r.ListModels(t.Context())
				require.NoError(t, err)
				assert.Equal(t, test.want, again[0], "a caller may change its list")
			}
		})
	}
}

// A name that no request can have is not listed.
func TestListModels_EmptyName(t *testing.T) {
	r := newRouter(t, nil, route.Route{Model: "*", Targets: singleTarget(newLister("new-", "new-m"), "new-*")})
	assert.Equal(t, []string{"m of new-m"}, listIDs(t, r))
}
