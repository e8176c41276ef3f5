package route_test

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/route"
)

// A lister is a Backend that lists models.
type lister struct {
	llmhttp.BackendFunc
	calls atomic.Int64
	list  func(ctx context.Context) ([]llm.Model, error)
}

func (l *lister) ListModels(ctx context.Context) ([]llm.Model, error) {
	l.calls.Add(1)
	return l.list(ctx)
}

// newLister returns a lister of models. Each is owned by "of" and its own ID.
func newLister(ids ...string) *lister {
	return &lister{list: func(context.Context) ([]llm.Model, error) {
		var models []llm.Model
		for _, id := range ids {
			models = append(models, llm.Model{ID: id, OwnedBy: "of " + id, Extra: llm.Extra{"x": json.RawMessage(`1`)}})
		}
		return models, nil
	}}
}

// listIDs returns the ID and the owner of each model that r lists.
func listIDs(t testing.TB, r *route.Router) []string {
	t.Helper()
	models, err := r.ListModels(t.Context())
	require.NoError(t, err)
	list := []string{}
	for _, m := range models {
		if m.OwnedBy != "" {
			m.ID += " " + m.OwnedBy
		}
		list = append(list, m.ID)
	}
	return list
}

func TestListModels_ByRoute(t *testing.T) {
	noLister := newFake(say("a"))
	for name, test := range map[string]struct {
		routes []route.Route
		want   []string
	}{
		"exact names": {[]route.Route{
			{Model: "b", Targets: targets(noLister, newLister("a", "b"))},
			{Model: "a", Targets: singleTarget(newLister("a", "b"), "b")},
			{Model: "c", Targets: targets(noLister)},
			{Model: "d", Targets: targets(newLister("a"))},
		}, []string{"b of b", "a of b", "c", "d"}},
		"pattern": {[]route.Route{
			{Model: "p-*", Targets: targets(newLister("p-2", "q", "p-1", ""), noLister, newLister("p-1", "p-3"))},
		}, []string{"p-2 of p-2", "p-1 of p-1", "p-3 of p-3"}},
		"pattern with other names": {[]route.Route{
			{Model: "x/*", Targets: append(singleTarget(newLister("m", "new-m"), "*"), route.Target{Name: "b", Backend: newLister("n", "new-o", "new-"), Model: "new-*"})},
		}, []string{"x/m of m", "x/new-m of new-m", "x/o of new-o", "x/ of new-"}},
		"any name for one model": {[]route.Route{
			{Model: "*", Targets: singleTarget(newLister("m"), "m")},
		}, []string{}},
		"overlapping routes": {[]route.Route{
			{Model: "a-*", Targets: targets(newLister("a-1", "a-2"))},
			{Model: "*", Targets: targets(newLister("a-2", "a-3", "b", "c"))},
			{Model: "b", Targets: targets(noLister)},
		}, []string{"a-1 of a-1", "a-2 of a-2", "c of c", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRouter(t, nil, test.routes...)
			assert.Equal(t, test.want, listIDs(t, r))
			models, err := r.ListModels(t.Context())
			require.NoError(t, err)
			for i := range models {
				models[i].ID = "changed"
				delete(models[i].Extra, "x")
			}
			assert.Equal(t, test.want, listIDs(t, r), "a caller may change its list")
			again, err := r.ListModels(t.Context())
			require.NoError(t, err)
			for _, m := range again {
				assert.Equal(t, m.OwnedBy != "", string(m.Extra["x"]) == "1", "a caller may change its Extra")
			}
		})
	}
}

func TestListModels_HidesTheTargetsName(t *testing.T) {
	models := []llm.Model{{ID: "llama-70b", Extra: llm.Extra{"root": []byte(`"llama-70b"`), "max_model_len": []byte("8192")}}}
	b := &lister{list: func(context.Context) ([]llm.Model, error) { return models, nil }}
	for model, theirs := range map[string]string{"chat": "llama-70b", "chat-*": "llama-*"} {
		list, err := newRouter(t, nil, route.Route{Model: model, Targets: singleTarget(b, theirs)}).ListModels(t.Context())
		require.NoError(t, err)
		require.Len(t, list, 1)
		assert.Equal(t, llm.Extra{"max_model_len": []byte("8192")}, list[0].Extra)
	}
	assert.Len(t, models[0].Extra, 2, "the target's list is not changed")
}

func TestListModels_OneCallForEachBackend(t *testing.T) {
	b := newLister("m", "n")
	r := newRouter(t, nil,
		route.Route{Model: "m", Targets: targets(b, b)},
		route.Route{Model: "*", Targets: targets(b)})
	assert.Equal(t, []string{"m of m", "n of n"}, listIDs(t, r))
	assert.Equal(t, int64(1), b.calls.Load())

	type incomparable struct {
		llmhttp.BackendFunc
		llmhttp.ModelLister
	}
	r = newRouter(t, nil, route.Route{Model: "*", Targets: targets(incomparable{ModelLister: b}, incomparable{ModelLister: b})})
	assert.Equal(t, []string{"m of m", "n of n"}, listIDs(t, r))
	assert.Equal(t, int64(3), b.calls.Load(), "Backends that cannot be compared are called each")
}
