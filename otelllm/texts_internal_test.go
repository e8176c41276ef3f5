package otelllm

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/internal/texttest"
	"github.com/llmhttp/llmhttp/llm"
)

// Every text of a message is in its parts, but for the data of media, signatures and details
// of reasoning. A new text fails until newMessage knows it.
func TestNewMessage_EveryText(t *testing.T) {
	const marker = "marker-of-a-text"
	for _, path := range texttest.Paths[llm.Message]() {
		m := texttest.With[llm.Message](path, marker)
		switch {
		case strings.HasPrefix(path, ".ReasoningDetails"), strings.HasSuffix(path, "].Type"),
			strings.HasPrefix(path, ".Content") && path != ".Content[0].Text":
			continue
		case path == ".ToolCallID":
			m.Role = llm.RoleTool
		case path == ".Content[0].Text":
			m.Content[0].Type = llm.PartText
		}
		b, err := json.Marshal(newMessage(m))
		require.NoError(t, err)
		assert.Contains(t, string(b), marker, path)
	}
}
