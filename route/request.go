// Which targets can serve a request.

package route

import (
	"context"
	"slices"

	"github.com/llmhttp/llmhttp"
)

// A Request is what a [Router] knows of a request when it decides which targets can serve it.
type Request struct {
	// Operation is what a model is asked to do. It is empty if models are listed.
	Operation llmhttp.Operation

	// Model is the clients' name of the model. If models are listed it is one that may be
	// in the list.
	Model string

	// Body is what the Router was called with, such as a [*llm.ChatRequest]. It must not
	// be modified. It is nil if there is no such value: for [Router.ImageSizes], and if models
	// are listed.
	Body any
}

// A requestInfo has the properties of a request that decide which targets can serve
// it and which breakers apply to it.
type requestInfo struct {
	Request
	account string  // the account of the key; empty if it is not known
	session session // set if the strategy of the route is Affinity
	allowed bool    // the host lets a target serve it
	serving []int   // the targets that can serve it
}

// newRequestInfo returns the requestInfo of a request to rt.
func (rt *route) newRequestInfo(ctx context.Context, req Request) *requestInfo {
	info := &requestInfo{Request: req, serving: make([]int, 0, len(rt.targets))}
	if key := llmhttp.KeyFrom(ctx); key != nil {
		info.account = key.Account
	}
	if rt.pool.strategy == Affinity {
		info.session = newSession(ctx, info.account, req.Body)
	}
	for i, t := range rt.targets {
		if t.allows(ctx, req) {
			info.serving = append(info.serving, i)
		}
	}
	info.allowed = len(info.serving) > 0
	listed := rt.isListed(req.Model, info.serving)
	info.serving = slices.DeleteFunc(info.serving, func(i int) bool {
		return !rt.targets[i].serves(ctx, req.Operation, req.Model, listed)
	})
	return info
}
