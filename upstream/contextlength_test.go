package upstream_test

import (
	"encoding/json"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/messages"
	"github.com/llmhttp/llmhttp/responses"
)

// A prompt that is too long has one code or wording in each format, however the server says it, and whether it says so
// with a status or in the first event.
func TestErrors_PromptTooLong(t *testing.T) {
	const numbers, none = "prompt is too long: 9000 tokens > 8192 maximum", ""
	for name, test := range map[string]struct {
		status  int
		body    string
		message string // in Messages; empty if it has no numbers
	}{
		"vLLM":             {400, `{"error":{"message":"This model's maximum context length is 8192 tokens. However, you requested 9000 tokens in the messages","type":"BadRequestError","code":400}}`, numbers},
		"vLLM, flat":       {400, `{"object":"error","message":"This model's maximum context length is 8192 tokens. However, you requested 9000 tokens","type":"BadRequestError","param":null,"code":400}`, numbers},
		"SGLang":           {400, `{"object":"error","message":"The input (9000 tokens) is longer than the model's context length (8192 tokens).","type":"BadRequest","param":null,"code":400}`, numbers},
		"llama.cpp":        {400, `{"error":{"code":400,"message":"request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":8192}}`, numbers},
		"llama.cpp, older": {400, `{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":8192}}`, numbers},
		"OpenRouter":       {400, `{"error":{"message":"This endpoint's maximum context length is 8192 tokens. However, you requested about 9000 tokens (9000 of text input).","code":400,"metadata":{"provider_name":null}}}`, numbers},
		"OpenRouter, of a provider": {400, `{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\"error\":{\"message\":\"This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.\",\"code\":\"context_length_exceeded\"}}","provider_name":"P"}}}`,
			numbers},
		"TGI":       {422, "{\"error\":\"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8192. Given: 9000 `inputs` tokens and 100 `max_new_tokens`\",\"error_type\":\"validation\"}", numbers},
		"Ollama":    {400, `{"error":{"message":"prompt too long; exceeded max context length by 808 tokens","type":"invalid_request_error","param":null,"code":null}}`, none},
		"Mistral":   {400, `{"object":"error","message":"Prompt contains 9000 tokens and 0 draft tokens, too large for model with 8192 maximum context length","type":"invalid_request_error","param":null,"code":3051}`, numbers},
		"DeepSeek":  {400, `{"error":{"message":"This model's maximum context length is 8192 tokens. However, you requested 9000 tokens (8900 in the messages, 100 in the completion). Please reduce the length of the messages or completion.","type":"invalid_request_error","param":null,"code":"invalid_request_error"}}`, numbers},
		"Anthropic": {400, `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 9000 tokens > 8192 maximum"}}`, numbers},
		"Bedrock":   {413, `{"message":"Prompt is too long"}`, none},
		"Gemini":    {400, `[{"error":{"code":400,"message":"The input token count (9000) exceeds the maximum number of tokens allowed (8192).","status":"INVALID_ARGUMENT"}}]`, numbers},
		"MiniMax":   {200, `{"choices":null,"base_resp":{"status_code":2013,"status_msg":"invalid params, context window exceeds limit"},"usage":{"total_tokens":0}}`, none},
		"OpenAI":    {400, `{"error":{"message":"Your input exceeds the context window of this model.","type":"invalid_request_error","param":"input","code":"context_length_exceeded"}}`, none},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			for _, firstEvent := range []bool{false, true} {
				s := newRawServer(t, func(c net.Conn, _ *rawRequest) {
					if firstEvent {
						writeReply(c, 200, mediaEvents, eventStream(test.body))
					} else {
						writeReply(c, test.status, mediaJSON, test.body)
					}
				})
				g := newGateway(t, s.url(), nil, func(o *llmhttp.Options) {
					o.Protocols = []llmhttp.Protocol{messages.New(nil), responses.New(nil)}
				})
				for path, ask := range map[string]string{
					chatPath:          `{"model":"m","messages":[{"role":"user","content":"Hi"}]`,
					"/v1/completions": `{"model":"m","prompt":"Hi"`,
					"/v1/responses":   `{"model":"m","input":"Hi"`,
					"/v1/messages":    `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"Hi"}]`,
				} {
					for _, stream := range []string{`,"stream":false}`, `,"stream":true}`} {
						got := g.do("POST", path, ask+stream)
						require.Equal(t, 400, got.StatusCode, "%s %s", path, got.body)
						if path != "/v1/messages" {
							assert.Equal(t, "context_length_exceeded", readError(t, got.body).Code, path)
							continue
						}
						var e struct {
							Error struct{ Type, Message string }
						}
						require.NoError(t, json.Unmarshal([]byte(got.body), &e))
						assert.Equal(t, "invalid_request_error", e.Error.Type)
						if test.message != none {
							assert.Equal(t, test.message, e.Error.Message)
						} else {
							assert.True(t, strings.HasPrefix(e.Error.Message, "prompt is too long"), e.Error.Message)
						}
					}
				}
				assert.NotContains(t, g.log.String(), `"level":"ERROR"`)
			}
		})
	}
}
