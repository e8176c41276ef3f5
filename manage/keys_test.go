package manage_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage"
)

// The JSON of encoding/json keeps nil lists, which allow everything, apart from empty ones,
// which allow nothing.
func TestKeyParams_ListsInJSON(t *testing.T) {
	for _, want := range []manage.KeyInfo{
		{},
		{Key: llmhttp.Key{Scopes: []llmhttp.Scope{}, Models: []string{}}},
		{Key: llmhttp.Key{Scopes: []llmhttp.Scope{llmhttp.ScopeChat}, Models: []string{"m"}}},
	} {
		for _, v := range []any{want, want.Params()} {
			b, err := json.Marshal(v)
			require.NoError(t, err)
			var got struct {
				Scopes []llmhttp.Scope
				Models []string
			}
			require.NoError(t, json.Unmarshal(b, &got))
			assert.Equal(t, want.Scopes, got.Scopes, "%s", b)
			assert.Equal(t, want.Models, got.Models, "%s", b)
		}
	}
}

func TestKeyParams_Validate(t *testing.T) {
	assert.NoError(t, new(manage.KeyParams).Validate())
	assert.NoError(t, (&manage.KeyParams{Scopes: []llmhttp.Scope{"chat", "classify"}}).Validate())
	assert.ErrorContains(t, (&manage.KeyParams{Scopes: []llmhttp.Scope{"chat", "a b"}}).Validate(), `KeyParams.Scopes[1]: llmhttp: the scope "a b" is malformed`)
	assert.ErrorContains(t, (&manage.KeyParams{Limits: llmhttp.Limits{Requests: llmhttp.Rate{Burst: 1}}}).Validate(), "Limits.Requests")
}
