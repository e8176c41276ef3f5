package route

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/modelname"
)

const (
	listTimeout = 10 * time.Second // limits a call of a Backend's ListModels
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
// none of them has listed its models yet, the error is a 503. The targets'
// ListModels get contexts that do not derive from ctx, because all callers use the
// result.
func (r *Router) ListModels(ctx context.Context) ([]llmhttp.Model, error) {
	if err := r.awaitLists(ctx); err != nil {
		return nil, err
	}
	if !r.canListModels() {
		return nil, errNoLists
	}
	var list []llmhttp.Model
	seen := make(map[string]bool)
	for _, rt := range r.routes {
		if r.byName[rt.model] == rt {
			list = append(list, rt.listedModel())
			continue
		}
		for _, t := range rt.targets {
			for _, m := range t.list.cachedModels() {
				name, ok := t.clientModel(m.ID)
				if !ok || seen[name] || r.findRoute(name) != rt {
					continue
				}
				seen[name] = true
				list = append(list, renameModel(m, name))
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

// canListModels reports whether a target has listed its models, or whether the result
// depends on no target because no route with a pattern takes names from a list.
func (r *Router) canListModels() bool {
	needed := false
	for _, rt := range r.patterns {
		for _, t := range rt.targets {
			needed = needed || t.list != nil && (t.model == "" || strings.Contains(t.model, "*"))
		}
	}
	return !needed || slices.ContainsFunc(r.lists, (*modelList).isKnown)
}

// listedModel returns the model of a route with an exact name. The members are
// those of the first target that lists the model.
func (rt *route) listedModel() llmhttp.Model {
	for _, t := range rt.targets {
		id := t.backendModel(rt.model)
		for _, m := range t.list.cachedModels() {
			if m.ID == id {
				return renameModel(m, rt.model)
			}
		}
	}
	return llmhttp.Model{ID: rt.model}
}

// renameModel returns m with the given ID, without members that would reveal the
// old one.
func renameModel(m llmhttp.Model, id string) llmhttp.Model {
	m.Extra = modelname.RenameMembers(m.Extra, m.ID, id)
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
				l.markReady()
			}
			return nil
		}
	}
	return nil
}
