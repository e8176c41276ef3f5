package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	origin   = "https://app.example.com"
	chatPath = "/v1/chat/completions"
	chat     = `{"model": "demo-chat", "stream": true, "messages": [{"role": "user", "content": "Hello!"}]}`
)

// start runs the example until the end of the test and returns its URL.
func start(t *testing.T, denied ...netip.Prefix) string {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r, w := io.Pipe()
	result := make(chan error, 1)
	go func() { result <- run(ctx, "127.0.0.1:0", []string{origin}, denied, w) }()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, <-result)
	})
	line, err := bufio.NewReader(r).ReadString('\n')
	require.NoError(t, err)
	go io.Copy(io.Discard, r)
	return regexp.MustCompile(`http://\S+`).FindString(line)
}

func send(t *testing.T, method, url, body string, headers map[string]string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(text)
}

func preflight(t *testing.T, url, origin string) *http.Response {
	t.Helper()
	resp, _ := send(t, "OPTIONS", url, "", map[string]string{
		"Origin":                         origin,
		"Access-Control-Request-Method":  "POST",
		"Access-Control-Request-Headers": "authorization,content-type,x-stainless-lang", // browsers sort them
	})
	return resp
}

func TestPreflight(t *testing.T) {
	url := start(t) + chatPath
	resp := preflight(t, url, origin)
	assert.Equal(t, http.StatusNoContent, resp.StatusCode)
	assert.Equal(t, origin, resp.Header.Get("Access-Control-Allow-Origin"))
	assert.Equal(t, "POST", resp.Header.Get("Access-Control-Allow-Methods"))
	assert.Equal(t, "authorization,content-type,x-stainless-lang", resp.Header.Get("Access-Control-Allow-Headers"))
	assert.Equal(t, "3600", resp.Header.Get("Access-Control-Max-Age"))

	resp = preflight(t, url, "https://elsewhere.example.com")
	assert.Empty(t, resp.Header.Get("Access-Control-Allow-Origin"))
}

// exposedHeaders returns the headers that a web page may read, in lower case.
func exposedHeaders(resp *http.Response) []string {
	list := strings.ReplaceAll(resp.Header.Get("Access-Control-Expose-Headers"), " ", "")
	return strings.Split(strings.ToLower(list), ",")
}

func TestExposedHeaders(t *testing.T) {
	url := start(t) + chatPath
	for name, test := range map[string]struct {
		key    string
		status int
	}{
		"stream":      {"sk-demo", http.StatusOK},
		"invalid key": {"sk-invalid", http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			resp, body := send(t, "POST", url, chat, map[string]string{"Origin": origin, "Authorization": "Bearer " + test.key})
			require.Equal(t, test.status, resp.StatusCode, body)
			assert.Equal(t, origin, resp.Header.Get("Access-Control-Allow-Origin"))
			assert.NotEmpty(t, resp.Header.Get("X-Request-Id"))
			for name := range resp.Header {
				name := strings.ToLower(name)
				if strings.HasPrefix(name, "x-r") || strings.HasPrefix(name, "openai-") || strings.HasPrefix(name, "retry-") {
					assert.Contains(t, exposedHeaders(resp), name)
				}
			}
			if test.status == http.StatusOK {
				assert.Equal(t, "60", resp.Header.Get("X-Ratelimit-Limit-Requests"))
				assert.True(t, strings.HasSuffix(body, "data: [DONE]\n\n"), body)
			}
		})
	}
}

func TestDeniedNetwork(t *testing.T) {
	url := start(t, netip.MustParsePrefix("127.0.0.0/8")) + chatPath
	resp, body := send(t, "POST", url, chat, map[string]string{"Origin": origin, "Authorization": "Bearer sk-demo"})
	assert.Equal(t, http.StatusForbidden, resp.StatusCode)
	assert.Equal(t, "application/json", resp.Header.Get("Content-Type"))
	assert.Equal(t, origin, resp.Header.Get("Access-Control-Allow-Origin"))
	assert.NotEmpty(t, resp.Header.Get("X-Request-Id"))
	assert.JSONEq(t, `{"error": {"message": "Requests from 127.0.0.1 are not allowed.", "type": "invalid_request_error", "param": null, "code": "address_denied"}}`, body)

	assert.Equal(t, http.StatusNoContent, preflight(t, url, origin).StatusCode)
}
