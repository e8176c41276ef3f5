package route

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/modelname"
)

// A Router is an [llmhttp.Backend] that forwards each request to the targets of
// a route. Create one with [New]. Its methods may be called concurrently. It
// needs no cleanup.
type Router struct {
	opts     Options
	routes   []*route          // all routes, in the order of New
	byName   map[string]*route // routes whose model has no *
	patterns []*route          // routes whose model has a *, in the order of New
	lists    []*modelList      // one for each Backend that lists models
}

var (
	_ llmhttp.Backend        = (*Router)(nil)
	_ llmhttp.ModelLister    = (*Router)(nil)
	_ llmhttp.ImageGenerator = (*Router)(nil)
	_ llmhttp.ImageSizer     = (*Router)(nil)
	_ llmhttp.Embedder       = (*Router)(nil)
)

// A route is the runtime form of a [Route].
type route struct {
	model   string
	targets []*target
	pool    *pool
}

// New returns a Router for routes. It copies routes and opts. Nil opts mean the
// defaults.
//
// The error names the field that is not valid: a model or a target name that is
// empty or not unique, a missing Backend, an unknown strategy, a weight out of
// range, or a target's * that the route's model does not define.
func New(routes []Route, opts *Options) (*Router, error) {
	r := &Router{opts: opts.withDefaults(), byName: make(map[string]*route)}
	if len(routes) == 0 {
		return nil, errors.New("route: routes: must not be empty")
	}
	lists := make(map[llmhttp.Backend]*modelList)
	seen := make(map[string]int)
	for i := range routes {
		field := fmt.Sprintf("routes[%d]", i)
		if first, ok := seen[routes[i].Model]; ok {
			return nil, fmt.Errorf("route: %s.model: routes[%d] has the model %q too", field, first, routes[i].Model)
		}
		seen[routes[i].Model] = i
		rt, err := r.newRoute(&routes[i], field)
		if err != nil {
			return nil, err
		}
		for _, t := range rt.targets {
			t.list = r.modelList(t, lists)
		}
		r.routes = append(r.routes, rt)
		if strings.Contains(rt.model, "*") {
			r.patterns = append(r.patterns, rt)
		} else {
			r.byName[rt.model] = rt
		}
	}
	return r, nil
}

// newRoute validates config and returns its runtime form. Errors call it field.
func (r *Router) newRoute(config *Route, field string) (*route, error) {
	switch {
	case config.Model == "":
		return nil, fmt.Errorf("route: %s.model: must not be empty", field)
	case len(config.Targets) == 0:
		return nil, fmt.Errorf("route: %s.targets: must not be empty", field)
	}
	switch config.Strategy {
	case "", Weighted, LeastInFlight, InOrder:
	default:
		return nil, fmt.Errorf("route: %s.strategy: unknown strategy %q, want %q, %q or %q", field, config.Strategy, Weighted, LeastInFlight, InOrder)
	}
	rt := &route{model: config.Model}
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
		rt.targets = append(rt.targets, &target{routeModel: config.Model, name: t.Name, backend: t.Backend, model: t.Model})
	}
	rt.pool = newPool(config, rt.targets, &r.opts)
	return rt, nil
}

// maxWeight keeps the sums and products that the strategies compute from
// overflowing.
const maxWeight = 1_000_000

func checkTarget(t *Target, routeModel, field string) error {
	stars := strings.Count(t.Model, "*")
	switch {
	case t.Name == "":
		return fmt.Errorf("route: %s.name: must not be empty", field)
	case t.Backend == nil:
		return fmt.Errorf("route: %s.backend: must not be nil", field)
	case stars > 1:
		return fmt.Errorf("route: %s.model: %q has more than one *", field, t.Model)
	case stars == 1 && strings.Count(routeModel, "*") != 1:
		return fmt.Errorf("route: %s.model: %q has a *, so the route's model %q must have exactly one", field, t.Model, routeModel)
	case t.Weight < 0 || t.Weight > maxWeight:
		return fmt.Errorf("route: %s.weight: %d is not between 0 and %d", field, t.Weight, maxWeight)
	}
	return nil
}

// modelList returns the list of the models of t's Backend, or nil if the Backend
// does not list models. Targets with equal Backends share a list. lists maps
// Backends to their lists.
func (r *Router) modelList(t *target, lists map[llmhttp.Backend]*modelList) *modelList {
	lister, ok := t.backend.(llmhttp.ModelLister)
	if !ok {
		return nil
	}
	isComparable := reflect.ValueOf(t.backend).Comparable()
	if isComparable && lists[t.backend] != nil {
		return lists[t.backend]
	}
	l := newModelList(lister, t.name, &r.opts)
	r.lists = append(r.lists, l)
	if isComparable {
		lists[t.backend] = l
	}
	return l
}

// findRoute returns the route for a model, or nil if there is none.
func (r *Router) findRoute(model string) *route {
	if rt := r.byName[model]; rt != nil {
		return rt
	}
	for _, rt := range r.patterns {
		if modelname.Match(rt.model, model) {
			return rt
		}
	}
	return nil
}

// routeFor returns the route for a request for op. If there is no such
// model, it returns [llmhttp.ModelNotFound]; if no target of any route supports
// op, an error that wraps [errors.ErrUnsupported].
func (r *Router) routeFor(model string, op llmhttp.Operation) (*route, error) {
	if !r.supports(op) {
		return nil, errUnsupported(op)
	}
	rt := r.findRoute(model)
	if rt == nil {
		return nil, llmhttp.ModelNotFound(model)
	}
	return rt, nil
}

func (r *Router) supports(op llmhttp.Operation) bool {
	for _, rt := range r.routes {
		for _, t := range rt.targets {
			if t.supports(op) {
				return true
			}
		}
	}
	return false
}
