package route_test

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
)

// A target that changes its request does not change the request of the next target.
func TestChat_EachTryGetsACopy(t *testing.T) {
	newFullRequest := func() *llm.ChatRequest {
		number, n := 0.5, 2
		extra := func() llm.Extra { return llm.Extra{"x": json.RawMessage(`1`)} }
		return &llm.ChatRequest{
			Model: "m", Temperature: &number, TopP: &number, PresencePenalty: &number, FrequencyPenalty: &number,
			MaxTokens: &n, MaxCompletionTokens: &n, N: &n, Stop: llm.StringList{"a"},
			StreamOptions:  &llm.StreamOptions{Extra: extra()},
			ResponseFormat: &llm.ResponseFormat{Type: "text", JSONSchema: &llm.JSONSchema{Name: "n", Extra: extra()}, Extra: extra()},
			ToolChoice: &llm.ToolChoice{Mode: "auto", AllowedTools: &llm.AllowedTools{
				Tools: []llm.AllowedTool{{Type: "function", Function: &llm.NamedTool{Name: "f", Extra: extra()}}},
			}},
			Tools: []llm.Tool{{Type: "function", Function: &llm.Function{Name: "f", Extra: extra()}, Extra: extra()}, {Type: "x"}},
			Messages: []llm.Message{{
				Role: llm.RoleUser, Extra: extra(),
				Content: llm.Content{{Type: llm.PartText, Text: "a", Extra: extra()},
					{Type: llm.PartImage, ImageURL: &llm.ImageURL{URL: "u", Extra: extra()}}},
				ToolCalls: []llm.ToolCall{{ID: "1", Extra: extra(), Function: llm.FunctionCall{Name: "f", Extra: extra()}}},
			}},
			Extra: extra(),
		}
	}
	tries := 0
	mutating := llmhttp.BackendFunc(func(_ context.Context, r *llm.ChatRequest) llm.ChatStream {
		tries++
		assert.Equal(t, newFullRequest(), r)
		r.Model = "mutating"
		for _, p := range []*float64{r.Temperature, r.TopP, r.PresencePenalty, r.FrequencyPenalty} {
			*p = 0
		}
		for _, p := range []*int{r.MaxTokens, r.MaxCompletionTokens, r.N} {
			*p = 0
		}
		m := &r.Messages[0]
		r.Stop[0], r.StreamOptions.IncludeUsage, r.ResponseFormat.Type = "", true, ""
		r.Tools[0].Function.Name, r.Tools[1].Type = "", ""
		r.ResponseFormat.JSONSchema.Name, r.ToolChoice.Mode, r.ToolChoice.AllowedTools.Tools[0].Type = "", "", ""
		m.Role, m.Content[0].Text, m.Content[1].ImageURL.URL, m.ToolCalls[0].ID = "", "", "", ""
		for _, e := range []llm.Extra{r.Extra, r.StreamOptions.Extra, r.ResponseFormat.Extra, r.ResponseFormat.JSONSchema.Extra,
			r.ToolChoice.AllowedTools.Tools[0].Function.Extra, r.Tools[0].Extra, r.Tools[0].Function.Extra,
			m.Extra, m.Content[0].Extra, m.Content[1].ImageURL.Extra, m.ToolCalls[0].Extra, m.ToolCalls[0].Function.Extra} {
			delete(e, "x")
		}
		return llm.Fail(errDial)
	})
	synctest.Test(t, func(t *testing.T) {
		_, err := join.Collect(newInOrderRouter(t, nil, mutating, mutating).Chat(t.Context(), newFullRequest()))
		assert.ErrorIs(t, err, errDial)
		assert.Equal(t, 4, tries)
	})
}
