// How an operation whose reply comes at once is tried at a target.

package route

import (
	"context"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/deepcopy"
)

// A oneShot is an operation whose reply comes at once.
type oneShot[Req, Resp any] struct {
	name   llmhttp.Operation
	model  func(req *Req) *string
	call   func(ctx context.Context, b llmhttp.Backend, req *Req) (*Resp, error)
	served func(resp *Resp) *string // the model in the reply; nil if it has none
}

// serve tries targets. Each try gets a copy of req, with the target's name of the model.
func (op *oneShot[Req, Resp]) serve(ctx context.Context, r *Router, req *Req) (*Resp, error) {
	asked := *op.model(req)
	return tryTargets(ctx, r, Request{op.name, asked, req}, func(ctx context.Context, t *try) (*Resp, error) {
		copied, model := deepcopy.Of(req), t.target.backendModel(asked)
		*op.model(copied) = model
		if err := t.changeParams(ctx, copied); err != nil {
			return nil, err
		}
		resp, err := op.call(ctx, t.target.backend, copied)
		if err == nil && resp != nil && op.served != nil && model != asked {
			renamed := *resp // the target may keep resp
			*op.served(&renamed) = asked
			resp = &renamed
		}
		return resp, err
	})
}
