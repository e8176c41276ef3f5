package simulator_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmfake/simulator"
	"github.com/llmhttp/llmhttp/rerank"
)

func TestRerank(t *testing.T) {
	req := new(rerank.Request)
	require.NoError(t, json.Unmarshal([]byte(`{"model":"demo-rerank","query":"How is the weather in Bergen?","documents":
		["A recipe for bread.","In Bergen the weather is rainy.",{"text":"How is the weather in Bergen?"},"",{"image":"https://images.test/1"}]}`), req))
	resp, err := simulator.New().Rerank(t.Context(), req)
	require.NoError(t, err)
	require.NoError(t, req.CheckReply(resp))
	scores := make([]float64, len(resp.Results))
	for _, r := range resp.Results {
		assert.GreaterOrEqual(t, r.Score, 0.0)
		scores[r.Index] = r.Score
	}
	assert.InDelta(t, 1, scores[2], 1e-6)
	assert.Greater(t, scores[2], scores[1])
	assert.Greater(t, scores[1], scores[0])
	assert.Greater(t, resp.Usage.PromptTokens, 5*simulator.CountTokens("", req.Query))
	assert.Equal(t, resp.Usage.PromptTokens, resp.Usage.TotalTokens)

	req.Model = "other"
	_, err = simulator.New().Rerank(t.Context(), req)
	assert.Equal(t, llm.ModelNotFound("other"), err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	req.Model = simulator.ModelRerank
	_, err = simulator.New().Rerank(ctx, req)
	assert.ErrorIs(t, err, context.Canceled)
}
