package llmhttp_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
)

// Extra cannot duplicate or replace a member that its type declares.
func TestExtra_DoesNotOverride(t *testing.T) {
	all := llmhttp.Extra{}
	for _, name := range []string{"id", "object", "created", "model", "choices", "usage", "error", "role", "content", "type", "text", "function", "index", "delta", "finish_reason", "message", "name", "arguments", "prompt_tokens", "url", "data", "tool_calls"} {
		all[name] = json.RawMessage(`"extra"`)
	}
	for _, v := range []any{
		llmhttp.ChatRequest{Extra: all},
		llmhttp.Message{Extra: all},
		llmhttp.Part{Type: "text", Extra: all},
		llmhttp.Tool{Function: &llmhttp.Function{Extra: all}, Extra: all},
		llmhttp.ToolCall{Function: llmhttp.FunctionCall{Extra: all}, Extra: all},
		llmhttp.ChatResponse{Choices: []llmhttp.Choice{{Extra: all}}, Extra: all},
		llmhttp.ChatChunk{Choices: []llmhttp.ChunkChoice{{Delta: llmhttp.Delta{Extra: all}, Extra: all}}, Extra: all, Usage: &llmhttp.Usage{Extra: all}},
		llmhttp.Model{Extra: all},
		llmhttp.ImageResponse{Data: []llmhttp.Image{{URL: "u", Extra: all}}, Extra: all},
		llmhttp.EmbeddingResponse{Extra: all},
	} {
		doc := encode(t, v)
		again := reflect.New(reflect.TypeOf(v)).Interface()
		assert.NoError(t, json.Unmarshal([]byte(doc), again), "%s", doc) // refuses duplicate names
	}
}

func TestExtra_InvalidJSONIsNotEncoded(t *testing.T) {
	_, err := json.Marshal(llmhttp.Model{Extra: llmhttp.Extra{"x": json.RawMessage(`{"a":1,"a":2}`)}})
	assert.Error(t, err)
}

// Names in Extra that differ only in invalid UTF-8 are not encoded as duplicates.
func TestExtra_NamesWithInvalidBytes(t *testing.T) {
	b, err := llmhttp.Model{Extra: llmhttp.Extra{"a\xff": json.RawMessage("1"), "a\xfe": json.RawMessage("2")}}.MarshalJSON()
	if err == nil { // an error is good too
		require.NoError(t, new(llmhttp.Model).UnmarshalJSON(b), "%s", b)
	}
}
