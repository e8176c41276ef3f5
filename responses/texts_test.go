package responses_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/internal/texttest"
	"github.com/llmhttp/llmhttp/llm"
)

// Every text that a Delta can have reaches the client, unless the API has no member for it. A
// new text fails until the encoder knows it.
func TestCreate_EveryTextOfADelta(t *testing.T) {
	const marker = "marker-of-a-text"
	for _, path := range texttest.Paths[llm.Delta]() {
		switch path[strings.LastIndex(path, ".")+1:] {
		case "Role", "Type": // constants in this API
			continue
		case "Signature", "Data": // in encrypted_content
			continue
		}
		d := texttest.With[llm.Delta](path, marker)
		for i := range d.ToolCalls {
			d.ToolCalls[i].Type = "function"
		}
		chunk, err := json.Marshal(llm.ChatChunk{Choices: []llm.ChunkChoice{{Delta: *d}}})
		require.NoError(t, err)
		s := newServer(t, nil, string(chunk))
		const body = `{"model":"m","input":"Hi"}`
		assert.Contains(t, fmt.Sprint(s.create(body)), marker, "%s, whole", path)
		assert.Contains(t, fmt.Sprint(s.stream(body)), marker, "%s, stream", path)
	}
}
