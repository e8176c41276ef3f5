// Which route serves a model, and mistakes in routes.

package route

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/modelname"
	"github.com/llmhttp/llmhttp/internal/option"
	"github.com/llmhttp/llmhttp/llm"
)

// A table has the routes of a [Router]. It is immutable, except for the state that the
// pools and the lists guard themselves.
type table struct {
	routes   []*route          // all routes, in the order of New
	byName   map[string]*route // routes whose model has no *
	patterns []*route          // routes whose model has a *, in the order of New
	lists    []*modelList      // one for each Backend that lists models
}

// A route is the runtime form of a [Route].
type route struct {
	model   string
	targets []*target
	pool    *pool
}

// newTable validates routes and returns their table. The state of what previous has too is
// kept. previous may be nil.
func newTable(routes []Route, o *Options, previous *table) (*table, error) {
	if len(routes) == 0 {
		return nil, errors.New("route: routes: must not be empty")
	}
	t := &table{byName: make(map[string]*route)}
	lists := previous.listsByBackend()
	seen := make(map[string]int)
	for i := range routes {
		config, field := &routes[i], fmt.Sprintf("routes[%d]", i)
		if first, ok := seen[config.Model]; ok {
			return nil, fmt.Errorf("route: %s.model: routes[%d] has the model %q too", field, first, config.Model)
		}
		seen[config.Model] = i
		targets, err := newTargets(config, field)
		if err != nil {
			return nil, err
		}
		rt := &route{config.Model, targets, newPool(config.Strategy, targets, o, previous.poolOf(config.Model))}
		for _, target := range targets {
			t.setList(target, lists, o)
		}
		t.routes = append(t.routes, rt)
		if strings.Contains(rt.model, "*") {
			t.patterns = append(t.patterns, rt)
		} else {
			t.byName[rt.model] = rt
		}
	}
	return t, nil
}

// newTargets validates config and returns its targets. Errors call config field.
func newTargets(config *Route, field string) (targets []*target, err error) {
	switch {
	case config.Model == "":
		return nil, fmt.Errorf("route: %s.model: must not be empty", field)
	case len(config.Targets) == 0:
		return nil, fmt.Errorf("route: %s.targets: must not be empty", field)
	}
	if !slices.Contains(strategies, config.Strategy) {
		return nil, fmt.Errorf("route: %s.strategy: unknown strategy %q, want one of %q", field, config.Strategy, strategies[1:])
	}
	seen := make(map[string]int)
	for i := range config.Targets {
		t := &config.Targets[i]
		field := fmt.Sprintf("%s.targets[%d]", field, i)
		if err := checkTarget(t, config.Model, field); err != nil {
			return nil, err
		}
		if first, ok := seen[t.Name]; ok {
			return nil, fmt.Errorf("route: %s.name: targets[%d] has the name %q too", field, first, t.Name)
		}
		seen[t.Name] = i
		targets = append(targets, &target{
			routeModel: config.Model, name: t.Name, backend: t.Backend, model: t.Model, weight: max(t.Weight, 1), allow: t.Allow,
			hash: hashTexts(t.Name), params: t.Params.clone(),
		})
	}
	return targets, nil
}

// maxWeight keeps the sums and products that the strategies compute from
// overflowing.
const maxWeight = 1_000_000

func checkTarget(t *Target, routeModel, field string) error {
	stars := strings.Count(t.Model, "*")
	switch {
	case t.Name == "":
		return fmt.Errorf("route: %s.name: must not be empty", field)
	case option.IsNil(t.Backend):
		return fmt.Errorf("route: %s.backend: must not be nil", field)
	case stars > 1:
		return fmt.Errorf("route: %s.model: %q has more than one *", field, t.Model)
	case stars == 1 && strings.Count(routeModel, "*") != 1:
		return fmt.Errorf("route: %s.model: %q has a *, so the route's model %q must have exactly one", field, t.Model, routeModel)
	case t.Weight < 0 || t.Weight > maxWeight:
		return fmt.Errorf("route: %s.weight: %d is not between 0 and %d", field, t.Weight, maxWeight)
	}
	return t.Params.check(field + ".params")
}

// poolOf returns the pool of the route with this Model. It returns nil if there is none or t
// is nil.
func (t *table) poolOf(model string) *pool {
	if t != nil {
		for _, rt := range t.routes {
			if rt.model == model {
				return rt.pool
			}
		}
	}
	return nil
}

// listsByBackend returns the lists of Backends that can be compared. t may be nil.
func (t *table) listsByBackend() map[llmhttp.Backend]*modelList {
	lists := make(map[llmhttp.Backend]*modelList)
	if t == nil {
		return lists
	}
	for _, rt := range t.routes {
		for _, target := range rt.targets {
			if target.list != nil && sameBackend(target.backend, target.backend) {
				lists[target.backend] = target.list
			}
		}
	}
	return lists
}

// setList sets the list of the models of target's Backend, unless that does not list models.
// Targets with equal Backends share a list. lists has those that there are already.
func (t *table) setList(target *target, lists map[llmhttp.Backend]*modelList, o *Options) {
	if !mayListModels(target.backend) {
		return
	}
	isComparable := sameBackend(target.backend, target.backend)
	if isComparable {
		target.list = lists[target.backend]
	}
	if target.list == nil {
		target.list = newModelList(target.backend, target.name, o)
	}
	if isComparable {
		lists[target.backend] = target.list
	}
	if !slices.Contains(t.lists, target.list) {
		t.lists = append(t.lists, target.list)
	}
}

// mayListModels reports whether b lists models, or wraps what may at some time, as that of an
// [llmhttp.SwappableBackend].
func mayListModels(b llmhttp.Backend) bool {
	_, lists := b.(llmhttp.ModelLister)
	_, wraps := b.(interface {
		Unwrap(ctx context.Context) llmhttp.Backend
	})
	return lists || wraps
}

// sameBackend reports whether a and b are equal. A Backend that cannot be compared, such as a
// [llmhttp.BackendFunc], does not equal itself.
func sameBackend(a, b llmhttp.Backend) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// findRoute returns the route for a model, or nil if there is none.
func (t *table) findRoute(model string) *route {
	if rt := t.byName[model]; rt != nil {
		return rt
	}
	for _, rt := range t.patterns {
		if modelname.Match(rt.model, model) {
			return rt
		}
	}
	return nil
}

// routeFor returns the route for a request for op. If there is no such model, it returns
// [llm.ModelNotFound]; if no target of any route supports op, an error that wraps
// [errors.ErrUnsupported].
func (t *table) routeFor(ctx context.Context, model string, op llmhttp.Operation) (*route, error) {
	if !t.supports(ctx, op) {
		return nil, errUnsupported(op)
	}
	rt := t.findRoute(model)
	if rt == nil {
		return nil, llm.ModelNotFound(model)
	}
	return rt, nil
}

func (t *table) supports(ctx context.Context, op llmhttp.Operation) bool {
	for _, rt := range t.routes {
		for _, target := range rt.targets {
			if op.SupportedBy(ctx, target.backend) {
				return true
			}
		}
	}
	return false
}
