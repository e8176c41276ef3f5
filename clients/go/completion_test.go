package clients

import (
	"errors"
	"io"
	"testing"

	openaigo "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	goopenai "github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOpenAICompletions(t *testing.T) {
	t.Parallel()
	client := newOpenAIClient(start(t))
	whole, err := client.Completions.New(testContext(t), openaigo.CompletionNewParams{
		Model: "demo-complete", Prompt: openaigo.CompletionNewParamsPromptUnion{OfArrayOfStrings: []string{"one two", "three"}},
		Echo: param.NewOpt(true), Logprobs: param.NewOpt[int64](1), MaxTokens: param.NewOpt[int64](1),
	})
	require.NoError(t, err)
	assert.Regexp(t, "^cmpl-", whole.ID)
	require.Len(t, whole.Choices, 2)
	assert.Equal(t, "one two one", whole.Choices[0].Text)
	assert.EqualValues(t, "length", whole.Choices[0].FinishReason)
	assert.Equal(t, []string{"one", " two", " one"}, whole.Choices[0].Logprobs.Tokens)
	assert.Equal(t, []int64{0, 3, 7}, whole.Choices[0].Logprobs.TextOffset)
	assert.EqualValues(t, 2, whole.Usage.CompletionTokens)

	stream := client.Completions.NewStreaming(testContext(t), openaigo.CompletionNewParams{
		Model: "demo-complete", Prompt: openaigo.CompletionNewParamsPromptUnion{OfString: param.NewOpt("a b c")}, Suffix: param.NewOpt(" c"),
		StreamOptions: openaigo.ChatCompletionStreamOptionsParam{IncludeUsage: param.NewOpt(true)},
	})
	text, tokens := "", int64(0)
	for stream.Next() {
		chunk := stream.Current()
		for _, c := range chunk.Choices {
			text += c.Text
		}
		tokens += chunk.Usage.CompletionTokens
	}
	require.NoError(t, stream.Err())
	assert.Equal(t, " a b", text)
	assert.EqualValues(t, 2, tokens)

	_, err = client.Completions.New(testContext(t), openaigo.CompletionNewParams{Model: "demo-complete", Prompt: openaigo.CompletionNewParamsPromptUnion{OfArrayOfStrings: []string{}}})
	var apiErr *openaigo.Error
	require.ErrorAs(t, err, &apiErr)
	assert.Equal(t, 400, apiErr.StatusCode)
	assert.Equal(t, "prompt", apiErr.Param)
}

func TestGoOpenAICompletions(t *testing.T) {
	t.Parallel()
	client := newGoOpenAIClient(start(t), key)
	whole, err := client.CreateCompletion(testContext(t), goopenai.CompletionRequest{Model: "demo-complete", Prompt: "one two", N: 2})
	require.NoError(t, err)
	require.Len(t, whole.Choices, 2)
	assert.Equal(t, " one two", whole.Choices[1].Text)
	stream, err := client.CreateCompletionStream(testContext(t), goopenai.CompletionRequest{Model: "demo-complete", Prompt: []string{"one two"}})
	require.NoError(t, err)
	defer stream.Close()
	text := ""
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		text += chunk.Choices[0].Text
	}
	assert.Equal(t, " one two", text)
}
