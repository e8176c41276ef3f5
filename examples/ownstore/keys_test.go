package ownstore_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/examples/ownstore"
	"github.com/llmhttp/llmhttp/llm"
)

// answer replies with one word and counts 7 tokens.
func answer(context.Context, *llm.ChatRequest) llm.ChatStream {
	return func(yield func(*llm.ChatChunk, error) bool) {
		chunk := llm.TextChunk("yes")
		chunk.Usage = &llm.Usage{PromptTokens: 5, CompletionTokens: 2, TotalTokens: 7}
		yield(chunk, nil)
	}
}

// newHandler returns a Handler with both stores. Customer acme has the keys sk-one, which is limited
// to 2 requests a minute, and sk-two. customer has the limits of acme.
func newHandler(t testing.TB, requestsPerMinute, tokensPerMonth any) (http.Handler, *ownstore.UsageStore) {
	db := openDB(t)
	_, err := db.Exec(ownstore.KeySchema)
	require.NoError(t, err)
	_, err = db.Exec("INSERT INTO customers VALUES ('acme', ?, ?)", requestsPerMinute, tokensPerMonth)
	require.NoError(t, err)
	_, err = db.Exec("INSERT INTO api_keys VALUES (?, 'one', 'acme', 2, true), (?, 'two', 'acme', NULL, true), (?, 'old', 'acme', NULL, false)",
		llmhttp.HashSecret("sk-one"), llmhttp.HashSecret("sk-two"), llmhttp.HashSecret("sk-old"))
	require.NoError(t, err)
	usage, err := ownstore.OpenUsage(t.Context(), db)
	require.NoError(t, err)
	return llmhttp.NewHandler(llmhttp.BackendFunc(answer), &ownstore.Keys{DB: db}, &llmhttp.Options{Usage: usage}), usage
}

// post sends a chat with a secret and returns the status and the code of the error.
func post(h http.Handler, secret string) string {
	r := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(`{"model":"m","max_tokens":10,"messages":[{"role":"user","content":"Is it?"}]}`))
	r.Header.Set("Authorization", "Bearer "+secret)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	_, code, _ := strings.Cut(w.Body.String(), `"code":`)
	code, _, _ = strings.Cut(code, "}")
	return strings.TrimSpace(fmt.Sprint(w.Code, " ", code))
}

func TestKeys(t *testing.T) {
	for name, test := range map[string]struct {
		requestsPerMinute, tokensPerMonth any
		secrets                           []string
		want                              []string
	}{
		"unknown":           {nil, nil, []string{"sk-three", "", "sk-old"}, []string{`401 "invalid_api_key"`, "401 null", `401 "invalid_api_key"`}},
		"limit of a key":    {nil, nil, []string{"sk-one", "sk-one", "sk-one", "sk-two", "sk-two", "sk-two"}, []string{"200", "200", `429 "rate_limit_exceeded"`, "200", "200", "200"}},
		"limit of all keys": {3, nil, []string{"sk-one", "sk-two", "sk-two", "sk-two", "sk-one"}, []string{"200", "200", "200", `429 "rate_limit_exceeded"`, `429 "rate_limit_exceeded"`}},
		"quota of all keys": {nil, 21, []string{"sk-one", "sk-two"}, []string{"200", `429 "insufficient_quota"`}},
		"nothing allowed":   {0, nil, []string{"sk-two"}, []string{`429 "rate_limit_exceeded"`}},
		"no tokens":         {nil, 0, []string{"sk-two"}, []string{`429 "insufficient_quota"`}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // in which no time passes
				h, _ := newHandler(t, test.requestsPerMinute, test.tokensPerMonth)
				var got []string
				for _, secret := range test.secrets {
					got = append(got, post(h, secret))
				}
				assert.Equal(t, test.want, got)
			})
		})
	}
}

// The Handler records the usage of the key and the customer.
func TestUsage(t *testing.T) {
	h, usage := newHandler(t, nil, nil)
	for _, secret := range []string{"sk-one", "sk-two", "sk-two"} {
		require.Equal(t, "200", post(h, secret))
	}
	for key, want := range map[string]int64{"": 3, "one": 1, "two": 2} {
		q := llmhttp.UsageQuery{Account: "acme", From: time.Now().Add(-time.Hour), To: time.Now().Add(time.Hour)}
		if key != "" {
			q.Subject = llmhttp.SubjectID{Kind: llmhttp.KindKey, ID: key}
		}
		sums, err := usage.Query(t.Context(), q)
		require.NoError(t, err)
		require.Len(t, sums, 1)
		assert.Equal(t, want, sums[0].Requests)
		assert.Equal(t, 7*want, sums[0].Units.Tokens())
	}
}
