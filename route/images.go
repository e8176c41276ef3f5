package route

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/llmhttp/llmhttp"
)

var errNoResponse = errors.New("route: the target returned neither a response nor an error")

// GenerateImages implements [llmhttp.ImageGenerator].
func (r *Router) GenerateImages(ctx context.Context, req *llmhttp.ImageRequest) (*llmhttp.ImageResponse, error) {
	c, err := r.begin(ctx, req.Model, kindImages)
	if err != nil {
		return nil, err
	}
	var resp *llmhttp.ImageResponse
	err = c.run(func(ctx context.Context, t *target, _ *ticket) (final bool, err error) {
		ask := cloneImages(req)
		ask.Model = t.modelFor(c.model)
		resp, err = llmhttp.Forwarder{Backend: t.backend}.GenerateImages(ctx, ask)
		if resp == nil && err == nil {
			err = errNoResponse
		}
		return false, err
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// ImageSizes implements [llmhttp.ImageSizer]. It returns the sizes that all
// targets of the model allow which tell sizes, in the order of the first; if
// they have none in common, those of the first. Targets that do not know the
// model, fail to tell or are left alone are passed over. It counts neither as a
// try nor as a failure.
func (r *Router) ImageSizes(ctx context.Context, model string) ([]string, error) {
	rt, err := r.routeFor(model, kindImages)
	if err != nil {
		return nil, err
	}
	var common, first []string
	known := false // to a target, as far as can be told
	for _, t := range rt.targets {
		if t.kinds&kindImages == 0 {
			continue
		}
		if !rt.isReady(t) {
			known = true
			continue
		}
		sizes, err := llmhttp.Forwarder{Backend: t.backend}.ImageSizes(ctx, t.modelFor(model))
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		known = known || err == nil || judge(err).rank != rankNotFound
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
		return nil, llmhttp.ModelNotFound(model)
	}
	return slices.Clone(first), nil
}

func (rt *route) isReady(t *target) bool {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	return t.breaker.ready(time.Now())
}
