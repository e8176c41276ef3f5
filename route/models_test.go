package route_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
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

// A lister is a Backend that lists models.
type lister struct {
	llmhttp.BackendFunc
	calls atomic.Int64
	list  func(ctx context.Context) ([]llmhttp.Model, error)
}

func (l *lister) ListModels(ctx context.Context) ([]llmhttp.Model, error) {
	l.calls.Add(1)
	return l.list(ctx)
}

// newLister returns a lister of models. Each is owned by "of" and its own ID.
func newLister(ids ...string) *lister {
	return &lister{list: func(context.Context) ([]llmhttp.Model, error) {
		var models []llmhttp.Model
		for _, id := range ids {
			models = append(models, llmhttp.Model{ID: id, OwnedBy: "of " + id, Extra: llmhttp.Extra{"x": json.RawMessage(`1`)}})
		}
		return models, nil
	}}
}

// list returns the ID and the owner of each model that r lists.
func list(t testing.TB, r *route.Router) []string {
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
			{Model: "a", Targets: target(newLister("a", "b"), "b")},
			{Model: "c", Targets: targets(noLister)},
			{Model: "d", Targets: targets(newLister("a"))},
		}, []string{"b of b", "a of b", "c", "d"}},
		"pattern": {[]route.Route{
			{Model: "p-*", Targets: targets(newLister("p-2", "q", "p-1", ""), noLister, newLister("p-1", "p-3"))},
		}, []string{"p-2 of p-2", "p-1 of p-1", "p-3 of p-3"}},
		"pattern with other names": {[]route.Route{
			{Model: "x/*", Targets: append(target(newLister("m", "new-m"), "*"), route.Target{Name: "b", Backend: newLister("n", "new-o", "new-"), Model: "new-*"})},
		}, []string{"x/m of m", "x/new-m of new-m", "x/o of new-o", "x/ of new-"}},
		"any name for one model": {[]route.Route{
			{Model: "*", Targets: target(newLister("m"), "m")},
		}, []string{}},
		"overlapping routes": {[]route.Route{
			{Model: "a-*", Targets: targets(newLister("a-1", "a-2"))},
			{Model: "*", Targets: targets(newLister("a-2", "a-3", "b", "c"))},
			{Model: "b", Targets: targets(noLister)},
		}, []string{"a-1 of a-1", "a-2 of a-2", "c of c", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRouter(t, nil, test.routes...)
			assert.Equal(t, test.want, list(t, r))
			models, err := r.ListModels(t.Context())
			require.NoError(t, err)
			for i := range models {
				models[i].ID = "changed"
				delete(models[i].Extra, "x")
			}
			assert.Equal(t, test.want, list(t, r), "a caller may change its list")
			again, err := r.ListModels(t.Context())
			require.NoError(t, err)
			for _, m := range again {
				assert.Equal(t, m.OwnedBy != "", string(m.Extra["x"]) == "1", "a caller may change its Extra")
			}
		})
	}
}

func TestListModels_HidesTheTargetsName(t *testing.T) {
	models := []llmhttp.Model{{ID: "llama-70b", Extra: llmhttp.Extra{"root": []byte(`"llama-70b"`), "max_model_len": []byte("8192")}}}
	b := &lister{list: func(context.Context) ([]llmhttp.Model, error) { return models, nil }}
	for model, theirs := range map[string]string{"chat": "llama-70b", "chat-*": "llama-*"} {
		list, err := newRouter(t, nil, route.Route{Model: model, Targets: target(b, theirs)}).ListModels(t.Context())
		require.NoError(t, err)
		require.Len(t, list, 1)
		assert.Equal(t, llmhttp.Extra{"max_model_len": []byte("8192")}, list[0].Extra)
	}
	assert.Len(t, models[0].Extra, 2, "the target's list is not changed")
}

func TestListModels_OneCallForEachBackend(t *testing.T) {
	b := newLister("m", "n")
	r := newRouter(t, nil,
		route.Route{Model: "m", Targets: targets(b, b)},
		route.Route{Model: "*", Targets: targets(b)})
	assert.Equal(t, []string{"m of m", "n of n"}, list(t, r))
	assert.Equal(t, int64(1), b.calls.Load())

	type incomparable struct {
		llmhttp.BackendFunc
		llmhttp.ModelLister
	}
	r = newRouter(t, nil, route.Route{Model: "*", Targets: targets(incomparable{ModelLister: b}, incomparable{ModelLister: b})})
	assert.Equal(t, []string{"m of m", "n of n"}, list(t, r))
	assert.Equal(t, int64(3), b.calls.Load(), "Backends that cannot be compared are called each")
}

// A source is the state of a Backend that a test changes.
type source struct {
	mu   sync.Mutex
	id   string
	down bool
}

func (s *source) set(id string, down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id, s.down = id, down
}

func (s *source) list(context.Context) ([]llmhttp.Model, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return nil, errDial
	}
	return []llmhttp.Model{{ID: s.id}}, nil
}

func TestListModels_Cache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{id: "1"}
		b := &lister{list: s.list}
		logger, log := newLogger()
		r := newRouter(t, &route.Options{Logger: logger}, route.Route{Model: "*", Targets: targets(b)})
		assert.Zero(t, b.calls.Load(), "New does not call the Backend")
		list := func() []string {
			ids := list(t, r)
			synctest.Wait() // until the refresh in the background is done
			return ids
		}
		for range 3 {
			assert.Equal(t, []string{"1"}, list())
		}
		assert.Equal(t, int64(1), b.calls.Load())

		s.set("2", false)
		time.Sleep(time.Minute)
		assert.Equal(t, []string{"1"}, list(), "the old list is used until the new one arrives")
		assert.Equal(t, []string{"2"}, list())
		assert.Equal(t, int64(2), b.calls.Load())

		s.set("3", true)
		for range 3 {
			time.Sleep(time.Minute)
			assert.Equal(t, []string{"2"}, list(), "the models of a target that is down are listed")
		}
		assert.Equal(t, int64(5), b.calls.Load())
		assert.Contains(t, log.String(), `level=WARN msg="listing models failed" target=a error=500`)
		assertNoSecrets(t, log.String())

		s.set("3", false)
		list()
		assert.Equal(t, int64(5), b.calls.Load(), "there is a delay after a failure")
		time.Sleep(5 * time.Second)
		list()
		assert.Equal(t, []string{"3"}, list(), "the delay is shorter than ModelsTTL")
	})
	t.Run("negative ModelsTTL", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &source{id: "1"}
			r := newRouter(t, &route.Options{ModelsTTL: -1}, route.Route{Model: "*", Targets: targets(&lister{list: s.list})})
			assert.Equal(t, []string{"1"}, list(t, r))
			s.set("2", false)
			list(t, r)
			synctest.Wait()
			assert.Equal(t, []string{"2"}, list(t, r))
		})
	})
}

// The first calls wait for all targets, but at most 10 seconds. Later calls do
// not wait for a target that did not answer in that time.
func TestListModels_TargetDown(t *testing.T) {
	down, slow := []string{"exact", "good of good"}, []string{"exact", "x", "good of good"}
	for name, test := range map[string]struct {
		list  func(ctx context.Context) ([]llmhttp.Model, error)
		takes time.Duration
		want  []string
		again bool // the Backend is called again, because it has returned
	}{
		"error":       {func(context.Context) ([]llmhttp.Model, error) { return nil, errDial }, 0, down, true},
		"panic":       {func(context.Context) ([]llmhttp.Model, error) { panic(errDial) }, 0, down, true},
		"unsupported": {func(context.Context) ([]llmhttp.Model, error) { return nil, errors.ErrUnsupported }, 0, down, true},
		"timeout": {func(ctx context.Context) ([]llmhttp.Model, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, 10 * time.Second, down, true},
		"context ignored": {func(context.Context) ([]llmhttp.Model, error) {
			time.Sleep(time.Hour)
			return nil, nil
		}, 10 * time.Second, down, false},
		"slow": {func(context.Context) ([]llmhttp.Model, error) {
			time.Sleep(9 * time.Second)
			return []llmhttp.Model{{ID: "x"}}, nil
		}, 9 * time.Second, slow, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &lister{list: test.list}
				r := newRouter(t, nil,
					route.Route{Model: "exact", Targets: targets(b)},
					route.Route{Model: "*", Targets: targets(b, newLister("good"))})
				start := time.Now()
				var wg sync.WaitGroup
				for range 5 {
					wg.Go(func() { assert.Equal(t, test.want, list(t, r)) })
				}
				wg.Wait()
				assert.Equal(t, test.takes, time.Since(start))
				assert.Equal(t, int64(1), b.calls.Load())
				for range 5 {
					start := time.Now()
					assert.Equal(t, test.want, list(t, r))
					assert.Zero(t, time.Since(start))
					time.Sleep(4 * time.Second)
				}
				assert.Equal(t, test.again, b.calls.Load() > 1)
				time.Sleep(2 * time.Hour) // until the Backend has returned
			})
		})
	}
}

func TestListModels_ClientLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &lister{list: func(ctx context.Context) ([]llmhttp.Model, error) {
			time.Sleep(2 * time.Second)
			return []llmhttp.Model{{ID: "x"}}, ctx.Err()
		}}
		r := newRouter(t, nil, route.Route{Model: "*", Targets: targets(b)})
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(gone) })
		models, err := r.ListModels(ctx)
		assert.Equal(t, gone, err)
		assert.Nil(t, models)
		assert.Equal(t, []string{"x"}, list(t, r), "the list is fetched for others all the same")
		assert.Equal(t, int64(1), b.calls.Load())
	})
}

// A list without the models of targets that are away would look as if these
// models did not exist.
func TestListModels_EveryTargetIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := true
		b := &lister{list: func(context.Context) ([]llmhttp.Model, error) {
			if away {
				return nil, errDial
			}
			return []llmhttp.Model{{ID: "m"}}, nil
		}}
		exact := route.Route{Model: "chat", Targets: targets(b)}
		r := newRouter(t, nil, exact, route.Route{Model: "*", Targets: targets(b)})
		_, err := r.ListModels(t.Context())
		assert.Equal(t, 5*time.Second, requireStatus(t, err, 503).RetryAfter)
		w := httptest.NewRecorder()
		llmhttp.NewHandler(r, llmhttp.AllowAll("a"), nil).ServeHTTP(w, httptest.NewRequest("GET", "/v1/models", nil))
		assert.Equal(t, 503, w.Code)

		assert.Equal(t, []string{"chat"}, list(t, newRouter(t, nil, exact)), "the names of these models are known")
		other := newRouter(t, nil, route.Route{Model: "*", Targets: targets(b, newLister("n"))})
		assert.Equal(t, []string{"n of n"}, list(t, other), "one target has answered")

		away = false
		time.Sleep(5 * time.Second)
		r.ListModels(t.Context())
		synctest.Wait()
		assert.Equal(t, []string{"chat", "m"}, list(t, r))
		away = true
		time.Sleep(time.Hour)
		r.ListModels(t.Context())
		synctest.Wait()
		assert.Equal(t, []string{"chat", "m"}, list(t, r), "the old list is cached")
	})
}
