package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/examples/agenttest"
	"github.com/llmhttp/llmhttp/llmfake"
)

func TestAgent(t *testing.T) {
	agenttest.Run(t, func(t *testing.T, model *llmfake.Server) llmhttp.Backend {
		a, err := newAgent(t.Context(), model.OpenAIURL(), "test")
		require.NoError(t, err)
		return a
	})
}
