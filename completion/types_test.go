package completion_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp/completion"
	"github.com/llmhttp/llmhttp/internal/codectest"
)

var _ = codectest.MakesConsistent(func(p *completion.Prompt) { p.Tokens = nil })

var jsonSuite = codectest.Suite{
	Types: map[string]func() any{
		"Request": func() any { return new(completion.Request) },
		"Prompt":  func() any { return new(completion.Prompt) },
	},
	NotObjects: []string{"Prompt"},
	Documents: []codectest.Document{
		{"Request", `{"model":"m","prompt":"a","suffix":"b","stream":true,"stream_options":{"include_usage":true},"temperature":0.5,"top_p":1,"presence_penalty":1,"frequency_penalty":-1,"max_tokens":0,"n":2,"best_of":3,"logprobs":0,"echo":true,"stop":["x","y"],"seed":7,"user":"u"}`},
		{"Request", `{"model":"m","prompt":[[1,2],[3]]}`},
		{"Prompt", `""`}, {"Prompt", `["a",""]`}, {"Prompt", `[1,2]`}, {"Prompt", `[]`},
	},
}

func TestJSON(t *testing.T) { jsonSuite.Test(t) }

func TestMembers_OtherCaseByType(t *testing.T) {
	assert.Greater(t, jsonSuite.OtherCase(t), 10)
}

func FuzzRequest(f *testing.F) {
	for _, d := range jsonSuite.Documents {
		f.Add([]byte(d.JSON))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, encoded, ok := codectest.RoundTrip[completion.Request](t, data); ok {
			codectest.KeepsMembers(t, data, encoded)
			codectest.SameValue(t, r, encoded)
		}
	})
}
