package main

import (
	"testing"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/examples/agenttest"
	"github.com/llmhttp/llmhttp/llmfake"
)

func TestAgent(t *testing.T) {
	agenttest.Run(t, func(t *testing.T, model *llmfake.Server) llmhttp.Backend {
		return newAgent(t.Context(), model.OpenAIURL(), "test", "m")
	})
}
