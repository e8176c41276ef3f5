package texts_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/llmhttp/llmhttp/internal/texts"
	"github.com/llmhttp/llmhttp/internal/texttest"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/stretchr/testify/assert"
)

// A new text is reached by the walks, or this test fails. A text in an Extra is reached with it.
func TestTexts_WalksAreComplete(t *testing.T) {
	for name, w := range map[string]any{"delta": new(llm.Delta), "message": new(llm.Message)} {
		texttest.EachLong(t, reflect.ValueOf(w).Elem(), name, func(path string) {
			visits := 0
			texttest.Walk(w, func(_ texts.Kind, s *string) {
				if *s == texttest.Long {
					visits++
				}
			}, func(_ texts.Kind, e llm.Extra) { visits += len(e) })
			assert.Equal(t, 1, visits, "%s", path)
		})
	}
}

// A delta's texts that come in pieces are those that the methods texts return.
func TestTexts_InPieces(t *testing.T) {
	for _, path := range texttest.Paths[llm.Delta]() {
		d := texttest.With[llm.Delta](path, "x")
		texts.Truncate(d, 0)
		assert.Equal(t, texttest.IsInPieces(texttest.KindAt(t, texttest.With[llm.Delta](path, "x"), path)), texttest.At(d, path) == "", "%s", path)
	}
}

// The tests above see every string that a Delta and a Message have.
func TestTexts_ReflectionFinds(t *testing.T) {
	for _, path := range []string{".Content", ".Role", ".ToolCalls[0].Function.Arguments", ".ReasoningDetails[0].Data"} {
		assert.True(t, slices.Contains(texttest.Paths[llm.Delta](), path), path)
	}
	assert.Contains(t, texttest.Paths[llm.Message](), ".Content[0].ImageURL.URL")
}
