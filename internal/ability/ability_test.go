package ability_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/completion"
	"github.com/llmhttp/llmhttp/internal/ability"
	"github.com/llmhttp/llmhttp/internal/modeltest"
	"github.com/llmhttp/llmhttp/llm"
)

// A wrapper lets pass what it does not have.
type wrapper struct{ llmhttp.Backend }

func (w wrapper) Unwrap(context.Context) llmhttp.Backend { return w.Backend }

// A method is found behind wrappers, and the error for a Backend without it names the interface.
func TestAbility(t *testing.T) {
	sizes := ability.Call(llmhttp.ImageSizer.ImageSizes)
	complete := ability.Stream(completion.Completer.Complete)
	b := wrapper{modeltest.New()}
	found, err := sizes(t.Context(), b, modeltest.Image)
	require.NoError(t, err)
	assert.NotEmpty(t, found)
	models, err := ability.ListModels(t.Context(), b)
	require.NoError(t, err)
	assert.NotEmpty(t, models)
	for _, err := range complete(t.Context(), b, &completion.Request{Model: modeltest.Finish, Prompt: completion.Prompt{Texts: []string{"a"}}}) {
		require.NoError(t, err)
	}

	alone := llmhttp.ChatOnly(b)
	_, sizeErr := sizes(t.Context(), alone, modeltest.Image)
	_, listErr := ability.ListModels(t.Context(), alone)
	var streamErr error
	complete(t.Context(), alone, new(completion.Request))(func(c *llm.ChatChunk, err error) bool {
		assert.Nil(t, c)
		streamErr = err
		return true
	})
	for name, err := range map[string]error{"llmhttp.ImageSizer": sizeErr, "llmhttp.ModelLister": listErr, "completion.Completer": streamErr} {
		require.Error(t, err)
		assert.True(t, errors.Is(err, errors.ErrUnsupported))
		assert.ErrorContains(t, err, "llmhttp: the Backend is no "+name)
	}
}
