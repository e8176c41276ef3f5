package route_test

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
)

// A target that changes its request does not change the request of the next target.
func TestChat_EachTryGetsACopy(t *testing.T) {
	newFullRequest := func() *llmhttp.ChatRequest {
		number, n := 0.5, 2
		extra := func() llmhttp.Extra { return llmhttp.Extra{"x": json.RawMessage(`1`)} }
		return &llmhttp.ChatRequest{
			Model: "m", Temperature: &number, TopP: &number, PresencePenalty: &number, FrequencyPenalty: &number,
			MaxTokens: &n, MaxCompletionTokens: &n, N: &n, Stop: llmhttp.StringList{"a"},
			StreamOptions:  &llmhttp.StreamOptions{Extra: extra()},
			ResponseFormat: &llmhttp.ResponseFormat{Type: "text", JSONSchema: &llmhttp.JSONSchema{Name: "n", Extra: extra()}, Extra: extra()},
			ToolChoice: &llmhttp.ToolChoice{Mode: "auto", AllowedTools: &llmhttp.AllowedTools{
				Tools: []llmhttp.AllowedTool{{Type: "function", Function: &llmhttp.NamedTool{Name: "f", Extra: extra()}}},
			}},
			Tools: []llmhttp.Tool{{Type: "function", Function: &llmhttp.Function{Name: "f", Extra: extra()}, Extra: extra()}, {Type: "x"}},
			Messages: []llmhttp.Message{{
				Role: llmhttp.RoleUser, Extra: extra(),
				Content: llmhttp.Content{{Type: llmhttp.PartText, Text: "a", Extra: extra()},
					{Type: llmhttp.PartImage, ImageURL: &llmhttp.ImageURL{URL: "u", Extra: extra()}}},
				ToolCalls: []llmhttp.ToolCall{{ID: "1", Extra: extra(), Function: llmhttp.FunctionCall{Name: "f", Extra: extra()}}},
			}},
			Extra: extra(),
		}
	}
	tries := 0
	mutating := llmhttp.BackendFunc(func(_ context.Context, r *llmhttp.ChatRequest) llmhttp.ChatStream {
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
		for _, e := range []llmhttp.Extra{r.Extra, r.StreamOptions.Extra, r.ResponseFormat.Extra, r.ResponseFormat.JSONSchema.Extra,
			r.ToolChoice.AllowedTools.Tools[0].Function.Extra, r.Tools[0].Extra, r.Tools[0].Function.Extra,
			m.Extra, m.Content[0].Extra, m.Content[1].ImageURL.Extra, m.ToolCalls[0].Extra, m.ToolCalls[0].Function.Extra} {
			delete(e, "x")
		}
		return llmhttp.Fail(errDial)
	})
	synctest.Test(t, func(t *testing.T) {
		_, err := llmhttp.Collect(newInOrderRouter(t, nil, mutating, mutating).Chat(t.Context(), newFullRequest()))
		assert.ErrorIs(t, err, errDial)
		assert.Equal(t, 4, tries)
	})
}
