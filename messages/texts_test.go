package messages_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp/internal/texttest"
	"github.com/llmhttp/llmhttp/llm"
)

// Every text that a Delta can have reaches the client, unless the API has no member for it. A
// new text fails until the encoder knows it.
func TestReplies_EveryTextOfADelta(t *testing.T) {
	const marker = "marker-of-a-text"
	for _, path := range texttest.Paths[llm.Delta]() {
		d := texttest.With[llm.Delta](path, marker)
		reply := func() llm.ChatStream {
			return func(yield func(*llm.ChatChunk, error) bool) {
				yield((&llm.ChatChunk{Choices: []llm.ChunkChoice{{Delta: *d}}}).Clone(), nil)
			}
		}
		switch field := path[strings.LastIndex(path, ".")+1:]; field {
		case "Role", "Type":
			continue // constants in this API
		default:
			for i := range d.ToolCalls {
				d.ToolCalls[i].Type = "function"
			}
			for i := range d.ReasoningDetails {
				d.ReasoningDetails[i].Type = map[string]string{"Summary": llm.ReasoningSummary, "Data": llm.ReasoningEncrypted}[field]
			}
		}
		for mode, members := range map[string]string{"whole": hi, "stream": hi + `,"stream":true`} {
			w := newServer(reply, nil).do("POST", messagesPath, requestBody(members))
			assert.Equal(t, 200, w.Code, "%s, %s: %s", path, mode, w.Body)
			assert.Contains(t, w.Body.String(), marker, "%s, %s", path, mode)
		}
	}
}
