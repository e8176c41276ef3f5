package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
)

// A lockedBuffer is a buffer of logs.
type lockedBuffer struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// lines returns the lines of JSON that were logged.
func (b *lockedBuffer) lines(t *testing.T) (lines []map[string]any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for line := range bytes.Lines(b.buf.Bytes()) {
		var v map[string]any
		require.NoError(t, json.Unmarshal(line, &v), "%s", line)
		lines = append(lines, v)
	}
	return lines
}

// A site is a service under test.
type site struct {
	*service
	url    string
	logs   *lockedBuffer
	spans  *tracetest.SpanRecorder
	cookie string // of ada's session
}

func newSite(t *testing.T, kind string, b llmhttp.Backend) *site {
	s := &site{logs: new(lockedBuffer), spans: tracetest.NewSpanRecorder()}
	s.service = newService(b, logHandlers[kind](s.logs), sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(s.spans)))
	routes, _, err := s.handlers()
	require.NoError(t, err)
	server := httptest.NewServer(routes)
	t.Cleanup(server.Close)
	s.url = server.URL
	res, err := http.PostForm(s.url+"/sign-in", url.Values{"user": {"ada"}})
	require.NoError(t, err)
	defer res.Body.Close()
	require.Len(t, res.Cookies(), 1)
	s.cookie = res.Cookies()[0].Name + "=" + res.Cookies()[0].Value
	return s
}

const chat = `{"model":"demo-chat","messages":[{"role":"user","content":"Hello!"}]}`

// send sends a request with pairs of names and values of headers.
func (s *site) send(t *testing.T, method, path string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(chat))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res, string(body)
}

// Sessions, API keys and pages of other sites.
func TestInside_Sessions(t *testing.T) {
	s := newSite(t, "slog", memory.Echo())
	const partner, evil = "https://partner.example.com", "https://evil.example.com"
	for name, test := range map[string]struct {
		header []string
		status int
	}{
		"nothing":                     {nil, 401},
		"a session":                   {[]string{"Cookie", s.cookie}, 200},
		"an SDK's placeholder":        {[]string{"Cookie", s.cookie, "Authorization", "Bearer session"}, 200},
		"Anthropic's placeholder":     {[]string{"Cookie", s.cookie, "X-Api-Key", "session"}, 200},
		"the placeholder only":        {[]string{"Authorization", "Bearer session"}, 401},
		"a session that has ended":    {[]string{"Cookie", "session=old"}, 401},
		"a key":                       {[]string{"Authorization", "Bearer sk-demo"}, 200},
		"a wrong key, and a session":  {[]string{"Cookie", s.cookie, "Authorization", "Bearer sk-wrong"}, 401},
		"a session, of the same site": {[]string{"Cookie", s.cookie, "Sec-Fetch-Site", "same-origin", "Origin", s.url}, 200},
		"a session, of another site":  {[]string{"Cookie", s.cookie, "Sec-Fetch-Site", "cross-site", "Origin", evil}, 403},
		"a session, of a partner":     {[]string{"Cookie", s.cookie, "Sec-Fetch-Site", "cross-site", "Origin", partner}, 403},
		"a key, of a partner":         {[]string{"Authorization", "Bearer sk-demo", "Sec-Fetch-Site", "cross-site", "Origin", partner}, 200},
	} {
		res, body := s.send(t, "POST", "/v1/chat/completions", test.header...)
		assert.Equal(t, test.status, res.StatusCode, "%s: %s", name, body)
		assert.Empty(t, res.Header.Get("Access-Control-Allow-Credentials"), name)
	}
	res, _ := s.send(t, "OPTIONS", "/v1/chat/completions", "Origin", partner, "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization,content-type,x-stainless-os")
	assert.Equal(t, partner, res.Header.Get("Access-Control-Allow-Origin"))
	res, _ = s.send(t, "OPTIONS", "/v1/chat/completions", "Origin", evil, "Access-Control-Request-Method", "POST")
	assert.Empty(t, res.Header.Get("Access-Control-Allow-Origin"))
}

// The console knows people by the header of the proxy.
func TestInside_Console(t *testing.T) {
	s := newSite(t, "slog", memory.Echo())
	res, _ := s.send(t, "GET", "/console/", "X-Forwarded-Email", "grace@ops.example.com")
	assert.Equal(t, 200, res.StatusCode)
	res, body := s.send(t, "GET", "/console/usage", "X-Forwarded-Email", "ada")
	assert.Equal(t, 200, res.StatusCode)
	assert.Contains(t, body, "ada")
	res, _ = s.send(t, "GET", "/console/usage")
	assert.GreaterOrEqual(t, res.StatusCode, 400)
	_, err := userOfProxy(&http.Request{RemoteAddr: "192.0.2.1:4711", Header: http.Header{"X-Forwarded-Email": {"grace@ops.example.com"}}})
	assert.Error(t, err, "not from the proxy")
}

// Each library logs the lines of requests and the causes of errors, with the trace of the request.
func TestInside_Logs(t *testing.T) {
	failing := llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream {
		return llm.Fail(errors.New("disk full"))
	})
	for kind, message := range map[string]string{"slog": "msg", "zap": "msg", "zerolog": "message"} {
		t.Run(kind, func(t *testing.T) {
			s := newSite(t, kind, failing)
			res, body := s.send(t, "POST", "/v1/chat/completions", "Authorization", "Bearer sk-demo")
			require.Equal(t, 500, res.StatusCode)
			assert.NotContains(t, body, "disk full")
			var lines []map[string]any
			require.EventuallyWithT(t, func(c *assert.CollectT) { // the client has the reply before its span and its line end
				var spans []string
				for _, span := range s.spans.Ended() {
					spans = append(spans, span.Name())
				}
				assert.Contains(c, spans, "chat")
				lines = s.logs.lines(t)
				assert.Len(c, lines, 2)
			}, 10*time.Second, time.Millisecond)
			assert.Equal(t, "request failed", lines[0][message])
			assert.Equal(t, "disk full", lines[0]["error"])
			assert.Equal(t, "request", lines[1][message])
			for _, line := range lines {
				assert.Equal(t, res.Header.Get("X-Request-Id"), line["request_id"])
				assert.NotEmpty(t, line["trace_id"])
			}
		})
	}
}

func TestRun(t *testing.T) {
	assert.ErrorContains(t, run(t.Context(), "127.0.0.1:0", "log4j", io.Discard), "unknown logger log4j")
	ctx, stop := context.WithCancel(t.Context())
	stop()
	var logs lockedBuffer
	assert.NoError(t, run(ctx, "127.0.0.1:0", "zerolog", &logs))
	assert.Equal(t, "listening", logs.lines(t)[0]["message"])
}
