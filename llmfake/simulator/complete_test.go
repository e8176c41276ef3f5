package simulator_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/completion"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/llmhttp/llmhttp/llmfake/simulator"
)

func TestComplete(t *testing.T) {
	complete := func(members string) *llm.ChatResponse {
		req := new(completion.Request)
		require.NoError(t, json.Unmarshal([]byte(`{"model":"demo-complete",`+members+`}`), req))
		require.NoError(t, req.Validate())
		resp, err := join.Collect(simulator.New().Complete(t.Context(), req))
		require.NoError(t, err)
		return resp
	}
	for members, want := range map[string][]string{
		`"prompt":"one two"`:                                   {" one two"},
		`"prompt":["one two","three"],"n":2`:                   {" one two", " one two", " three", " three"},
		`"prompt":[[1,2],[3]]`:                                 {" 1 2", " 3"},
		`"prompt":"one two","echo":true`:                       {"one two one two"},
		`"prompt":"one two","echo":true,"max_tokens":0`:        {"one two"},
		`"prompt":"one two three","suffix":" three"`:           {" one two"},
		`"prompt":"one two three","stop":" two"`:               {" one"},
		`"prompt":"one two three","max_tokens":1`:              {" one"},
		`"prompt":"1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17"`: {" 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16"},
		`"prompt":""`: {" "},
	} {
		var texts []string
		for _, c := range complete(members).Choices {
			texts = append(texts, c.Message.Content.Text())
		}
		assert.Equal(t, want, texts, members)
	}
	resp := complete(`"prompt":["one two","three"],"n":2,"max_tokens":1,"echo":true,"logprobs":1,"suffix":"x y"`)
	assert.Equal(t, llm.FinishLength, resp.Choices[0].FinishReason)
	assert.Equal(t, &llm.Usage{PromptTokens: 3 + 4, CompletionTokens: 4, TotalTokens: 11}, resp.Usage)
	assert.JSONEq(t, `{"tokens":["one"," two"," one"],"token_logprobs":[0,0,0],"top_logprobs":[{"one":0},{" two":0},{" one":0}],"text_offset":[0,3,7]}`, string(resp.Choices[0].Extra["logprobs"]))
	assert.JSONEq(t, `{"tokens":[" one"],"token_logprobs":[0],"top_logprobs":null,"text_offset":[0]}`, string(complete(`"prompt":"one","logprobs":0`).Choices[0].Extra["logprobs"]))
	assert.Equal(t, " two", complete(`"prompt":"one two three","stop":" two"`).Choices[0].StopSequence)

	_, err := join.Collect(simulator.New().Complete(t.Context(), &completion.Request{Model: "other"}))
	assert.Equal(t, llm.ModelNotFound("other"), err)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("gone"))
	_, err = join.Collect(simulator.New().Complete(ctx, &completion.Request{Model: simulator.ModelComplete, Prompt: completion.Prompt{Texts: []string{"a"}}}))
	assert.EqualError(t, err, "gone")
}
