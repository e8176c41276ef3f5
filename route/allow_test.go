package route_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/llmhttp/llmhttp/route"
)

type regionKey struct{}

// inRegion returns a context for requests from a region.
func inRegion(ctx context.Context, region string) context.Context {
	return context.WithValue(ctx, regionKey{}, region)
}

// only returns an Allow for requests from a region.
func only(region string) func(context.Context, route.Request) bool {
	return func(ctx context.Context, _ route.Request) bool { return ctx.Value(regionKey{}) == region }
}

// regional returns targets named after their regions, which they serve, and one for all.
func regional(eu, us, world llmhttp.Backend) []route.Target {
	return []route.Target{
		{Name: "eu", Backend: eu, Allow: only("eu")}, {Name: "us", Backend: us, Allow: only("us")}, {Name: "world", Backend: world},
	}
}

func TestAllow_EachOperation(t *testing.T) {
	backend := func(name string) llmhttp.Backend {
		b := newMultimodal(name, nil)
		b.sizes = func(string) ([]string, error) { return []string{name}, nil }
		return struct {
			*multimodal
			llmhttp.TokenCounter
		}{b, &counter{n: len(name)}}
	}
	list := regional(backend("eu"), backend("us_"), backend("world"))
	r := newRouter(t, nil,
		route.Route{Model: "m", Strategy: route.InOrder, Targets: list},
		route.Route{Model: "hidden", Targets: list[:2]})
	for region, want := range map[string]string{"eu": "eu", "us": "us_", "mars": "world"} {
		t.Run(region, func(t *testing.T) {
			ctx := inRegion(t.Context(), region)
			text, err := ask(ctx, r)
			require.NoError(t, err)
			assert.Equal(t, want, text)
			images, err := r.GenerateImages(ctx, &llm.ImageRequest{Model: "m"})
			require.NoError(t, err)
			assert.Equal(t, want, images.Data[0].URL)
			_, err = r.Embed(ctx, &llm.EmbeddingRequest{Model: "m"})
			require.NoError(t, err)
			n, err := r.CountTokens(ctx, newRequest("m"))
			require.NoError(t, err)
			assert.Equal(t, len(want), n)
			sizes, err := r.ImageSizes(ctx, "m")
			require.NoError(t, err)
			assert.Equal(t, []string{want}, sizes)
		})
	}

	// If no target is allowed, there is no such model.
	ctx := inRegion(t.Context(), "mars")
	_, errs := join.Collect(r.Chat(ctx, newRequest("hidden")))
	_, errCount := r.CountTokens(ctx, newRequest("hidden"))
	_, errSizes := r.ImageSizes(ctx, "hidden")
	_, errImages := r.GenerateImages(ctx, &llm.ImageRequest{Model: "hidden"})
	for _, err := range []error{errs, errCount, errSizes, errImages} {
		e := requireStatus(t, err, 404)
		assert.Equal(t, "The model `hidden` does not exist or you do not have access to it.", e.Message)
	}
	for _, s := range r.Status() {
		assert.Zero(t, s.InFlight)
	}
}

// Allow gets what is known of a request.
func TestAllow_Request(t *testing.T) {
	var got []route.Request
	list := targets(newMultimodal("a", nil))
	list[0].Model = "internal"
	list[0].Allow = func(_ context.Context, req route.Request) bool {
		got = append(got, req)
		return true
	}
	r := newRouter(t, nil, route.Route{Model: "m", Targets: list})
	chat, images, embeddings := newRequest("m"), &llm.ImageRequest{Model: "m"}, &llm.EmbeddingRequest{Model: "m"}
	join.Collect(r.Chat(t.Context(), chat))
	r.GenerateImages(t.Context(), images)
	r.Embed(t.Context(), embeddings)
	r.ImageSizes(t.Context(), "m")
	r.CountTokens(t.Context(), chat)
	r.ListModels(t.Context())
	assert.Equal(t, []route.Request{
		{Operation: llmhttp.OperationChat, Model: "m", Body: chat},
		{Operation: llmhttp.OperationImages, Model: "m", Body: images},
		{Operation: llmhttp.OperationEmbeddings, Model: "m", Body: embeddings},
		{Operation: llmhttp.OperationImages, Model: "m"},
		{Operation: llmhttp.OperationChat, Model: "m", Body: chat},
		{Model: "m"},
	}, got)
}

func TestAllow_ModelLists(t *testing.T) {
	eu, us, world := newSingleModel("eu", "m", "m-eu"), newSingleModel("us", "m", "m-us"), newSingleModel("world", "m")
	list := regional(eu, us, world)
	r := newRouter(t, nil,
		route.Route{Model: "fixed", Targets: list[:1]},
		route.Route{Model: "*", Strategy: route.InOrder, Targets: list})
	for region, want := range map[string][]string{
		"eu": {"fixed", "m", "m-eu"}, "us": {"m", "m-us"}, "mars": {"m"},
	} {
		models, err := r.ListModels(inRegion(t.Context(), region))
		require.NoError(t, err)
		var ids []string
		for _, m := range models {
			ids = append(ids, m.ID)
		}
		assert.Equal(t, want, ids, region)
	}

	// That a target which is not allowed lists a model does not keep it from the others.
	for region, want := range map[string]string{"eu": "eu", "us": "us"} {
		ctx := inRegion(t.Context(), region)
		resp, err := join.Collect(r.Chat(ctx, newRequest("m-eu")))
		require.NoError(t, err)
		assert.Equal(t, want, resp.Choices[0].Message.Content.Text())
	}
}

// A breaker opens only if another target is left for the same request.
func TestAllow_Breakers(t *testing.T) {
	failing := newFake(failStatus(500))
	r := newRouter(t, &route.Options{Failures: 1, Rounds: 1, OpenFor: time.Hour},
		route.Route{Model: "m", Strategy: route.InOrder, Targets: regional(failing, newFake(say("us")), failing)[:2]})
	for range 3 {
		_, err := ask(inRegion(t.Context(), "eu"), r)
		requireStatus(t, err, 500)
	}
	assert.Equal(t, route.StateClosed, r.Status()[0].State)
	assert.Equal(t, int64(3), failing.calls.Load())
}
