package route

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/pattern"
)

const (
	listTimeout = 10 * time.Second // of a Backend's ListModels
	listRetry   = 5 * time.Second  // maximum delay after a ListModels that failed
)

// ListModels implements [llmhttp.ModelLister]. It lists the models of the
// routes, in the order of the routes. A route with an exact name is always
// listed. A route with a pattern contributes those models of its targets whose
// names match it; a target with a Model without a * contributes nothing,
// because its names are not known. All models have the clients' names.
//
// The lists of the targets are cached for Options.ModelsTTL and refreshed in the
// background, all at the same time, with a timeout of 10 seconds. Until a new
// list arrives the old one is used. So only the first calls wait, and the models
// of a target that is down remain listed. If the list depends on the targets and
// none of them has listed its models yet, the error is a 503. The contexts of the targets'
// ListModels do not derive from ctx, because the result is used for all callers.
func (r *Router) ListModels(ctx context.Context) ([]llmhttp.Model, error) {
	if err := r.awaitLists(ctx); err != nil {
		return nil, err
	}
	if !r.knowsModels() {
		return nil, errNoLists
	}
	var list []llmhttp.Model
	seen := make(map[string]bool)
	for _, rt := range r.routes {
		if r.byName[rt.model] == rt {
			list = append(list, rt.describe())
			continue
		}
		for _, t := range rt.targets {
			for _, m := range t.list.cached() {
				name, ok := t.clientModel(m.ID)
				if !ok || seen[name] || r.find(name) != rt {
					continue
				}
				seen[name] = true
				list = append(list, renamed(m, name))
			}
		}
	}
	return list, nil
}

var errNoLists = &llmhttp.Error{
	Status: http.StatusServiceUnavailable, RetryAfter: listRetry,
	Message: "The models cannot be listed at the moment. Please try again.",
	Err:     errors.New("route: no target has listed its models"),
}

// knowsModels reports whether a target has listed its models, or none needs to
// because no route with a pattern takes names from a list.
func (r *Router) knowsModels() bool {
	needed := false
	for _, rt := range r.patterns {
		for _, t := range rt.targets {
			needed = needed || t.list != nil && (t.model == "" || strings.Contains(t.model, "*"))
		}
	}
	return !needed || slices.ContainsFunc(r.lists, (*modelList).isKnown)
}

// describe returns the model of a route with an exact name. The members are
// those of the first target that lists the model.
func (rt *route) describe() llmhttp.Model {
	for _, t := range rt.targets {
		id := t.backendModel(rt.model)
		for _, m := range t.list.cached() {
			if m.ID == id {
				return renamed(m, rt.model)
			}
		}
	}
	return llmhttp.Model{ID: rt.model}
}

// renamed returns m with the given ID, without members that would reveal the
// old one.
func renamed(m llmhttp.Model, id string) llmhttp.Model {
	m.Extra = pattern.RenameMembers(m.Extra, m.ID, id)
	m.ID = id
	return m
}

// awaitLists refreshes the lists that have expired and waits for those that have
// never been fetched.
func (r *Router) awaitLists(ctx context.Context) error {
	for _, l := range r.lists {
		l.refresh()
	}
	timeout := time.NewTimer(listTimeout)
	defer timeout.Stop()
	for _, l := range r.lists {
		select {
		case <-l.ready:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timeout.C:
			// The remaining Backends ignore their contexts: do not wait for them again.
			for _, l := range r.lists {
				l.setReady()
			}
			return nil
		}
	}
	return nil
}

// A modelList caches the models of a Backend.
type modelList struct {
	lister llmhttp.ModelLister
	target string // the first target with the Backend, for logs
	opts   *Options

	ready    chan struct{} // closed when there is no reason to wait for the first list
	setReady func()        // closes ready; may be called several times

	mu         sync.Mutex
	models     []llmhttp.Model // never modified
	known      bool            // the Backend has answered
	expires    time.Time
	refreshing bool
}

func newModelList(lister llmhttp.ModelLister, target string, opts *Options) *modelList {
	ready := make(chan struct{})
	return &modelList{lister: lister, target: target, opts: opts, ready: ready, setReady: sync.OnceFunc(func() { close(ready) })}
}

// refresh starts to fetch the list if it has expired and is not being fetched.
func (l *modelList) refresh() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.refreshing && !time.Now().Before(l.expires) {
		l.refreshing = true
		go l.fetch()
	}
}

func (l *modelList) fetch() {
	defer l.setReady()
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	models, err := l.listModels(ctx)
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		l.opts.Logger.Warn("listing models failed", "target", l.target, "error", summarize(err))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refreshing = false
	ttl := l.opts.ModelsTTL
	l.known = l.known || err == nil || errors.Is(err, errors.ErrUnsupported)
	if err == nil {
		l.models = slices.DeleteFunc(slices.Clone(models), func(m llmhttp.Model) bool { return m.ID == "" })
	} else {
		ttl = min(ttl, listRetry)
	}
	l.expires = time.Now().Add(ttl)
}

// listModels calls the Backend. It returns a panic as an error, because it does
// not run on the goroutine of a request.
func (l *modelList) listModels(ctx context.Context) (models []llmhttp.Model, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return l.lister.ListModels(ctx)
}

func (l *modelList) isKnown() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known
}

// cached returns the list that was fetched last. It is empty if there is none or
// l is nil.
func (l *modelList) cached() []llmhttp.Model {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.models
}
