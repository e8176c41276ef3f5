package main

import (
	"testing"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/examples/agenttest"
	"github.com/llmhttp/llmhttp/llmfake"
)

func TestAgent(t *testing.T) {
	agenttest.Run(t, func(_ *testing.T, model *llmfake.Server) llmhttp.Backend { return newAgent(model.OpenAIURL(), "test") })
}
