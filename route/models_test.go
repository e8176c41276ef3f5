package route_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/route"
)

// A lister is a Backend that lists models as it is told to.
type lister struct {
	llmhttp.BackendFunc
	calls atomic.Int64
	list  func(ctx context.Context) ([]llmhttp.Model, error)
}

func (l *lister) ListModels(ctx context.Context) ([]llmhttp.Model, error) {
	l.calls.Add(1)
	return l.list(ctx)
}

// lists returns a lister of models, each with its own name as its owner.
func lists(ids ...string) *lister {
	return &lister{list: func(context.Context) ([]llmhttp.Model, error) {
		var models []llmhttp.Model
		for _, id := range ids {
			models = append(models, llmhttp.Model{ID: id, OwnedBy: "of " + id, Extra: llmhttp.Extra{"x": json.RawMessage(`1`)}})
		}
		return models, nil
	}}
}

// idsOf returns the IDs of the models that r lists, and who owns them.
func idsOf(t testing.TB, r *route.Router) []string {
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

func TestListModels(t *testing.T) {
	chats := steps(says("a"))
	for name, test := range map[string]struct {
		routes []route.Route
		want   []string
	}{
		"names": {[]route.Route{
			{Model: "b", Targets: targets(chats, lists("a", "b"))},
			{Model: "a", Targets: []route.Target{{Name: "x", Backend: lists("a", "b"), Model: "b"}}},
			{Model: "c", Targets: targets(chats)},
			{Model: "d", Targets: targets(lists("a"))},
		}, []string{"b of b", "a of b", "c", "d"}},
		"a pattern": {[]route.Route{
			{Model: "p-*", Targets: targets(lists("p-2", "q", "p-1", ""), chats, lists("p-1", "p-3"))},
		}, []string{"p-2 of p-2", "p-1 of p-1", "p-3 of p-3"}},
		"a prefix": {[]route.Route{
			{Model: "x/*", Targets: []route.Target{{Name: "a", Backend: lists("m", "new-m"), Model: "*"}, {Name: "b", Backend: lists("n", "new-o", "new-"), Model: "new-*"}}},
		}, []string{"x/m of m", "x/new-m of new-m", "x/o of new-o", "x/ of new-"}},
		"any name for one": {[]route.Route{
			{Model: "*", Targets: []route.Target{{Name: "a", Backend: lists("m"), Model: "m"}}},
		}, []string{}},
		"as requests go": {[]route.Route{
			{Model: "a-*", Targets: targets(lists("a-1", "a-2"))},
			{Model: "*", Targets: targets(lists("a-2", "a-3", "b", "c"))},
			{Model: "b", Targets: targets(chats)},
		}, []string{"a-1 of a-1", "a-2 of a-2", "c of c", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRouter(t, nil, test.routes...)
			assert.Equal(t, test.want, idsOf(t, r))
			models, err := r.ListModels(t.Context())
			require.NoError(t, err)
			for i := range models {
				models[i].ID = "changed"
				delete(models[i].Extra, "x")
			}
			again, err := r.ListModels(t.Context())
			require.NoError(t, err)
			for _, m := range again {
				assert.Equal(t, m.OwnedBy != "", m.Extra != nil && string(m.Extra["x"]) == "1", "what a caller does with its list is its own affair")
			}
			assert.Equal(t, test.want, idsOf(t, r))
		})
	}
}

// A Backend that has several targets is asked once.
func TestListModelsOnce(t *testing.T) {
	b := lists("m", "n")
	r := newRouter(t, nil,
		route.Route{Model: "m", Targets: targets(b, b)},
		route.Route{Model: "*", Targets: targets(b)})
	assert.Equal(t, []string{"m of m", "n of n"}, idsOf(t, r))
	assert.Equal(t, int64(1), b.calls.Load())

	// These cannot be told apart, nor be compared.
	type value struct {
		llmhttp.BackendFunc
		llmhttp.ModelLister
	}
	r = newRouter(t, nil, route.Route{Model: "*", Targets: targets(value{ModelLister: b}, value{ModelLister: b})})
	assert.Equal(t, []string{"m of m", "n of n"}, idsOf(t, r))
	assert.Equal(t, int64(3), b.calls.Load())
}

func TestListModelsCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		now, down := "1", false
		b := &lister{list: func(context.Context) ([]llmhttp.Model, error) {
			mu.Lock()
			defer mu.Unlock()
			if down {
				return nil, errBoom
			}
			return []llmhttp.Model{{ID: now}}, nil
		}}
		set := func(v string, fails bool) {
			mu.Lock()
			defer mu.Unlock()
			now, down = v, fails
		}
		logger, log := newLogger()
		r := newRouter(t, &route.Options{Logger: logger}, route.Route{Model: "*", Targets: targets(b)})
		assert.Zero(t, b.calls.Load(), "New asks nobody")
		list := func() []string {
			ids := idsOf(t, r)
			synctest.Wait() // for what it has started
			return ids
		}
		for range 3 {
			assert.Equal(t, []string{"1"}, list())
		}
		assert.Equal(t, int64(1), b.calls.Load())

		set("2", false)
		time.Sleep(time.Minute)
		assert.Equal(t, []string{"1"}, list(), "nobody waits for a list but the first")
		assert.Equal(t, []string{"2"}, list())
		assert.Equal(t, int64(2), b.calls.Load())

		set("3", true)
		for range 3 {
			time.Sleep(time.Minute)
			assert.Equal(t, []string{"2"}, list(), "a target that is down is listed")
		}
		assert.Equal(t, int64(5), b.calls.Load())
		assert.Contains(t, log.String(), `level=WARN msg="listing models failed" target=a error=500`)
		assert.NotContains(t, log.String(), "sk-secret")

		set("3", false)
		list()
		assert.Equal(t, int64(5), b.calls.Load(), "it is given some seconds")
		time.Sleep(5 * time.Second)
		list()
		assert.Equal(t, []string{"3"}, list(), "which are fewer than otherwise")
	})
}

// The first call waits for all targets, but not for ever and not for one that
// has had its time.
func TestListModelsDown(t *testing.T) {
	obedient := func(ctx context.Context) ([]llmhttp.Model, error) { <-ctx.Done(); return nil, ctx.Err() }
	for name, test := range map[string]struct {
		list  func(ctx context.Context) ([]llmhttp.Model, error)
		takes time.Duration
	}{
		"refuses": {func(context.Context) ([]llmhttp.Model, error) { return nil, errBoom }, 0},
		"panics":  {func(context.Context) ([]llmhttp.Model, error) { panic(errBoom) }, 0},
		"cannot":  {func(context.Context) ([]llmhttp.Model, error) { return nil, errors.ErrUnsupported }, 0},
		"hangs":   {obedient, 10 * time.Second},
		"is deaf": {func(ctx context.Context) ([]llmhttp.Model, error) { time.Sleep(time.Hour); return nil, nil }, 10 * time.Second},
		"is slow": {func(ctx context.Context) ([]llmhttp.Model, error) {
			time.Sleep(9 * time.Second)
			return []llmhttp.Model{{ID: "x"}}, nil
		}, 9 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &lister{list: test.list}
				r := newRouter(t, nil,
					route.Route{Model: "exact", Targets: targets(b)},
					route.Route{Model: "*", Targets: targets(b, lists("good"))})
				want := []string{"exact", "good of good"}
				if name == "is slow" {
					want = []string{"exact", "x", "good of good"}
				}
				start := time.Now()
				var wg sync.WaitGroup
				for range 5 {
					wg.Go(func() { assert.Equal(t, want, idsOf(t, r)) })
				}
				wg.Wait()
				assert.Equal(t, test.takes, time.Since(start))
				assert.Equal(t, int64(1), b.calls.Load(), "one at a time")
				for range 5 {
					start := time.Now()
					assert.Equal(t, want, idsOf(t, r))
					assert.Zero(t, time.Since(start), "nobody waits again")
					time.Sleep(4 * time.Second)
				}
				assert.Equal(t, name == "is deaf" || name == "is slow", b.calls.Load() == 1, "asked again, unless it still has not returned")
				time.Sleep(2 * time.Hour) // until it has
			})
		})
	}
}

// A client that leaves does not keep the others from the list.
func TestListModelsClientLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &lister{list: func(ctx context.Context) ([]llmhttp.Model, error) {
			time.Sleep(2 * time.Second)
			return []llmhttp.Model{{ID: "x"}}, ctx.Err()
		}}
		r := newRouter(t, nil, route.Route{Model: "*", Targets: targets(b)})
		cause := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(cause) })
		models, err := r.ListModels(ctx)
		assert.Equal(t, cause, err)
		assert.Nil(t, models)
		assert.Equal(t, []string{"x"}, idsOf(t, r))
		assert.Equal(t, int64(1), b.calls.Load())
	})
}
