package classify_test

import (
	"context"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/examples/ownendpoint/classify"
	"github.com/llmhttp/llmhttp/examples/ownendpoint/classify/classifytest"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
)

// words is a Backend that counts how often a text has a label.
type words struct{ llmhttp.Backend }

// Classify implements [classify.Classifier].
func (words) Classify(ctx context.Context, req *classify.Request) iter.Seq2[*classify.Score, error] {
	return func(yield func(*classify.Score, error) bool) {
		list := strings.FieldsFunc(strings.ToLower(req.Text), func(c rune) bool { return strings.ContainsRune(" .,!?", c) })
		for _, label := range req.Labels {
			n := 0
			for _, w := range list {
				if w == strings.ToLower(label) {
					n++
				}
			}
			score := &classify.Score{Label: label, Score: float64(n) / float64(max(len(list), 1)), Usage: &llm.Usage{PromptTokens: len(list)}}
			if ctx.Err() != nil || !yield(score, nil) {
				return
			}
		}
	}
}

func Example() {
	server := httptest.NewServer(llmhttp.NewHandler(words{memory.Echo()}, memory.NewKeyStore("sk-demo"), &llmhttp.Options{Routes: classify.Routes()}))
	defer server.Close()
	r, _ := http.NewRequest(http.MethodPost, server.URL+"/v1/classify",
		strings.NewReader(`{"model":"words","text":"Rain, rain, go away!","labels":["rain","sun"],"stream":true}`))
	r.Header.Set("Authorization", "Bearer sk-demo")
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	reply, _ := io.ReadAll(resp.Body)
	fmt.Print(string(reply))
	// Output:
	// data: {"label":"rain","score":0.5}
	//
	// data: {"label":"sun","score":0}
	//
	// data: {"usage":{"prompt_tokens":4,"completion_tokens":0,"total_tokens":4}}
}

// The endpoint has the keys, scopes, models, limits, prices and records of the others.
func TestClassify(t *testing.T) {
	const valid = `{"model":"words","text":"Rain, rain, go away!","labels":["rain","sun"],"user":"ada"}`
	stream := strings.TrimSuffix(valid, "}") + `,"stream":true}`
	for name, tt := range map[string]struct {
		key      llmhttp.Key
		backend  llmhttp.Backend
		body     string
		status   int
		contains string
	}{
		"complete": {body: valid, status: 200, contains: `{"scores":[{"label":"rain","score":0.5},{"label":"sun","score":0}],"usage":{"prompt_tokens":4,"completion_tokens":0,"total_tokens":4}}`},
		"stream": {body: stream, status: 200, contains: "data: {\"label\":\"rain\",\"score\":0.5}\n\n" +
			"data: {\"label\":\"sun\",\"score\":0}\n\n" + "data: {\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":0,\"total_tokens\":4}}\n\n"},
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
				tt.backend = words{memory.Echo()}
			}
			key := tt.key
			key.ID, key.Account = "k", "a"
			var records []llmhttp.UsageRecord
			h := llmhttp.NewHandler(tt.backend, llmhttp.KeyStoreFunc(func(context.Context, string) (*llmhttp.Key, error) { return &key, nil }), &llmhttp.Options{
				Usage: recorder{memory.NewUsageStore(), &records},
				Price: func(r *llmhttp.UsageRecord) (llmhttp.Cost, error) {
					return llmhttp.Cost{Input: llm.Money(r.Units.PromptTokens)}, nil
				},
				Routes: classify.Routes(),
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

func TestWords(t *testing.T) { classifytest.Test(t, words{memory.Echo()}, "words") }
