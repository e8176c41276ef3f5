// Package classifytest tests Backends for package classify.
package classifytest

import (
	"testing"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/examples/ownendpoint/classify"
)

// Test tests whether a Backend is a [classify.Classifier] of a model.
func Test(t *testing.T, b llmhttp.Backend, model string) {
	t.Helper()
	classifier, ok := llmhttp.As[classify.Classifier](t.Context(), b)
	if !ok {
		t.Fatalf("a %T is no Classifier", b)
	}
	scores := make(map[string]float64)
	req := &classify.Request{Model: model, Text: "Rain, rain, go away!", Labels: []string{"rain", "sun"}}
	for s, err := range classifier.Classify(t.Context(), req) {
		if err != nil || s == nil || s.Score < 0 || s.Score > 1 {
			t.Fatalf("got the score %+v and the error %v, want scores from 0 to 1", s, err)
		}
		scores[s.Label] = s.Score
	}
	if _, hasSun := scores["sun"]; len(scores) != 2 || !hasSun || scores["rain"] <= scores["sun"] {
		t.Errorf("got the scores %v, want one for each label, and more for rain", scores)
	}
	for range classifier.Classify(t.Context(), req) {
		break // it must not go on then
	}
}
