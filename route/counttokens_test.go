package route_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/route"
)

// A counter is a Backend that counts tokens, or fails with err.
type counter struct {
	llmhttp.Backend
	n    int
	err  error
	last string // the model that it was asked for
}

func (c *counter) CountTokens(_ context.Context, req *llm.ChatRequest) (int, error) {
	c.last = req.Model
	return c.n, c.err
}

func TestCountTokens(t *testing.T) {
	plain := newFake(say("x"))
	unsupported := &counter{err: fmt.Errorf("no: %w", errors.ErrUnsupported)}
	failing := &counter{err: llm.Errorf(502, "", "the model small fails")}
	counting := &counter{n: 42}
	for name, tt := range map[string]struct {
		backends []llmhttp.Backend
		want     int
		err      error
	}{
		"the first that can":        {[]llmhttp.Backend{plain, unsupported, counting, &counter{n: 7}}, 42, nil},
		"after a failure":           {[]llmhttp.Backend{failing, counting}, 42, nil},
		"none can":                  {[]llmhttp.Backend{plain, unsupported}, 0, errors.ErrUnsupported},
		"those who can have failed": {[]llmhttp.Backend{failing, plain}, 0, llm.Errorf(502, "", "the model m fails")},
	} {
		t.Run(name, func(t *testing.T) {
			list := targets(tt.backends...)
			for i := range list {
				list[i].Model = "small"
			}
			r := newRouter(t, nil, route.Route{Model: "m", Targets: list})
			req := newRequest("m")
			n, err := r.CountTokens(t.Context(), req)
			assert.Equal(t, tt.want, n)
			assert.Equal(t, "m", req.Model)
			if want, ok := errors.AsType[*llm.Error](tt.err); ok {
				got, ok := errors.AsType[*llm.Error](err)
				require.True(t, ok, "%v", err)
				assert.Equal(t, want.Message, got.Message)
				return
			}
			assert.ErrorIs(t, err, tt.err)
		})
	}
	assert.Equal(t, "small", counting.last)
	_, err := newRouter(t, nil, route.Route{Model: "m", Targets: targets(counting)}).CountTokens(t.Context(), newRequest("other"))
	requireStatus(t, err, 404)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = newRouter(t, nil, route.Route{Model: "m", Targets: targets(failing)}).CountTokens(ctx, newRequest("m"))
	assert.ErrorIs(t, err, context.Canceled)
}
