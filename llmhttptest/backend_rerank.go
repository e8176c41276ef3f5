// Checks of Rerankers.

package llmhttptest

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/llmhttp/llmhttp/internal/ability"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/rerank"
)

var rerankOperation = operation{
	model: func(o *BackendOptions) string { return o.RerankModel },
	checks: []check[backendTest]{
		{
			"Rerank",
			checkRerank,
		},
		{"RerankOrder", checkRerankOrder},
		{"RerankUnknownModel", func(t testing.TB, b backendTest) {
			b.wantUnknownModels(t, b.opts.RerankModel, func(model string) error {
				req := b.rerankRequest("a", "b")
				req.Model = model
				_, err := b.rerank(t, req)
				return err
			})
		}},
		{"RerankCancelled", func(t testing.TB, b backendTest) {
			wantCancelled(&b, t, "Rerank", rerank.Reranker.Rerank, b.rerankRequest("a", "b"))
		}},
	},
	guards: []check[guard]{
		{"Rerank", func(t testing.TB, g guard) {
			guardCall(t, g, rerank.Reranker.Rerank, &rerank.Request{Model: "m", Query: g.text, Documents: []rerank.Document{{Text: "a"}}})
		}},
		{"RerankDocuments", func(t testing.TB, g guard) {
			guardCall(t, g, rerank.Reranker.Rerank, &rerank.Request{Model: "m", Query: "a", Documents: []rerank.Document{{Text: g.text}}})
		}},
	},
}

// rerankRequest returns a plain request for the scores of texts.
func (b *backendTest) rerankRequest(query string, texts ...string) *rerank.Request {
	req := &rerank.Request{Model: b.opts.RerankModel, Query: query}
	for _, text := range texts {
		req.Documents = append(req.Documents, rerank.Document{Text: text})
	}
	return req
}

// rerank returns the response to req and reports its faults.
func (b *backendTest) rerank(t testing.TB, req *rerank.Request) (*rerank.Response, error) {
	t.Helper()
	asked := *req
	asked.Documents = slices.Clone(req.Documents) // before the Backend may change req
	resp, err := callMethod(b, t, "Rerank", rerank.Reranker.Rerank, req)
	if err != nil {
		return nil, err
	}
	if err := asked.CheckReply(resp); err != nil {
		t.Fatalf("Rerank of %d documents returned a response that a Handler refuses: %v, want a valid one", len(asked.Documents), err)
	}
	extras := []llm.Extra{resp.Extra}
	for _, r := range resp.Results {
		extras = append(extras, r.Extra)
	}
	wantJSON(t, "the response", resp, extras...)
	wantConsistentUsage(t, "the response", resp.Usage)
	return resp, nil
}

// mustRerank is rerank of texts in a plain request, which must succeed. It returns the index of
// the text with the highest score.
func (b *backendTest) mustRerank(t testing.TB, query string, texts ...string) int {
	t.Helper()
	resp, err := b.rerank(t, b.rerankRequest(query, texts...))
	if err != nil {
		t.Fatalf("Rerank of %d documents returned the error %v, want nil", len(texts), err)
	}
	best := resp.Results[0]
	for _, r := range resp.Results {
		if r.Score > best.Score {
			best = r
		}
	}
	return best.Index
}

func checkRerank(t testing.TB, b backendTest) {
	b.mustRerank(t, sampleTexts[0], sampleTexts[1])
	b.mustRerank(t, sampleTexts[0], sampleTexts...)
	objects := func(docs ...string) func(*rerank.Request) {
		return func(r *rerank.Request) {
			r.Documents = nil
			for _, doc := range docs {
				r.Documents = append(r.Documents, rerank.Document{Raw: json.RawMessage(doc)})
			}
		}
	}
	for _, change := range []func(*rerank.Request){
		func(r *rerank.Request) {
			r.Documents = b.rerankRequest("", "", " ", "\n", "\x00", "\U0001f642", "same", "same", strings.Repeat("word ", 200)).Documents
		},
		func(r *rerank.Request) { r.Documents = slices.Repeat(r.Documents, 30) },
		func(r *rerank.Request) { r.Query = "\x00\U0001f642" },
		func(r *rerank.Request) { r.TopN = 1 },
		func(r *rerank.Request) { r.TopN = 100 },
		func(r *rerank.Request) { r.ReturnDocuments = true },
		objects(`{"text":"a"}`, `{"title":"b","text":"c"}`),
		objects(`{"image":"https://example.com/a.png"}`),
		func(r *rerank.Request) { r.Extra = llm.Extra{"x_unknown": json.RawMessage(`1`)} },
	} {
		req := b.rerankRequest(sampleTexts[0], sampleTexts...)
		change(req)
		if _, err := b.rerank(t, req); err != nil {
			wantClientError(t, err)
		}
	}
	const calls = 8
	runConcurrently(t, calls, func(int) {
		if resp, err := ability.Call(rerank.Reranker.Rerank)(t.Context(), b.Backend, b.rerankRequest("one", "one", "two")); err != nil || len(resp.Results) != 2 {
			t.Errorf("one of %d concurrent calls of Rerank returned %+v and the error %v, want 2 results", calls, resp, err)
		}
	})
}

// checkRerankOrder looks for texts among others, wherever they are.
func checkRerankOrder(t testing.TB, b backendTest) {
	texts := slices.Clone(sampleTexts)
	for range texts {
		for i, text := range texts {
			if best := b.mustRerank(t, text, texts...); best != i {
				t.Errorf("the best result for %q is %q, want the document that is equal to the query", text, texts[best])
			}
		}
		texts = append(texts[1:], texts[0])
	}
}
