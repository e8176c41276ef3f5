package llmhttp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
)

// fxFail is a Backend whose every answer is err.
func fxFail(err error) *fxBackend {
	return &fxBackend{
		chat:   func(context.Context, *llmhttp.ChatRequest) llmhttp.ChatStream { return llmhttp.Fail(err) },
		models: func(context.Context) ([]llmhttp.Model, error) { return nil, err },
		embed:  func(context.Context, *llmhttp.EmbeddingRequest) (*llmhttp.EmbeddingResponse, error) { return nil, err },
		images: func(context.Context, *llmhttp.ImageRequest) (*llmhttp.ImageResponse, error) { return nil, err },
	}
}

// fxLevels is a Limiter that answers each Take alike.
func fxLevels(levels ...llmhttp.Level) llmhttp.Limiter {
	return &scriptedLimiter{take: func(_ context.Context, draws []llmhttp.Draw) ([]llmhttp.Level, error) {
		return levels[:len(draws)], nil
	}}
}

// Every failure of wire-format.md 2.4, byte for byte. QuantumNous/new-api and
// vllm-project/vllm#12886, #35438: flat objects, numeric codes, empty messages.
func TestErrorRows(t *testing.T) {
	const (
		invalid  = "invalid_request_error"
		noKey    = "You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer auth (i.e. Authorization: Bearer YOUR_KEY)."
		notFound = "The model `demo-chat` does not exist or you do not have access to it."
		quota    = "You exceeded your current quota, please check your plan and billing details."
	)
	scoped, modelled, expired := fxKey(), fxKey(), fxKey()
	scoped.Scopes = []llmhttp.Endpoint{llmhttp.EndpointModels}
	modelled.Models = []string{"other-*"}
	expired.Expires = time.Unix(1, 0)
	count := func(string, string) int { return 0 } // leaves 4 tokens for a message
	type headers map[string]string                 // "" means absent
	type request struct {
		method, path, body string
		mods               []fxMod
	}
	chat := func(body string, mods ...fxMod) request {
		return request{"POST", "/v1/chat/completions", body, mods}
	}
	told := func(e *llmhttp.Error) fxConfig { return fxConfig{backend: fxFail(e)} }
	tests := []struct {
		name    string
		config  fxConfig
		request request
		status  int
		body    string
		headers headers
	}{
		{"no key", fxConfig{}, chat(fxWhole, fxNoKey), 401, fxErrorBody(noKey, invalid, "", ""),
			headers{"Www-Authenticate": "Bearer"}},
		{"bad key", fxConfig{}, chat(fxWhole, fxHeader("Authorization", "Bearer sk-wrong")), 401,
			fxErrorBody("Incorrect API key provided.", invalid, "", "invalid_api_key"),
			headers{"Www-Authenticate": `Bearer error="invalid_token"`}},
		{"expired key", fxConfig{keys: fxKeys(expired)}, chat(fxWhole), 401,
			fxErrorBody("Incorrect API key provided.", invalid, "", "invalid_api_key"),
			headers{"Www-Authenticate": `Bearer error="invalid_token"`}},
		{"key not allowed", fxConfig{keys: fxKeys(scoped)}, chat(fxWhole), 403,
			fxErrorBody("You have insufficient permissions for this operation. Missing scope: chat.", invalid, "", "missing_scope"), nil},
		{"unknown model", told(llmhttp.ModelNotFound("demo-chat")), chat(fxWhole), 404,
			fxErrorBody(notFound, invalid, "", "model_not_found"), nil},
		{"model not allowed", fxConfig{keys: fxKeys(modelled)}, chat(fxWhole), 404,
			fxErrorBody(notFound, invalid, "", "model_not_found"), nil},
		{"model not listed", fxConfig{}, request{"GET", "/v1/models/nope", "", nil}, 404,
			fxErrorBody("The model `nope` does not exist or you do not have access to it.", invalid, "", "model_not_found"), nil},
		{"unknown URL", fxConfig{}, request{"POST", "/v1/x", "{}", nil}, 404,
			fxErrorBody("Invalid URL (POST /v1/x)", invalid, "", ""), nil},
		{"wrong method", fxConfig{}, request{"POST", "/v1/models", "{}", nil}, 405,
			fxErrorBody("Not allowed to POST on /v1/models. (HINT: Perhaps you meant to use a different HTTP method?)", invalid, "", ""),
			headers{"Allow": "GET, HEAD"}},
		{"wrong method/POST only", fxConfig{}, request{"GET", "/v1/chat/completions", "", nil}, 405,
			fxErrorBody("Not allowed to GET on /v1/chat/completions. (HINT: Perhaps you meant to use a different HTTP method?)", invalid, "", ""),
			headers{"Allow": "POST"}},
		{"empty messages", fxConfig{}, chat(`{"model":"m","messages":[]}`), 400,
			fxErrorBody("Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.", invalid, "messages", "empty_array"), nil},
		{"decimal too high", fxConfig{}, chat(fxMember(`"temperature":200`)), 400,
			fxErrorBody("Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got 200 instead.", invalid, "temperature", "decimal_above_max_value"), nil},
		{"decimal too low", fxConfig{}, chat(fxMember(`"presence_penalty":-2.5`)), 400,
			fxErrorBody("Invalid 'presence_penalty': decimal below minimum value. Expected a value >= -2, but got -2.5 instead.", invalid, "presence_penalty", "decimal_below_min_value"), nil},
		{"integer too low", fxConfig{}, chat(fxMember(`"max_tokens":-1`)), 400,
			fxErrorBody("Invalid 'max_tokens': integer below minimum value. Expected a value >= 1, but got -1 instead.", invalid, "max_tokens", "integer_below_min_value"), nil},
		{"integer too high", fxConfig{}, chat(fxMember(`"n":129`)), 400,
			fxErrorBody("Invalid 'n': integer above maximum value. Expected a value <= 128, but got 129 instead.", invalid, "n", "integer_above_max_value"), nil},
		{"unsupported parameter", told(&llmhttp.Error{Status: 400, Code: "unsupported_parameter", Param: "max_tokens",
			Message: "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."}), chat(fxWhole), 400,
			fxErrorBody("Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.", invalid, "max_tokens", "unsupported_parameter"), nil},
		{"bad enum", fxConfig{}, chat(`{"model":"m","messages":[{"role":"user","content":"a"},{"role":"robot","content":"b"}]}`), 400,
			fxErrorBody("Invalid value: 'robot'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool', and 'developer'.", invalid, "messages[1].role", "invalid_value"), nil},
		{"bad item", fxConfig{}, request{"POST", "/v1/embeddings", `{"model":"m","input":["a",""]}`, nil}, 400,
			fxErrorBody("Invalid 'input[1]': empty string. Expected a string with minimum length 1, but got an empty string instead.", invalid, "input[1]", "empty_string"), nil},
		{"malformed JSON", fxConfig{}, chat(`{"model":`), 400,
			fxErrorBody("We could not parse the JSON body of your request. (HINT: It must be one JSON document in UTF-8.)", invalid, "", ""), nil},
		{"prompt too long", told(&llmhttp.Error{Status: 400, Code: "context_length_exceeded", Param: "messages", Message: "This model's maximum context length is 8 tokens."}), chat(fxWhole), 400,
			fxErrorBody("This model's maximum context length is 8 tokens.", invalid, "messages", "context_length_exceeded"), nil},
		{"body too large", fxConfig{opts: llmhttp.Options{MaxBody: 32}}, chat(fxWhole), 413,
			fxErrorBody("The request body is too large. The limit is 32 bytes.", invalid, "", "request_too_large"), nil},
		{"content type", fxConfig{}, chat(fxWhole, fxHeader("Content-Type", "text/plain")), 415,
			fxErrorBody("Unsupported content type: 'text/plain'. This API only accepts 'application/json'.", invalid, "", "unsupported_media_type"), nil},
		{"422", told(llmhttp.Errorf(422, "unprocessable", "No.")), chat(fxWhole), 422, fxErrorBody("No.", invalid, "", "unprocessable"), nil},
		{"RPM", fxConfig{keys: fxLimited(llmhttp.Limits{Requests: llmhttp.PerMinute(3)}), opts: llmhttp.Options{
			Limiter: fxLevels(llmhttp.Level{RetryAfter: 20 * time.Second, ResetAfter: time.Minute})}}, chat(fxWhole), 429,
			fxErrorBody("Rate limit reached on requests per min (RPM): Limit 3, Used 3, Requested 1. Please try again in 20s.", "requests", "", "rate_limit_exceeded"),
			headers{"Retry-After": "20", "Retry-After-Ms": "20000", "X-Should-Retry": "true",
				"X-Ratelimit-Limit-Requests": "3", "X-Ratelimit-Remaining-Requests": "0", "X-Ratelimit-Reset-Requests": "1m0s", "X-Ratelimit-Limit-Tokens": ""}},
		{"TPM", fxConfig{keys: fxLimited(llmhttp.Limits{Tokens: llmhttp.PerMinute(50000)}), opts: llmhttp.Options{CountTokens: count,
			Limiter: fxLevels(llmhttp.Level{Remaining: 2051, RetryAfter: 1146 * time.Millisecond, ResetAfter: 57539 * time.Millisecond})}}, chat(fxMember(`"max_tokens":3002`)), 429,
			fxErrorBody("Rate limit reached on tokens per min (TPM): Limit 50000, Used 47949, Requested 3006. Please try again in 1.146s.", "tokens", "", "rate_limit_exceeded"),
			headers{"Retry-After": "2", "Retry-After-Ms": "1146", "X-Should-Retry": "true", "X-Ratelimit-Limit-Requests": "",
				"X-Ratelimit-Limit-Tokens": "50000", "X-Ratelimit-Remaining-Tokens": "2051", "X-Ratelimit-Reset-Tokens": "57.539s"}},
		{"larger than the bucket", fxConfig{keys: fxLimited(llmhttp.Limits{Tokens: llmhttp.PerMinute(30000)}), opts: llmhttp.Options{CountTokens: count}}, chat(fxMember(`"max_tokens":34303`)), 429,
			fxErrorBody("Request too large: Limit 30000 tokens, Requested 34307. Ask for fewer tokens, or shorten the messages.", "tokens", "", "rate_limit_exceeded"),
			headers{"Retry-After": "", "Retry-After-Ms": "", "X-Should-Retry": "false",
				"X-Ratelimit-Limit-Tokens": "30000", "X-Ratelimit-Remaining-Tokens": "30000", "X-Ratelimit-Reset-Tokens": "0s"}},
		{"quota", fxConfig{keys: fxLimited(llmhttp.Limits{Quota: llmhttp.Rate{N: 10, Per: 720 * time.Hour}}), opts: llmhttp.Options{
			Limiter: fxLevels(llmhttp.Level{RetryAfter: time.Hour})}}, chat(fxWhole), 429,
			fxErrorBody(quota, "insufficient_quota", "", "insufficient_quota"),
			headers{"Retry-After": "", "Retry-After-Ms": "", "X-Should-Retry": "false"}},
		{"quota beside RPM", fxConfig{keys: fxLimited(llmhttp.Limits{Requests: llmhttp.PerMinute(1), Quota: llmhttp.Rate{N: 10, Per: 720 * time.Hour}}), opts: llmhttp.Options{
			Limiter: fxLevels(llmhttp.Level{RetryAfter: time.Minute}, llmhttp.Level{RetryAfter: time.Hour})}}, chat(fxWhole), 429,
			fxErrorBody(quota, "insufficient_quota", "", "insufficient_quota"),
			headers{"X-Should-Retry": "false"}},
		{"too many in progress", fxConfig{keys: fxLimited(llmhttp.Limits{Concurrent: -1})}, chat(fxWhole), 429,
			fxErrorBody("Too many requests in progress: Limit 0. Please try again when one has ended.", "requests", "", "rate_limit_exceeded"),
			headers{"Retry-After": "1", "Retry-After-Ms": "1000", "X-Should-Retry": "true"}},
		{"internal", fxConfig{backend: fxFail(errors.New("marker"))}, chat(fxWhole), 500, fxErrorBody(messageInternal, "server_error", "", ""),
			headers{"X-Should-Retry": "", "Retry-After": ""}},
		{"unsupported", fxConfig{backend: llmhttp.BackendFunc(nil)}, request{"POST", "/v1/embeddings", `{"model":"m","input":"x"}`, nil}, 404,
			fxErrorBody("Invalid URL (POST /v1/embeddings)", invalid, "", ""), nil},
		{"not implemented", told(llmhttp.Errorf(501, "", "Not here.")), chat(fxWhole), 501, fxErrorBody("Not here.", "server_error", "", ""),
			headers{"X-Should-Retry": "false"}},
		{"upstream bad", told(&llmhttp.Error{Status: 502}), chat(fxWhole), 502, fxErrorBody("Bad Gateway", "server_error", "", ""), nil},
		{"overloaded", told(&llmhttp.Error{Status: 503, Code: "overloaded", Message: "Busy.", RetryAfter: 1500 * time.Millisecond}), chat(fxWhole), 503,
			fxErrorBody("Busy.", "server_error", "", "overloaded"), headers{"Retry-After": "2", "Retry-After-Ms": "1500"}},
		{"upstream timeout", fxConfig{backend: fxFail(fmt.Errorf("call: %w", context.DeadlineExceeded))}, chat(fxWhole), 504,
			fxErrorBody("The model did not answer in time.", "server_error", "", ""), nil},
		{"409", told(llmhttp.Errorf(409, "", "Conflict.")), chat(fxWhole), 409, fxErrorBody("Conflict.", invalid, "", ""), nil},
		{"a status that is none", told(llmhttp.Errorf(200, "", "Odd.")), chat(fxWhole), 500, fxErrorBody("Odd.", "server_error", "", ""), nil},
		{"Retry-After in an instant", told(&llmhttp.Error{Status: 503, RetryAfter: time.Nanosecond, Message: "Soon."}), chat(fxWhole), 503,
			fxErrorBody("Soon.", "server_error", "", ""), headers{"Retry-After": "1", "Retry-After-Ms": "1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := fxStart(t, tt.config)
			r := s.do(tt.request.method, tt.request.path, tt.request.body, tt.request.mods...)
			r.checkError(t, tt.status)
			assert.Equal(t, tt.body, r.body)
			assert.Equal(t, itoa(len(r.body)), r.Header.Get("Content-Length"))
			want := headers{"Allow": "", "Www-Authenticate": ""}
			for name, value := range tt.headers {
				want[name] = value
			}
			for name, value := range want {
				assert.Equal(t, value, r.Header.Get(name), name)
			}
			if streamed := strings.TrimSuffix(tt.request.body, "}") + `,"stream":true}`; tt.request.path == "/v1/chat/completions" && tt.request.body == fxWhole && tt.config.opts.Limiter == nil {
				// The same for a stream, which has not begun yet.
				r := s.chat(streamed, tt.request.mods...)
				r.checkError(t, tt.status)
				assert.Equal(t, tt.body, r.body)
			}
			fxAwait(t, "the Exchange", func() bool { return len(s.watch.exchanges()) > 0 })
			assert.Equal(t, tt.status, s.watch.exchanges()[0].Status)
		})
	}
}

// WriteError says what the Handler would have said.
func TestWriteError(t *testing.T) {
	errs := map[string]error{
		"opaque":       errors.New("marker-of-the-cause"),
		"told":         &llmhttp.Error{Status: 429, Code: "rate_limit_exceeded", Message: "Slow \"down\".", RetryAfter: 90 * time.Second, Err: errors.New("marker-of-the-cause")},
		"wrapped":      fmt.Errorf("marker-of-the-cause: %w", llmhttp.ModelNotFound("x")),
		"unauthorized": llmhttp.Errorf(401, "invalid_api_key", "No."),
		"no code":      llmhttp.Errorf(401, "", "No."),
		"unsupported":  fmt.Errorf("marker-of-the-cause: %w", errors.ErrUnsupported),
		"deadline":     context.DeadlineExceeded,
		"quota":        llmhttp.Errorf(429, "insufficient_quota", "Pay."),
		"odd status":   &llmhttp.Error{Status: 42},
		"501":          &llmhttp.Error{Status: 501},
	}
	names := []string{"Content-Type", "Content-Length", "Retry-After", "Retry-After-Ms", "X-Should-Retry", "Www-Authenticate", "Allow", "Location"}
	for name, err := range errs {
		t.Run(name, func(t *testing.T) {
			want := fxStart(t, fxConfig{backend: fxFail(err)}).chat(fxWhole)
			var inner string
			wrapped := fxStart(t, fxConfig{wrap: func(http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { llmhttp.WriteError(w, r, err) })
			}}).chat(fxWhole)
			inner = wrapped.body
			assert.Equal(t, want.StatusCode, wrapped.StatusCode)
			assert.Equal(t, want.body, inner)
			assert.NotContains(t, inner, "marker")
			for _, n := range names {
				assert.Equal(t, want.Header.Values(n), wrapped.Header.Values(n), n)
			}
			fxCheckHead(t, wrapped.Response)
		})
	}
	t.Run("keeps what middleware has set", func(t *testing.T) {
		w := httptest.NewRecorder()
		w.Header().Set("X-Request-Id", "mine")
		w.Header().Set("Www-Authenticate", "DPoP")
		llmhttp.WriteError(w, httptest.NewRequest("GET", "/", nil), llmhttp.Errorf(401, "", "No."))
		assert.Equal(t, "mine", w.Header().Get("X-Request-Id"))
		assert.Equal(t, "DPoP", w.Header().Get("Www-Authenticate"))
		assert.Equal(t, 401, w.Code)
	})
	t.Run("typed nil", func(t *testing.T) {
		var e *llmhttp.Error
		w := httptest.NewRecorder()
		require.NotPanics(t, func() { llmhttp.WriteError(w, httptest.NewRequest("GET", "/", nil), e) })
		assert.Equal(t, 500, w.Code)
		assert.Equal(t, fxErrorBody(messageInternal, "server_error", "", ""), w.Body.String())
	})
}

// Error's text is for logs, and has the cause.
func TestErrorText(t *testing.T) {
	cause := errors.New("cause")
	e := &llmhttp.Error{Status: 404, Code: "code", Message: "message", Err: cause}
	require.EqualError(t, e, "404 code: message: cause")
	require.ErrorIs(t, e, cause)
	require.EqualError(t, &llmhttp.Error{Status: 500}, "500")
	require.EqualError(t, errorf(400, "", "100%"), "400: 100%")
	require.EqualError(t, llmhttp.Errorf(400, "", "%d of %s", 3, "x"), "400: 3 of x")
}

// errorf hides from go vet that Errorf formats: without arguments it leaves the
// text as it is.
var errorf = llmhttp.Errorf
