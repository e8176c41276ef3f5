package moderation

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp/internal/texttest"
	"github.com/llmhttp/llmhttp/internal/tokens"
)

// Every text of a request counts, wherever it is. A new field counts nothing until countTokens knows it,
// and fails this test.
func TestRequest_EveryTextCounts(t *testing.T) {
	for name, count := range map[string]func(model, text string) int{
		"by length":  nil,
		"TextTokens": func(_, text string) int { return len(text) / 4 },
	} {
		var req Request
		counted := 0
		texttest.EachLong(t, reflect.ValueOf(&req).Elem(), "moderations", func(path string) {
			counted++
			want := len(texttest.Long) / 5
			if path == "moderations.Input.Parts[0].ImageURL.URL" {
				want = len(texttest.Long) / 513 // it may contain an image
			}
			assert.GreaterOrEqual(t, req.countTokens(tokens.Estimator{Count: count}), want, "%s, %s", path, name)
		})
		assert.Greater(t, counted, 5)
	}
}
