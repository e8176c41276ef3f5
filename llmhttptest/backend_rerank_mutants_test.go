package llmhttptest

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/rerank"
)

type (
	rerankReq  = rerank.Request
	rerankResp = rerank.Response
)

func (e *echo) Rerank(_ context.Context, req *rerankReq) (*rerankResp, error) { return e.rerank(req) }

// compareTexts scores documents by the words that they have in common with the query.
func compareTexts(req *rerankReq) (*rerankResp, error) {
	if req.Model != "rerank" {
		return nil, llm.ModelNotFound(req.Model)
	}
	query := strings.Fields(req.Query)
	resp := &rerankResp{Usage: &llm.Usage{PromptTokens: len(query)}}
	for i, d := range req.Documents {
		words := strings.Fields(d.Text)
		common := 0
		for _, word := range words {
			if slices.Contains(query, word) {
				common++
			}
		}
		resp.Results = append(resp.Results, rerank.Result{Index: i, Score: float64(common) / float64(len(words)+len(query)+1)})
	}
	return resp, nil
}

// reranking returns a constructor of a Backend with another Rerank.
func reranking(f func(req *rerankReq) (*rerankResp, error)) func(testing.TB) backendTest {
	return backendFixture(func(e *echo) { e.rerank = f })
}

// editingResults returns a constructor of a Backend that changes its response.
func editingResults(edit func(resp *rerankResp)) func(testing.TB) backendTest {
	return reranking(func(req *rerankReq) (*rerankResp, error) {
		resp, err := compareTexts(req)
		if err == nil {
			edit(resp)
		}
		return resp, err
	})
}

var rerankMutants = []mutant[backendTest]{
	{"Rerank is not implemented", "Rerank", chatOnly},
	{"the last result is missing", "Rerank", editingResults(func(resp *rerankResp) { resp.Results = resp.Results[1:] })},
	{"there are at most 100 results", "Rerank", editingResults(func(resp *rerankResp) { resp.Results = resp.Results[:min(len(resp.Results), 100)] })},
	{"equal documents are dropped", "Rerank", reranking(func(req *rerankReq) (*rerankResp, error) {
		req.Documents = slices.CompactFunc(req.Documents, func(a, b rerank.Document) bool { return a.Text == b.Text })
		return compareTexts(req)
	})},
	{"indices begin with 1", "Rerank", editingResults(func(resp *rerankResp) {
		for i := range resp.Results {
			resp.Results[i].Index++
		}
	})},
	{"an index is repeated", "Rerank", editingResults(func(resp *rerankResp) { resp.Results = append(resp.Results, resp.Results[0]) })},
	{"a score is NaN", "Rerank", editingResults(func(resp *rerankResp) { resp.Results[0].Score = math.NaN() })},
	{"an empty document has the score -Inf", "Rerank", reranking(func(req *rerankReq) (*rerankResp, error) {
		resp, err := compareTexts(req)
		for i, d := range req.Documents {
			if d.Text == "" && err == nil {
				resp.Results[i].Score = math.Inf(-1)
			}
		}
		return resp, err
	})},
	{"objects are a server error", "Rerank", reranking(func(req *rerankReq) (*rerankResp, error) {
		if req.Documents[0].Raw != nil {
			return nil, errNotImplemented
		}
		return compareTexts(req)
	})},
	{"the usage is negative", "Rerank", editingResults(func(resp *rerankResp) { resp.Usage.PromptTokens = -1 })},
	{"the Extra of the response is invalid", "Rerank", editingResults(func(resp *rerankResp) { resp.Extra = invalid })},
	{"the Extra of a result is invalid", "Rerank", editingResults(func(resp *rerankResp) { resp.Results[0].Extra = invalid })},
	{"the response and the error are nil", "Rerank", reranking(func(*rerankReq) (*rerankResp, error) { return nil, nil })},
	{"concurrent calls are refused", "Rerank", backendFixture(func(e *echo) { e.rerank = exclusive(compareTexts) })},

	{"low scores are the best", "RerankOrder", editingResults(func(resp *rerankResp) {
		for i := range resp.Results {
			resp.Results[i].Score *= -1
		}
	})},
	{"indices are ranks", "RerankOrder", editingResults(func(resp *rerankResp) {
		slices.SortStableFunc(resp.Results, func(a, b rerank.Result) int { return int(math.Copysign(1, b.Score-a.Score)) })
		for i := range resp.Results {
			resp.Results[i].Index = i
		}
	})},

	{"any model is accepted", "RerankUnknownModel", reranking(func(req *rerankReq) (*rerankResp, error) { req.Model = "rerank"; return compareTexts(req) })},
	{"an unknown model is a server error", "RerankUnknownModel", reranking(func(req *rerankReq) (*rerankResp, error) {
		resp, err := compareTexts(req)
		if err != nil {
			err = errors.New("no such model")
		}
		return resp, err
	})},
	{"the context is ignored", "RerankCancelled", reranking(delayed(compareTexts))},
}
