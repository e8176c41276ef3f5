package memory_test

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/llmhttp/llmhttp/memory"
)

// newRequest decodes a request for the chat model with the given members.
func newRequest(t testing.TB, members string) *llm.ChatRequest {
	t.Helper()
	req := &llm.ChatRequest{Model: memory.ModelChat}
	require.NoError(t, json.Unmarshal([]byte(`{"model":"demo-chat",`+members+`}`), req))
	return req
}

func TestEcho(t *testing.T) {
	hello := `"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hello, wide \n world!"}]`
	for name, test := range map[string]struct {
		members            string
		want, stop         string
		finish             llm.FinishReason
		choices            int
		prompt, completion int
	}{
		"text":              {hello, "Hello, wide \n world!", "", llm.FinishStop, 1, 5, 3},
		"greeting":          {`"messages":[{"role":"system","content":"Be brief."}]`, "Hello! How can I help you today?", "", llm.FinishStop, 1, 2, 7},
		"last user message": {`"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c d"},{"role":"user","content":[]}]`, "c d", "", llm.FinishStop, 1, 4, 2},
		"token limit":       {hello + `,"max_tokens":2`, "Hello, wide", "", llm.FinishLength, 1, 5, 2},
		"exact token limit": {hello + `,"max_tokens":3`, "Hello, wide \n world!", "", llm.FinishStop, 1, 5, 3},
		"stop":              {hello + `,"stop":["world","wide"]`, "Hello, ", "wide", llm.FinishStop, 1, 5, 2},
		"stop at once":      {hello + `,"stop":"Hello"`, "", "Hello", llm.FinishStop, 1, 5, 0},
		"empty stop":        {hello + `,"stop":["","wide"]`, "Hello, ", "wide", llm.FinishStop, 1, 5, 2},
		"choices":           {hello + `,"n":2`, "Hello, wide \n world!", "", llm.FinishStop, 2, 5, 6},
	} {
		t.Run(name, func(t *testing.T) {
			resp, err := join.Collect(memory.Echo().Chat(t.Context(), newRequest(t, test.members)))
			require.NoError(t, err)
			require.Len(t, resp.Choices, test.choices)
			for _, c := range resp.Choices {
				assert.Equal(t, test.want, c.Message.Content.Text())
				assert.Equal(t, test.finish, c.FinishReason)
				assert.Equal(t, test.stop, c.StopSequence)
			}
			assert.Equal(t, &llm.Usage{
				PromptTokens: test.prompt, CompletionTokens: test.completion, TotalTokens: test.prompt + test.completion,
			}, resp.Usage)
		})
	}
}

func TestEcho_Models(t *testing.T) {
	models, err := memory.Echo().ListModels(t.Context())
	require.NoError(t, err)
	require.Len(t, models, 1)
	assert.Equal(t, memory.ModelChat, models[0].ID)
	req := newRequest(t, `"messages":[{"role":"user","content":"a"}]`)
	req.Model = "other"
	_, err = join.Collect(memory.Echo().Chat(t.Context(), req))
	assert.Equal(t, llm.ModelNotFound("other"), err)
}

func TestEcho_Delay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		b := &memory.Backend{Delay: time.Second}
		_, err := join.Collect(b.Chat(t.Context(), newRequest(t, `"messages":[{"role":"user","content":"a b"}]`)))
		require.NoError(t, err)
		assert.Equal(t, 3*time.Second, time.Since(began))
	})
}
