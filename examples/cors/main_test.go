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

const page = "https://app.example.com"

func start(t *testing.T, denied ...netip.Prefix) (base string) {
	ctx, stop := context.WithCancel(t.Context())
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, "127.0.0.1:0", []string{page}, denied, w) }()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, <-ended)
	})
	line, err := bufio.NewReader(r).ReadString('\n')
	require.NoError(t, err)
	go io.Copy(io.Discard, r)
	return regexp.MustCompile(`http://\S+`).FindString(line)
}

func call(t *testing.T, method, url, body string, headers map[string]string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res, string(text)
}

const (
	chat     = "/v1/chat/completions"
	streamed = `{"model": "demo-chat", "stream": true, "messages": [{"role": "user", "content": "Hello!"}]}`
)

func preflight(t *testing.T, url, origin string) *http.Response {
	t.Helper()
	res, _ := call(t, "OPTIONS", url, "", map[string]string{
		"Origin":                         origin,
		"Access-Control-Request-Method":  "POST",
		"Access-Control-Request-Headers": "authorization,content-type,x-stainless-lang", // sorted, as browsers do
	})
	return res
}

func TestPreflight(t *testing.T) {
	base := start(t)
	res := preflight(t, base+chat, page)
	assert.Equal(t, 204, res.StatusCode)
	assert.Equal(t, page, res.Header.Get("Access-Control-Allow-Origin"))
	assert.Equal(t, "POST", res.Header.Get("Access-Control-Allow-Methods"))
	assert.Equal(t, "authorization,content-type,x-stainless-lang", res.Header.Get("Access-Control-Allow-Headers"))
	assert.Equal(t, "3600", res.Header.Get("Access-Control-Max-Age"))

	res = preflight(t, base+chat, "https://elsewhere.example.com")
	assert.Empty(t, res.Header.Get("Access-Control-Allow-Origin"))
}

// exposed returns the headers of res that a page may read, in lower case.
func exposed(res *http.Response) []string {
	return strings.Split(strings.ToLower(strings.ReplaceAll(res.Header.Get("Access-Control-Expose-Headers"), " ", "")), ",")
}

func TestPage(t *testing.T) {
	base := start(t)
	for _, c := range []struct {
		name, key string
		status    int
	}{{"stream", "sk-demo", 200}, {"refused", "sk-eve", 401}} {
		t.Run(c.name, func(t *testing.T) {
			res, body := call(t, "POST", base+chat, streamed, map[string]string{"Origin": page, "Authorization": "Bearer " + c.key})
			assert.Equal(t, c.status, res.StatusCode, body)
			assert.Equal(t, page, res.Header.Get("Access-Control-Allow-Origin"))
			assert.Equal(t, c.status == 200, strings.HasSuffix(body, "data: [DONE]\n\n"), body)
			assert.NotEmpty(t, res.Header.Get("X-Request-Id"))

			// A page can read every header that the API speaks through.
			for name := range res.Header {
				if name := strings.ToLower(name); strings.HasPrefix(name, "x-r") || strings.HasPrefix(name, "openai-") || strings.HasPrefix(name, "retry-") {
					assert.Contains(t, exposed(res), name)
				}
			}
			if c.status == 200 {
				assert.Equal(t, "60", res.Header.Get("X-Ratelimit-Limit-Requests"))
			}
		})
	}
}

func TestGuard(t *testing.T) {
	base := start(t, netip.MustParsePrefix("127.0.0.0/8"))
	res, body := call(t, "POST", base+chat, streamed, map[string]string{"Origin": page, "Authorization": "Bearer sk-demo"})
	assert.Equal(t, 403, res.StatusCode)
	assert.Equal(t, "application/json", res.Header.Get("Content-Type"))
	assert.Equal(t, page, res.Header.Get("Access-Control-Allow-Origin"), "or the page could not read it")
	assert.NotEmpty(t, res.Header.Get("X-Request-Id"))
	assert.JSONEq(t, `{"error": {"message": "Requests from 127.0.0.1 are not welcome.", "type": "invalid_request_error", "param": null, "code": "address_denied"}}`, body)

	assert.Equal(t, 204, preflight(t, base+chat, page).StatusCode)
}
