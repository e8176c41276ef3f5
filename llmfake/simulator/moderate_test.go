package simulator_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmfake/simulator"
	"github.com/llmhttp/llmhttp/moderation"
)

func TestModerate(t *testing.T) {
	moderate := func(input string) *moderation.Response {
		req := new(moderation.Request)
		require.NoError(t, json.Unmarshal([]byte(`{"model":"demo-moderation","input":`+input+`}`), req))
		resp, err := simulator.New().Moderate(t.Context(), req)
		require.NoError(t, err)
		require.NoError(t, req.CheckReply(resp))
		return resp
	}
	resp := moderate(`["Hello, Ada!","I HATE that.","Graphic violence"]`)
	assert.False(t, resp.Results[0].Flagged)
	assert.True(t, resp.Results[1].Flagged)
	assert.True(t, resp.Results[1].Categories["hate"])
	assert.False(t, resp.Results[1].Categories["hate/threatening"])
	assert.True(t, resp.Results[2].Categories["violence/graphic"])
	assert.Greater(t, resp.Results[1].Scores["hate"], resp.Results[0].Scores["hate"])
	assert.Len(t, resp.Results[0].Categories, 13)
	assert.Equal(t, []string{"text"}, resp.Results[0].InputTypes["sexual/minors"])
	assert.Equal(t, 2+3+2, resp.Usage.PromptTokens)

	resp = moderate(`[{"type":"text","text":"I hate"},{"type":"text","text":" that."},{"type":"image_url","image_url":{"url":"https://images.test/1"}}]`)
	assert.True(t, resp.Results[0].Flagged)
	assert.Equal(t, []string{"text", "image"}, resp.Results[0].InputTypes["hate"])

	_, err := simulator.New().Moderate(t.Context(), &moderation.Request{Model: "other"})
	assert.Equal(t, llm.ModelNotFound("other"), err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = simulator.New().Moderate(ctx, &moderation.Request{Model: simulator.ModelModeration})
	assert.ErrorIs(t, err, context.Canceled)
}
