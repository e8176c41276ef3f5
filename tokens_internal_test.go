package llmhttp

import (
	"reflect"
	"testing"

	"github.com/llmhttp/llmhttp/internal/images"
	"github.com/llmhttp/llmhttp/internal/texttest"
	"github.com/llmhttp/llmhttp/internal/tokens"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/stretchr/testify/assert"
)

// Every text of a request counts, wherever it is. A new field counts nothing until the estimate of its
// operation knows it, and fails this test.
func TestTokens_EveryTextCounts(t *testing.T) {
	for name, count := range map[string]func(model, text string) int{
		"by length":   nil,
		"CountTokens": func(_, text string) int { return len(text) / 4 },
	} {
		c := tokens.Estimator{Count: count}
		var embedding llm.EmbeddingRequest
		var image llm.ImageRequest
		for kind, tt := range map[string]struct {
			value any
			count func() int
		}{
			"embeddings": {&embedding, func() int { return countInput(c, &embedding) }},
			"images":     {&image, func() int { return images.CountTokens(c, &image) }},
		} {
			texts := 0
			texttest.EachLong(t, reflect.ValueOf(tt.value).Elem(), kind, func(path string) {
				texts++
				assert.GreaterOrEqual(t, tt.count(), len(texttest.Long)/5, "%s, %s", path, name)
			})
			assert.Greater(t, texts, 5, "%s", kind)
		}
	}
}
