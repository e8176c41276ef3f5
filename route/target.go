// A target as a Router uses it: names of models, checks of its Target.

package route

import (
	"context"
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/modelname"
)

// A target is the runtime form of a [Target]. It is immutable; its mutable state is
// in the pool of the route.
type target struct {
	routeModel string // the Model of its route
	name       string
	backend    llmhttp.Backend
	model      string // the Backend's name of the model; empty means the client's
	hash       uint64 // of the name
	weight     int
	allow      func(context.Context, Request) bool // nil allows all
	params     *ParamRules                         // nil if there are none
	list       *modelList                          // nil if the Backend does not list models
}

// allows reports whether the host lets the target serve a request.
func (t *target) allows(ctx context.Context, req Request) bool {
	return t.allow == nil || t.allow(ctx, req)
}

// serves reports whether a request may be sent to the target. If a target of the route lists
// the model, which listed tells, that depends on the list of this one too.
func (t *target) serves(ctx context.Context, op llmhttp.Operation, model string, listed bool) bool {
	if op != "" && !op.SupportedBy(ctx, t.backend) {
		return false
	}
	if !listed || !t.takesNames() {
		return true
	}
	_, state := t.list.find(t.backendModel(model))
	return state != notListed
}

// takesNames reports whether a target of a route with a pattern serves the models that its
// Backend lists. Otherwise it serves one model under any name.
func (t *target) takesNames() bool { return t.model == "" || strings.Contains(t.model, "*") }

// backendModel returns the Backend's name of the model that clients call name.
func (t *target) backendModel(name string) string {
	if t.model == "" {
		return name
	}
	text, _ := modelname.Wildcard(t.routeModel, name)
	return strings.Replace(t.model, "*", text, 1)
}

// clientModel returns the clients' name of the model that the Backend calls name. It returns false
// if there is none, or if there are many because any name that matches the route's pattern means
// the same model.
func (t *target) clientModel(name string) (string, bool) {
	switch {
	case t.model == "":
		return name, modelname.Match(t.routeModel, name)
	case !t.takesNames():
		return "", false
	}
	text, ok := modelname.Wildcard(t.model, name)
	return strings.Replace(t.routeModel, "*", text, 1), ok
}

// translateError returns err with the Backend's name of the model replaced by
// model, the client's, in the message that the client sees. It does not change
// err itself.
func (t *target) translateError(err error, model string) error {
	return modelname.RenameError(err, t.backendModel(model), model)
}
