package reply

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llm"
)

// The memory of a joiner is bounded, even if a server never sends low surrogates.
func TestSurrogateJoiner_IsBounded(t *testing.T) {
	var j surrogateJoiner
	for i := range 2 * maxHeld {
		data := fmt.Appendf(nil, `{"choices":[{"index":%d,"delta":{"content":"\ud83d"}}]}`, i)
		var chunk llm.ChatChunk
		require.NoError(t, chunk.UnmarshalJSON(data))
		j.join(&chunk, data)
		want := ""
		if i >= maxHeld {
			want = "\ufffd"
		}
		require.Equal(t, want, chunk.Choices[0].Delta.Content)
	}
	assert.Len(t, j.held, maxHeld)
}

func TestSplitHighSurrogate(t *testing.T) {
	for text, want := range map[string]string{
		``: ``, `a`: ``, `\ud83d`: `\ud83d`, `a\uDBFF`: `\uDBFF`, `\ude42`: ``, `\ud83`: ``, `\\ud83d`: ``, `\\\ud83d`: `\ud83d`, `\u0041`: ``,
	} {
		before, high := splitHighSurrogate([]byte(text))
		assert.Equal(t, want, string(high), "%q", text)
		assert.Equal(t, strings.TrimSuffix(text, want), string(before), "%q", text)
	}
}
