package simulator_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmfake/simulator"
	"github.com/llmhttp/llmhttp/messages"
	"github.com/llmhttp/llmhttp/responses"
)

// The endpoints that count the tokens of a prompt agree with the usage of a chat.
func TestBackend_CountTokens(t *testing.T) {
	h := llmhttp.NewHandler(simulator.New(), llmhttp.AllowAll(""), &llmhttp.Options{
		Protocols: []llmhttp.Protocol{messages.New(nil), responses.New(nil)}})
	post := func(path, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "http://localhost"+path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Anthropic-Version", "2023-06-01")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	const prompt = `"Three words here, and more."`
	const want = `"input_tokens":5,`
	for _, ask := range []struct{ path, body string }{
		{"/v1/messages", `{"model":"demo-chat","max_tokens":10,"messages":[{"role":"user","content":` + prompt + `}]}`},
		{"/v1/messages/count_tokens", `{"model":"demo-chat","messages":[{"role":"user","content":` + prompt + `}]}`},
		{"/v1/responses", `{"model":"demo-chat","input":` + prompt + `}`},
		{"/v1/responses/input_tokens", `{"model":"demo-chat","input":` + prompt + `}`},
	} {
		w := post(ask.path, ask.body)
		require.Equal(t, 200, w.Code, "%s", w.Body)
		assert.Contains(t, strings.ReplaceAll(w.Body.String(), "}", ","), want, ask.path)
	}
	w := post("/v1/messages/count_tokens", `{"model":"other","messages":[{"role":"user","content":"x"}]}`)
	assert.Equal(t, 404, w.Code)
	n, err := simulator.New().CountTokens(t.Context(), &llm.ChatRequest{Model: simulator.ModelChat})
	require.NoError(t, err)
	assert.Zero(t, n)
}
