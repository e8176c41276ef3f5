package clients

import (
	"testing"

	openaigo "github.com/openai/openai-go/v3"
	goopenai "github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOpenAIModerations(t *testing.T) {
	t.Parallel()
	client := newOpenAIClient(start(t))
	ask := func(model string, input openaigo.ModerationNewParamsInputUnion) (*openaigo.ModerationNewResponse, error) {
		return client.Moderations.New(testContext(t), openaigo.ModerationNewParams{Model: model, Input: input})
	}
	reply, err := ask("demo-moderation", openaigo.ModerationNewParamsInputUnion{OfStringArray: []string{"Hello, Ada!", "I hate that."}})
	require.NoError(t, err)
	assert.Regexp(t, "^modr-", reply.ID)
	assert.Equal(t, "demo-moderation", reply.Model)
	require.Len(t, reply.Results, 2)
	assert.False(t, reply.Results[0].Flagged)
	assert.True(t, reply.Results[1].Flagged)
	assert.True(t, reply.Results[1].Categories.Hate)
	assert.False(t, reply.Results[1].Categories.SexualMinors)
	assert.Greater(t, reply.Results[1].CategoryScores.Hate, reply.Results[1].CategoryScores.SelfHarmIntent)
	assert.Equal(t, []string{"text"}, reply.Results[1].CategoryAppliedInputTypes.Hate)

	reply, err = ask("demo-moderation", openaigo.ModerationNewParamsInputUnion{OfModerationMultiModalArray: []openaigo.ModerationMultiModalInputUnionParam{
		openaigo.ModerationMultiModalInputParamOfText("graphic violence"),
		openaigo.ModerationMultiModalInputParamOfImageURL(openaigo.ModerationImageURLInputImageURLParam{URL: "data:image/png;base64,iVBORw0KGgo="}),
	}})
	require.NoError(t, err)
	require.Len(t, reply.Results, 1)
	assert.True(t, reply.Results[0].Categories.ViolenceGraphic)
	assert.Equal(t, []string{"text", "image"}, reply.Results[0].CategoryAppliedInputTypes.ViolenceGraphic)

	_, err = ask("no-such", openaigo.ModerationNewParamsInputUnion{OfStringArray: []string{"a"}})
	var apiErr *openaigo.Error
	require.ErrorAs(t, err, &apiErr)
	assert.Equal(t, 404, apiErr.StatusCode)
	assert.Equal(t, "model_not_found", apiErr.Code)
}

func TestGoOpenAIModerations(t *testing.T) {
	t.Parallel()
	client := newGoOpenAIClient(start(t), key)
	_, err := client.Moderations(testContext(t), goopenai.ModerationRequest{Input: "I hate that."})
	var apiErr *goopenai.APIError
	require.ErrorAs(t, err, &apiErr, "the client sends no model, for which it is omni-moderation-latest")
	assert.Equal(t, 404, apiErr.HTTPStatusCode)
}
