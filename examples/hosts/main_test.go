package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const key = "sk-demo"

// start runs the example and returns its URL.
func start(t *testing.T) (base string) {
	ctx, stop := context.WithCancel(t.Context())
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, "127.0.0.1:0", w) }()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, <-ended)
	})
	line, err := bufio.NewReader(r).ReadString('\n')
	require.NoError(t, err)
	go io.Copy(io.Discard, r)
	return regexp.MustCompile(`http://\S+`).FindString(line)
}

func call(t *testing.T, method, host, url, body string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	req.Host = host
	req.Header.Set("Authorization", "Bearer "+key)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res, string(text)
}

func TestHosts(t *testing.T) {
	base := start(t)
	const hello = `{"model": "demo-chat", "messages": [{"role": "user", "content": "Hello!"}]}`
	const helloStream = `{"model": "demo-chat", "stream": true, "messages": [{"role": "user", "content": "Hello!"}]}`
	const notFound = `{"error":{"message":"Invalid URL (GET `

	for _, at := range []struct{ host, prefix string }{
		{"api.example.com", ""},
		{"api.example.com:8080", ""},
		{"www.example.com", ""},
		{"elsewhere.example.com", "/llm"},
	} {
		t.Run(at.host, func(t *testing.T) {
			url := base + at.prefix
			res, body := call(t, "POST", at.host, url+"/v1/chat/completions", hello)
			assert.Equal(t, 200, res.StatusCode)
			assert.Contains(t, body, `"content":"Hello!"`)

			res, body = call(t, "POST", at.host, url+"/v1/chat/completions", helloStream)
			assert.Equal(t, 200, res.StatusCode)
			assert.True(t, strings.HasSuffix(body, "data: [DONE]\n\n"), body)

			res, body = call(t, "GET", at.host, url+"/v1/models/demo-chat", "")
			assert.Equal(t, 200, res.StatusCode)
			assert.Contains(t, body, `"id":"demo-chat"`)

			// %2F is part of the model ID.
			res, body = call(t, "GET", at.host, url+"/v1/models/some%2Fmodel", "")
			assert.Equal(t, 404, res.StatusCode)
			assert.Contains(t, body, "The model `some/model` does not exist")

			res, body = call(t, "GET", at.host, url+"/v1/nothing", "")
			assert.Equal(t, 404, res.StatusCode)
			assert.Contains(t, body, notFound)
		})
	}

	// All addresses report the requests of all addresses.
	for _, at := range []struct{ host, path string }{
		{"api.example.com", "/v1/dashboard/billing/usage"},
		{"api.example.com", "/dashboard/billing/usage"},
		{"www.example.com", "/dashboard/billing/usage"},
		{"elsewhere.example.com", "/llm/v1/dashboard/billing/usage"},
	} {
		res, body := call(t, "GET", at.host, base+at.path, "")
		assert.Equal(t, 200, res.StatusCode)
		var usage struct{ Requests int }
		require.NoError(t, json.Unmarshal([]byte(body), &usage), body)
		assert.Equal(t, 8, usage.Requests)
	}

	// Other paths depend on the host.
	res, body := call(t, "GET", "www.example.com", base+"/", "")
	assert.Equal(t, 200, res.StatusCode)
	assert.Equal(t, "Welcome to example.com.\n", body)
	res, body = call(t, "GET", "api.example.com", base+"/", "")
	assert.Equal(t, 404, res.StatusCode)
	assert.Contains(t, body, notFound)
	res, body = call(t, "GET", "elsewhere.example.com", base+"/v1/models", "")
	assert.Equal(t, 404, res.StatusCode)
	assert.NotContains(t, body, notFound)
}
