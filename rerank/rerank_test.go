package rerank_test

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/endpointtest"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/rerank"
)

const path = "/v1/rerank"

// A backend is a Backend that reranks.
type backend func(ctx context.Context, req *rerank.Request) (*rerank.Response, error)

func (backend) Chat(context.Context, *llm.ChatRequest) llm.ChatStream { return llm.Reply("Hi") }

func (b backend) Rerank(ctx context.Context, req *rerank.Request) (*rerank.Response, error) {
	return b(ctx, req)
}

// scores returns a Backend with these scores of documents 0, 1 and so on.
func scores(list ...float64) backend {
	return func(context.Context, *rerank.Request) (*rerank.Response, error) {
		resp := new(rerank.Response)
		for i, score := range list {
			resp.Results = append(resp.Results, rerank.Result{Index: i, Score: score})
		}
		return resp, nil
	}
}

// scoring returns a Backend that scores each document, and reports the usage.
func scoring(usage *llm.Usage) backend {
	return func(ctx context.Context, req *rerank.Request) (*rerank.Response, error) {
		resp, err := scores(make([]float64, len(req.Documents))...)(ctx, req)
		resp.Usage = usage
		return resp, err
	}
}

// newServer returns a Server with the routes of package rerank, whose key may do everything.
func newServer(t testing.TB, b llmhttp.Backend, opts llmhttp.Options) *endpointtest.Server {
	opts.Routes = rerank.Routes()
	return endpointtest.New(t, b, llmhttp.Key{}, opts)
}

func countWords(_, text string) int { return len(strings.Fields(text)) }

// list returns a JSON array of n items.
func list(n int, item string) string {
	return "[" + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + "]"
}

func TestRerank_Params(t *testing.T) {
	documents := func(list ...string) (bodies []string) {
		for _, s := range list {
			bodies = append(bodies, `{"model":"m","query":"q","documents":`+s+`}`)
		}
		return bodies
	}
	members := func(list ...string) (bodies []string) {
		for _, s := range list {
			bodies = append(bodies, `{"model":"m","query":"q","documents":["a","b"],`+s+`}`)
		}
		return bodies
	}
	newServer(t, scoring(nil), llmhttp.Options{}).CheckParams(t, path, []endpointtest.Param{
		{"", "", []string{`{`}},
		{"model", "missing_required_parameter", []string{`{}`, `{"query":"q","documents":["a"]}`, `{"model":null,"query":"q","documents":["a"]}`}},
		{"model", "invalid_type", []string{`{"model":5,"query":"q","documents":["a"]}`}},
		{"query", "missing_required_parameter", []string{`{"model":"m","documents":["a"]}`, `{"model":"m","query":"","documents":["a"]}`}},
		{"query", "invalid_type", []string{`{"model":"m","query":{"text":"q"},"documents":["a"]}`}},
		{"query", "duplicate_parameter", members(`"query":"q"`)},
		{"documents", "missing_required_parameter", append(documents("null"), `{"model":"m","query":"q"}`)},
		{"documents", "invalid_type", documents(`"a"`, "5", "{}")},
		{"documents", "empty_array", documents(`[]`)},
		{"documents", "array_above_max_length", documents(list(10_001, `""`))},
		{"documents[1]", "invalid_type", documents(`["a",5]`, `["a",null]`, `["a",["b"]]`)},
		{"documents[1].a", "duplicate_parameter", documents(`["a",{"a":1,"a":2}]`)},
		{"", endpointtest.Accepted, documents(list(10_000, `""`), `["a",{"text":"b"}]`, `[{"image":"https://images.test/1"}]`, `[{"Text":"a","text":"b"}]`)},
		{"top_n", "integer_below_min_value", members(`"top_n":-1`)},
		{"top_n", "integer_above_max_value", members(`"top_n":1e30`)},
		{"top_n", "invalid_type", members(`"top_n":1.5`, `"top_n":"5"`)},
		{"", endpointtest.Accepted, members(`"top_n":0`, `"top_n":1`, `"top_n":2.0`, `"top_n":99`, `"top_n":null`)},
		{"return_documents", "invalid_type", members(`"return_documents":1`)},
		{"", endpointtest.Accepted, members(`"return_documents":false`, `"return_documents":null`, `"max_tokens_per_doc":4096,"rank_fields":["text"],"truncate":true,"priority":0`)},
	})
}

type repliedResult struct {
	Index    int
	Score    float64 `json:"relevance_score"`
	Document json.RawMessage
}

// A clientReply is a reply as clients read it.
type clientReply struct {
	ID, Model, Object string
	Results           []repliedResult
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

// ask asks s to rerank, and returns the reply.
func ask(t *testing.T, s *endpointtest.Server, path, body string) (reply clientReply) {
	t.Helper()
	w := s.Post(path, body)
	require.Equal(t, 200, w.Code, w.Body)
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &reply), w.Body)
	return reply
}

// indices returns the documents of the results in their order.
func (r clientReply) indices() (indices []int) {
	for _, result := range r.Results {
		indices = append(indices, result.Index)
	}
	return indices
}

func TestRerank_Results(t *testing.T) {
	s := newServer(t, scores(0.25, 0.75, 0.25, -3), llmhttp.Options{})
	for members, want := range map[string][]int{
		``: {1, 0, 2, 3}, `,"top_n":0`: {1, 0, 2, 3}, `,"top_n":null`: {1, 0, 2, 3}, `,"top_n":4`: {1, 0, 2, 3}, `,"top_n":5`: {1, 0, 2, 3},
		`,"top_n":1`: {1}, `,"top_n":3`: {1, 0, 2},
	} {
		for _, path := range []string{"/v1/rerank", "/v2/rerank", "/rerank"} {
			reply := ask(t, s, path, `{"model":"m","query":"q","documents":["a",{"text":"b","x":1},"c",{"image":"i"}]`+members+`}`)
			assert.Equal(t, want, reply.indices(), members)
			assert.InDelta(t, 0.75, reply.Results[0].Score, 0)
			assert.Nil(t, reply.Results[0].Document, "they are not asked for")
			assert.Equal(t, "m", reply.Model)
			assert.Equal(t, "list", reply.Object)
			assert.Regexp(t, `^rerank-[0-9a-f]{32}$`, reply.ID)
		}
	}
	reply := ask(t, s, path, `{"model":"m","query":"q","documents":["a",{"text":"b","x":1},"c",{"image":"i"}],"return_documents":true}`)
	for i, want := range []string{`{"text":"b","x":1}`, `{"text":"a"}`, `{"text":"c"}`, `{"image":"i"}`} {
		assert.JSONEq(t, want, string(reply.Results[i].Document))
	}
}

// What a Backend does with its request or its reply does not change that of the client, and the
// documents of the reply are those of the request.
func TestRerank_BackendOwnsItsValues(t *testing.T) {
	own := &rerank.Response{ID: "own", Model: "served", SearchUnits: 7, Results: []rerank.Result{
		{Index: 0, Score: 0.1, Document: &rerank.Document{Text: "another"}}, {Index: 1, Score: 0.2},
	}}
	s := newServer(t, backend(func(_ context.Context, r *rerank.Request) (*rerank.Response, error) {
		assert.Equal(t, []rerank.Document{{Text: "a"}, {Text: "b", Raw: json.RawMessage(`{"text":"b"}`)}}, r.Documents)
		r.Documents[0], r.Documents[1], r.TopN, r.Query = r.Documents[1], r.Documents[0], 9, ""
		return own, nil
	}), llmhttp.Options{})
	for range 2 {
		reply := ask(t, s, path, `{"model":"m","query":"q","documents":["a",{"text":"b"}],"top_n":1,"return_documents":true}`)
		assert.Equal(t, []int{1}, reply.indices())
		assert.JSONEq(t, `{"text":"b"}`, string(reply.Results[0].Document))
		assert.Equal(t, "own", reply.ID)
		assert.Equal(t, "served", reply.Model)
		assert.Equal(t, 7, reply.Meta.Billed.SearchUnits)
		assert.Equal(t, 0, own.Results[0].Index, "the Backend may keep its reply")
	}
}

func TestRerank_InvalidReplies(t *testing.T) {
	result := func(index int, score float64) rerank.Result {
		return rerank.Result{Index: index, Score: score}
	}
	for name, results := range map[string][]rerank.Result{
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
			s := newServer(t, backend(func(context.Context, *rerank.Request) (*rerank.Response, error) {
				return &rerank.Response{Results: results}, nil
			}), llmhttp.Options{})
			s.PostRefused(path, `{"model":"m","query":"q","documents":["a","b"]}`, 500)
			assert.Equal(t, llmhttp.ClassBackend, s.Summaries[0].ErrorClass)
		})
	}
	t.Run("nil", func(t *testing.T) {
		s := newServer(t, backend(func(context.Context, *rerank.Request) (*rerank.Response, error) { return nil, nil }), llmhttp.Options{})
		s.PostRefused(path, `{"model":"m","query":"q","documents":["a"]}`, 500)
	})
	t.Run("only those that are asked for", func(t *testing.T) {
		s := newServer(t, scores(0.5), llmhttp.Options{})
		assert.Equal(t, []int{0}, ask(t, s, path, `{"model":"m","query":"q","documents":["a","b"],"top_n":1}`).indices())
	})
	t.Run("larger than MaxReply", func(t *testing.T) {
		s := newServer(t, scores(make([]float64, 100)...), llmhttp.Options{Bounds: llmhttp.Bounds{MaxReply: 1000}})
		s.PostRefused(path, `{"model":"m","query":"q","documents":`+list(100, `"a"`)+`}`, 502)
	})
}

// Without a report the usage is an estimate, in which each document comes with the query, and one
// search unit for each 100 documents.
func TestRerank_Usage(t *testing.T) {
	documents := func(n int) string {
		return `{"model":"m","query":"two words","documents":` + list(n, `"three more words"`) + `}`
	}
	estimate := func(n int64) llmhttp.Units { return llmhttp.Units{PromptTokens: 5 * n, SearchUnits: (n + 99) / 100} }
	for name, tt := range map[string]struct {
		body      string
		backend   llmhttp.Backend
		want      llmhttp.Units
		estimated bool
	}{
		"no report":     {documents(1), scoring(nil), estimate(1), true},
		"100 documents": {documents(100), scoring(nil), estimate(100), true},
		"101 documents": {documents(101), scoring(nil), estimate(101), true},
		"object":        {`{"model":"m","query":"two words","documents":[{"text":"three more words"}]}`, scoring(nil), estimate(1), true},
		"tokens":        {documents(2), scoring(&llm.Usage{TotalTokens: 70}), llmhttp.Units{PromptTokens: 70, SearchUnits: 1}, false},
		"units and tokens": {documents(1), backend(func(context.Context, *rerank.Request) (*rerank.Response, error) {
			return &rerank.Response{SearchUnits: 9, Usage: &llm.Usage{PromptTokens: 70}, Results: make([]rerank.Result, 1)}, nil
		}), llmhttp.Units{PromptTokens: 70, SearchUnits: 9}, false},
		"the Backend fails": {documents(1), backend(func(context.Context, *rerank.Request) (*rerank.Response, error) { return nil, assert.AnError }), llmhttp.Units{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, tt.backend, llmhttp.Options{Estimates: llmhttp.TokenEstimates{TextTokens: countWords}})
			w := s.Post(path, tt.body)
			require.Len(t, s.Records, 1)
			record := s.Records[0]
			assert.Equal(t, tt.want, record.Units)
			assert.Equal(t, tt.estimated, record.Estimated)
			assert.Equal(t, rerank.Operation, record.Operation)
			if w.Code == 200 {
				var reply clientReply
				require.NoError(t, json.Unmarshal(w.Body.Bytes(), &reply))
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
		return llmhttp.Cost{Other: llm.Money(r.Units.SearchUnits) * llm.MoneyUnit}, nil
	}
	key := llmhttp.Key{Limits: llmhttp.Limits{Quota: llmhttp.Quota{Cost: llm.USD(2)}}}
	s := endpointtest.New(t, scoring(nil), key, llmhttp.Options{Routes: rerank.Routes(), Price: price, Estimates: llmhttp.TokenEstimates{TextTokens: countWords}})
	body := func(n int) string { return `{"model":"m","query":"q","documents":` + list(n, `"a"`) + `}` }
	s.PostRefused(path, body(201), 429)
	require.Equal(t, 200, s.Post(path, body(200)).Code)
	s.PostRefused(path, body(1), 429)
	assert.Equal(t, llmhttp.Units{PromptTokens: 402, SearchUnits: 3}, got[0])
	assert.Equal(t, []llmhttp.Units{{PromptTokens: 400, SearchUnits: 2}, {PromptTokens: 400, SearchUnits: 2}}, got[1:3])
}

// What Open WebUI and Dify send and read. Open WebUI sorts the results by their indices and pairs
// the scores with its documents, so it needs one for each; Dify drops what is below a threshold.
func TestRerank_OpenWebUIAndDify(t *testing.T) {
	s := newServer(t, scores(0.25, 0.75, 0.5), llmhttp.Options{})
	reply := ask(t, s, path, `{"model":"reranker","query":"q","documents":["a","b","c"],"top_n":3}`)
	slices.SortFunc(reply.Results, func(a, b repliedResult) int { return a.Index - b.Index })
	require.Len(t, reply.Results, 3)
	for i, score := range []float64{0.25, 0.75, 0.5} {
		assert.InDelta(t, score, reply.Results[i].Score, 0)
	}

	reply = ask(t, s, path, `{"model":"bge-reranker","query":"q","documents":["a","b","c"],"top_n":3,"return_documents":true}`)
	var texts []string
	for _, result := range reply.Results {
		var document struct{ Text string }
		require.NoError(t, json.Unmarshal(result.Document, &document))
		if result.Score >= 0.5 {
			texts = append(texts, document.Text)
		}
	}
	assert.Equal(t, []string{"b", "c"}, texts)
	assert.Len(t, ask(t, s, "/rerank", `{"model":"m","query":"q","documents":["a",{"content":[{"type":"text","text":"b"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]},"c"],"top_n":0}`).Results, 3)
}
