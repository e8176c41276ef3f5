package upstream_test

import (
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/upstream"
)

func TestRerank(t *testing.T) {
	const two = `{"model":"m","query":"q","documents":["a",{"text":"b"}],"top_n":2}`
	const ranked = `"object":"list","model":"m","results":[{"index":1,"relevance_score":0.9},{"index":0,"relevance_score":0.1}]`
	for _, test := range []struct {
		name, body string
		status     int
		want       string
	}{
		{"Jina", `{"model":"m","usage":{"prompt_tokens":3,"total_tokens":3},"results":[{"index":1,"document":{"text":"b"},"relevance_score":0.9},{"index":0,"document":{"text":"a"},"relevance_score":0.1}]}`, 200,
			ranked + `,"usage":{"prompt_tokens":3,"total_tokens":3},"meta":{"api_version":{"version":"2"},"billed_units":{"search_units":1},"tokens":{"input_tokens":3}}}`},
		{"Cohere", `{"id":"r-1","results":[{"index":1,"relevance_score":0.9},{"index":0,"relevance_score":0.1}],"meta":{"api_version":{"version":"2","is_experimental":false},"billed_units":{"search_units":2},"tokens":{"input_tokens":3}}}`, 200,
			`{"id":"r-1",` + ranked + `,"usage":{"prompt_tokens":3,"total_tokens":3},"meta":{"api_version":{"version":"2"},"billed_units":{"search_units":2},"tokens":{"input_tokens":3}}}`},
		{"vLLM", `{"id":"rerank-1","model":"m","usage":{"total_tokens":3},"results":[{"index":0,"document":{"text":"a","multi_modal":null},"relevance_score":0.1},{"index":1,"document":{"text":"b","multi_modal":null},"relevance_score":0.9}]}`, 200,
			`{"id":"rerank-1",` + ranked + `,"usage":{"prompt_tokens":3,"total_tokens":3},"meta":`},
		{"llama.cpp", `{"model":"m","object":"list","usage":{"prompt_tokens":3,"total_tokens":3},"results":[{"index":0,"relevance_score":0.1},{"index":1,"relevance_score":0.9}]}`, 200,
			ranked + `,"usage":{"prompt_tokens":3,"total_tokens":3}`},
		{"a document that is a string", `{"model":"m","results":[{"index":0,"document":"a","relevance_score":0.1},{"index":1,"document":"b","relevance_score":0.9}],"usage":{"prompt_tokens":3}}`, 200, ranked},
		{"too few results", `{"results":[{"index":0,"relevance_score":0.1}]}`, 502, ``},
		{"no results", `{}`, 502, ``},
		{"index out of range", `{"results":[{"index":0,"relevance_score":0.1},{"index":2,"relevance_score":0.9}]}`, 502, ``},
		{"same index", `{"results":[{"index":0,"relevance_score":0.1},{"index":0,"relevance_score":0.9}]}`, 502, ``},
		{"no score", `{"results":[{"index":0},{"index":1,"relevance_score":0.9}]}`, 502, ``},
		{"NaN", `{"results":[{"index":0,"relevance_score":NaN},{"index":1,"relevance_score":0.9}]}`, 502, ``},
		{"the reply of Voyage", `{"data":[{"index":0,"relevance_score":0.1},{"index":1,"relevance_score":0.9}]}`, 502, ``},
		{"error", `{"error":{"message":"boom"}}`, 502, ``},
		{"flat error", `{"object":"error","message":"boom","code":400}`, 400, ``},
	} {
		t.Run(test.name, func(t *testing.T) {
			checkLeaks(t)
			s := newRawServer(t, func(c net.Conn, r *rawRequest) { writeReply(c, 200, mediaJSON, test.body) })
			g := newGateway(t, s.url(), nil)
			got := g.do("POST", "/v1/rerank", two)
			require.Equal(t, test.status, got.StatusCode, "%s", got.body)
			if test.want != "" {
				assert.Contains(t, got.body, test.want)
				assert.EqualValues(t, 3, g.recordedUsage(1).Units.PromptTokens)
			}
		})
	}
}

// The server gets documents as the client sent them, its own name of the model, and no request for
// documents that the Handler has.
func TestRerank_Request(t *testing.T) {
	s := newRawServer(t, func(c net.Conn, r *rawRequest) {
		writeReply(c, 200, mediaJSON, `{"model":"vendor/m","results":[{"index":0,"relevance_score":1},{"index":1,"relevance_score":0.5},{"index":2,"relevance_score":0.25}]}`)
	})
	g := newGateway(t, s.url(), &upstream.Options{Models: map[string]string{"ours": "vendor/m"}})
	got := g.do("POST", "/v2/rerank", `{"model":"ours","query":"q","documents":["a",{"text":"b","x":[1]},{"image":"data:,"}],"top_n":0,"return_documents":true,"max_tokens_per_doc":9}`)
	require.Equal(t, 200, got.StatusCode, got.body)
	assert.Equal(t, "/v1/rerank", s.last().URL.RequestURI())
	assert.Equal(t, `{"model":"vendor/m","query":"q","documents":["a",{"text":"b","x":[1]},{"image":"data:,"}],"max_tokens_per_doc":9}`, s.last().body)
	assert.Contains(t, got.body, `"model":"ours"`)
	assert.Contains(t, got.body, `{"index":1,"relevance_score":0.5,"document":{"text":"b","x":[1]}}`)
}

// A server without the endpoint is a 404, and the error of Cohere is told to the client.
func TestRerank_Errors(t *testing.T) {
	status, body := 404, `{"detail":"Not Found"}`
	s := newRawServer(t, func(c net.Conn, r *rawRequest) { writeReply(c, status, mediaJSON, body) })
	g := newGateway(t, s.url(), nil)
	const ask = `{"model":"m","query":"q","documents":["a"]}`
	assert.Contains(t, g.do("POST", "/v1/rerank", ask).requireError(t, 404).Message, "Invalid URL (POST /v1/rerank)")
	status, body = 400, `{"id":"1","message":"invalid request: too many documents"}`
	assert.Equal(t, "invalid request: too many documents", g.do("POST", "/v1/rerank", ask).requireError(t, 400).Message)
}
