package upstream_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/upstream"
)

// What clients are told of what servers tell.
func TestErrors(t *testing.T) {
	const (
		failed   = "The model's server had an error. Please try again."
		overload = "The model is overloaded. Please try again."
		timeout  = "The model did not answer in time."
		noModel  = "The model `m` does not exist or you do not have access to it."
	)
	server := func(message string) apiError { return apiError{Message: message, Type: "server_error"} }
	for _, c := range []struct {
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
		{"a code that is a number", 400, `{"error":{"message":"No.","type":"BadRequestError","code":400}}`, nil, 400, apiError{"No.", "BadRequestError", "", "400"}, ""},
		{"a text", 400, `{"error":"No."}`, nil, 400, apiError{"No.", "invalid_request_error", "", ""}, ""},
		{"flat", 400, `{"object":"error","message":"No.","type":"BadRequestError","param":null,"code":40001}`, nil, 400, apiError{"No.", "BadRequestError", "", "40001"}, ""},
		{"in a list", 400, `[{"error":{"message":"No.","status":"INVALID_ARGUMENT"}}]`, nil, 400, apiError{"No.", "invalid_request_error", "", ""}, ""},
		{"FastAPI's", 422, `{"detail":[{"loc":["body","messages",0,"role"],"msg":"field required","type":"value_error"}]}`, nil,
			422, apiError{"field required", "invalid_request_error", "messages[0].role", ""}, ""},
		{"FastAPI's text", 422, `{"detail":"No."}`, nil, 422, apiError{"No.", "invalid_request_error", "", ""}, ""},
		{"as long as its request", 422, `{"detail":[{"loc":["body","messages",0,"role"],"msg":"Input should be 'user'","input":"` + strings.Repeat("x", 200_000) + `"}]}`, nil,
			422, apiError{"Input should be 'user'", "invalid_request_error", "messages[0].role", ""}, ""},
		{"axum's text", 422, "Failed to deserialize the JSON body into the target type: messages[0].role: unknown variant `x`", []string{"Content-Type: text/plain; charset=utf-8"},
			422, apiError{"Failed to deserialize the JSON body into the target type: messages[0].role: unknown variant `x`", "invalid_request_error", "", ""}, ""},
		{"no JSON", 400, `nope`, nil, 502, server(failed), "status 400: Bad Request, with 4 bytes of application/json"},
		{"a page", 422, `<html>`, nil, 502, server(failed), "status 422: Unprocessable Entity, with 6 bytes of text/html"},
		{"too large", 413, `<html>`, nil, 413, apiError{"Request Entity Too Large", "invalid_request_error", "", ""}, ""},
		{"no such model", 404, `{"error":{"message":"The model gpt-x does not exist","code":"model_not_found"}}`, nil, 404, apiError{noModel, "invalid_request_error", "", "model_not_found"}, ""},
		{"no such model, vLLM", 404, `{"object":"error","message":"The model gpt-x does not exist.","type":"NotFoundError","param":null,"code":404}`, nil, 404, apiError{noModel, "invalid_request_error", "", "model_not_found"}, ""},
		{"no such model, Ollama", 404, `{"error":{"message":"model \"m\" not found, try pulling it first","type":"api_error","param":null,"code":null}}`, nil, 404, apiError{noModel, "invalid_request_error", "", "model_not_found"}, ""},
		{"no such model, as a bad request", 400, `{"error":{"message":"?","code":"model_not_found"}}`, nil, 404, apiError{noModel, "invalid_request_error", "", "model_not_found"}, ""},
		{"no such file", 404, `{"error":{"message":"No such File object: file-1","type":"invalid_request_error","param":"file_id","code":null}}`, nil, 400, apiError{"No such File object: file-1", "invalid_request_error", "file_id", ""}, ""},
		{"no such URL", 404, `{"error":{"message":"Invalid URL (POST /v2/chat/completions)","type":"invalid_request_error","param":null,"code":null}}`, nil, 502, server(failed), "is the base URL right?"},
		{"no such URL, with models in it", 404, `{"error":{"message":"Nothing at /models/v1/chat/completions"}}`, nil, 502, server(failed), "is the base URL right?"},
		{"a key in a message", 400, `{"error":{"message":"Invalid value: 'my api key'."}}`, nil, 400, apiError{"Invalid value: 'my api key'.", "invalid_request_error", "", ""}, ""},
		{"no such page", 404, `404 page not found`, nil, 502, server(failed), "is the base URL right?"},
		{"wrong method", 405, ``, nil, 502, server(failed), "status 405: Method Not Allowed"},
		{"wrong key", 401, `{"error":{"message":"Incorrect API key provided: sk-serv***fghij9. Find yours at ` + "http://HOST" + `/keys.","code":"invalid_api_key"}}`, nil, 502, server(failed),
			"upstream: status 401: invalid_api_key: Incorrect API key provided: [redacted]"},
		{"wrong key, in full", 401, `{"error":{"message":"Bearer ` + serverKey + ` is not known"}}`, nil, 502, server(failed), "[redacted] is not known"},
		{"wrong key, as a bad request", 400, `[{"error":{"code":400,"message":"API key not valid. Please pass a valid API key."}}]`, nil, 502, server(failed), "API key not valid"},
		{"forbidden", 403, `{"error":{"message":"Country not supported"}}`, nil, 502, server(failed), "Country not supported"},
		{"unpaid", 402, `{"error":{"message":"Insufficient Balance"}}`, nil, 502, server(failed), "Insufficient Balance"},
		{"rate", 429, `{"error":{"message":"Rate limit reached for m in organization org-abc123def on tokens per min.","type":"tokens","param":null,"code":"rate_limit_exceeded"}}`, []string{"Retry-After: 7"},
			429, apiError{"Rate limit reached for m in organization [redacted] on tokens per min.", "tokens", "", "rate_limit_exceeded"}, ""},
		{"rate, without a word", 429, ``, nil, 429, apiError{"Rate limit reached. Please try again later.", "requests", "", ""}, ""},
		{"quota", 429, `{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","code":"insufficient_quota"}}`, nil, 502, server(failed), "insufficient_quota: You exceeded"},
		{"internal", 500, `{"error":{"message":"at 10.2.3.4:9000: boom","type":"server_error"}}`, nil, 502, server(failed), "at [redacted]: boom"},
		{"not implemented", 501, ``, nil, 502, server(failed), ""},
		{"bad gateway", 502, `<html>nginx`, nil, 502, server(failed), "status 502: Bad Gateway, with 11 bytes of text/html"},
		{"overloaded", 503, `{"error":{"message":"Loading model"}}`, []string{"Retry-After: 7"}, 503, server(overload), "Loading model"},
		{"overloaded, otherwise", 529, ``, nil, 503, server(overload), ""},
		{"timeout", 504, ``, nil, 504, server(timeout), ""},
		{"timeout, otherwise", 408, ``, nil, 504, server(timeout), ""},
		{"teapot", 418, ``, nil, 502, server(failed), "status 418"},
		{"a 200 with a bad request", 200, `{"error":{"message":"No.","type":"invalid_request_error","param":"seed","code":null}}`, nil, 400, apiError{"No.", "invalid_request_error", "seed", ""}, ""},
		{"a 200 with a rate", 200, `{"error":{"message":"Slow.","code":429}}`, []string{"Retry-After: 7"}, 429, apiError{"Slow.", "requests", "", "429"}, ""},
		{"a 200 with a wrong key", 200, `{"error":{"message":"?","type":"authentication_error"}}`, nil, 502, server(failed), ""},
		{"control characters", 400, `{"error":{"message":"a\u0000b\r\nc\u001b[31m"}}`, nil, 400, apiError{"a b c [31m", "invalid_request_error", "", ""}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			noLeaks(t)
			var s *rawServer
			s = newRawServer(t, func(conn net.Conn, _ *rawRequest) {
				contentType := "application/json"
				if strings.HasPrefix(c.body, "<") {
					contentType = "text/html"
				}
				if len(c.headers) > 0 && strings.HasPrefix(c.headers[0], "Content-Type: ") {
					contentType = strings.TrimPrefix(c.headers[0], "Content-Type: ")
				}
				whole(conn, c.status, contentType, strings.ReplaceAll(c.body, "HOST", s.l.Addr().String()), append(c.headers, "X-Request-Id: req_theirs")...)
			})
			g := newGateway(t, s.url(), nil)
			for i, ask := range []string{askWhole, askStream} {
				a := g.chat(ask)
				assert.Equal(t, c.err, a.wantError(t, c.want))
				if slices.Contains(c.headers, "Retry-After: 7") {
					assert.Equal(t, "7", a.Header.Get("Retry-After"))
				} else {
					assert.Empty(t, a.Header.Get("Retry-After"))
				}
				await(t, "the exchange", func() bool { return len(g.exchanges()) == i+1 })
				var e *upstream.Error
				require.ErrorAs(t, g.exchanges()[i].Err, &e)
				assert.Equal(t, c.status, e.Status)
				assert.Equal(t, "upstream", e.Upstream)
				assert.Equal(t, "req_theirs", e.RequestID)
				if c.want >= 500 {
					assert.Contains(t, g.log.String(), "(its request req_theirs)")
				}
			}
			assert.Contains(t, g.log.String(), c.log)
		})
	}
}

// The status of an error counts, whether its body comes or not.
func TestErrorWithoutEnd(t *testing.T) {
	for name, write := range map[string]func(s *rawServer, c net.Conn){
		"nothing": func(s *rawServer, c net.Conn) { s.hang(c) },
		"a part":  func(s *rawServer, c net.Conn) { piece(c, `{"error":{"mess`); s.hang(c) },
		"spaces": func(s *rawServer, c net.Conn) {
			for piece(c, " ") == nil {
				time.Sleep(5 * time.Millisecond)
			}
			c.Close()
		},
		"too much": func(_ *rawServer, c net.Conn) {
			for piece(c, strings.Repeat("x", 10_000)) == nil {
			}
			c.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			noLeaks(t)
			var s *rawServer
			s = newRawServer(t, func(c net.Conn, r *rawRequest) {
				status := 429
				if r.n == 1 {
					status = 500
				}
				fmt.Fprintf(c, "HTTP/1.1 %d X\r\nContent-Type: application/json\r\nRetry-After: 7\r\nTransfer-Encoding: chunked\r\n\r\n", status)
				write(s, c)
			})
			g := newGateway(t, s.url(), &upstream.Options{SilenceTimeout: 50 * time.Millisecond})
			a := g.chat(askStream)
			assert.Equal(t, "Rate limit reached. Please try again later.", a.wantError(t, 429).Message)
			assert.Equal(t, "7", a.Header.Get("Retry-After"))
			a = g.chat(askStream)
			assert.Equal(t, bodyFailed, a.body)
			assert.Contains(t, g.log.String(), "status 500: Internal Server Error, with")
			await(t, "the connections to be closed", func() bool { return s.open.Load() == 0 })
		})
	}
}

// What a server does not have is not found, except for chats.
func TestUnsupported(t *testing.T) {
	noLeaks(t)
	s := newRawServer(t, func(c net.Conn, r *rawRequest) {
		switch r.URL.Path {
		case "/v1/models":
			whole(c, 404, "application/json", `{"error":{"message":"no model here"}}`)
		case "/v1/embeddings":
			whole(c, 501, "application/json", `{"error":{"message":"This server does not support embeddings. Start it with --embeddings"}}`)
		default:
			whole(c, 404, "text/plain", "404 page not found")
		}
	})
	g := newGateway(t, s.url(), nil)
	assert.Equal(t, "Invalid URL (GET /v1/models)", g.do("GET", "/v1/models", "").wantError(t, 404).Message)
	assert.Equal(t, "Invalid URL (POST /v1/embeddings)", g.do("POST", "/v1/embeddings", `{"model":"m","input":"a"}`).wantError(t, 404).Message)
	assert.Equal(t, "Invalid URL (POST /v1/images/generations)", g.do("POST", "/v1/images/generations", `{"model":"m","prompt":"a"}`).wantError(t, 404).Message)
	assert.Equal(t, 502, g.chat(askWhole).StatusCode)
	_, err := g.backend.ListModels(t.Context())
	assert.ErrorIs(t, err, errors.ErrUnsupported)
}

func TestRetryAfter(t *testing.T) {
	noLeaks(t)
	now := time.Now().UTC()
	var headers []string
	s := newRawServer(t, func(c net.Conn, r *rawRequest) { whole(c, 429, "application/json", "", headers...) })
	g := newGateway(t, s.url(), nil)
	for _, c := range []struct {
		headers []string
		want    string // in milliseconds
	}{
		{nil, ""},
		{[]string{"Retry-After: 7"}, "7000"},
		{[]string{"Retry-After: 0.25"}, "250"},
		{[]string{"Retry-After-Ms: 125.0", "Retry-After: 7"}, "125"},
		{[]string{"Retry-After-Ms: soon", "Retry-After: 7"}, "7000"},
		{[]string{"Retry-After: 0"}, ""},
		{[]string{"Retry-After: -7"}, ""},
		{[]string{"Retry-After: soon"}, ""},
		{[]string{"Retry-After: NaN"}, ""},
		{[]string{"Retry-After: Infinity"}, ""},
		{[]string{"Retry-After: 1e999"}, ""},
		{[]string{"Retry-After: 1e300"}, "31622400000"},
		{[]string{"Date: Mon, 02 Jan 2006 15:04:05 GMT", "Retry-After: Mon, 02 Jan 2006 15:04:35 GMT"}, "30000"},
		{[]string{"Retry-After: " + now.Add(-time.Hour).Format(http.TimeFormat)}, ""},
		{[]string{"Retry-After: " + now.AddDate(9, 0, 0).Format(http.TimeFormat)}, "31622400000"},
	} {
		headers = c.headers
		assert.Equal(t, c.want, g.chat(askWhole).Header.Get("Retry-After-Ms"), "%q", c.headers)
	}
	headers = []string{"Retry-After: " + now.Add(time.Hour).Format(http.TimeFormat)}
	ms, err := strconv.Atoi(g.chat(askWhole).Header.Get("Retry-After-Ms"))
	require.NoError(t, err)
	assert.InDelta(t, time.Hour.Milliseconds(), ms, float64(time.Minute.Milliseconds()))
	headers = []string{"X-Should-Retry: false"}
	assert.Equal(t, "false", g.chat(askWhole).Header.Get("X-Should-Retry"))
}

// A host can tell what an Error comes from, but not read addresses in it.
func TestErrorIs(t *testing.T) {
	noLeaks(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l.Close()
	b, err := upstream.New("http://"+l.Addr().String()+"/v1", &upstream.Options{Name: "primary"})
	require.NoError(t, err)
	_, err = llmhttp.Collect(b.Chat(t.Context(), &llmhttp.ChatRequest{Model: "m"}))
	assert.ErrorIs(t, err, syscall.ECONNREFUSED)
	assert.NotContains(t, err.Error(), "127.0.0.1")
	var told *llmhttp.Error
	require.ErrorAs(t, err, &told)
	assert.Equal(t, http.StatusBadGateway, told.Status)
	var e *upstream.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, "primary: no reply: dial: connection refused", e.Error())
	assert.Nil(t, errors.Unwrap(e))
	errno, ok := errors.AsType[syscall.Errno](err)
	assert.True(t, ok)
	assert.Equal(t, syscall.ECONNREFUSED, errno)
	_, ok = errors.AsType[*net.OpError](err)
	assert.False(t, ok, "it has the address")

	var s *rawServer
	s = newRawServer(t, func(c net.Conn, _ *rawRequest) { s.hang(c) })
	b, err = upstream.New(s.url(), &upstream.Options{FirstByteTimeout: 20 * time.Millisecond})
	require.NoError(t, err)
	_, err = llmhttp.Collect(b.Chat(t.Context(), &llmhttp.ChatRequest{Model: "m"}))
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorAs(t, err, &told)
	assert.Equal(t, http.StatusGatewayTimeout, told.Status)
}
