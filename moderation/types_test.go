package moderation_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/internal/codectest"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/moderation"
)

var (
	_ = codectest.MakesConsistent(func(in *moderation.Input) { in.Parts = nil })
	_ = codectest.MakesConsistent(func(r *moderation.Response) {
		r.Usage.CompletionTokens, r.Usage.CompletionTokensDetails = 0, llm.CompletionTokensDetails{}
	})
)

var jsonSuite = codectest.Suite{
	Types: map[string]func() any{
		"Request":  func() any { return new(moderation.Request) },
		"Input":    func() any { return new(moderation.Input) },
		"Response": func() any { return new(moderation.Response) },
		"Result":   func() any { return new(moderation.Result) },
	},
	NotObjects: []string{"Input"},
	Documents: []codectest.Document{
		{"Request", `{"model":"m","input":["a",""],"user":"u"}`},
		{"Request", `{"model":"m","input":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"u"}}]}`},
		{"Input", `"a"`}, {"Input", `["a","b"]`}, {"Input", `[]`}, {"Input", `[{"type":"text","text":"a","x":1}]`},
		{"Response", `{"id":"i","model":"m","results":[{"flagged":true,"categories":{"hate":true,"violence/graphic":false},"category_scores":{"hate":0.9,"violence/graphic":1e-9},"category_applied_input_types":{"hate":["text"],"violence/graphic":[]},"x":1}],"usage":{"prompt_tokens":1,"total_tokens":1},"y":2}`},
		{"Result", `{"flagged":false,"categories":{},"category_scores":{}}`},
	},
}

func TestJSON(t *testing.T) { jsonSuite.Test(t) }

func TestMembers_OtherCaseByType(t *testing.T) {
	assert.Greater(t, jsonSuite.OtherCase(t), 5)
}

// Servers leave out members, set them to null and add others.
func TestResult_OfServers(t *testing.T) {
	for doc, want := range map[string]moderation.Result{
		`{}`: {},
		`{"flagged":null,"categories":null,"category_scores":null,"category_applied_input_types":null}`: {},
		`{"categories":{"hate":true,"illicit":null,"x":"y"},"category_scores":{"hate":1,"illicit":null,"x":"y"}}`: {
			Categories: map[string]bool{"hate": true}, Scores: map[string]float64{"hate": 1}},
		`{"categories":[],"category_scores":5,"category_applied_input_types":{"hate":"text","sexual":["image"]}}`: {
			InputTypes: map[string][]string{"sexual": {"image"}}},
	} {
		got := moderation.Result{}
		require.NoError(t, json.Unmarshal([]byte(doc), &got), doc)
		assert.Equal(t, want, got, doc)
	}
}

func FuzzRequest(f *testing.F) {
	for _, d := range jsonSuite.Documents {
		f.Add([]byte(d.JSON))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, encoded, ok := codectest.RoundTrip[moderation.Request](t, data); ok {
			codectest.KeepsMembers(t, data, encoded)
			codectest.SameValue(t, r, encoded)
		}
	})
}

// What a Backend decodes leniently can be encoded.
func FuzzResponse(f *testing.F) {
	f.Add([]byte(`{"id":"i","model":"m","results":[{"index":0,"relevance_score":1,"flagged":true,"categories":{"hate":true,"x":null},"category_scores":{"hate":1e-9},"category_applied_input_types":{"hate":["text"]},"x":1}],"y":1}`))
	f.Fuzz(func(t *testing.T, data []byte) { codectest.RoundTripReply[moderation.Response](t, data) })
}
