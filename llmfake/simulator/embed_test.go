package simulator_test

import (
	"context"
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmfake/simulator"
)

// embeddingRequest returns a request with an input in JSON.
func embeddingRequest(t testing.TB, input string) *llm.EmbeddingRequest {
	t.Helper()
	req := &llm.EmbeddingRequest{}
	require.NoError(t, json.Unmarshal([]byte(`{"model":"demo-embed","input":`+input+`}`), req))
	return req
}

func embed(t testing.TB, input string, dimensions *int) *llm.EmbeddingResponse {
	t.Helper()
	req := embeddingRequest(t, input)
	req.Dimensions = dimensions
	resp, err := simulator.New().Embed(t.Context(), req)
	require.NoError(t, err)
	return resp
}

func dotProduct(a, b []float32) float64 {
	var sum float64
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}

func TestBackend_Embed(t *testing.T) {
	for name, test := range map[string]struct {
		input  string
		count  int
		tokens int
	}{
		"one text":           {`"Hello, world!"`, 1, 2},
		"texts":              {`["Hello, world!","日本語","a"]`, 3, 6},
		"no letters":         {`["!", " ", "\n", "\u0000", "👋🏽"]`, 5, 5},
		"one list of tokens": {`[1,2,3]`, 1, 3},
		"lists of tokens":    {`[[1,2,3],[4]]`, 2, 4},
		"one token":          {`[0]`, 1, 1},
		"empty text":         {`[""]`, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			for _, dimensions := range []int{0, 1, 2, 7, 1536, 3072} {
				d := &dimensions
				if dimensions == 0 {
					d, dimensions = nil, 256
				}
				resp := embed(t, test.input, d)
				assert.Equal(t, simulator.ModelEmbed, resp.Model)
				assert.Equal(t, &llm.Usage{PromptTokens: test.tokens, TotalTokens: test.tokens}, resp.Usage)
				require.Len(t, resp.Vectors, test.count)
				for _, v := range resp.Vectors {
					assert.Len(t, v, dimensions)
					assert.InDelta(t, 1, math.Sqrt(dotProduct(v, v)), 1e-6)
				}
				assert.Equal(t, resp, embed(t, test.input, d), "the same input gives the same vectors")
			}
		})
	}
}

func TestBackend_EmbedSimilarity(t *testing.T) {
	v := embed(t, `["The cat sat on the mat.","A cat is sitting on a mat!","Stock markets fell sharply in Tokyo today.",
		"the cat sat on the mat","猫は庭で寝ています","猫は庭で遊んでいます","株価が下がった"]`, nil).Vectors
	assert.Greater(t, dotProduct(v[0], v[1]), dotProduct(v[0], v[2])+0.2)
	assert.InDelta(t, 1, dotProduct(v[0], v[3]), 1e-6, "case and punctuation are ignored")
	assert.Greater(t, dotProduct(v[4], v[5]), dotProduct(v[4], v[6])+0.2)

	n := embed(t, `[[1,2,3,4],[1,2,3,5],[9,8,7,6]]`, nil).Vectors
	assert.Greater(t, dotProduct(n[0], n[1]), dotProduct(n[0], n[2])+0.2)
}

func TestBackend_EmbedErrors(t *testing.T) {
	b := simulator.New()
	for _, dimensions := range []int{-1, 0, 3073, math.MaxInt32} {
		req := embeddingRequest(t, `"x"`)
		req.Dimensions = &dimensions
		_, err := b.Embed(t.Context(), req)
		var e *llm.Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, 400, e.Status)
		assert.Equal(t, "dimensions", e.Param)
	}
	req := embeddingRequest(t, `"x"`)
	req.Model = simulator.ModelChat
	_, err := b.Embed(t.Context(), req)
	assert.Equal(t, llm.ModelNotFound(simulator.ModelChat), err)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = b.Embed(ctx, embeddingRequest(t, `"x"`))
	assert.ErrorIs(t, err, context.Canceled)
}

func BenchmarkBackend_Embed(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		embed(b, `"The quick brown fox jumps over the lazy dog."`, nil)
	}
}
