// The sizes that are common to the targets of an image model.

package route

import (
	"context"
	"slices"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/imageedit"
	"github.com/llmhttp/llmhttp/internal/ability"
	"github.com/llmhttp/llmhttp/llm"
)

var _ llmhttp.ImageSizer = (*Router)(nil)

var imageSizes = ability.Call(llmhttp.ImageSizer.ImageSizes)

// ImageSizes implements [llmhttp.ImageSizer]. It returns the sizes that are
// common to all targets of the model that list sizes, in the order of the first
// of them, or all sizes of the first if there are no common ones. It ignores
// targets that do not know the model, return an error, or have an open breaker.
// It counts neither as a try nor as a failure.
func (r *Router) ImageSizes(ctx context.Context, model string) ([]string, error) {
	rt, err := r.current.Load().routeFor(ctx, model, llmhttp.OperationImages)
	if err != nil {
		return nil, err
	}
	var common, first []string
	known := false // a target might know the model
	info, now := rt.newRequestInfo(ctx, Request{Operation: llmhttp.OperationImages, Model: model}), time.Now()
	if len(info.serving) == 0 { // an edit by targets that generate no images
		info = rt.newRequestInfo(ctx, Request{Operation: imageedit.Operation, Model: model})
	}
	for _, i := range info.serving {
		t := rt.targets[i]
		if !rt.pool.ready(i, info, now) {
			known = true
			continue
		}
		sizes, err := imageSizes(ctx, t.backend, t.backendModel(model))
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		known = known || err == nil || classify(err).rank != rankNotFound
		switch {
		case err != nil || len(sizes) == 0:
		case first == nil:
			common, first = slices.Clone(sizes), sizes
		default:
			common = slices.DeleteFunc(common, func(s string) bool { return !slices.Contains(sizes, s) })
		}
	}
	switch {
	case len(common) > 0:
		return common, nil
	case !known:
		return nil, llm.ModelNotFound(model)
	}
	return slices.Clone(first), nil
}
