package reply

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/internal/texttest"
	"github.com/llmhttp/llmhttp/llm"
)

// Surrogates are joined in each text of a Delta that comes in pieces. A new text fails until the
// joiner knows it.
func TestSurrogateJoiner_EveryTextOfADelta(t *testing.T) {
	const marker = "marker-of-a-text"
	for _, path := range texttest.Paths[llm.Delta]() {
		switch field := path[strings.LastIndex(path, ".")+1:]; {
		case field == "Role", field == "ID", field == "Type", field == "Name":
			continue // come whole
		case strings.HasPrefix(path, ".ReasoningDetails"):
			continue // are not joined
		}
		delta, err := json.Marshal(texttest.With[llm.Delta](path, marker))
		require.NoError(t, err)
		require.Contains(t, string(delta), marker, path)
		var j surrogateJoiner
		text := ""
		for _, half := range []string{`\ud83d`, `\ude42`} {
			data := []byte(`{"choices":[{"index":0,"delta":` + strings.Replace(string(delta), marker, half, 1) + `}]}`)
			var chunk llm.ChatChunk
			require.NoError(t, chunk.UnmarshalJSON(data), path)
			j.join(&chunk, data)
			text += texttest.At(&chunk.Choices[0].Delta, path)
		}
		assert.Equal(t, "\U0001f642", text, path)
	}
}
