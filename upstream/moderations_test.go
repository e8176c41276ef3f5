package upstream_test

import (
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/upstream"
)

func TestModerations(t *testing.T) {
	const two = `{"model":"m","input":["a","b"]}`
	for _, test := range []struct {
		name, body string
		status     int
		want       string
	}{
		{"OpenAI", `{"id":"modr-1","model":"omni-moderation-2024-09-26","results":[{"flagged":true,"categories":{"hate":true},"category_scores":{"hate":0.75},"category_applied_input_types":{"hate":["text"]}},{"flagged":false,"categories":{"hate":false},"category_scores":{"hate":1.5e-7},"category_applied_input_types":{"hate":["text"]}}]}`, 200,
			`{"id":"modr-1","model":"omni-moderation-2024-09-26","results":[{"flagged":true,"categories":{"hate":true},"category_scores":{"hate":0.75},"category_applied_input_types":{"hate":["text"]}},{"flagged":false,"categories":{"hate":false},"category_scores":{"hate":1.5e-7},"category_applied_input_types":{"hate":["text"]}}],"usage":`},
		{"Mistral", `{"id":"1","usage":{"prompt_tokens":7,"total_tokens":9,"completion_tokens":2},"model":"mistral-moderation-2411","results":[{"category_scores":{"pii":0.5},"categories":{"pii":true}},{"category_scores":{"pii":0},"categories":{"pii":false}}]}`, 200,
			`"results":[{"flagged":false,"categories":{"pii":true},"category_scores":{"pii":0.5}},{"flagged":false,"categories":{"pii":false},"category_scores":{"pii":0}}],"usage":{"prompt_tokens":7,`},
		{"too few results", `{"results":[{"flagged":true}]}`, 502, ``},
		{"no results", `{}`, 502, ``},
		{"error", `{"error":{"message":"boom"}}`, 502, ``},
		{"flat error", `{"object":"error","message":"boom","code":400}`, 400, ``},
	} {
		t.Run(test.name, func(t *testing.T) {
			checkLeaks(t)
			s := newRawServer(t, func(c net.Conn, r *rawRequest) { writeReply(c, 200, mediaJSON, test.body) })
			g := newGateway(t, s.url(), nil)
			got := g.do("POST", "/v1/moderations", two)
			require.Equal(t, test.status, got.StatusCode, "%s", got.body)
			assert.Contains(t, got.body, test.want)
		})
	}
}

// The server gets the input as the client sent it, and its own name of the model.
func TestModerations_Request(t *testing.T) {
	s := newRawServer(t, func(c net.Conn, r *rawRequest) {
		writeReply(c, 200, mediaJSON, `{"model":"vendor/m","results":[{"flagged":false}]}`)
	})
	g := newGateway(t, s.url(), &upstream.Options{Models: map[string]string{"ours": "vendor/m"}})
	for _, input := range []string{`"a"`, `[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"https://images.test/1"}}]`} {
		got := g.do("POST", "/v1/moderations", `{"model":"ours","input":`+input+`,"user":"u"}`)
		require.Equal(t, 200, got.StatusCode, got.body)
		assert.Equal(t, "/v1/moderations", s.last().URL.RequestURI())
		assert.Equal(t, `{"model":"vendor/m","input":`+input+`,"user":"u"}`, s.last().body)
		assert.Contains(t, got.body, `"model":"ours"`)
	}
}

// A server without the endpoint is a 404.
func TestModerations_Errors(t *testing.T) {
	s := newRawServer(t, func(c net.Conn, r *rawRequest) { writeReply(c, 404, mediaJSON, `{"detail":"Not Found"}`) })
	g := newGateway(t, s.url(), nil)
	assert.Contains(t, g.do("POST", "/v1/moderations", `{"input":"a"}`).requireError(t, 404).Message, "Invalid URL (POST /v1/moderations)")
}
