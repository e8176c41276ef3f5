// Counts of tokens, which are no tries.

package route

import (
	"context"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/ability"
	"github.com/llmhttp/llmhttp/internal/unsupported"
	"github.com/llmhttp/llmhttp/llm"
)

var _ llmhttp.TokenCounter = (*Router)(nil)

var countTokens = ability.Call(llmhttp.TokenCounter.CountTokens)

// CountTokens implements [llmhttp.TokenCounter]. It asks the targets of the model in their
// order, except those with an open breaker, until one answers. It counts neither as a try nor
// as a failure. If no target can count, the error wraps [errors.ErrUnsupported].
func (r *Router) CountTokens(ctx context.Context, req *llm.ChatRequest) (int, error) {
	rt, err := r.current.Load().routeFor(ctx, req.Model, llmhttp.OperationChat)
	if err != nil {
		return 0, err
	}
	failure := errCannotCount
	info, now := rt.newRequestInfo(ctx, Request{llmhttp.OperationChat, req.Model, req}), time.Now()
	if !info.allowed {
		return 0, llm.ModelNotFound(req.Model)
	}
	for _, i := range info.serving {
		t := rt.targets[i]
		if !rt.pool.ready(i, info, now) {
			continue
		}
		renamed := *req
		renamed.Model = t.backendModel(req.Model)
		n, err := countTokens(ctx, t.backend, &renamed)
		switch {
		case err == nil:
			return n, nil
		case ctx.Err() != nil:
			return 0, context.Cause(ctx)
		case !unsupported.Is(err):
			failure = t.translateError(err, req.Model)
		}
	}
	return 0, failure
}
