package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/memory"
)

// The endpoint has the keys, scopes, models, limits, prices and records of the others.
func TestClassify(t *testing.T) {
	const valid = `{"model":"words","text":"Rain, rain, go away!","labels":["rain","sun"],"user":"ada"}`
	for name, tt := range map[string]struct {
		key      llmhttp.Key
		backend  llmhttp.Backend
		body     string
		status   int
		contains string
	}{
		"complete":          {body: valid, status: 200, contains: `{"scores":{"rain":0.5,"sun":0},"usage":{"prompt_tokens":4,"completion_tokens":0,"total_tokens":4}}`},
		"missing member":    {body: `{"model":"words"}`, status: 400, contains: "must not be empty"},
		"unknown type":      {body: `{"model":1}`, status: 400, contains: `"param":"model"`},
		"scope":             {key: llmhttp.Key{Scopes: []llmhttp.Scope{llmhttp.ScopeChat}}, body: valid, status: 403, contains: "Missing scope: classify"},
		"own scope":         {key: llmhttp.Key{Scopes: []llmhttp.Scope{"classify"}}, body: valid, status: 200, contains: "rain"},
		"model":             {key: llmhttp.Key{Models: []string{"other"}}, body: valid, status: 404, contains: "model_not_found"},
		"tokens":            {key: llmhttp.Key{Limits: llmhttp.Limits{Tokens: llmhttp.PerMinute(1)}}, body: valid, status: 429, contains: "rate_limit"},
		"quota":             {key: llmhttp.Key{Limits: llmhttp.Limits{Quota: llmhttp.Quota{Cost: 1}}}, body: valid, status: 429, contains: "insufficient_quota"},
		"another interface": {backend: memory.Echo(), body: valid, status: 404, contains: "Invalid URL (POST /v1/classify)"},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.backend == nil {
				tt.backend = Words{memory.Echo()}
			}
			key := tt.key
			key.ID, key.Account = "k", "a"
			var records []llmhttp.UsageRecord
			h := llmhttp.NewHandler(tt.backend, llmhttp.KeyStoreFunc(func(context.Context, string) (*llmhttp.Key, error) { return &key, nil }), &llmhttp.Options{
				Usage: recorder{memory.NewUsageStore(), &records},
				Price: func(r *llmhttp.UsageRecord) (llmhttp.Cost, error) {
					return llmhttp.Cost{Input: llmhttp.Money(r.Units.PromptTokens)}, nil
				},
				Routes: []llmhttp.Route{llmhttp.NewRoute("POST /v1/classify", endpoint, classify)},
			})
			r := httptest.NewRequest(http.MethodPost, "/v1/classify", strings.NewReader(tt.body))
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			assert.Equal(t, tt.status, w.Code, w.Body)
			assert.Contains(t, w.Body.String(), tt.contains)
			if tt.status != 200 {
				assert.Empty(t, records)
				return
			}
			require.Len(t, records, 1)
			assert.EqualValues(t, "classify", records[0].Operation)
			assert.Equal(t, "ada", records[0].User)
			assert.EqualValues(t, 4, records[0].Units.PromptTokens)
			assert.EqualValues(t, 4, records[0].Cost.Input)
		})
	}
}

// A recorder keeps what is recorded.
type recorder struct {
	llmhttp.UsageStore
	records *[]llmhttp.UsageRecord
}

func (r recorder) Record(ctx context.Context, records ...llmhttp.UsageRecord) error {
	*r.records = append(*r.records, records...)
	return r.UsageStore.Record(ctx, records...)
}
