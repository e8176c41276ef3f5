package llmhttptest

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/llmhttp/llmhttp"
)

// embed returns the vectors of input, and reports what is wrong with them.
func (b *backendTest) embed(t testing.TB, input any, n int, change func(*llmhttp.EmbeddingRequest)) ([][]float32, error) {
	t.Helper()
	raw, err := json.Marshal(input)
	if err != nil {
		t.Fatal(err)
	}
	req := &llmhttp.EmbeddingRequest{Model: b.EmbeddingModel}
	if err := json.Unmarshal(raw, &req.Input); err != nil {
		t.Fatal(err)
	}
	change(req)
	dimensions := req.Dimensions
	var resp *llmhttp.EmbeddingResponse
	if failed := b.call(t.Context(), func(ctx context.Context) { resp, err = b.forward().Embed(ctx, req) }); failed != nil {
		t.Fatalf("Embed: %v", failed)
	}
	supported(t, err)
	if err != nil {
		return nil, err
	}
	if resp == nil {
		t.Fatal("Embed returned neither a response nor an error")
	}
	if len(resp.Vectors) != n {
		t.Fatalf("Embed returned %d vectors for %d inputs", len(resp.Vectors), n)
	}
	checkJSON(t, "the response", resp, resp.Extra)
	if resp.Usage != nil {
		checkUsage(t, "the response", resp.Usage)
	}
	for i, v := range resp.Vectors {
		switch {
		case len(v) == 0 || len(v) != len(resp.Vectors[0]):
			t.Fatalf("vector %d has %d dimensions, the first has %d", i, len(v), len(resp.Vectors[0]))
		case dimensions != nil && len(v) != *dimensions:
			t.Errorf("vector %d has %d dimensions, want %d", i, len(v), *dimensions)
		}
		if norm := dot(v, v); norm == 0 || math.IsNaN(norm) || math.IsInf(norm, 0) {
			t.Errorf("vector %d is zero, infinite or not a number", i)
		}
	}
	return resp.Vectors, nil
}

func dot(a, b []float32) float64 {
	var sum float64
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}

func cosine(a, b []float32) float64 { return dot(a, b) / math.Sqrt(dot(a, a)*dot(b, b)) }

// texts are as different as can be.
var texts = []string{
	"The recipe asks for two eggs, a cup of flour and some butter.",
	"The court of appeal dismissed the claim with costs.",
	"func main() { fmt.Println(x) }",
	"\u6771\u4eac\u306f\u65e5\u672c\u306e\u9996\u90fd\u3067\u3059\u3002",
	"x",
}

func checkEmbeddings(t testing.TB, b backendTest) {
	need(t, b.EmbeddingModel)
	plain := func(*llmhttp.EmbeddingRequest) {}
	one, err := b.embed(t, texts[0], 1, plain)
	if err != nil {
		t.Fatalf("Embed of a text: error %v", err)
	}
	all, err := b.embed(t, texts, len(texts), plain)
	if err != nil {
		t.Fatalf("Embed of several texts: error %v", err)
	}
	if len(one[0]) != len(all[0]) {
		t.Errorf("vectors have %d dimensions at one time and %d at another", len(one[0]), len(all[0]))
	}
	repeated := []string{texts[0], texts[0], " ", "\n", "\x00", "\U0001f642", strings.Repeat("word ", 200)}
	for _, c := range []struct {
		input  any
		n      int
		change func(*llmhttp.EmbeddingRequest)
	}{
		{repeated, len(repeated), plain},
		{slices.Repeat(texts, 20), 20 * len(texts), plain},
		{[]int{1, 2, 3}, 1, plain},
		{[][]int{{1, 2, 3}, {4}}, 2, plain},
		{texts, len(texts), func(r *llmhttp.EmbeddingRequest) { r.EncodingFormat = "base64" }},
		{texts, len(texts), func(r *llmhttp.EmbeddingRequest) { r.Dimensions = ptr(max(1, len(one[0])/2)) }},
		{texts, len(texts), func(r *llmhttp.EmbeddingRequest) { r.Extra = llmhttp.Extra{"x_unknown": json.RawMessage(`1`)} }},
	} {
		if _, err := b.embed(t, c.input, c.n, c.change); err != nil {
			checkRefusal(t, err)
		}
	}
	together(t, 8, func(int) {
		req := &llmhttp.EmbeddingRequest{Model: b.EmbeddingModel, Input: llmhttp.EmbeddingInput{Texts: []string{"one", "two"}}}
		if resp, err := b.forward().Embed(t.Context(), req); err != nil || len(resp.Vectors) != 2 {
			t.Errorf("one of 8 concurrent calls of Embed: error %v", err)
		}
	})
}

// checkEmbeddingOrder checks that each vector is that of its input: it is the
// most like the one that the input got when it was alone.
func checkEmbeddingOrder(t testing.TB, b backendTest) {
	need(t, b.EmbeddingModel)
	plain := func(*llmhttp.EmbeddingRequest) {}
	together, err := b.embed(t, texts, len(texts), plain)
	if err != nil {
		t.Fatalf("Embed of several texts: error %v", err)
	}
	for i, text := range texts {
		alone, err := b.embed(t, text, 1, plain)
		if err != nil {
			t.Fatalf("Embed of a text: error %v", err)
		}
		for k := range together {
			if len(alone[0]) != len(together[k]) {
				t.Fatalf("vectors have %d dimensions at one time and %d at another", len(alone[0]), len(together[k]))
			}
			if k != i && cosine(alone[0], together[k]) >= cosine(alone[0], together[i]) {
				t.Errorf("the vector of input %d is more like that of another input than like its own when it is alone", i)
			}
		}
	}
}

func checkEmbeddingUnknownModel(t testing.TB, b backendTest) {
	need(t, b.EmbeddingModel)
	if b.AnyModel {
		t.Skip("the Backend knows any model")
	}
	for _, model := range unknownModels(b.EmbeddingModel) {
		_, err := b.embed(t, texts[0], 1, func(r *llmhttp.EmbeddingRequest) { r.Model = model })
		if err == nil {
			t.Errorf("the model %q does not exist, but embeds", model)
			continue
		}
		checkRefusal(t, err)
	}
}

func checkEmbeddingCancelled(t testing.TB, b backendTest) {
	need(t, b.EmbeddingModel)
	req := &llmhttp.EmbeddingRequest{Model: b.EmbeddingModel, Input: llmhttp.EmbeddingInput{Texts: []string{"text"}}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.call(ctx, func(ctx context.Context) { _, _ = b.forward().Embed(ctx, req) }); err != nil {
		t.Errorf("Embed whose context was cancelled: %v", err)
	}
}
