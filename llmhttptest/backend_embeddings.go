// Checks of embeddings.

package llmhttptest

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/ability"
	"github.com/llmhttp/llmhttp/llm"
)

var embeddingsOperation = operation{
	model: func(o *BackendOptions) string { return o.EmbeddingModel },
	checks: []check[backendTest]{
		{"Embeddings", checkEmbeddings},
		{"EmbeddingOrder", checkEmbeddingOrder},
		{"EmbeddingUnknownModel", func(t testing.TB, b backendTest) {
			b.wantUnknownModels(t, b.opts.EmbeddingModel, func(model string) error {
				req := b.embeddingRequest(sampleTexts[0])
				req.Model = model
				_, err := b.embed(t, req)
				return err
			})
		}},
		{"EmbeddingCancelled", func(t testing.TB, b backendTest) {
			wantCancelled(&b, t, "Embed", llmhttp.Embedder.Embed, b.embeddingRequest("text"))
		}},
	},
	guards: []check[guard]{
		{"Embed", func(t testing.TB, g guard) {
			guardCall(t, g, llmhttp.Embedder.Embed, &llm.EmbeddingRequest{Model: "m", Input: llm.EmbeddingInput{Texts: []string{g.text}}})
		}},
	},
}

// embeddingRequest returns a plain request for the vectors of texts.
func (b *backendTest) embeddingRequest(texts ...string) *llm.EmbeddingRequest {
	return &llm.EmbeddingRequest{Model: b.opts.EmbeddingModel, Input: llm.EmbeddingInput{Texts: slices.Clone(texts)}}
}

// embed returns the vectors of req and reports faults of the response.
func (b *backendTest) embed(t testing.TB, req *llm.EmbeddingRequest) ([][]float32, error) {
	t.Helper()
	n, dimensions := req.Input.Len(), req.Dimensions // before the Backend may change req
	resp, err := callMethod(b, t, "Embed", llmhttp.Embedder.Embed, req)
	if err != nil {
		return nil, err
	}
	if len(resp.Vectors) != n {
		t.Fatalf("Embed returned %d vectors, want one for each of %d inputs", len(resp.Vectors), n)
	}
	wantJSON(t, "the response", resp, resp.Extra)
	wantConsistentUsage(t, "the response", resp.Usage)
	want := max(1, len(resp.Vectors[0]))
	if dimensions != nil {
		want = *dimensions
	}
	for i, v := range resp.Vectors {
		if len(v) != want {
			t.Fatalf("vector %d has %d dimensions, want %d", i, len(v), want)
		}
		if norm := dot(v, v); norm == 0 || math.IsNaN(norm) || math.IsInf(norm, 0) {
			t.Errorf("the squared length of vector %d is %v, want a finite number above 0", i, norm)
		}
	}
	return resp.Vectors, nil
}

// mustEmbed is embed of texts in a plain request, which must succeed.
func (b *backendTest) mustEmbed(t testing.TB, texts ...string) [][]float32 {
	t.Helper()
	vectors, err := b.embed(t, b.embeddingRequest(texts...))
	if err != nil {
		t.Fatalf("Embed of %d texts returned the error %v, want nil", len(texts), err)
	}
	return vectors
}

func dot(a, b []float32) float64 {
	var sum float64
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}

func cosine(a, b []float32) float64 { return dot(a, b) / math.Sqrt(dot(a, a)*dot(b, b)) }

// sampleTexts have vectors that are far from each other.
var sampleTexts = []string{
	"The recipe asks for two eggs, a cup of flour and some butter.",
	"The court of appeal dismissed the claim with costs.",
	"func main() { fmt.Println(x) }",
	"\u6771\u4eac\u306f\u65e5\u672c\u306e\u9996\u90fd\u3067\u3059\u3002",
	"x",
}

func checkEmbeddings(t testing.TB, b backendTest) {
	one, all := b.mustEmbed(t, sampleTexts[0]), b.mustEmbed(t, sampleTexts...)
	if len(one[0]) != len(all[0]) {
		t.Errorf("vectors had %d dimensions and then %d, want the same", len(one[0]), len(all[0]))
	}
	unusual := []string{sampleTexts[0], sampleTexts[0], " ", "\n", "\x00", "\U0001f642", strings.Repeat("word ", 200)}
	tokens := func(tokens ...[]int) func(*llm.EmbeddingRequest) {
		return func(r *llm.EmbeddingRequest) { r.Input = llm.EmbeddingInput{Tokens: tokens} }
	}
	for _, change := range []func(*llm.EmbeddingRequest){
		func(r *llm.EmbeddingRequest) { r.Input.Texts = unusual },
		func(r *llm.EmbeddingRequest) { r.Input.Texts = slices.Repeat(sampleTexts, 20) },
		tokens([]int{1, 2, 3}),
		tokens([]int{1, 2, 3}, []int{4}),
		func(r *llm.EmbeddingRequest) { r.EncodingFormat = "base64" },
		func(r *llm.EmbeddingRequest) { r.Dimensions = new(max(1, len(one[0])/2)) },
		func(r *llm.EmbeddingRequest) { r.Extra = llm.Extra{"x_unknown": json.RawMessage(`1`)} },
	} {
		req := b.embeddingRequest(sampleTexts...)
		change(req)
		if _, err := b.embed(t, req); err != nil {
			wantClientError(t, err)
		}
	}
	const calls = 8
	runConcurrently(t, calls, func(int) {
		if resp, err := ability.Call(llmhttp.Embedder.Embed)(t.Context(), b.Backend, b.embeddingRequest("one", "two")); err != nil || len(resp.Vectors) != 2 {
			t.Errorf("one of %d concurrent calls of Embed returned %+v and the error %v, want 2 vectors", calls, resp, err)
		}
	})
}

// checkEmbeddingOrder compares the vectors of several texts with those that the
// texts get in requests of their own.
func checkEmbeddingOrder(t testing.TB, b backendTest) {
	all := b.mustEmbed(t, sampleTexts...)
	for i, text := range sampleTexts {
		alone := b.mustEmbed(t, text)[0]
		for k, other := range all {
			if len(alone) != len(other) {
				t.Fatalf("vectors had %d dimensions and then %d, want the same", len(alone), len(other))
			}
			if k != i && cosine(alone, other) >= cosine(alone, all[i]) {
				t.Errorf(
					"the vector of input %d alone is more similar to vector %d of all inputs than to vector %d, want the latter",
					i,
					k,
					i,
				)
			}
		}
	}
}
