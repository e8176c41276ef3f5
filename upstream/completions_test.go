package upstream_test

import (
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/upstream"
)

// The replies of servers to a request with two prompts, whole.
func TestCompletions(t *testing.T) {
	const two = `{"model":"m","prompt":["x","y"],"logprobs":1}`
	const texts = `"choices":[{"text":"a","index":0,"logprobs":null,"finish_reason":"stop"},{"text":"b","index":1,"logprobs":null,"finish_reason":"length"}]`
	for _, test := range []struct {
		name, body string
		status     int
		want       string
	}{
		{"vLLM", `{"id":"cmpl-1","object":"text_completion","created":7,"model":"m","choices":[{"index":0,"text":"a","logprobs":null,"finish_reason":"stop","stop_reason":null,"prompt_logprobs":null},{"index":1,"text":"b","logprobs":null,"finish_reason":"length","stop_reason":null,"prompt_logprobs":null}],"usage":{"prompt_tokens":2,"total_tokens":4,"completion_tokens":2,"prompt_tokens_details":null}}`, 200, texts},
		{"llama.cpp", `{"choices":[{"text":"a","index":0,"logprobs":null,"finish_reason":"stop"},{"text":"b","index":1,"logprobs":null,"finish_reason":"length"}],"created":7,"model":"m","system_fingerprint":"b1","object":"text_completion","usage":{"completion_tokens":2,"prompt_tokens":2,"total_tokens":4},"id":"chatcmpl-1","timings":{"prompt_n":1}}`, 200, texts},
		{"Ollama", `{"id":"cmpl-1","object":"text_completion","created":7,"model":"m","system_fingerprint":"fp_ollama","choices":[{"text":"a","index":0,"finish_reason":"stop"},{"text":"b","index":1,"finish_reason":"length"}],"usage":{"prompt_tokens":2,"completion_tokens":2,"total_tokens":4}}`, 200, texts},
		{"log probabilities", `{"choices":[{"text":"a","index":0,"logprobs":{"tokens":["a"],"token_logprobs":[-0.5],"top_logprobs":[{"a":-0.5}],"text_offset":[0]}},{"text":"b","index":1}],"usage":{"prompt_tokens":2,"completion_tokens":2}}`, 200,
			`{"text":"a","index":0,"finish_reason":"stop","logprobs":{"tokens":["a"],"token_logprobs":[-0.5],"top_logprobs":[{"a":-0.5}],"text_offset":[0]}}`},
		{"an empty text", `{"choices":[{"text":"","index":0},{"text":null,"index":1}],"usage":{"prompt_tokens":2,"completion_tokens":2}}`, 200, `{"text":"","index":1,"logprobs":null,"finish_reason":"stop"}`},
		{"no choices", `{"choices":[]}`, 502, ``},
		{"error", `{"error":{"message":"boom"}}`, 502, ``},
		{"flat error", `{"object":"error","message":"suffix is not currently supported","code":400}`, 400, `suffix is not currently supported`},
	} {
		t.Run(test.name, func(t *testing.T) {
			checkLeaks(t)
			s := newRawServer(t, func(c net.Conn, r *rawRequest) { writeReply(c, 200, mediaJSON, test.body) })
			g := newGateway(t, s.url(), nil)
			got := g.do("POST", "/v1/completions", two)
			require.Equal(t, test.status, got.StatusCode, "%s", got.body)
			assert.Contains(t, got.body, test.want)
			if test.status == 200 {
				assert.EqualValues(t, 2, g.recordedUsage(1).Units.CompletionTokens)
			}
		})
	}
}

func TestCompletions_Stream(t *testing.T) {
	checkLeaks(t)
	piece := func(text string) string {
		return `{"id":"cmpl-1","object":"text_completion","created":7,"model":"vendor/m","choices":[{"index":0,"text":` + text + `,"logprobs":null,"finish_reason":null}]}`
	}
	events := eventStream(piece(`"one"`), piece(`" two"`), piece(`" three"`), piece(`"\n\ud83d"`), piece(`"\ude42"`),
		`{"id":"cmpl-1","choices":[{"index":0,"text":"","finish_reason":"length"}]}`, `{"choices":[],"usage":{"prompt_tokens":2,"completion_tokens":5}}`, "[DONE]")
	s := newRawServer(t, func(c net.Conn, r *rawRequest) {
		writeHead(c, mediaEvents)
		writePiece(c, events)
		writePiece(c, "")
	})
	g := newGateway(t, s.url(), &upstream.Options{Models: map[string]string{"ours": "vendor/m"}})
	got := g.do("POST", "/v1/completions", `{"model":"ours","prompt":[1,2],"suffix":"x","echo":false,"max_tokens":5,"stream":true,"seed":7}`)
	require.Equal(t, 200, got.StatusCode, got.body)
	assert.Equal(t, "/v1/completions", s.last().URL.RequestURI())
	assert.JSONEq(t, `{"model":"vendor/m","prompt":[1,2],"suffix":"x","max_tokens":5,"stream":true,"stream_options":{"include_usage":true},"seed":7}`, s.last().body)
	for _, text := range []string{"one", " two", " three", `\n`, "🙂"} {
		assert.Contains(t, got.body, `"model":"ours","choices":[{"text":"`+text+`","index":0,"logprobs":null,"finish_reason":null}]`)
	}
	assert.Contains(t, got.body, `{"text":"","index":0,"logprobs":null,"finish_reason":"length"}`)
	assert.True(t, strings.HasSuffix(got.body, "data: [DONE]\n\n"))
	assert.EqualValues(t, 5, g.recordedUsage(1).Units.CompletionTokens)
}

// A server without the endpoint is a 404.
func TestCompletions_Errors(t *testing.T) {
	s := newRawServer(t, func(c net.Conn, r *rawRequest) { writeReply(c, 404, mediaJSON, `{"detail":"Not Found"}`) })
	g := newGateway(t, s.url(), nil)
	assert.Contains(t, g.do("POST", "/v1/completions", `{"model":"m","prompt":"a"}`).requireError(t, 404).Message, "Invalid URL (POST /v1/completions)")
}
