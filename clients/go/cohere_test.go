package clients

import (
	"errors"
	"testing"

	cohere "github.com/cohere-ai/cohere-go/v2"
	"github.com/cohere-ai/cohere-go/v2/core"
	"github.com/cohere-ai/cohere-go/v2/option"
	coherev2 "github.com/cohere-ai/cohere-go/v2/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCohere_Rerank(t *testing.T) {
	s := start(t)
	client := coherev2.NewClient(option.WithBaseURL(s.url), option.WithToken(key), option.WithMaxAttempts(1))
	ask := func(model string, topN *int) (*cohere.V2RerankResponse, error) {
		return client.Rerank(t.Context(), &cohere.V2RerankRequest{
			Model: model, Query: "How is the weather in Bergen?", TopN: topN,
			Documents: []string{"A recipe for bread.", "How is the weather in Bergen?", "In Bergen the weather is rainy."},
		})
	}
	resp, err := ask("demo-rerank", nil)
	require.NoError(t, err)
	require.Len(t, resp.Results, 3)
	for i, want := range []int{1, 2, 0} {
		assert.Equal(t, want, resp.Results[i].Index)
	}
	assert.InDelta(t, 1, resp.Results[0].RelevanceScore, 1e-6)
	require.NotNil(t, resp.Id)
	assert.InDelta(t, 1, *resp.Meta.BilledUnits.SearchUnits, 0)
	assert.Positive(t, *resp.Meta.Tokens.InputTokens)

	resp, err = ask("demo-rerank", cohere.Int(1))
	require.NoError(t, err)
	require.Len(t, resp.Results, 1)

	_, err = ask("missing", nil)
	failed, _ := errors.AsType[*core.APIError](err)
	if notFound, ok := errors.AsType[*cohere.NotFoundError](err); ok {
		failed = notFound.APIError
	}
	require.NotNil(t, failed, "%v", err)
	assert.Equal(t, 404, failed.StatusCode)
}
