package upstream_test

import (
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/upstream"
)

// form returns the body of a request with the given fields and a file.
func form(file string, fields ...string) string {
	var b strings.Builder
	for i := 0; i < len(fields); i += 2 {
		b.WriteString("--b\r\nContent-Disposition: form-data; name=\"" + fields[i] + "\"\r\n\r\n" + fields[i+1] + "\r\n")
	}
	b.WriteString("--b\r\nContent-Disposition: form-data; name=\"" + file + "\"; filename=\"x.png\"\r\nContent-Type: image/png\r\n\r\n\x89PNG\r\n\x1a\nx\r\n--b--\r\n")
	return b.String()
}

// An error with the status 200 is that error for every endpoint, whether the server sends it whole or in a stream, and
// whatever the client has asked for.
func TestErrors_Status200(t *testing.T) {
	const chat, image, speech = `"messages":[{"role":"user","content":"Hi"}]`, `"prompt":"a cat"`, `"input":"Hi","voice":"alloy"`
	requests := []struct {
		name, path, body string
		streams          bool // a reply of the server that is a stream is read
	}{
		{"chat", chatPath, `{"model":"m",` + chat + `}`, true},
		{"chat, streamed", chatPath, `{"model":"m","stream":true,` + chat + `}`, true},
		{"completion", "/v1/completions", `{"model":"m","prompt":"Hi"}`, true},
		{"completion, streamed", "/v1/completions", `{"model":"m","prompt":"Hi","stream":true}`, true},
		{"embeddings", "/v1/embeddings", `{"model":"m","input":"Hi"}`, false},
		{"images", "/v1/images/generations", `{"model":"m",` + image + `}`, false},
		{"images, streamed", "/v1/images/generations", `{"model":"m","stream":true,` + image + `}`, true},
		{"edit", "/v1/images/edits", form("image", "model", "m", "prompt", "a cat"), false},
		{"edit, streamed", "/v1/images/edits", form("image", "model", "m", "prompt", "a cat", "stream", "true"), true},
		{"moderation", "/v1/moderations", `{"model":"m","input":"Hi"}`, false},
		{"rerank", "/v1/rerank", `{"model":"m","query":"Hi","documents":["a"]}`, false},
		{"speech", "/v1/audio/speech", `{"model":"m",` + speech + `}`, true},
		{"speech, streamed", "/v1/audio/speech", `{"model":"m","stream_format":"sse",` + speech + `}`, true},
		{"transcription", "/v1/audio/transcriptions", form("file", "model", "m"), true},
		{"transcription, streamed", "/v1/audio/transcriptions", form("file", "model", "m", "stream", "true"), true},
		{"translation", "/v1/audio/translations", form("file", "model", "m"), true},
		{"models", "/v1/models", "", false},
	}
	for name, body := range map[string]string{
		"OpenAI":          `{"error":{"message":"Slow.","type":"rate_limit_error","param":null,"code":null}}`,
		"vLLM":            `{"object":"error","message":"Slow.","type":"RateLimitError","param":null,"code":429}`,
		"Anthropic":       `{"type":"error","error":{"type":"rate_limit_error","message":"Slow."}}`,
		"a typed message": `{"type":"error","message":"Slow.","code":429}`,
		"MiniMax":         `{"choices":null,"base_resp":{"status_code":1002,"status_msg":"Slow."}}`,
		"Gemini":          `[{"error":{"code":429,"message":"Slow.","status":"RESOURCE_EXHAUSTED"}}]`,
		"Mistral":         `{"object":"error","message":{"detail":[{"loc":["body","x"],"msg":"Slow."}]},"type":"rate_limit_error"}`,
		"a message":       `{"code":429,"message":"Slow.","data":null}`,
		"Cloudflare":      `{"success":false,"errors":[{"code":429,"message":"Slow."}],"messages":[],"result":null}`,
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			for how, reply := range map[string]func(c net.Conn){
				"whole":          func(c net.Conn) { writeReply(c, 200, mediaJSON, body) },
				"event":          func(c net.Conn) { writeReply(c, 200, mediaEvents, eventStream(body)) },
				"error event":    func(c net.Conn) { writeReply(c, 200, mediaEvents, "event: error\n"+eventStream(body)) },
				"event and done": func(c net.Conn) { writeReply(c, 200, mediaEvents, eventStream(body, done)) },
			} {
				s := newRawServer(t, func(c net.Conn, _ *rawRequest) { reply(c) })
				g := newGateway(t, s.url(), &upstream.Options{TokenizePath: "/tokenize"})
				for _, ask := range requests {
					if how != "whole" && !ask.streams {
						continue
					}
					method := "POST"
					if ask.body == "" {
						method = "GET"
					}
					r := g.request(t.Context(), method, ask.path, ask.body)
					if strings.HasPrefix(ask.body, "--b") {
						r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
					}
					got := g.send(r)
					require.Equal(t, 429, got.StatusCode, "%s, %s: %s", ask.name, how, got.body)
					assert.Equal(t, "Slow.", readError(t, got.body).Message, "%s, %s", ask.name, how)
				}
				if how == "whole" {
					_, err := g.backend.CountTokens(t.Context(), &llm.ChatRequest{Model: "m", Messages: []llm.Message{{Role: llm.RoleUser, Content: llm.TextContent("Hi")}}})
					assert.ErrorContains(t, err, "Slow.")
				}
			}
		})
	}
}
