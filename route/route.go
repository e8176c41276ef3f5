package route

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/pattern"
)

// A Route tells who answers requests for a model.
type Route struct {
	// Model is the name that clients use, or a pattern of names, in which each
	// * stands for any text, as in [llmhttp.Key]. A route whose Model is the
	// very name comes before patterns; of the patterns that match, the first
	// counts.
	Model string

	// Strategy is how a target is picked; if empty, it is Weighted.
	Strategy Strategy

	// Targets are those to pick from; there must be one. If they answer
	// requests for embeddings, all must have the same model behind them:
	// vectors of one mean nothing to another.
	Targets []Target
}

// A Target is a Backend that a [Route] may pick.
type Target struct {
	// Name is what logs, [Router.Status] and [llmhttp.RequestSummary] call the
	// target. It must not be empty, nor that of another target of the route.
	Name string

	// Backend answers. Where it lacks one of the optional interfaces, the
	// target is passed over for such requests.
	Backend llmhttp.Backend

	// Model is what the Backend calls the model; if empty, what the client
	// does. A * stands for what the one * of the route's Model matched. If the
	// names differ, replies have the one the client used.
	Model string

	// Weight is the target's share of the requests, in proportion to the
	// weights of the others; InOrder ignores it. Zero means 1; the most is a
	// million.
	Weight int
}

// A Strategy is a way to pick one of the targets that can be asked.
type Strategy string

const (
	// Weighted picks each target as often as its weight says, evenly spread:
	// of 4 requests in a row, a target with weight 3 gets 3 if that of the
	// other is 1.
	Weighted Strategy = "weighted"

	// LeastInFlight picks the target with the fewest requests in flight for
	// its weight. If there are several, they take turns as with Weighted.
	LeastInFlight Strategy = "least-in-flight"

	// InOrder picks the first target: the others stand in for it.
	InOrder Strategy = "in-order"
)

// Options configure a [Router], which keeps a copy. The zero value is ready to
// use.
type Options struct {
	// Tries is how often targets are tried for one request, all in all. Zero
	// or negative means 6.
	Tries int

	// Rounds is how often each target is tried for one request: 1 never tries
	// one again. Zero or negative means 2.
	Rounds int

	// TryTimeout is how long a target may take to its first chunk, or to its
	// whole answer of images or vectors. Zero means 2 minutes, negative as long
	// as the request may take. To be of use it must be shorter than
	// [llmhttp.Options].Timeout, which ends the request.
	TryTimeout time.Duration

	// Backoff is how long to wait before the second round, at most; at the
	// least it is half as long. It doubles with each round, up to MaxWait. Zero
	// or negative means 250 ms.
	Backoff time.Duration

	// MaxWait is how long to wait between rounds at most, for a target that
	// says when to come back, too. It must be shorter than
	// [llmhttp.Options].Timeout, which ends the request. Zero or negative means
	// 5 s.
	MaxWait time.Duration

	// Failures is how many in a row open a target's breaker. Zero means 5;
	// with a negative number it never opens.
	Failures int

	// OpenFor is for how long an open breaker leaves its target alone, at the
	// least; at most it is half as long again. It doubles with each request
	// that fails to close it, up to 5 minutes or, if that is more, itself. Zero
	// or negative means 10 s.
	OpenFor time.Duration

	// ModelsTTL is how long the lists of the targets' models are used before
	// they are asked again. Zero or negative means a minute.
	ModelsTTL time.Duration

	// Logger is told of targets that fail, and of those that are left alone
	// and work again; if nil, slog.Default() is. It gets no texts of errors,
	// which may have addresses and secrets.
	Logger *slog.Logger
}

// A Router is a [llmhttp.Backend] that has others answer. [New] makes one; the
// zero Router is none. Its methods may be called concurrently. It needs no
// closing.
type Router struct {
	opts   Options
	exact  map[string]*route
	routes []*route // all, in order
	kinds  kind     // what some target can do
	lists  []*modelList
	random func() float64 // in [0, 1)
}

var (
	_ llmhttp.Backend        = (*Router)(nil)
	_ llmhttp.ModelLister    = (*Router)(nil)
	_ llmhttp.ImageGenerator = (*Router)(nil)
	_ llmhttp.ImageSizer     = (*Router)(nil)
	_ llmhttp.Embedder       = (*Router)(nil)
)

// New returns a Router for routes, of which it keeps a copy. If opts is nil, it
// is as if it were zero.
//
// It returns an error that names the field if a route has no model or that of
// another, has no targets or an unknown strategy; or if a target has no
// Backend, no name or that of another, a weight out of range, or a model whose
// * means nothing.
func New(routes []Route, opts *Options) (*Router, error) {
	r := &Router{exact: make(map[string]*route), random: rand.Float64}
	if opts != nil {
		r.opts = *opts
	}
	r.opts.setDefaults()
	if len(routes) == 0 {
		return nil, fmt.Errorf("route: routes: there must be at least one")
	}
	lists := make(map[llmhttp.Backend]*modelList)
	models := make(map[string]int)
	for i := range routes {
		at := fmt.Sprintf("routes[%d]", i)
		if first, ok := models[routes[i].Model]; ok {
			return nil, fmt.Errorf("route: %s.model: %q is the model of routes[%d] already", at, routes[i].Model, first)
		}
		models[routes[i].Model] = i
		rt, err := newRoute(&routes[i], at)
		if err != nil {
			return nil, err
		}
		for _, t := range rt.targets {
			r.kinds |= t.kinds
			r.list(t, lists)
		}
		if rt.stars == 0 {
			r.exact[rt.model] = rt
		}
		r.routes = append(r.routes, rt)
	}
	return r, nil
}

func (o *Options) setDefaults() {
	if o.Tries <= 0 {
		o.Tries = 6
	}
	if o.Rounds <= 0 {
		o.Rounds = 2
	}
	if o.TryTimeout == 0 {
		o.TryTimeout = 2 * time.Minute
	}
	if o.Backoff <= 0 {
		o.Backoff = 250 * time.Millisecond
	}
	if o.MaxWait <= 0 {
		o.MaxWait = 5 * time.Second
	}
	if o.Failures == 0 {
		o.Failures = 5
	}
	if o.OpenFor <= 0 {
		o.OpenFor = 10 * time.Second
	}
	o.OpenFor = min(o.OpenFor, forever)
	if o.ModelsTTL <= 0 {
		o.ModelsTTL = time.Minute
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
}

// forever is longer than any process runs, and can be added to any time.
const forever = 100 * 365 * 24 * time.Hour

// maxWeight keeps the sums of weights far from where integers end.
const maxWeight = 1_000_000

func newRoute(from *Route, at string) (*route, error) {
	rt := &route{model: from.Model, strategy: from.Strategy, stars: strings.Count(from.Model, "*")}
	rt.before, rt.after, _ = strings.Cut(from.Model, "*")
	switch {
	case from.Model == "":
		return nil, fmt.Errorf("route: %s.model: must not be empty", at)
	case len(from.Targets) == 0:
		return nil, fmt.Errorf("route: %s.targets: there must be at least one", at)
	}
	switch rt.strategy {
	case "":
		rt.strategy = Weighted
	case Weighted, LeastInFlight, InOrder:
	default:
		return nil, fmt.Errorf("route: %s.strategy: %q is none of %q, %q and %q", at, from.Strategy, Weighted, LeastInFlight, InOrder)
	}
	names := make(map[string]int)
	for i := range from.Targets {
		ft := &from.Targets[i]
		at := fmt.Sprintf("%s.targets[%d]", at, i)
		first, taken := names[ft.Name]
		names[ft.Name] = i
		stars := strings.Count(ft.Model, "*")
		switch {
		case ft.Name == "":
			return nil, fmt.Errorf("route: %s.name: must not be empty", at)
		case taken:
			return nil, fmt.Errorf("route: %s.name: %q is the name of targets[%d] already", at, ft.Name, first)
		case ft.Backend == nil:
			return nil, fmt.Errorf("route: %s.backend: must not be nil", at)
		case stars > 1:
			return nil, fmt.Errorf("route: %s.model: %q has more than one *", at, ft.Model)
		case stars == 1 && rt.stars != 1:
			return nil, fmt.Errorf("route: %s.model: %q has a *, but the route's model %q has not exactly one", at, ft.Model, from.Model)
		case ft.Weight < 0 || ft.Weight > maxWeight:
			return nil, fmt.Errorf("route: %s.weight: %d is not from 0 to %d", at, ft.Weight, maxWeight)
		}
		rt.targets = append(rt.targets, newTarget(rt, ft))
	}
	return rt, nil
}

func newTarget(rt *route, from *Target) *target {
	t := &target{route: rt, name: from.Name, backend: from.Backend, model: from.Model, weight: max(from.Weight, 1)}
	t.before, t.after, t.star = strings.Cut(from.Model, "*")
	t.kinds = kindChat
	if _, ok := t.backend.(llmhttp.ImageGenerator); ok {
		t.kinds |= kindImages
	}
	if _, ok := t.backend.(llmhttp.Embedder); ok {
		t.kinds |= kindEmbeddings
	}
	t.breaker.since = time.Now()
	return t
}

// list sees to it that the target's models are listed, once for each Backend.
func (r *Router) list(t *target, lists map[llmhttp.Backend]*modelList) {
	lister, ok := t.backend.(llmhttp.ModelLister)
	if !ok {
		return
	}
	comparable := reflect.ValueOf(t.backend).Comparable()
	if comparable {
		t.list = lists[t.backend]
	}
	if t.list == nil {
		t.list = &modelList{router: r, lister: lister, target: t.name, first: make(chan struct{})}
		r.lists = append(r.lists, t.list)
		if comparable {
			lists[t.backend] = t.list
		}
	}
}

// find returns the route of a model, or nil if it has none.
func (r *Router) find(model string) *route {
	if rt := r.exact[model]; rt != nil {
		return rt
	}
	for _, rt := range r.routes {
		if rt.stars > 0 && pattern.Match(rt.model, model) {
			return rt
		}
	}
	return nil
}

// A kind is a set of what targets can do.
type kind uint8

const (
	kindChat kind = 1 << iota
	kindImages
	kindEmbeddings
)

func (k kind) String() string {
	switch k {
	case kindImages:
		return "generates images"
	case kindEmbeddings:
		return "embeds"
	}
	return "chats"
}

// modelFor returns what the target calls a model that the client calls name.
func (t *target) modelFor(name string) string {
	switch {
	case t.model == "":
		return name
	case t.star:
		return t.before + name[len(t.route.before):len(name)-len(t.route.after)] + t.after
	}
	return t.model
}

// translate puts the client's name of the model in the place of the target's
// where err tells it to the client.
func (t *target) translate(err error, model string) error {
	theirs := t.modelFor(model)
	if err == nil || theirs == model {
		return err
	}
	e, _ := errors.AsType[*llmhttp.Error](err)
	if e == nil {
		return err
	}
	message := pattern.Rename(e.Message, theirs, model)
	if message == e.Message {
		return err
	}
	told := *e
	told.Message = message
	if err != error(e) {
		told.Err = err
	}
	return &told
}

// nameFor returns what a client calls the model that the target of a pattern
// calls model. There may be no such name.
func (t *target) nameFor(model string) (name string, ok bool) {
	switch {
	case t.model == "":
		return model, pattern.Match(t.route.model, model)
	case !t.star:
		return "", false // any name that matches
	}
	rest, ok := strings.CutPrefix(model, t.before)
	if !ok {
		return "", false
	}
	rest, ok = strings.CutSuffix(rest, t.after)
	return t.route.before + rest + t.route.after, ok
}
