package llmhttp_test

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/codectest"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
)

var (
	_ = codectest.MakesConsistent(func(d *llmhttp.RerankDocument) { d.Raw = nil })
	_ = codectest.MakesConsistent(func(r *llmhttp.RerankResult) { r.Document = nil }) // is decoded with Raw, too
	_ = codectest.MakesConsistent(func(r *llmhttp.RerankResponse) {
		r.Usage.CompletionTokens, r.Usage.CompletionTokensDetails = 0, llm.CompletionTokensDetails{}
	})
)

func init() {
	jsonSuite.Types["RerankRequest"] = func() any { return new(llmhttp.RerankRequest) }
	jsonSuite.Types["RerankDocument"] = func() any { return new(llmhttp.RerankDocument) }
	jsonSuite.Types["RerankResponse"] = func() any { return new(llmhttp.RerankResponse) }
	jsonSuite.Types["RerankResult"] = func() any { return new(llmhttp.RerankResult) }
	jsonSuite.Documents = append(jsonSuite.Documents, []codectest.Document{
		{"RerankRequest", `{"model":"m","query":"q","documents":["a","",{"text":"b","x":[1]}],"top_n":2,"return_documents":true,"rank_fields":["x"]}`},
		{"RerankDocument", `"a"`}, {"RerankDocument", `{"text":"a"}`}, {"RerankDocument", `{"image":"u"}`},
		{"RerankResponse", `{"id":"i","object":"list","model":"m","results":[{"index":1,"relevance_score":0.5,"document":{"text":"b"},"x":1}],"usage":{"prompt_tokens":1,"total_tokens":1},"meta":{"api_version":{"version":"2"},"billed_units":{"search_units":3},"tokens":{"input_tokens":1}},"y":2}`},
	}...)
}

func TestRerank_Params(t *testing.T) {
	documents := func(list ...string) []string {
		return each(func(s string) string { return `{"model":"m","query":"q","documents":` + s + `}` }, list...)
	}
	members := func(list ...string) []string {
		return each(func(s string) string { return `{"model":"m","query":"q","documents":["a","b"],` + s + `}` }, list...)
	}
	checkParams(t, startServer(t, config{}), rerankPath, []paramTest{
		{"", notJSON, []string{`{`}},
		{"model", missing, []string{`{}`, `{"query":"q","documents":["a"]}`, `{"model":null,"query":"q","documents":["a"]}`}},
		{"model", invalidType, []string{`{"model":5,"query":"q","documents":["a"]}`}},
		{"query", missing, []string{`{"model":"m","documents":["a"]}`, `{"model":"m","query":"","documents":["a"]}`}},
		{"query", invalidType, []string{`{"model":"m","query":{"text":"q"},"documents":["a"]}`}},
		{"query", duplicate, members(`"query":"q"`)},
		{"documents", missing, append(documents("null"), `{"model":"m","query":"q"}`)},
		{"documents", invalidType, documents(`"a"`, "5", "{}")},
		{"documents", emptyArray, documents(`[]`)},
		{"documents", arrayTooLong, documents(repeatJSON(10_001, `""`))},
		{"documents[1]", invalidType, documents(`["a",5]`, `["a",null]`, `["a",["b"]]`)},
		{"documents[1].a", duplicate, documents(`["a",{"a":1,"a":2}]`)},
		{"", accepted, documents(repeatJSON(10_000, `""`), `["a",{"text":"b"}]`, `[{"image":"https://images.test/1"}]`, `[{"Text":"a","text":"b"}]`)},
		{"top_n", integerLow, members(`"top_n":-1`)},
		{"top_n", integerHigh, members(`"top_n":1e30`)},
		{"top_n", invalidType, members(`"top_n":1.5`, `"top_n":"5"`)},
		{"", accepted, members(`"top_n":0`, `"top_n":1`, `"top_n":2.0`, `"top_n":99`, `"top_n":null`)},
		{"return_documents", invalidType, members(`"return_documents":1`)},
		{"", accepted, members(`"return_documents":false`, `"return_documents":null`, `"max_tokens_per_doc":4096,"rank_fields":["text"],"truncate":true,"priority":0`)},
	})
}

// rerankBackend returns a Backend with these scores of documents 0, 1 and so on.
func rerankBackend(scores ...float64) *stubBackend {
	return &stubBackend{rerank: func(context.Context, *llmhttp.RerankRequest) (*llmhttp.RerankResponse, error) {
		resp := new(llmhttp.RerankResponse)
		for i, score := range scores {
			resp.Results = append(resp.Results, llmhttp.RerankResult{Index: i, Score: score})
		}
		return resp, nil
	}}
}

type rerankResult struct {
	Index    int
	Score    float64 `json:"relevance_score"`
	Document json.RawMessage
}

// A rerankReply is a reply as clients read it.
type rerankReply struct {
	ID, Model, Object string
	Results           []rerankResult
	Usage             struct {
		Prompt int `json:"prompt_tokens"`
		Total  int `json:"total_tokens"`
	}
	Meta struct {
		Billed struct {
			SearchUnits int `json:"search_units"`
		} `json:"billed_units"`
		Tokens struct {
			Input int `json:"input_tokens"`
		}
	}
}

// rerank asks s to rerank, and returns the reply.
func rerank(t *testing.T, s *testServer, path, body string) (reply rerankReply) {
	t.Helper()
	r := s.do("POST", path, body)
	require.Equal(t, 200, r.StatusCode, r.body)
	require.NoError(t, json.Unmarshal([]byte(r.body), &reply), r.body)
	return reply
}

// indices returns the documents of the results in their order.
func (r rerankReply) indices() (list []int) {
	for _, result := range r.Results {
		list = append(list, result.Index)
	}
	return list
}

func TestRerank_Results(t *testing.T) {
	s := startServer(t, config{backend: rerankBackend(0.25, 0.75, 0.25, -3)})
	for members, want := range map[string][]int{
		``: {1, 0, 2, 3}, `,"top_n":0`: {1, 0, 2, 3}, `,"top_n":null`: {1, 0, 2, 3}, `,"top_n":4`: {1, 0, 2, 3}, `,"top_n":5`: {1, 0, 2, 3},
		`,"top_n":1`: {1}, `,"top_n":3`: {1, 0, 2},
	} {
		for _, path := range []string{"/v1/rerank", "/v2/rerank", "/rerank"} {
			reply := rerank(t, s, path, `{"model":"m","query":"q","documents":["a",{"text":"b","x":1},"c",{"image":"i"}]`+members+`}`)
			assert.Equal(t, want, reply.indices(), members)
			assert.InDelta(t, 0.75, reply.Results[0].Score, 0)
			assert.Nil(t, reply.Results[0].Document, "they are not asked for")
			assert.Equal(t, "m", reply.Model)
			assert.Equal(t, "list", reply.Object)
			assert.Regexp(t, `^rerank-[0-9a-f]{32}$`, reply.ID)
		}
	}
	reply := rerank(t, s, rerankPath, `{"model":"m","query":"q","documents":["a",{"text":"b","x":1},"c",{"image":"i"}],"return_documents":true}`)
	for i, want := range []string{`{"text":"b","x":1}`, `{"text":"a"}`, `{"text":"c"}`, `{"image":"i"}`} {
		assert.JSONEq(t, want, string(reply.Results[i].Document))
	}
}

// What a Backend does with its request or its reply does not change that of the client, and the
// documents of the reply are those of the request.
func TestRerank_BackendOwnsItsValues(t *testing.T) {
	own := &llmhttp.RerankResponse{ID: "own", Model: "served", SearchUnits: 7, Results: []llmhttp.RerankResult{
		{Index: 0, Score: 0.1, Document: &llmhttp.RerankDocument{Text: "another"}}, {Index: 1, Score: 0.2},
	}}
	s := startServer(t, config{backend: &stubBackend{rerank: func(_ context.Context, r *llmhttp.RerankRequest) (*llmhttp.RerankResponse, error) {
		assert.Equal(t, []llmhttp.RerankDocument{{Text: "a"}, {Text: "b", Raw: json.RawMessage(`{"text":"b"}`)}}, r.Documents)
		r.Documents[0], r.Documents[1], r.TopN, r.Query = r.Documents[1], r.Documents[0], 9, ""
		return own, nil
	}}})
	for range 2 {
		reply := rerank(t, s, rerankPath, `{"model":"m","query":"q","documents":["a",{"text":"b"}],"top_n":1,"return_documents":true}`)
		assert.Equal(t, []int{1}, reply.indices())
		assert.JSONEq(t, `{"text":"b"}`, string(reply.Results[0].Document))
		assert.Equal(t, "own", reply.ID)
		assert.Equal(t, "served", reply.Model)
		assert.Equal(t, 7, reply.Meta.Billed.SearchUnits)
		assert.Equal(t, 0, own.Results[0].Index, "the Backend may keep its reply")
	}
}

func TestRerank_InvalidReplies(t *testing.T) {
	result := func(index int, score float64) llmhttp.RerankResult {
		return llmhttp.RerankResult{Index: index, Score: score}
	}
	for name, results := range map[string][]llmhttp.RerankResult{
		"none":              {},
		"too few":           {result(0, 1)},
		"a negative index":  {result(0, 1), result(-1, 1)},
		"an index too high": {result(0, 1), result(2, 1)},
		"the same twice":    {result(0, 1), result(0, 1)},
		"too many":          {result(0, 1), result(1, 1), result(1, 1)},
		"no number":         {result(0, math.NaN()), result(1, 1)},
		"infinite":          {result(0, 1), result(1, math.Inf(-1))},
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, config{backend: &stubBackend{rerank: func(context.Context, *llmhttp.RerankRequest) (*llmhttp.RerankResponse, error) {
				return &llmhttp.RerankResponse{Results: results}, nil
			}}})
			s.do("POST", rerankPath, `{"model":"m","query":"q","documents":["a","b"]}`).checkError(t, 500)
			assert.Equal(t, llmhttp.ClassBackend, s.summary().ErrorClass)
		})
	}
	t.Run("nil", func(t *testing.T) {
		s := startServer(t, config{backend: &stubBackend{rerank: func(context.Context, *llmhttp.RerankRequest) (*llmhttp.RerankResponse, error) { return nil, nil }}})
		s.do("POST", rerankPath, rerankBody).checkError(t, 500)
	})
	t.Run("only those that are asked for", func(t *testing.T) {
		s := startServer(t, config{backend: rerankBackend(0.5)})
		assert.Equal(t, []int{0}, rerank(t, s, rerankPath, `{"model":"m","query":"q","documents":["a","b"],"top_n":1}`).indices())
	})
	t.Run("larger than MaxReply", func(t *testing.T) {
		s := startServer(t, config{backend: rerankBackend(make([]float64, 100)...), opts: llmhttp.Options{MaxReply: 1000}})
		s.do("POST", rerankPath, `{"model":"m","query":"q","documents":`+repeatJSON(100, `"a"`)+`}`).checkError(t, 502)
	})
}

// A result that lacks a number, or that another server has set to null, is refused as one whose
// number is invalid.
func TestRerank_RepliesWithoutNumbers(t *testing.T) {
	req := &llmhttp.RerankRequest{Documents: make([]llmhttp.RerankDocument, 1)}
	for doc, valid := range map[string]bool{
		`{"results":[{"index":0,"relevance_score":0}]}`:    true,
		`{"results":[{"index":0}]}`:                        false,
		`{"results":[{"relevance_score":0.5}]}`:            false,
		`{"results":[{"index":0,"relevance_score":null}]}`: false,
		`{"results":[{"index":null,"relevance_score":1}]}`: false,
		`{"results":null}`:                                 false,
		`{}`:                                               false,
	} {
		resp := new(llmhttp.RerankResponse)
		require.NoError(t, json.Unmarshal([]byte(doc), resp))
		assert.Equal(t, valid, req.CheckReply(resp) == nil, doc)
	}
}

// Servers tell what was used in "usage", as Jina and vLLM do, in "meta", as Cohere does, or not at all.
func TestRerank_UsageOfServers(t *testing.T) {
	for doc, want := range map[string]llmhttp.RerankResponse{
		`{"usage":{"total_tokens":8}}`: {Usage: &llm.Usage{TotalTokens: 8}},
		`{"usage":{"prompt_tokens":8,"total_tokens":9},"meta":{"tokens":{"input_tokens":7}}}`:                      {Usage: &llm.Usage{PromptTokens: 8, TotalTokens: 9}},
		`{"meta":{"tokens":{"input_tokens":7}},"usage":{"prompt_tokens":8,"total_tokens":9}}`:                      {Usage: &llm.Usage{PromptTokens: 8, TotalTokens: 9}},
		`{"meta":{"api_version":{"version":"2"},"billed_units":{"search_units":2.0},"tokens":{"input_tokens":7}}}`: {Usage: &llm.Usage{PromptTokens: 7}, SearchUnits: 2},
		`{"meta":{"billed_units":{"search_units":1e99},"warnings":["x"]}}`:                                         {SearchUnits: 1<<53 - 1},
		`{"meta":{"billed_units":{"search_units":"2"}}}`:                                                           {},
		`{"meta":null}`:           {},
		`{"meta":5,"usage":null}`: {},
	} {
		got := llmhttp.RerankResponse{}
		require.NoError(t, json.Unmarshal([]byte(doc), &got), doc)
		assert.Equal(t, want, got, doc)
	}
}

// Without a report the usage is an estimate, in which each document comes with the query, and one
// search unit for each 100 documents.
func TestRerank_Usage(t *testing.T) {
	documents := func(n int) string {
		return `{"model":"m","query":"two words","documents":` + repeatJSON(n, `"three more words"`) + `}`
	}
	estimate := func(n int64) llmhttp.Units { return llmhttp.Units{PromptTokens: 5 * n, SearchUnits: (n + 99) / 100} }
	for name, tt := range map[string]struct {
		body      string
		backend   llmhttp.Backend
		want      llmhttp.Units
		estimated bool
	}{
		"no report":     {documents(1), nil, estimate(1), true},
		"100 documents": {documents(100), nil, estimate(100), true},
		"101 documents": {documents(101), nil, estimate(101), true},
		"object":        {`{"model":"m","query":"two words","documents":[{"text":"three more words"}]}`, nil, estimate(1), true},
		"tokens":        {documents(2), &stubBackend{usage: &llm.Usage{TotalTokens: 70}}, llmhttp.Units{PromptTokens: 70, SearchUnits: 1}, false},
		"units and tokens": {documents(1), &stubBackend{rerank: func(context.Context, *llmhttp.RerankRequest) (*llmhttp.RerankResponse, error) {
			return &llmhttp.RerankResponse{SearchUnits: 9, Usage: &llm.Usage{PromptTokens: 70}, Results: make([]llmhttp.RerankResult, 1)}, nil
		}}, llmhttp.Units{PromptTokens: 70, SearchUnits: 9}, false},
		"the Backend fails": {documents(1), failingBackend(errCause), llmhttp.Units{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, config{backend: tt.backend, opts: llmhttp.Options{TextTokens: countWords}})
			r := s.do("POST", rerankPath, tt.body)
			record := s.record()
			assert.Equal(t, tt.want, record.Units)
			assert.Equal(t, tt.estimated, record.Estimated)
			assert.Equal(t, llmhttp.OperationRerank, record.Operation)
			if r.StatusCode == 200 {
				var reply rerankReply
				require.NoError(t, json.Unmarshal([]byte(r.body), &reply))
				assert.EqualValues(t, record.Units.SearchUnits, reply.Meta.Billed.SearchUnits)
				assert.EqualValues(t, record.Units.PromptTokens, reply.Meta.Tokens.Input)
				assert.EqualValues(t, record.Units.PromptTokens, reply.Usage.Prompt)
				assert.EqualValues(t, record.Units.PromptTokens, reply.Usage.Total)
			}
		})
	}
}

// A quota in money holds before the Backend is called, because the search units of a request are known.
func TestRerank_IsPricedBeforehand(t *testing.T) {
	var got []llmhttp.Units
	price := func(r *llmhttp.UsageRecord) (llmhttp.Cost, error) {
		got = append(got, r.Units)
		return llmhttp.Cost{Other: llmhttp.Money(r.Units.SearchUnits) * llmhttp.MoneyUnit}, nil
	}
	s := startServer(t, config{
		keys: limitedKeys(llmhttp.Limits{Quota: llmhttp.Quota{Cost: 2 * llmhttp.MoneyUnit}}),
		opts: llmhttp.Options{Price: price, Usage: memory.NewUsageStore(), TextTokens: countWords},
	})
	body := func(n int) string { return `{"model":"m","query":"q","documents":` + repeatJSON(n, `"a"`) + `}` }
	s.do("POST", rerankPath, body(201)).checkError(t, 429)
	require.Equal(t, 200, s.do("POST", rerankPath, body(200)).StatusCode)
	s.do("POST", rerankPath, body(1)).checkError(t, 429)
	assert.Equal(t, llmhttp.Units{PromptTokens: 402, SearchUnits: 3}, got[0])
	assert.Equal(t, []llmhttp.Units{{PromptTokens: 400, SearchUnits: 2}, {PromptTokens: 400, SearchUnits: 2}}, got[1:3])
}

// What Open WebUI and Dify send and read. Open WebUI sorts the results by their indices and pairs
// the scores with its documents, so it needs one for each; Dify drops what is below a threshold.
func TestRerank_OpenWebUIAndDify(t *testing.T) {
	s := startServer(t, config{backend: rerankBackend(0.25, 0.75, 0.5)})
	reply := rerank(t, s, rerankPath, `{"model":"reranker","query":"q","documents":["a","b","c"],"top_n":3}`)
	slices.SortFunc(reply.Results, func(a, b rerankResult) int { return a.Index - b.Index })
	require.Len(t, reply.Results, 3)
	for i, score := range []float64{0.25, 0.75, 0.5} {
		assert.InDelta(t, score, reply.Results[i].Score, 0)
	}

	reply = rerank(t, s, rerankPath, `{"model":"bge-reranker","query":"q","documents":["a","b","c"],"top_n":3,"return_documents":true}`)
	var texts []string
	for _, result := range reply.Results {
		var document struct{ Text string }
		require.NoError(t, json.Unmarshal(result.Document, &document))
		if result.Score >= 0.5 {
			texts = append(texts, document.Text)
		}
	}
	assert.Equal(t, []string{"b", "c"}, texts)
	assert.Len(t, rerank(t, s, "/rerank", `{"model":"m","query":"q","documents":["a",{"content":[{"type":"text","text":"b"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]},"c"],"top_n":0}`).Results, 3)
}
