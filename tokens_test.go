package llmhttp_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
)

// Estimates of the tokens of prompts and replies include the text of unknown members.
func TestTokens_EstimateCountsExtra(t *testing.T) {
	long, _ := json.Marshal(strings.Repeat("word", 1000))
	s := startServer(t, config{backend: chunkBackend(func() []*llmhttp.ChatChunk {
		return []*llmhttp.ChatChunk{{Choices: []llmhttp.ChunkChoice{{Delta: llmhttp.Delta{Extra: llmhttp.Extra{"thinking": long}}}}}}
	})})
	require.Equal(t, 200, s.chat(chatBody).StatusCode)
	assert.InDelta(t, 1000, s.record().Usage.CompletionTokens, 100)
	for _, body := range []string{
		chatWith(`"documents":["` + strings.Repeat("word", 1000) + `"]`),
		chatWith(`"response_format":{"type":"json_schema","json_schema":{"name":"x","description":"` + strings.Repeat("word", 1000) + `"}}`),
		strings.Replace(chatBody, `"role":"user"`, `"role":"user","thinking":"`+strings.Repeat("word", 1000)+`"`, 1),
	} {
		s := startServer(t, config{})
		require.Equal(t, 200, s.chat(body).StatusCode, body)
		assert.InDelta(t, 1000, s.record().Usage.PromptTokens, 100)
	}
}
