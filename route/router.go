// Router, New and Update, and what they return errors about.

package route

import (
	"sync"
	"sync/atomic"

	"github.com/llmhttp/llmhttp"
)

// A Router is an [llmhttp.Backend] that forwards each request to the targets of a route. Create one
// with [New]. Its methods may be called concurrently. It needs no cleanup.
type Router struct {
	opts     Options
	updating sync.Mutex // serializes Update
	current  atomic.Pointer[table]
}

var (
	_ llmhttp.Backend     = (*Router)(nil)
	_ llmhttp.ModelLister = (*Router)(nil)
)

// New returns a Router for routes. It copies routes and opts. Nil opts mean the
// defaults.
//
// The error names the field that is not valid: a model or a target name that is
// empty or not unique, a missing Backend, an unknown strategy, a weight out of
// range, or a target's * that the route's model does not define.
func New(routes []Route, opts *Options) (*Router, error) {
	r := &Router{opts: opts.withDefaults()}
	if err := r.Update(routes); err != nil {
		return nil, err
	}
	return r, nil
}

// Update replaces the routes, which it copies. Requests that arrive from then on are sent to
// the targets of the new routes; those in progress end as they have begun, with their tries and
// their waiting. If the new routes are not valid, the old ones stay, and the error is that of
// [New]. Options stay as they are.
//
// A target stays if its name, the Model of its route and its Backend stay. It keeps its circuit
// breakers, the time until which it is resting, its requests in flight and its counts in
// [Router.Status], even if its weight or its Model or the strategy has changed. A Backend stays if
// it equals the old one: so pass the same pointer again. It keeps its list of models, in whatever
// routes it is. A Backend that cannot be compared, such as an [llmhttp.BackendFunc], is new each
// time.
func (r *Router) Update(routes []Route) error {
	r.updating.Lock()
	defer r.updating.Unlock()
	t, err := newTable(routes, &r.opts, r.current.Load())
	if err != nil {
		return err
	}
	r.current.Store(t)
	return nil
}
