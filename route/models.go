// The list of models of a Router: what its targets tell together.

package route

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp/internal/modelname"
	"github.com/llmhttp/llmhttp/llm"
)

const (
	listTimeout = 10 * time.Second // limits a call of a Backend's ListModels
	listRetry   = 5 * time.Second  // maximum delay after a ListModels that failed, minimum delay between those for requests
)

// ListModels implements [llmhttp.ModelLister]. It lists the models of the routes, in the order of
// the routes. A route with an exact name is always listed. A route with a pattern contributes those
// models of its targets whose names match it; a target with a Model without a * contributes
// nothing, because its names are not known. All models have the clients' names.
//
// The other members of a model are those that the targets list for it. If several
// targets list it, Created and OwnedBy are those of the first, ContextWindow and
// OutputLimit the smallest, Capabilities the common ones, and DisplayName and the members
// of Extra those that are equal. What a target does not tell does not count. A name
// that is not the target's has no DisplayName unless it contains the target's, because that
// would reveal the model behind it.
//
// If a target of a route with a pattern lists a model, requests for it are not sent to
// targets whose lists are without it, because servers of a single model answer for
// every name. Such requests refresh the lists too; until a target has listed its
// models for the first time it gets requests for all of them.
//
// The lists of the targets are cached for Options.ModelsTTL and refreshed in the
// background, all at the same time, with a timeout of 10 seconds. Until a new
// list arrives the old one is used. So only the first calls wait, and the models
// of a target that is down remain listed. If the list depends on the targets and
// none of them has listed its models yet, the error is a 503. The targets'
// ListModels get contexts that do not derive from ctx, because all callers use the
// result.
func (r *Router) ListModels(ctx context.Context) ([]llm.Model, error) {
	table := r.current.Load()
	if err := table.awaitLists(ctx); err != nil {
		return nil, err
	}
	if !table.canListModels() {
		return nil, errNoLists
	}
	var list []llm.Model
	seen := make(map[string]bool)
	for _, rt := range table.routes {
		if table.byName[rt.model] == rt {
			if allowed := rt.allowed(ctx, rt.model); len(allowed) > 0 {
				list = append(list, listedModel(rt.model, allowed))
			}
			continue
		}
		for _, t := range rt.targets {
			for _, m := range t.list.cachedModels() {
				name, ok := t.clientModel(m.ID)
				if !ok || name == "" || seen[name] || table.findRoute(name) != rt {
					continue
				}
				allowed := rt.allowed(ctx, name)
				if !slices.Contains(allowed, t) {
					continue
				}
				seen[name] = true
				list = append(list, listedModel(name, allowed))
			}
		}
	}
	return list, nil
}

var errNoLists = &llm.Error{
	Status: http.StatusServiceUnavailable, RetryAfter: listRetry,
	Message: "The models cannot be listed at the moment. Please try again.",
	Err:     errors.New("route: no target has listed its models"),
}

// canListModels reports whether a target has listed its models, or whether the result
// depends on no target because no route with a pattern takes names from a list.
func (t *table) canListModels() bool {
	needed := false
	for _, rt := range t.patterns {
		for _, target := range rt.targets {
			needed = needed || target.list != nil && target.takesNames()
		}
	}
	return !needed || slices.ContainsFunc(t.lists, (*modelList).isKnown)
}

// allowed returns the targets that may contribute to the model that clients call name in a list
// of models.
func (rt *route) allowed(ctx context.Context, name string) []*target {
	var allowed []*target
	for _, t := range rt.targets {
		if t.allows(ctx, Request{Model: name}) {
			allowed = append(allowed, t)
		}
	}
	return allowed
}

// isListed reports whether one of some targets of a route with a pattern lists the model. It
// refreshes the lists in the background, because clients may have the list from another
// process. The targets of an exact name serve it whatever they list.
func (rt *route) isListed(model string, targets []int) bool {
	if len(targets) < 2 || !strings.Contains(rt.model, "*") {
		return false
	}
	found := false
	for _, i := range targets {
		t := rt.targets[i]
		if t.list != nil && t.takesNames() {
			t.list.refreshForRequest()
			_, state := t.list.find(t.backendModel(model))
			found = found || state == listed
		}
	}
	return found
}

// listedModel returns the model that clients call name, with what the targets list for it.
func listedModel(name string, targets []*target) llm.Model {
	var merged *llm.Model
	for _, t := range targets {
		m, state := t.list.find(t.backendModel(name))
		if state != listed {
			continue
		}
		m = renameModel(m, name)
		if merged == nil {
			merged = &m
		} else {
			mergeModel(merged, &m)
		}
	}
	if merged == nil {
		return llm.Model{ID: name}
	}
	return *merged
}

// renameModel returns a copy of m with the given ID, without members that would reveal the
// old one.
func renameModel(m llm.Model, id string) llm.Model {
	m.DisplayName = modelname.RenameTitle(m.DisplayName, m.ID, id)
	m.Capabilities = slices.Clone(m.Capabilities)
	m.Extra = modelname.RenameMembers(m.Extra, m.ID, id)
	m.ID = id
	return m
}

// mergeModel leaves in m what is true of other too, a model with the same ID at another
// target.
func mergeModel(m, other *llm.Model) {
	if m.DisplayName != other.DisplayName {
		m.DisplayName = ""
	}
	m.ContextWindow = smaller(m.ContextWindow, other.ContextWindow)
	m.OutputLimit = smaller(m.OutputLimit, other.OutputLimit)
	if m.Capabilities == nil {
		m.Capabilities = other.Capabilities
	} else if other.Capabilities != nil {
		m.Capabilities = slices.DeleteFunc(m.Capabilities, func(c llm.Capability) bool { return !slices.Contains(other.Capabilities, c) })
	}
	maps.DeleteFunc(m.Extra, func(name string, v json.RawMessage) bool { return !bytes.Equal(v, other.Extra[name]) })
}

// smaller returns the smaller one of two limits, of which each may be unknown.
func smaller(a, b int) int {
	if a <= 0 || b <= 0 {
		return max(a, b, 0)
	}
	return min(a, b)
}

// awaitLists refreshes the lists that have expired and waits for those that have
// never been fetched.
func (t *table) awaitLists(ctx context.Context) error {
	for _, l := range t.lists {
		l.refresh()
	}
	timeout := time.NewTimer(listTimeout)
	defer timeout.Stop()
	for _, l := range t.lists {
		select {
		case <-l.ready:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timeout.C:
			// The remaining Backends ignore their contexts: do not wait for them again.
			for _, l := range t.lists {
				l.markReady()
			}
			return nil
		}
	}
	return nil
}
