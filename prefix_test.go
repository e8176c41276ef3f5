package llmhttp_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/messages"
	"github.com/llmhttp/llmhttp/responses"
)

func TestPrefix_Malformed(t *testing.T) {
	newHandler := func(prefix string) {
		llmhttp.NewHandler(new(stubBackend), keysFor(testKey()), &llmhttp.Options{Prefix: prefix})
	}
	for _, prefix := range []string{"/", "llm", "/llm/", "/a//b", "//a", "/a/../b", "/a/.", "/a b", "/a%2Fb", "/{a}", "/a?b", "/a#b", "/\u00e4", "*", "/v1", "/llm/v1"} {
		assert.Panics(t, func() { newHandler(prefix) }, prefix)
	}
	for _, prefix := range []string{"", "/llm", "/api/llm", "/v1/llm", "/v1beta", "/~a@b:c", "/a.b"} {
		assert.NotPanics(t, func() { newHandler(prefix) }, prefix)
	}
}

// Below the Prefix, paths are matched as without it. All others are unknown.
func TestPrefix_Paths(t *testing.T) {
	s := startServer(t, config{opts: llmhttp.Options{Prefix: "/api/llm"}})
	const model = "model_not_found"
	for target, want := range map[string]struct {
		status int
		code   string
	}{
		"/api/llm/v1/models":                         {200, ""},
		"/api/llm/v1/m%6Fdels":                       {200, ""},
		"/api/%6Clm/v1/models":                       {200, ""},
		"/api/llm/v1/models/demo-chat":               {200, ""},
		"/api/llm/v1/models/hf.co/u/Q:Q4":            {200, ""},
		"/api/llm/v1/models/hf.co%2Fu%2FQ%3AQ4":      {200, ""},
		"/%61pi/ll%6D/v1/models/hf.co%2fu/Q:Q4?x=1":  {200, ""},
		"/api/llm/dashboard/billing/usage":           {200, ""},
		"http://elsewhere.example/api/llm/v1/models": {200, ""},
		"/api/llm/v1/models/none%2Fnone":             {404, model},
		"/api/llm/v1/models/../models":               {404, model},
		"/api/llm":                                   {404, ""},
		"/api/llm/":                                  {404, ""},
		"/api/llm/v1":                                {404, ""},
		"/api/llm//v1/models":                        {404, ""},
		"/api/llm/api/llm/v1/models":                 {404, ""},
		"/api/llm%2Fv1/models":                       {404, ""},
		"/api%2Fllm/v1/models":                       {404, ""},
		"/api%2Fllm/v1/models/hf.co%2Fu%2FQ%3AQ4":    {404, ""},
		"/api/llmx/v1/models":                        {404, ""},
		"/api/ll/v1/models":                          {404, ""},
		"/API/llm/v1/models":                         {404, ""},
		"/v1/models":                                 {404, ""},
		"/llm/v1/models":                             {404, ""},
		"/api":                                       {404, ""},
		"/":                                          {404, ""},
	} {
		t.Run(target, func(t *testing.T) {
			r := parseReply(t, "GET", s.raw("GET "+target+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer "+testSecret+"\r\n\r\n"))
			if want.status == 200 {
				assert.Equal(t, 200, r.StatusCode, "%s", r.body)
				return
			}
			assert.Equal(t, want.code, r.checkError(t, want.status).Code)
		})
	}
	assert.Equal(t, 200, s.do("POST", "/api/llm"+chatPath, chatBody).StatusCode)
}

// A 404 tells which base URL or which Prefix may be wrong.
func TestPrefix_Hints(t *testing.T) {
	with := func(prefix string) *testServer {
		return startServer(t, config{backend: textBackend("x"), opts: llmhttp.Options{Prefix: prefix, Protocols: []llmhttp.Protocol{messages.New(nil)}}})
	}
	bare, mounted := with(""), with("/llm")
	for _, tt := range []struct {
		s          *testServer
		path, want string
	}{
		{bare, "/chat/completions", ". Did you mean POST /v1/chat/completions? The base URL of this client must end in /v1."},
		{bare, "/v1/v1/messages", ". Did you mean POST /v1/messages? The base URL of this client must not end in /v1: it adds that itself."},
		{bare, "/v1/v1/messages/count_tokens", ". Did you mean POST /v1/messages/count_tokens? The base URL of this client must not end in /v1: it adds that itself."},
		{bare, "/llm/v1/chat/completions", ". Did you mean POST /v1/chat/completions? If the server is mounted below /llm, its Options.Prefix must be '/llm', and base URLs end in /llm/v1."},
		{bare, "/llm/chat/completions", ". Did you mean POST /v1/chat/completions? If the server is mounted below /llm, its Options.Prefix must be '/llm', and base URLs end in /llm/v1."},
		{bare, "/llm/v1/embeddings", ""}, // the Backend has none
		{bare, "/completions", ""},
		{bare, "/v1/chat/completions/", ""},
		{mounted, "/llm/chat/completions", ". Did you mean POST /llm/v1/chat/completions? The base URL of this client must end in /llm/v1."},
		{mounted, "/llm/v1/v1/messages", ". Did you mean POST /llm/v1/messages? The base URL of this client must not end in /v1: it adds that itself."},
		{mounted, "/chat/completions", ". Did you mean POST /llm/v1/chat/completions?"},
		{mounted, "/api/v1/chat/completions", ". Did you mean POST /llm/v1/chat/completions?"},
	} {
		assert.Equal(t, "Invalid URL (POST "+tt.path+")"+tt.want, tt.s.do("POST", tt.path, "{}").checkError(t, 404).Message)
	}
}

// Errors name the whole path, and the whole paths of what is served.
func TestPrefix_Errors(t *testing.T) {
	s := startServer(t, config{backend: textBackend("x"), opts: llmhttp.Options{Prefix: "/llm", Protocols: []llmhttp.Protocol{messages.New(nil), responses.New(nil)}}})
	const served = ". This server does not serve it. It serves GET /llm/dashboard/billing/subscription, GET /llm/dashboard/billing/usage, " +
		"GET /llm/v1/dashboard/billing/subscription, GET /llm/v1/dashboard/billing/usage, POST /llm/v1/chat/completions, POST /llm/v1/messages, " +
		"POST /llm/v1/messages/count_tokens, POST /llm/v1/responses, POST /llm/v1/responses/compact, POST /llm/v1/responses/input_tokens."
	for _, test := range []struct {
		method, path string
		status       int
		want         string
	}{
		{"POST", "/llm/v1/x", 404, "Invalid URL (POST /llm/v1/x)"},
		{"POST", "/llm/v1/files", 404, "Invalid URL (POST /llm/v1/files)" + served},
		{"POST", "/llm/v1/embeddings", 404, "Invalid URL (POST /llm/v1/embeddings)"},
		{"GET", "/llm/v1/chat/completions", 405, "Not allowed to GET on /llm/v1/chat/completions. (HINT: Perhaps you meant to use a different HTTP method?)"},
		{"POST", "/v1/chat/completions", 404, "Invalid URL (POST /v1/chat/completions)" + served},
		{"POST", "/other", 404, "Invalid URL (POST /other)"},
	} {
		body := ""
		if strings.HasSuffix(test.path, "embeddings") {
			body = `{"model":"m","input":"x"}`
		}
		assert.Equal(t, test.want, s.do(test.method, test.path, body).checkError(t, test.status).Message)
	}
	r := s.do("POST", "/llm/v1/messages/batches", "{}")
	assert.Contains(t, r.body, `{"type":"error"`, "the nearest protocol replies")
	assert.Contains(t, r.body, "(POST /llm/v1/messages/batches)")
	r = s.do("POST", "/v1/messages", "{}")
	assert.Contains(t, r.body, `{"type":"error"`, "also outside of the prefix")
	r = s.do("GET", "/llm/v1/responses", "", func(r *http.Request) { r.Header.Set("Upgrade", "websocket") })
	assert.Contains(t, r.body, "Use POST /llm/v1/responses.")
}

// The host sees the Prefix: in the Pattern of its request, in the summary and in logs. Its
// request does not change otherwise.
func TestPrefix_IsInWhatTheHostSees(t *testing.T) {
	var log bytes.Buffer
	var summary *llmhttp.RequestSummary
	observe := func(ctx context.Context, r *http.Request) (context.Context, llmhttp.Observation) {
		assert.Equal(t, "/llm/v1/models/some%2Fmodel", r.URL.EscapedPath())
		return ctx, llmhttp.Observation{Ended: func(s *llmhttp.RequestSummary) { summary = s }}
	}
	requestID := func(r *http.Request) string {
		assert.Equal(t, "/llm/v1/models/some/model", r.URL.Path)
		return ""
	}
	h := llmhttp.NewHandler(new(stubBackend), keysFor(testKey()), &llmhttp.Options{
		Prefix: "/llm", RequestID: requestID, Logger: noLog,
		Observe: llmhttp.Observers(observe, llmhttp.LogRequests(slog.New(slog.NewTextHandler(&log, nil)))),
	})
	r := httptest.NewRequest("GET", "/llm/v1/models/some%2Fmodel?x=1", nil)
	r.Header.Set("Authorization", "Bearer "+testSecret)
	before := *r.URL
	h.ServeHTTP(httptest.NewRecorder(), r)
	assert.Equal(t, before, *r.URL)
	assert.Empty(t, r.PathValue("id"))
	const pattern = "GET /llm/v1/models/{id...}"
	assert.Equal(t, pattern, r.Pattern)
	assert.Equal(t, pattern, summary.Route)
	assert.Contains(t, log.String(), " path=/llm/v1/models/some/model ")
}

// A pathProtocol replies with what it sees of the path.
type pathProtocol struct{ llmhttp.Protocol }

func (p pathProtocol) Name() string { return "path" }

func (p pathProtocol) Secret(r *http.Request) string {
	if !strings.HasPrefix(r.URL.Path, "/own/") {
		return ""
	}
	return p.Protocol.Secret(r)
}

func (p pathProtocol) Routes() []llmhttp.Route {
	return []llmhttp.Route{{
		Pattern: "GET /own/{id}",
		Match:   func(r *http.Request) bool { return strings.HasPrefix(r.URL.EscapedPath(), "/own/") },
		Bind: llmhttp.BindQuery(llmhttp.ScopeChat, func(_ context.Context, r *http.Request, _ []byte) (*llmhttp.QueryReply, error) {
			return jsonReply([]string{r.Pattern, r.PathValue("id"), r.URL.String(), r.RequestURI})
		}),
	}, {
		Pattern: "POST /own/chat",
		Bind: llmhttp.BindChat(func(_ context.Context, r *http.Request, _ []byte) (*llm.ChatRequest, llmhttp.ChatEncoder, error) {
			return nil, nil, llm.Errorf(400, "", "%s", r.URL.Path)
		}),
	}}
}

// The functions of a Protocol see a URL without the Prefix.
func TestPrefix_IsNotInWhatProtocolsSee(t *testing.T) {
	s := startServer(t, config{opts: llmhttp.Options{Prefix: "/llm", Protocols: []llmhttp.Protocol{pathProtocol{llmhttp.ChatCompletions()}}}})
	r := s.get("/llm/own/a%2Fb?x=1")
	assert.JSONEq(t, `["GET /llm/own/{id}", "a/b", "/own/a%2Fb?x=1", "/llm/own/a%2Fb?x=1"]`, r.body)
	assert.Equal(t, "/own/chat", s.do("POST", "/llm/own/chat", "{}").checkError(t, 400).Message)
	s.get("/own/a").checkError(t, 404)
}
