package upstream_test

import (
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/llmhttp/llmhttp/upstream"
)

// TestErrors checks the status and body that clients get for errors of the server, and
// the error that is logged.
func TestErrors(t *testing.T) {
	const (
		failed   = "The model's server had an error. Please try again."
		overload = "The model is overloaded. Please try again."
		timeout  = "The model did not answer in time."
		noModel  = "The model `m` does not exist or you do not have access to it."
	)
	server := func(message string) apiError { return apiError{Message: message, Type: "server_error"} }
	for _, test := range []struct {
		name    string
		status  int
		body    string
		headers []string
		want    int
		err     apiError
		log     string
	}{
		{"bad request", 400, `{"error":{"message":"Invalid 'top_p'.","type":"invalid_request_error","param":"top_p","code":"decimal_above_max_value"}}`, nil,
			400, apiError{"Invalid 'top_p'.", "invalid_request_error", "top_p", "decimal_above_max_value"}, ""},
		{"nulls", 400, `{"error":{"message":"No.","type":null,"param":null,"code":null}}`, nil, 400, apiError{"No.", "invalid_request_error", "", ""}, ""},
		{"numeric code", 400, `{"error":{"message":"No.","type":"BadRequestError","code":400}}`, nil, 400, apiError{"No.", "BadRequestError", "", ""}, ""},
		{"error that is a string", 400, `{"error":"No."}`, nil, 400, apiError{"No.", "invalid_request_error", "", ""}, ""},
		{"flat", 400, `{"object":"error","message":"No.","type":"BadRequestError","param":null,"code":40001}`, nil, 400, apiError{"No.", "BadRequestError", "", ""}, ""},
		{"in an array", 400, `[{"error":{"message":"No.","status":"INVALID_ARGUMENT"}}]`, nil, 400, apiError{"No.", "invalid_request_error", "", ""}, ""},
		{"FastAPI", 422, `{"detail":[{"loc":["body","messages",0,"role"],"msg":"field required","type":"value_error"}]}`, nil,
			422, apiError{"field required", "invalid_request_error", "messages[0].role", ""}, ""},
		{"FastAPI with a string", 422, `{"detail":"No."}`, nil, 422, apiError{"No.", "invalid_request_error", "", ""}, ""},
		{"numeric code as a text", 400, `{"error":{"message":"No.","type":"invalid_request_error","code":"1210"}}`, nil, 400, apiError{"No.", "invalid_request_error", "", ""}, ""},
		{"Mistral", 422, `{"object":"error","message":{"detail":[{"type":"extra_forbidden","loc":["body","x"],"msg":"Extra inputs are not permitted","input":1}]},"type":"invalid_request_error","param":null,"code":null}`, nil,
			422, apiError{"Extra inputs are not permitted", "invalid_request_error", "x", ""}, ""},
		{"message that is a list", 400, `{"statusCode":400,"message":["x must be a string","y must be a number"],"error":"Bad Request"}`, nil, 400, apiError{"x must be a string; y must be a number", "invalid_request_error", "", ""}, ""},
		{"error that is a list", 400, `{"error":["x is missing"],"warnings":[]}`, nil, 400, apiError{"x is missing", "invalid_request_error", "", ""}, ""},
		{"detail that is an object", 400, `{"detail":{"error":{"message":"No.","param":"seed"}}}`, nil, 400, apiError{"No.", "invalid_request_error", "seed", ""}, ""},
		{"TGI", 422, `{"error":"Input validation error: no.","error_type":"validation"}`, nil, 422, apiError{"Input validation error: no.", "validation", "", ""}, ""},
		{"xAI", 400, `{"code":"Client specified an invalid argument","error":"No."}`, nil, 400, apiError{"No.", "invalid_request_error", "", "Client specified an invalid argument"}, ""},
		{"Cloudflare", 400, `{"success":false,"errors":[{"code":5006,"message":"No."}],"messages":[],"result":null}`, nil, 400, apiError{"No.", "invalid_request_error", "", ""}, ""},
		{"OpenRouter, of a provider", 400, `{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\"error\":{\"message\":\"Bad seed.\",\"param\":\"seed\",\"code\":\"invalid_value\"}}","provider_name":"P"}}}`, nil,
			400, apiError{"Provider returned error: Bad seed.", "invalid_request_error", "seed", "invalid_value"}, ""},
		{"deeply nested", 400, strings.Repeat(`{"error":`, 50) + `{"message":"No."}` + strings.Repeat(`}`, 50), nil, 502, server(failed), "status 400: Bad Request"},
		{"MiniMax", 200, `{"choices":null,"base_resp":{"status_code":1008,"status_msg":"insufficient balance"}}`, nil, 502, server(failed), "1008: insufficient balance"},
		{"MiniMax, with a usage", 200, `{"id":"x","choices":null,"usage":{"total_tokens":0},"base_resp":{"status_code":1002,"status_msg":"Slow."}}`, nil, 429, apiError{"Slow.", "requests", "", ""}, ""},
		{"MiniMax, parameter", 200, `{"choices":null,"base_resp":{"status_code":2013,"status_msg":"invalid params, no"}}`, nil, 400, apiError{"invalid params, no", "invalid_request_error", "", ""}, ""},
		{"Baidu", 200, `{"error_code":336003,"error_msg":"the length of messages must be an odd number"}`, nil, 502, server(failed), "336003: the length of messages"},
		{"FastAPI with status 200", 200, `{"detail":"Not authenticated"}`, nil, 502, server(failed), "Not authenticated"},
		{"in an array with status 200", 200, `[{"error":{"code":429,"message":"Slow.","status":"RESOURCE_EXHAUSTED"}}]`, nil, 429, apiError{"Slow.", "requests", "", ""}, ""},
		{"a message alone with status 200", 200, `{"code":20012,"message":"The service is closed.","data":null}`, nil, 502, server(failed), "20012: The service is closed."},
		{"error that repeats a large request", 422, `{"detail":[{"loc":["body","messages",0,"role"],"msg":"Input should be 'user'","input":"` + strings.Repeat("x", 200_000) + `"}]}`, nil,
			422, apiError{"Input should be 'user'", "invalid_request_error", "messages[0].role", ""}, ""},
		{"axum", 422, "Failed to deserialize the JSON body into the target type: messages[0].role: unknown variant `x`", nil,
			422, apiError{"Failed to deserialize the JSON body into the target type: messages[0].role: unknown variant `x`", "invalid_request_error", "", ""}, ""},
		{"not JSON", 400, `nope`, nil, 502, server(failed), "status 400: Bad Request, with 4 bytes of application/json"},
		{"HTML", 422, `<html>`, nil, 502, server(failed), "status 422: Unprocessable Entity, with 6 bytes of text/html"},
		{"request too large", 413, `<html>`, nil, 413, apiError{"Request Entity Too Large", "invalid_request_error", "", ""}, ""},
		{"unknown model", 404, `{"error":{"message":"The model gpt-x does not exist","code":"model_not_found"}}`, nil, 404, apiError{noModel, "invalid_request_error", "", "model_not_found"}, ""},
		{"unknown model, vLLM", 404, `{"object":"error","message":"The model gpt-x does not exist.","type":"NotFoundError","param":null,"code":404}`, nil, 404, apiError{noModel, "invalid_request_error", "", "model_not_found"}, ""},
		{"unknown model, Ollama", 404, `{"error":{"message":"model \"m\" not found, try pulling it first","type":"api_error","param":null,"code":null}}`, nil, 404, apiError{noModel, "invalid_request_error", "", "model_not_found"}, ""},
		{"unknown model with status 400", 400, `{"error":{"message":"?","code":"model_not_found"}}`, nil, 404, apiError{noModel, "invalid_request_error", "", "model_not_found"}, ""},
		{"unknown file", 404, `{"error":{"message":"No such File object: file-1","type":"invalid_request_error","param":"file_id","code":null}}`, nil, 400, apiError{"No such File object: file-1", "invalid_request_error", "file_id", ""}, ""},
		{"unknown URL", 404, `{"error":{"message":"Invalid URL (POST /v2/chat/completions)","type":"invalid_request_error","param":null,"code":null}}`, nil, 502, server(failed), "is the base URL right?"},
		{"unknown URL with models in it", 404, `{"error":{"message":"Nothing at /models/v1/chat/completions"}}`, nil, 502, server(failed), "is the base URL right?"},
		{"message about an API key", 400, `{"error":{"message":"Invalid value: 'my api key'."}}`, nil, 400, apiError{"Invalid value: 'my api key'.", "invalid_request_error", "", ""}, ""},
		{"unknown URL, not JSON", 404, `404 page not found`, nil, 502, server(failed), "is the base URL right?"},
		{"wrong method", 405, ``, nil, 502, server(failed), "status 405: Method Not Allowed"},
		{"wrong key", 401, `{"error":{"message":"Incorrect API key provided: sk-serv***fghij9. Find yours at ` + "http://HOST" + `/keys.","code":"invalid_api_key"}}`, nil, 502, server(failed),
			"upstream: status 401: invalid_api_key: Incorrect API key provided: [redacted]"},
		{"wrong key, quoted", 401, `{"error":{"message":"Bearer ` + serverKey + ` is not known"}}`, nil, 502, server(failed), "[redacted] is not known"},
		{"wrong key with status 400", 400, `[{"error":{"code":400,"message":"API key not valid. Please pass a valid API key."}}]`, nil, 502, server(failed), "API key not valid"},
		{"forbidden", 403, `{"error":{"message":"Country not supported"}}`, nil, 502, server(failed), "Country not supported"},
		{"payment required", 402, `{"error":{"message":"Insufficient Balance"}}`, nil, 502, server(failed), "Insufficient Balance"},
		{"rate limit", 429, `{"error":{"message":"Rate limit reached for m in organization org-abc123def on tokens per min.","type":"tokens","param":null,"code":"rate_limit_exceeded"}}`, []string{"Retry-After: 7"},
			429, apiError{"Rate limit reached for m in organization [redacted] on tokens per min.", "tokens", "", "rate_limit_exceeded"}, ""},
		{"rate limit without a message", 429, ``, nil, 429, apiError{"Rate limit reached. Please try again later.", "requests", "", ""}, ""},
		{"quota", 429, `{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","code":"insufficient_quota"}}`, nil, 502, server(failed), "insufficient_quota: You exceeded"},
		{"internal error", 500, `{"error":{"message":"at 10.2.3.4:9000: boom","type":"server_error"}}`, nil, 502, server(failed), "at [redacted]: boom"},
		{"not implemented", 501, ``, nil, 502, server(failed), ""},
		{"bad gateway", 502, `<html>nginx`, nil, 502, server(failed), "status 502: Bad Gateway, with 11 bytes of text/html"},
		{"overloaded", 503, `{"error":{"message":"Loading model"}}`, []string{"Retry-After: 7"}, 503, server(overload), "Loading model"},
		{"overloaded, Anthropic", 529, ``, nil, 503, server(overload), ""},
		{"timeout", 504, ``, nil, 504, server(timeout), ""},
		{"request timeout", 408, ``, nil, 504, server(timeout), ""},
		{"unusual status", 418, ``, nil, 502, server(failed), "status 418"},
		{"bad request with status 200", 200, `{"error":{"message":"No.","type":"invalid_request_error","param":"seed","code":null}}`, nil, 400, apiError{"No.", "invalid_request_error", "seed", ""}, ""},
		{"rate limit with status 200", 200, `{"error":{"message":"Slow.","code":429}}`, []string{"Retry-After: 7"}, 429, apiError{"Slow.", "requests", "", ""}, ""},
		{"wrong key with status 200", 200, `{"error":{"message":"?","type":"authentication_error"}}`, nil, 502, server(failed), ""},
		{"overloaded with status 200", 200, `{"error":{"message":"?","type":"overloaded_error"}}`, nil, 503, server(overload), ""},
		{"timeout with status 200", 200, `{"error":{"message":"?","code":"request_timeout"}}`, nil, 504, server(timeout), ""},
		{"quota with status 200", 200, `{"error":{"message":"?","code":"insufficient_quota"}}`, nil, 502, server(failed), "insufficient_quota"},
		{"unknown model with status 200", 200, `{"error":{"message":"?","code":"model_not_found"}}`, nil, 404, apiError{noModel, "invalid_request_error", "", "model_not_found"}, ""},
		{"control characters", 400, `{"error":{"message":"a\u0000b\r\nc\u001b[31m"}}`, nil, 400, apiError{"a b c [31m", "invalid_request_error", "", ""}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			checkLeaks(t)
			contentType := mediaJSON
			if strings.HasPrefix(test.body, "<") {
				contentType = "text/html"
			} else if strings.HasPrefix(test.name, "axum") {
				contentType = "text/plain; charset=utf-8"
			}
			var s *rawServer
			s = newRawServer(t, func(c net.Conn, _ *rawRequest) {
				body := strings.ReplaceAll(test.body, "HOST", s.listener.Addr().String())
				writeReply(c, test.status, contentType, body, append(test.headers, "X-Request-Id: req_theirs")...)
			})
			g := newGateway(t, s.url(), nil)
			for i, ask := range []string{askWhole, askStream} {
				got := g.chat(ask)
				assert.Equal(t, test.err, got.requireError(t, test.want))
				if slices.Contains(test.headers, "Retry-After: 7") {
					assert.Equal(t, "7", got.Header.Get("Retry-After"))
				} else {
					assert.Empty(t, got.Header.Get("Retry-After"))
				}
				eventually(t, func() bool { return len(g.ended()) == i+1 }, "the request ends")
				var e *upstream.Error
				require.ErrorAs(t, g.ended()[i].Err, &e)
				assert.Equal(t, test.status, e.Status)
				assert.Equal(t, "upstream", e.Upstream)
				assert.Equal(t, "req_theirs", e.RequestID)
				if test.want >= 500 {
					assert.Contains(t, g.log.String(), "(upstream request req_theirs)")
				}
			}
			assert.Contains(t, g.log.String(), test.log)
		})
	}
}

// If the server does not have an endpoint, clients get a 404. The endpoint of chats is
// an exception, because every server has it.
func TestErrors_UnsupportedEndpoint(t *testing.T) {
	checkLeaks(t)
	s := newRawServer(t, func(c net.Conn, r *rawRequest) {
		switch r.URL.Path {
		case "/v1/models":
			writeReply(c, 404, mediaJSON, `{"error":{"message":"no model here"}}`)
		case "/v1/embeddings":
			writeReply(c, 501, mediaJSON, `{"error":{"message":"This server does not support embeddings. Start it with --embeddings"}}`)
		default:
			writeReply(c, 404, "text/plain", "404 page not found")
		}
	})
	g := newGateway(t, s.url(), nil)
	assert.Equal(t, "Invalid URL (GET /v1/models)", g.do("GET", "/v1/models", "").requireError(t, 404).Message)
	assert.Equal(t, "Invalid URL (POST /v1/embeddings)", g.do("POST", "/v1/embeddings", `{"model":"m","input":"a"}`).requireError(t, 404).Message)
	assert.Equal(t, "Invalid URL (POST /v1/images/generations)", g.do("POST", "/v1/images/generations", `{"model":"m","prompt":"a"}`).requireError(t, 404).Message)
	assert.Equal(t, 502, g.chat(askWhole).StatusCode)
	_, err := g.backend.ListModels(t.Context())
	assert.ErrorIs(t, err, errors.ErrUnsupported)
}

func TestErrors_ShouldRetry(t *testing.T) {
	checkLeaks(t)
	s := newRawServer(t, func(c net.Conn, r *rawRequest) { writeReply(c, 429, mediaJSON, "", "X-Should-Retry: false") })
	assert.Equal(t, "false", newGateway(t, s.url(), nil).chat(askWhole).Header.Get("X-Should-Retry"))
}

// Words that only resemble a key or an address are not removed.
func TestErrors_KeepWords(t *testing.T) {
	checkLeaks(t)
	s := newRawServer(t, func(c net.Conn, _ *rawRequest) {
		writeReply(c, 400, mediaJSON, `{"error":{"message":"too many tokens: none or auto, at /v1?code=se%2Bcret%2Fvalue","type":"max_tokens","param":"messages[0].none","code":"localhost"}}`)
	})
	for _, opts := range []*upstream.Options{{Key: "token"}, {Key: "none"}, {Models: map[string]string{"m": "t"}}} {
		g := newGateway(t, s.url()+"?code=se%2Bcret%2Fvalue", opts)
		assert.Equal(t, apiError{"too many tokens: none or auto, at /v1?code=[redacted]", "max_tokens", "messages[0].none", "localhost"},
			g.chat(askWhole).requireError(t, 400))
	}
}

func TestErrors_LargeBody(t *testing.T) {
	checkLeaks(t)
	s := newRawServer(t, func(c net.Conn, r *rawRequest) {
		writeReply(c, []int{200, 400}[r.n%2], mediaJSON, `{"error":{"message":"`+strings.Repeat("x ", 1<<20)+`"}}`)
		c.Close()
	})
	g := newGateway(t, s.url(), nil)
	for range 2 {
		assert.Equal(t, bodyFailed, g.chat(askWhole).body)
	}
}

// errors.Is and errors.As find the causes of an Error, but not errors whose texts contain
// addresses.
func TestError_IsAndAs(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l.Close()
	b := newBackend(t, "http://"+l.Addr().String()+"/v1", &upstream.Options{Name: "primary"})
	_, err = join.Collect(b.Chat(t.Context(), &llm.ChatRequest{Model: "m"}))
	assert.ErrorIs(t, err, syscall.ECONNREFUSED)
	assert.NotContains(t, err.Error(), "127.0.0.1")
	var clientError *llm.Error
	require.ErrorAs(t, err, &clientError)
	assert.Equal(t, http.StatusBadGateway, clientError.Status)
	var e *upstream.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, "primary: no reply: dial: connection refused", e.Error())
	assert.Nil(t, errors.Unwrap(e))
	errno, ok := errors.AsType[syscall.Errno](err)
	assert.True(t, ok)
	assert.Equal(t, syscall.ECONNREFUSED, errno)
	_, ok = errors.AsType[*net.OpError](err)
	assert.False(t, ok, "it contains the address")
}
