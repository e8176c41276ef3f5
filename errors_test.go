package llmhttp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/messages"
)

// TestError_EachKindOfFailure compares error replies byte for byte. Other servers send
// flat objects, numeric codes or empty messages: QuantumNous/new-api and
// vllm-project/vllm#12886, #35438.
func TestError_EachKindOfFailure(t *testing.T) {
	const (
		invalid  = "invalid_request_error"
		noKey    = "You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer auth (i.e. Authorization: Bearer YOUR_KEY)."
		notFound = "The model `demo-chat` does not exist or you do not have access to it."
		quota    = "You exceeded your current quota, please check your plan and billing details."
	)
	otherScope, otherModels, expired := testKey(), testKey(), testKey()
	otherScope.Scopes = []llmhttp.Scope{llmhttp.ScopeModels}
	otherModels.Models = []string{"other-*"}
	expired.Expires = time.Unix(1, 0)
	type headers map[string]string // "" means absent
	type request struct {
		method, path, body string
		options            []requestOption
	}
	chat := func(body string, options ...requestOption) request {
		return request{"POST", chatPath, body, options}
	}
	fail := func(e *llm.Error) config { return config{backend: failingBackend(e)} }
	limited := func(limits llmhttp.Limits, levels ...llmhttp.BucketLevel) config {
		return config{keys: limitedKeys(limits), opts: llmhttp.Options{Estimates: llmhttp.TokenEstimates{TextTokens: countWords}, Limiter: fixedLevels(levels...)}}
	}
	usedUp := llmhttp.Quota{Tokens: -1}
	tests := []struct {
		name    string
		config  config
		request request
		status  int
		body    string
		headers headers
	}{
		{"no key", config{}, chat(chatBody, withoutKey), 401, errorBody(noKey, invalid, "", ""),
			headers{"Www-Authenticate": "Bearer", "X-Should-Retry": "false"}},
		{"wrong key", config{}, chat(chatBody, withSecret("sk-wrong")), 401,
			errorBody("Incorrect API key provided.", invalid, "", "invalid_api_key"),
			headers{"Www-Authenticate": `Bearer error="invalid_token"`, "X-Should-Retry": "false"}},
		{"expired key", config{keys: keysFor(expired)}, chat(chatBody), 401,
			errorBody("Incorrect API key provided.", invalid, "", "invalid_api_key"),
			headers{"Www-Authenticate": `Bearer error="invalid_token"`, "X-Should-Retry": "false"}},
		{"key without the scope", config{keys: keysFor(otherScope)}, chat(chatBody), 403,
			errorBody("You have insufficient permissions for this operation. Missing scope: chat.", invalid, "", "missing_scope"), nil},
		{"Backend does not know the model", fail(llm.ModelNotFound("demo-chat")), chat(chatBody), 404,
			errorBody(notFound, invalid, "", "model_not_found"), nil},
		{"key without the model", config{keys: keysFor(otherModels)}, chat(chatBody), 404,
			errorBody(notFound, invalid, "", "model_not_found"), nil},
		{"model is not listed", config{}, request{"GET", "/v1/models/nope", "", nil}, 404,
			errorBody("The model `nope` does not exist or you do not have access to it.", invalid, "", "model_not_found"), nil},
		{"unknown URL", config{}, request{"POST", "/v1/x", "{}", nil}, 404,
			errorBody("Invalid URL (POST /v1/x)", invalid, "", ""), nil},
		{"wrong method", config{}, request{"POST", modelsPath, "{}", nil}, 405,
			errorBody("Not allowed to POST on /v1/models. (HINT: Perhaps you meant to use a different HTTP method?)", invalid, "", ""),
			headers{"Allow": "GET, HEAD"}},
		{"wrong method, for POST", config{}, request{"GET", chatPath, "", nil}, 405,
			errorBody("Not allowed to GET on /v1/chat/completions. (HINT: Perhaps you meant to use a different HTTP method?)", invalid, "", ""),
			headers{"Allow": "POST"}},
		{"empty messages", config{}, chat(`{"model":"m","messages":[]}`), 400,
			errorBody("Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.", invalid, "messages", "empty_array"), nil},
		{"decimal too high", config{}, chat(chatWith(`"temperature":200`)), 400,
			errorBody("Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got 200 instead.", invalid, "temperature", "decimal_above_max_value"), nil},
		{"decimal too low", config{}, chat(chatWith(`"presence_penalty":-2.5`)), 400,
			errorBody("Invalid 'presence_penalty': decimal below minimum value. Expected a value >= -2, but got -2.5 instead.", invalid, "presence_penalty", "decimal_below_min_value"), nil},
		{"integer too low", config{}, chat(chatWith(`"max_tokens":-1`)), 400,
			errorBody("Invalid 'max_tokens': integer below minimum value. Expected a value >= 1, but got -1 instead.", invalid, "max_tokens", "integer_below_min_value"), nil},
		{"integer too high", config{}, chat(chatWith(`"n":129`)), 400,
			errorBody("Invalid 'n': integer above maximum value. Expected a value <= 128, but got 129 instead.", invalid, "n", "integer_above_max_value"), nil},
		{"unsupported parameter", fail(&llm.Error{Status: 400, Code: "unsupported_parameter", Param: "max_tokens",
			Message: "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."}), chat(chatBody), 400,
			errorBody("Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.", invalid, "max_tokens", "unsupported_parameter"), nil},
		{"unknown role", config{}, chat(`{"model":"m","messages":[{"role":"user","content":"a"},{"role":"robot","content":"b"}]}`), 400,
			errorBody("Invalid value: 'robot'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool', and 'developer'.", invalid, "messages[1].role", "invalid_value"), nil},
		{"empty item of a list", config{}, request{"POST", embeddingsPath, `{"model":"m","input":["a",""]}`, nil}, 400,
			errorBody("Invalid 'input[1]': empty string. Expected a string with minimum length 1, but got an empty string instead.", invalid, "input[1]", "empty_string"), nil},
		{"malformed JSON", config{}, chat(`{"model":`), 400,
			errorBody("We could not parse the JSON body of your request. (HINT: It must be one JSON document in UTF-8.)", invalid, "", ""), nil},
		{"prompt is too long", fail(&llm.Error{Status: 400, Code: "context_length_exceeded", Param: "messages", Message: "This model's maximum context length is 8 tokens."}), chat(chatBody), 400,
			errorBody("This model's maximum context length is 8 tokens.", invalid, "messages", "context_length_exceeded"), nil},
		{"body is too large", config{opts: llmhttp.Options{Bounds: llmhttp.Bounds{MaxBody: 32}}}, chat(chatBody), 413,
			errorBody("The request body is too large. The limit is 32 bytes.", invalid, "", "request_too_large"), nil},
		{"content type", config{}, chat(chatBody, withHeader("Content-Type", "text/plain")), 415,
			errorBody("Unsupported content type: 'text/plain'. This API only accepts 'application/json'.", invalid, "", "unsupported_media_type"), nil},
		{"422", fail(llm.Errorf(422, "unprocessable", "No.")), chat(chatBody), 422, errorBody("No.", invalid, "", "unprocessable"), nil},
		{"limit of requests", limited(llmhttp.Limits{Requests: llmhttp.PerMinute(3)}, llmhttp.BucketLevel{RetryAfter: 20 * time.Second, ResetAfter: time.Minute}), chat(chatBody), 429,
			errorBody("Rate limit reached on requests per min (RPM): Limit 3, Used 3, Requested 1. Please try again in 20s.", "requests", "", "rate_limit_exceeded"),
			headers{"Retry-After": "20", "Retry-After-Ms": "20000", "X-Should-Retry": "true",
				"X-Ratelimit-Limit-Requests": "3", "X-Ratelimit-Remaining-Requests": "0", "X-Ratelimit-Reset-Requests": "1m0s", "X-Ratelimit-Limit-Tokens": ""}},
		{"limit of tokens", limited(llmhttp.Limits{Tokens: llmhttp.PerMinute(50000)}, llmhttp.BucketLevel{Remaining: 2051, RetryAfter: 1146 * time.Millisecond, ResetAfter: 57539 * time.Millisecond}), chat(chatWith(`"max_tokens":3002`)), 429,
			errorBody("Rate limit reached on tokens per min (TPM): Limit 50000, Used 47949, Requested 3006. Please try again in 1.146s.", "tokens", "", "rate_limit_exceeded"),
			headers{"Retry-After": "2", "Retry-After-Ms": "1146", "X-Should-Retry": "true", "X-Ratelimit-Limit-Requests": "",
				"X-Ratelimit-Limit-Tokens": "50000", "X-Ratelimit-Remaining-Tokens": "2051", "X-Ratelimit-Reset-Tokens": "57.539s"}},
		{"more tokens than the limit", config{keys: limitedKeys(llmhttp.Limits{Tokens: llmhttp.PerMinute(30000)}), opts: llmhttp.Options{Estimates: llmhttp.TokenEstimates{TextTokens: countWords}}}, chat(chatWith(`"max_tokens":34303`)), 429,
			errorBody("Request too large: Limit 30000 tokens, Requested 34307. Ask for fewer tokens, or shorten the messages.", "tokens", "", "rate_limit_exceeded"),
			headers{"Retry-After": "", "Retry-After-Ms": "", "X-Should-Retry": "false",
				"X-Ratelimit-Limit-Tokens": "30000", "X-Ratelimit-Remaining-Tokens": "30000", "X-Ratelimit-Reset-Tokens": "0s"}},
		{"quota is used up", limited(llmhttp.Limits{Quota: usedUp}), chat(chatBody), 429,
			errorBody(quota, "insufficient_quota", "", "insufficient_quota"),
			headers{"Retry-After": "", "Retry-After-Ms": "", "X-Should-Retry": "false"}},
		{"quota and limit of tokens", limited(llmhttp.Limits{Tokens: llmhttp.PerMinute(100), Quota: usedUp}, llmhttp.BucketLevel{}), chat(chatBody), 429,
			errorBody(quota, "insufficient_quota", "", "insufficient_quota"),
			headers{"X-Should-Retry": "false"}},
		{"limit of requests in progress", config{keys: limitedKeys(llmhttp.Limits{Concurrent: -1})}, chat(chatBody), 429,
			errorBody("Too many requests in progress: Limit 0. Please try again when one has ended.", "requests", "", "rate_limit_exceeded"),
			headers{"Retry-After": "1", "Retry-After-Ms": "1000", "X-Should-Retry": "true"}},
		{"opaque error", config{backend: failingBackend(errCause)}, chat(chatBody), 500, errorBody(internalMessage, "server_error", "", ""),
			headers{"X-Should-Retry": "", "Retry-After": ""}},
		{"unsupported endpoint", config{backend: chatOnly}, request{"POST", embeddingsPath, `{"model":"m","input":"x"}`, nil}, 404,
			errorBody("Invalid URL (POST /v1/embeddings)", invalid, "", ""), nil},
		{"not implemented", fail(llm.Errorf(501, "", "Not here.")), chat(chatBody), 501, errorBody("Not here.", "server_error", "", ""),
			headers{"X-Should-Retry": "false"}},
		{"502 without a message", fail(&llm.Error{Status: 502}), chat(chatBody), 502, errorBody("Bad Gateway", "server_error", "", ""), nil},
		{"overloaded", fail(&llm.Error{Status: 503, Code: "overloaded", Message: "Busy.", RetryAfter: 1500 * time.Millisecond}), chat(chatBody), 503,
			errorBody("Busy.", "server_error", "", "overloaded"), headers{"Retry-After": "2", "Retry-After-Ms": "1500"}},
		{"deadline exceeded", config{backend: failingBackend(fmt.Errorf("call: %w", context.DeadlineExceeded))}, chat(chatBody), 504,
			errorBody("The model did not answer in time.", "server_error", "", ""), nil},
		{"409", fail(llm.Errorf(409, "", "Conflict.")), chat(chatBody), 409, errorBody("Conflict.", invalid, "", ""), nil},
		{"status of success", fail(llm.Errorf(200, "", "Odd.")), chat(chatBody), 500, errorBody("Odd.", "server_error", "", ""), nil},
		{"shortest RetryAfter", fail(&llm.Error{Status: 503, RetryAfter: time.Nanosecond, Message: "Soon."}), chat(chatBody), 503,
			errorBody("Soon.", "server_error", "", ""), headers{"Retry-After": "1", "Retry-After-Ms": "1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := startServer(t, tt.config)
			r := s.do(tt.request.method, tt.request.path, tt.request.body, tt.request.options...)
			r.checkError(t, tt.status)
			assert.Equal(t, tt.body, r.body)
			assert.Equal(t, strconv.Itoa(len(r.body)), r.Header.Get("Content-Length"))
			want := headers{"Allow": "", "Www-Authenticate": ""}
			maps.Copy(want, tt.headers)
			for name, value := range want {
				assert.Equal(t, value, r.Header.Get(name), name)
			}
			assert.Equal(t, tt.status, s.summary().Status)
			if tt.request.body == chatBody {
				// A request for a stream gets the same reply if it fails before the first
				// chunk.
				r := startServer(t, tt.config).chat(streamBody, tt.request.options...)
				r.checkError(t, tt.status)
				assert.Equal(t, tt.body, r.body)
			}
		})
	}
}

// refuseAll is middleware that refuses every request with err.
func refuseAll(err error) func(http.Handler) http.Handler {
	return func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.(*llmhttp.Handler).WriteError(w, r, err) })
	}
}

// WriteError writes the same reply as a Handler whose Backend returns the error, in the format
// of the protocol.
func TestHandler_WriteError(t *testing.T) {
	for name, err := range map[string]error{
		"opaque error":      errCause,
		"all fields":        &llm.Error{Status: 429, Code: "rate_limit_exceeded", Message: "Slow \"down\".", RetryAfter: 90 * time.Second, Err: errCause},
		"wrapped":           fmt.Errorf("%w: %w", errCause, llm.ModelNotFound("x")),
		"invalid key":       llm.Errorf(401, "invalid_api_key", "No."),
		"401 without code":  llm.Errorf(401, "", "No."),
		"unsupported":       fmt.Errorf("%w: %w", errCause, errors.ErrUnsupported),
		"deadline exceeded": context.DeadlineExceeded,
		"quota":             llm.Errorf(429, "insufficient_quota", "Pay."),
		"invalid status":    &llm.Error{Status: 42},
		"501":               &llm.Error{Status: 501},
	} {
		t.Run(name, func(t *testing.T) {
			for path, body := range map[string]string{chatPath: chatBody, "/v1/messages": `{"model":"demo-chat","max_tokens":5,"messages":[{"role":"user","content":"Hi"}]}`} {
				c := config{backend: failingBackend(err), opts: llmhttp.Options{
					Protocols: []llmhttp.Protocol{messages.New(nil)}, RequestID: func(*http.Request) string { return "req_1" },
				}}
				want := startServer(t, c).do("POST", path, body)
				c.wrap = refuseAll(err)
				s := startServer(t, c)
				got := s.do("POST", path, body)
				assert.Equal(t, want.StatusCode, got.StatusCode)
				assert.Equal(t, want.body, got.body)
				assert.NotContains(t, got.body, secretCause)
				assert.Equal(t, want.StatusCode >= 500, strings.Contains(s.log.String(), `"request failed"`), "the cause is logged")
				for _, h := range []http.Header{want.Header, got.Header} {
					h.Del("Date")
					h.Del("Openai-Processing-Ms")
				}
				assert.Equal(t, want.Header, got.Header)
				assert.Zero(t, s.observer.begun)
			}
		})
	}
	t.Run("headers of middleware are kept", func(t *testing.T) {
		w := httptest.NewRecorder()
		w.Header().Set("X-Request-Id", "mine")
		w.Header().Set("Www-Authenticate", "DPoP")
		newHandler(t, config{}).handler.WriteError(w, httptest.NewRequest("GET", "/", nil), llm.Errorf(401, "", "No."))
		assert.Equal(t, "mine", w.Header().Get("X-Request-Id"))
		assert.Equal(t, "DPoP", w.Header().Get("Www-Authenticate"))
		assert.Equal(t, 401, w.Code)
	})
	t.Run("nil *Error is an opaque error", func(t *testing.T) {
		for _, err := range []error{(*llm.Error)(nil), nil} {
			w := httptest.NewRecorder()
			require.NotPanics(t, func() { newHandler(t, config{}).handler.WriteError(w, httptest.NewRequest("GET", "/", nil), err) })
			assert.Equal(t, 500, w.Code)
			assert.Equal(t, errorBody(internalMessage, "server_error", "", ""), w.Body.String())
		}
	})
	t.Run("the nearest protocol refuses an unknown path", func(t *testing.T) {
		for path, want := range map[string]string{"/v1/messages/batches": `{"type":"error","error":{"type":"permission_error"`, "/x": `{"error":{"message":"No."`} {
			w := httptest.NewRecorder()
			r := httptest.NewRequest("POST", "/api"+path, nil)
			h := newHandler(t, config{opts: llmhttp.Options{Prefix: "/api", Protocols: []llmhttp.Protocol{messages.New(nil)}}}).handler
			h.WriteError(w, r, llm.Errorf(403, "", "No."))
			assert.Equal(t, 403, w.Code)
			assert.Contains(t, w.Body.String(), want)
			assert.Equal(t, "/api"+path, r.URL.Path)
		}
	})
	t.Run("the protocol that knows the client refuses a path below none", func(t *testing.T) {
		h := newHandler(t, config{opts: llmhttp.Options{Protocols: []llmhttp.Protocol{messages.New(nil)}}}).handler
		for version, want := range map[string]string{"2023-06-01": `{"type":"error","error":{"type":"not_found_error"`, "": `{"error":{"message":"Invalid URL (GET /v1/files)`} {
			w := httptest.NewRecorder()
			r := httptest.NewRequest("GET", "/v1/files", nil)
			r.Header.Set("Anthropic-Version", version)
			h.ServeHTTP(w, r)
			assert.Equal(t, 404, w.Code)
			assert.Contains(t, w.Body.String(), want)
		}
	})
	t.Run("a RequestID that panics", func(t *testing.T) {
		w := httptest.NewRecorder()
		h := newHandler(t, config{opts: llmhttp.Options{RequestID: func(*http.Request) string { panic("x") }}}).handler
		require.NotPanics(t, func() { h.WriteError(w, httptest.NewRequest("GET", "/", nil), llm.Errorf(403, "", "No.")) })
		assert.Equal(t, 500, w.Code)
	})
	t.Run("keys are removed", func(t *testing.T) {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("POST", "/v1/messages", nil)
		r.Header.Set("X-Api-Key", testSecret)
		h := newHandler(t, config{opts: llmhttp.Options{Protocols: []llmhttp.Protocol{messages.New(nil)}}}).handler
		h.WriteError(w, r, llm.Errorf(403, "", "The key %s is blocked.", testSecret))
		assert.NotContains(t, w.Body.String(), testSecret)
	})
	t.Run("a body that does not arrive is not awaited", func(t *testing.T) {
		s := startServer(t, config{wrap: refuseAll(llm.Errorf(403, "", "No."))})
		conn := s.send("POST " + chatPath + " HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n")
		r, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		assert.Equal(t, 403, r.StatusCode)
		assert.True(t, r.Close)
		conn.Close()
	})
}
