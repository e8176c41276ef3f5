package llmhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// Paths are taken as they come: nothing is cleaned, nothing redirected.
// ollama#10139, #13715, litellm#37271: IDs with slashes could not be asked for.
func TestPaths(t *testing.T) {
	s := fxStart(t, fxConfig{})
	tests := []struct {
		target string
		status int
		code   string
	}{
		{"/v1/models", 200, ""},
		{"/v1/models?limit=3", 200, ""},
		{"/v1/m%6Fdels", 200, ""},
		{"http://elsewhere.example/v1/models", 200, ""},
		{"/v1/models/demo-chat", 200, ""},
		{"/v1/models/demo%2Dchat", 200, ""},
		{"/v1/models/hf.co/u/Q:Q4", 200, ""},
		{"/v1/models/hf.co%2Fu%2FQ%3AQ4", 200, ""},
		{"/v1/models/hf.co%2fu/Q:Q4?x=1", 200, ""},
		{"/dashboard/billing/usage", 200, ""},
		{"/v1/dashboard/billing/usage", 200, ""},
		{"/v1/models/", 404, ""},
		{"/v1/models//demo-chat", 404, "model_not_found"},
		{"/v1/models/demo-chat/", 404, "model_not_found"},
		{"/v1/models/../models/demo-chat", 404, "model_not_found"},
		{"/v1/models/hf.co/./u/Q:Q4", 404, "model_not_found"},
		{"/v1/models/HF.co/u/Q:Q4", 404, "model_not_found"},
		{"//v1/models", 404, ""},
		{"/v1//models", 404, ""},
		{"/v1/./models", 404, ""},
		{"/v1/x/../models", 404, ""},
		{"/../v1/models", 404, ""},
		{"/V1/models", 404, ""},
		{"/v1/Models", 404, ""},
		{"/v1/models;a=b", 404, ""},
		{"/v1%2Fmodels", 404, ""},
		{"/v1/chat%2Fcompletions", 404, ""},
		{"/v1/dashboard%2Fbilling/usage", 404, ""},
		{"/v1/chat/completions/", 404, ""},
		{"/v1/chat/completions/x", 404, ""},
		{"/v1/chat//completions", 404, ""},
		{"/chat/completions", 404, ""},
		{"/models", 404, ""},
		{"/v1", 404, ""},
		{"/v1/", 404, ""},
		{"/", 404, ""},
		{"/favicon.ico", 404, ""},
		{"/v1/%00", 404, ""},
		{"/v1/%F0%9F%98%80", 404, ""},
		{"/v1/\"quoted\"", 404, ""},
	}
	for _, tt := range tests {
		t.Run(tt.target, func(t *testing.T) {
			raw := s.raw("GET " + tt.target + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer " + fxSecret + "\r\n\r\n")
			r := fxParse(t, "GET", raw)
			assert.Empty(t, r.Header.Get("Location"))
			assert.Equal(t, "application/json", r.Header.Get("Content-Type"))
			fxCheckHead(t, r.Response)
			if tt.status == 200 {
				assert.Equal(t, 200, r.StatusCode, "%s", r.body)
				return
			}
			e := r.checkError(t, tt.status)
			assert.Equal(t, tt.code, e.Code)
			assert.Less(t, len(e.Message), 300)
		})
	}
	for _, n := range []int{1 << 10, 8 << 10, 256 << 10} {
		for _, prefix := range []string{"/v1/", "/v1/models/"} {
			t.Run(fmt.Sprintf("%s+%d", prefix, n), func(t *testing.T) {
				r := s.do("GET", prefix+strings.Repeat("a", n), "")
				e := r.checkError(t, 404)
				assert.Less(t, len(e.Message), 300)
			})
		}
	}
}

func TestMethods(t *testing.T) {
	s := fxStart(t, fxConfig{})
	get := []string{"/v1/models", "/v1/models/demo-chat", "/v1/dashboard/billing/usage"}
	post := []string{"/v1/chat/completions", "/v1/images/generations", "/v1/embeddings"}
	for _, path := range get {
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"} {
			t.Run(method+" "+path, func(t *testing.T) {
				r := s.do(method, path, "")
				e := r.checkError(t, 405)
				assert.Equal(t, fmt.Sprintf("Not allowed to %s on %s. (HINT: Perhaps you meant to use a different HTTP method?)", method, path), e.Message)
				assert.Equal(t, "GET, HEAD", r.Header.Get("Allow"))
			})
		}
		t.Run("HEAD "+path, func(t *testing.T) {
			want := s.do("GET", path, "")
			r := s.do("HEAD", path, "")
			assert.Equal(t, 200, r.StatusCode)
			assert.Empty(t, r.body)
			assert.Equal(t, itoa(len(want.body)), r.Header.Get("Content-Length"))
			assert.Equal(t, "application/json", r.Header.Get("Content-Type"))
			fxCheckHead(t, r.Response)
		})
	}
	for _, path := range post {
		for _, method := range []string{"GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "post"} {
			t.Run(method+" "+path, func(t *testing.T) {
				r := s.do(method, path, "")
				assert.Equal(t, 405, r.StatusCode)
				assert.Equal(t, "POST", r.Header.Get("Allow"))
				assert.Equal(t, "application/json", r.Header.Get("Content-Type"))
				fxCheckHead(t, r.Response)
				if method == "HEAD" {
					assert.Empty(t, r.body)
				} else {
					r.checkError(t, 405)
				}
			})
		}
	}
	t.Run("HEAD of what is not there", func(t *testing.T) {
		for _, path := range []string{"/v1/x", "/v1/models/nope"} {
			r := s.do("HEAD", path, "")
			assert.Equal(t, 404, r.StatusCode)
			assert.Empty(t, r.body)
			assert.Equal(t, "application/json", r.Header.Get("Content-Type"))
		}
	})
	t.Run("a method that says much", func(t *testing.T) {
		e := s.do(strings.Repeat("X", 5000), "/v1/models", "").checkError(t, 405)
		assert.Less(t, len(e.Message), 300)
	})
}

// Clients of HTTP/1.0 get whole replies with a length, and streams that end
// with the connection.
func TestHTTP10(t *testing.T) {
	s := fxStart(t, fxConfig{})
	t.Run("whole", func(t *testing.T) {
		r := fxParse(t, "POST", s.raw(fxPost("HTTP/1.0", "/v1/chat/completions", fxWhole)))
		require.NoError(t, r.err)
		assert.Equal(t, 200, r.StatusCode)
		assert.Empty(t, r.TransferEncoding)
		assert.Contains(t, r.body, `"content":"Hello!"`)
	})
	t.Run("stream", func(t *testing.T) {
		raw := s.raw(fxPost("HTTP/1.0", "/v1/chat/completions", fxStream))
		assert.NotContains(t, raw, "Transfer-Encoding")
		r := fxParse(t, "POST", raw)
		require.NoError(t, r.err)
		frames := fxFrames(t, r.body)
		said, reason := fxText(t, frames)
		assert.Equal(t, "Hello!", said)
		assert.Equal(t, "stop", reason)
		assert.Equal(t, "[DONE]", frames[len(frames)-1])
	})
	t.Run("error", func(t *testing.T) {
		fxParse(t, "POST", s.raw(fxPost("HTTP/1.0", "/v1/nothing", fxWhole))).checkError(t, 404)
		fxParse(t, "GET", s.raw("GET / HTTP/1.0\r\n\r\n")).checkError(t, 404)
	})
	t.Run("a stream that fails", func(t *testing.T) {
		s := fxStart(t, fxConfig{backend: fxChat(func(_ context.Context, yield func(*llmhttp.ChatChunk, error) bool) {
			_ = yield(llmhttp.TextChunk("one"), nil) && yield(nil, errors.New("boom"))
		})})
		r := fxParse(t, "POST", s.raw(fxPost("HTTP/1.0", "/v1/chat/completions", fxStream)))
		frames := fxFrames(t, r.body)
		assert.Equal(t, messageInternal, fxError(t, frames[len(frames)-1]).Message)
	})
}

// No Accept is refused: SDKs send application/json on streams.
func TestAccept(t *testing.T) {
	s := fxStart(t, fxConfig{})
	for _, accept := range []string{"application/json", "text/event-stream", "*/*", "text/html", "nonsense"} {
		for _, body := range []string{fxWhole, fxStream} {
			assert.Equal(t, 200, s.chat(body, fxHeader("Accept", accept)).StatusCode)
		}
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

// Every reply has its own ID, or the one the host gives it.
func TestRequestID(t *testing.T) {
	t.Run("random", func(t *testing.T) {
		s := fxStart(t, fxConfig{})
		seen := map[string]bool{}
		for range 50 {
			for _, r := range []fxReply{s.chat(fxWhole), s.chat(fxStream), s.do("GET", "/nope", ""), s.chat(fxWhole, fxNoKey), s.chat("{")} {
				id := r.Header.Get("X-Request-Id")
				assert.Regexp(t, `^req_[0-9a-f]{32}$`, id)
				assert.False(t, seen[id], "an ID came twice")
				seen[id] = true
			}
		}
	})
	t.Run("the host's", func(t *testing.T) {
		n := 0
		s := fxStart(t, fxConfig{opts: llmhttp.Options{RequestID: func(r *http.Request) string {
			n++
			return fmt.Sprintf("host-%s-%d", r.Method, n)
		}}})
		assert.Equal(t, "host-POST-1", s.chat(fxWhole).Header.Get("X-Request-Id"))
		assert.Equal(t, "host-POST-2", s.chat(fxStream).Header.Get("X-Request-Id"))
		assert.Equal(t, "host-GET-3", s.do("GET", "/", "").Header.Get("X-Request-Id"))
		assert.Equal(t, "host-POST-1", s.usage.all()[0].ID)
		fxAwait(t, "the Exchanges", func() bool { return len(s.watch.exchanges()) == 3 })
		var ids []string
		for _, e := range s.watch.exchanges() {
			ids = append(ids, e.ID)
		}
		assert.ElementsMatch(t, []string{"host-POST-1", "host-POST-2", "host-GET-3"}, ids)
	})
	t.Run("empty", func(t *testing.T) {
		s := fxStart(t, fxConfig{opts: llmhttp.Options{RequestID: func(*http.Request) string { return "" }}})
		assert.Regexp(t, `^req_`, s.chat(fxWhole).Header.Get("X-Request-Id"))
	})
	t.Run("hostile", func(t *testing.T) {
		s := fxStart(t, fxConfig{opts: llmhttp.Options{RequestID: func(r *http.Request) string { return "a\r\nX-Evil: 1\r\n\r\nbody" }}})
		r := s.chat(fxWhole)
		assert.Empty(t, r.Header.Get("X-Evil"))
		assert.True(t, strings.HasPrefix(r.body, "{"))
	})
}

// Handler mounted under a prefix, or on two hosts.
func TestMounted(t *testing.T) {
	s := fxStart(t, fxConfig{wrap: func(h http.Handler) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("/v1/", h)
		mux.Handle("/llm/", http.StripPrefix("/llm", h))
		return mux
	}})
	for _, prefix := range []string{"", "/llm"} {
		assert.Equal(t, 200, s.do("POST", prefix+"/v1/chat/completions", fxWhole).StatusCode)
		assert.Equal(t, 200, s.do("GET", prefix+"/v1/models/hf.co/u/Q:Q4", "").StatusCode)
		assert.Equal(t, 200, s.do("GET", prefix+"/v1/models/hf.co%2Fu%2FQ:Q4", "").StatusCode)
		s.do("GET", prefix+"/v1/x", "").checkError(t, 404)
	}
}

// Requests that follow one another on a connection do not mix, whatever
// became of the first.
func TestConnectionServesOn(t *testing.T) {
	s := fxStart(t, fxConfig{})
	first := []string{
		fxPost("HTTP/1.1", "/v1/chat/completions", fxWhole),
		fxPost("HTTP/1.1", "/v1/chat/completions", fxStream),
		fxPost("HTTP/1.1", "/v1/chat/completions", "{"),
		fxPost("HTTP/1.1", "/v1/nothing", fxWhole),
		"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
		"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n",
	}
	for i, request := range first {
		t.Run(itoa(i), func(t *testing.T) {
			raw := s.raw(request + "GET /v1/models/demo-chat HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer " + fxSecret + "\r\n\r\n")
			if strings.Contains(raw, "Connection: close\r\nContent-Length") && i >= 3 {
				// The first request was refused before its body was read.
				assert.Equal(t, 1, strings.Count(raw, "HTTP/1.1 "), "%s", raw)
				return
			}
			assert.Equal(t, 2, strings.Count(raw, "HTTP/1.1 "), "%s", raw)
			assert.True(t, strings.HasSuffix(raw, `{"id":"demo-chat","object":"model","created":1686935002,"owned_by":"acme"}`), "%s", raw)
		})
	}
}

// A Request without a Body, as adapters of other servers make them, is refused.
func TestNoBody(t *testing.T) {
	s := fxHandler(fxConfig{})
	r, err := http.NewRequest("POST", "/v1/chat/completions", nil)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+fxSecret)
	w := httptest.NewRecorder()
	s.h.ServeHTTP(w, r)
	assert.Equal(t, 400, w.Code, "%s", w.Body)
	fxError(t, w.Body.String())
}

// A limit that the host sets on bodies is one of ours to tell of.
func TestHostMaxBytes(t *testing.T) {
	s := fxStart(t, fxConfig{wrap: func(h http.Handler) http.Handler { return http.MaxBytesHandler(h, 20) }})
	s.chat(fxWhole, fxChunked).checkError(t, 413)
}

// A body that is cut is no reply's fault, and no longer read.
func TestBodyIsCut(t *testing.T) {
	fxNoLeaks(t)
	s := fxStart(t, fxConfig{})
	c := s.dial()
	_, err := io.WriteString(c, strings.TrimSuffix(fxPost("HTTP/1.1", "/v1/chat/completions", fxWhole), "}"))
	require.NoError(t, err)
	fxAwait(t, "the request", func() bool { s.watch.mu.Lock(); defer s.watch.mu.Unlock(); return s.watch.begun == 1 })
	c.Close()
	e := s.watch.only(t)
	assert.Error(t, e.Err)
	assert.Empty(t, s.usage.all())
}

func TestNewHandlerPanics(t *testing.T) {
	assert.Panics(t, func() { llmhttp.NewHandler(nil, fxKeys(fxKey()), nil) })
	assert.Panics(t, func() { llmhttp.NewHandler(new(fxBackend), nil, nil) })
	w := httptest.NewRecorder()
	llmhttp.NewHandler(new(fxBackend), llmhttp.AllowAll("a"), nil).ServeHTTP(w, fxLocal(fxWhole))
	assert.Equal(t, 200, w.Code)
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
