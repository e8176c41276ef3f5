package rerank_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/rerank"
)

// A ranker scores a document by the share of the words of the query that it has.
type ranker struct{ llmhttp.Backend }

func (ranker) Rerank(ctx context.Context, req *rerank.Request) (*rerank.Response, error) {
	words := strings.Fields(req.Query)
	resp := &rerank.Response{}
	for i, d := range req.Documents {
		found := 0
		for _, word := range words {
			if strings.Contains(d.Text, word) {
				found++
			}
		}
		resp.Results = append(resp.Results, rerank.Result{Index: i, Score: float64(found) / float64(len(words))})
	}
	return resp, nil
}

func Example() {
	h := llmhttp.NewHandler(ranker{memory.Echo()}, memory.NewKeyStore("sk-demo"), &llmhttp.Options{Routes: rerank.Routes()})
	r := httptest.NewRequest("POST", "/v1/rerank", strings.NewReader(
		`{"model": "words", "query": "red apple", "documents": ["a green pear", "a red apple", "a red cherry"], "top_n": 2}`))
	r.Header.Set("Authorization", "Bearer sk-demo")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	_, results, _ := strings.Cut(w.Body.String(), `"results":`)
	results, _, _ = strings.Cut(results, "]")
	fmt.Println(w.Code, results+"]")
	// Output: 200 [{"index":1,"relevance_score":1},{"index":2,"relevance_score":0.5}]
}
