package route_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/route"
)

// A changingLister lists one model, which a test can change, or fails.
type changingLister struct {
	mu   sync.Mutex
	id   string
	down bool
}

func (s *changingLister) set(id string, down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id, s.down = id, down
}

func (s *changingLister) list(context.Context) ([]llm.Model, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return nil, errDial
	}
	return []llm.Model{{ID: s.id}}, nil
}

func TestListModels_Cache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &changingLister{id: "1"}
		b := &lister{list: s.list}
		logger, log := newLogger()
		r := newRouter(t, &route.Options{Logger: logger}, route.Route{Model: "*", Targets: targets(b)})
		assert.Zero(t, b.calls.Load(), "New does not call the Backend")
		list := func() []string {
			ids := listIDs(t, r)
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
			s := &changingLister{id: "1"}
			r := newRouter(t, &route.Options{ModelsTTL: -1}, route.Route{Model: "*", Targets: targets(&lister{list: s.list})})
			assert.Equal(t, []string{"1"}, listIDs(t, r))
			s.set("2", false)
			listIDs(t, r)
			synctest.Wait()
			assert.Equal(t, []string{"2"}, listIDs(t, r))
		})
	})
}

// The first calls wait for all targets, but at most 10 seconds. Later calls do
// not wait for a target that did not answer in that time.
func TestListModels_TargetDown(t *testing.T) {
	down, slow := []string{"exact", "good of good"}, []string{"exact", "x", "good of good"}
	for name, test := range map[string]struct {
		list  func(ctx context.Context) ([]llm.Model, error)
		takes time.Duration
		want  []string
		again bool // the Backend is called again, because it has returned
	}{
		"error":       {func(context.Context) ([]llm.Model, error) { return nil, errDial }, 0, down, true},
		"panic":       {func(context.Context) ([]llm.Model, error) { panic(errDial) }, 0, down, true},
		"unsupported": {func(context.Context) ([]llm.Model, error) { return nil, errors.ErrUnsupported }, 0, down, true},
		"timeout": {func(ctx context.Context) ([]llm.Model, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, 10 * time.Second, down, true},
		"context ignored": {func(context.Context) ([]llm.Model, error) {
			time.Sleep(time.Hour)
			return nil, nil
		}, 10 * time.Second, down, false},
		"slow": {func(context.Context) ([]llm.Model, error) {
			time.Sleep(9 * time.Second)
			return []llm.Model{{ID: "x"}}, nil
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
					wg.Go(func() { assert.Equal(t, test.want, listIDs(t, r)) })
				}
				wg.Wait()
				assert.Equal(t, test.takes, time.Since(start))
				assert.Equal(t, int64(1), b.calls.Load())
				for range 5 {
					start := time.Now()
					assert.Equal(t, test.want, listIDs(t, r))
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
		b := &lister{list: func(ctx context.Context) ([]llm.Model, error) {
			time.Sleep(2 * time.Second)
			return []llm.Model{{ID: "x"}}, ctx.Err()
		}}
		r := newRouter(t, nil, route.Route{Model: "*", Targets: targets(b)})
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(gone) })
		models, err := r.ListModels(ctx)
		assert.Equal(t, gone, err)
		assert.Nil(t, models)
		assert.Equal(t, []string{"x"}, listIDs(t, r), "the list is fetched for others all the same")
		assert.Equal(t, int64(1), b.calls.Load())
	})
}

// ListModels fails rather than return a list without the models of all targets that
// are down.
func TestListModels_NoTargetAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := true
		b := &lister{list: func(context.Context) ([]llm.Model, error) {
			if down {
				return nil, errDial
			}
			return []llm.Model{{ID: "m"}}, nil
		}}
		exact := route.Route{Model: "chat", Targets: targets(b)}
		r := newRouter(t, nil, exact, route.Route{Model: "*", Targets: targets(b)})
		_, err := r.ListModels(t.Context())
		assert.Equal(t, 5*time.Second, requireStatus(t, err, 503).RetryAfter)
		w := httptest.NewRecorder()
		llmhttp.NewHandler(r, llmhttp.AllowAll("a"), nil).ServeHTTP(w, httptest.NewRequest("GET", "/v1/models", nil))
		assert.Equal(t, 503, w.Code)

		assert.Equal(t, []string{"chat"}, listIDs(t, newRouter(t, nil, exact)), "the names of these models are known")
		other := newRouter(t, nil, route.Route{Model: "*", Targets: targets(b, newLister("n"))})
		assert.Equal(t, []string{"n of n"}, listIDs(t, other), "one target has answered")

		down = false
		time.Sleep(5 * time.Second)
		r.ListModels(t.Context())
		synctest.Wait()
		assert.Equal(t, []string{"chat", "m"}, listIDs(t, r))
		down = true
		time.Sleep(time.Hour)
		r.ListModels(t.Context())
		synctest.Wait()
		assert.Equal(t, []string{"chat", "m"}, listIDs(t, r), "the old list is cached")
	})
}
