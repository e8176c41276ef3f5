package rerank_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/internal/codectest"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/rerank"
)

var (
	_ = codectest.MakesConsistent(func(d *rerank.Document) { d.Raw = nil })
	_ = codectest.MakesConsistent(func(r *rerank.Result) { r.Document = nil }) // is decoded with Raw, too
	_ = codectest.MakesConsistent(func(r *rerank.Response) {
		r.Usage.CompletionTokens, r.Usage.CompletionTokensDetails = 0, llm.CompletionTokensDetails{}
	})
)

var jsonSuite = codectest.Suite{
	Types: map[string]func() any{
		"Request":  func() any { return new(rerank.Request) },
		"Document": func() any { return new(rerank.Document) },
		"Response": func() any { return new(rerank.Response) },
		"Result":   func() any { return new(rerank.Result) },
	},
	NotObjects: []string{"Document"},
	Documents: []codectest.Document{
		{"Request", `{"model":"m","query":"q","documents":["a","",{"text":"b","x":[1]}],"top_n":2,"return_documents":true,"rank_fields":["x"]}`},
		{"Document", `"a"`}, {"Document", `{"text":"a"}`}, {"Document", `{"image":"u"}`},
		{"Response", `{"id":"i","object":"list","model":"m","results":[{"index":1,"relevance_score":0.5,"document":{"text":"b"},"x":1}],"usage":{"prompt_tokens":1,"total_tokens":1},"meta":{"api_version":{"version":"2"},"billed_units":{"search_units":3},"tokens":{"input_tokens":1}},"y":2}`},
		{"Response", `{"id":"","object":"list","model":"","results":[{"index":-1,"relevance_score":0.5},{"index":0,"relevance_score":null}],"meta":{"api_version":{"version":"2"},"billed_units":{"search_units":0},"tokens":{"input_tokens":0}}}`},
	},
}

func TestJSON(t *testing.T) { jsonSuite.Test(t) }

func TestMembers_OtherCaseByType(t *testing.T) {
	assert.Greater(t, jsonSuite.OtherCase(t), 10)
}

// withoutNumbers are replies with results that lack a number.
var withoutNumbers = []string{
	`{"results":[{"index":0}]}`,
	`{"results":[{"relevance_score":0.5}]}`,
	`{"results":[{"index":0,"relevance_score":null}]}`,
	`{"results":[{"index":null,"relevance_score":1}]}`,
	`{"results":[null]}`,
	`{"results":[{}]}`,
	`{"results":null}`,
	`{}`,
}

// A result that lacks a number, or that another server has set to null, is refused as one whose
// number is invalid. It can be encoded, and is refused after that too.
func TestResponse_WithoutNumbers(t *testing.T) {
	req := &rerank.Request{Documents: make([]rerank.Document, 1)}
	valid := new(rerank.Response)
	require.NoError(t, json.Unmarshal([]byte(`{"results":[{"index":0,"relevance_score":0}]}`), valid))
	require.NoError(t, req.CheckReply(valid))
	for _, doc := range withoutNumbers {
		resp, again := new(rerank.Response), new(rerank.Response)
		require.NoError(t, json.Unmarshal([]byte(doc), resp))
		require.Error(t, req.CheckReply(resp), doc)
		encoded, err := json.Marshal(resp)
		require.NoError(t, err, doc)
		require.NoError(t, json.Unmarshal(encoded, again))
		assert.Equal(t, req.CheckReply(resp), req.CheckReply(again), doc)
	}
}

// Servers tell what was used in "usage", as Jina and vLLM do, in "meta", as Cohere does, or not at all.
func TestResponse_UsageOfServers(t *testing.T) {
	for doc, want := range map[string]rerank.Response{
		`{"usage":{"total_tokens":8}}`: {Usage: &llm.Usage{TotalTokens: 8}},
		`{"usage":{"prompt_tokens":8,"total_tokens":9},"meta":{"tokens":{"input_tokens":7}}}`:                      {Usage: &llm.Usage{PromptTokens: 8, TotalTokens: 9}},
		`{"meta":{"tokens":{"input_tokens":7}},"usage":{"prompt_tokens":8,"total_tokens":9}}`:                      {Usage: &llm.Usage{PromptTokens: 8, TotalTokens: 9}},
		`{"meta":{"api_version":{"version":"2"},"billed_units":{"search_units":2.0},"tokens":{"input_tokens":7}}}`: {Usage: &llm.Usage{PromptTokens: 7}, SearchUnits: 2},
		`{"meta":{"billed_units":{"search_units":1e99},"warnings":["x"]}}`:                                         {SearchUnits: 1<<53 - 1},
		`{"meta":{"billed_units":{"search_units":"2"}}}`:                                                           {},
		`{"meta":null}`:           {},
		`{"meta":5,"usage":null}`: {},
	} {
		got := rerank.Response{}
		require.NoError(t, json.Unmarshal([]byte(doc), &got), doc)
		assert.Equal(t, want, got, doc)
	}
}

func FuzzRequest(f *testing.F) {
	for _, d := range jsonSuite.Documents {
		f.Add([]byte(d.JSON))
	}
	f.Add([]byte(`{"model":"m","query":"q","documents":["a",{"text":"b","x":[1]},{"image":"data:,"}],"top_n":2,"return_documents":true,"rank_fields":["x"]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, encoded, ok := codectest.RoundTrip[rerank.Request](t, data); ok {
			codectest.KeepsMembers(t, data, encoded)
			codectest.SameValue(t, r, encoded)
		}
	})
}

// What a Backend decodes leniently can be encoded.
func FuzzResponse(f *testing.F) {
	f.Add([]byte(`{"id":"r","object":"list","model":"m","results":[{"index":1,"relevance_score":0.5,"document":{"text":"b"}},{"index":0,"relevance_score":1e-9,"document":"a","x":1}],"usage":{"total_tokens":3},"meta":{"billed_units":{"search_units":1.0},"tokens":{"input_tokens":3}},"y":1}`))
	for _, results := range withoutNumbers {
		f.Add([]byte(results))
	}
	f.Fuzz(func(t *testing.T, data []byte) { codectest.RoundTripReply[rerank.Response](t, data) })
}
