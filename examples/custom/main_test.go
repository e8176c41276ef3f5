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
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llm"
)

// start runs the example and returns its output up to the curl commands.
func start(t *testing.T, pace time.Duration) (welcome string) {
	ctx, stop := context.WithCancel(t.Context())
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, "127.0.0.1:0", pace, w) }()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, <-ended)
	})
	lines := bufio.NewReader(r)
	for !strings.Contains(welcome, "Try:") {
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		welcome += line
	}
	go io.Copy(io.Discard, lines)
	return welcome
}

func call(t *testing.T, method, url, key, body string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+key)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		// After a failure in a stream, the server closes the connection.
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		text = append(text, "(interrupted)"...)
	}
	return res, string(text)
}

func TestCustom(t *testing.T) {
	welcome := start(t, 0)
	base := regexp.MustCompile(`http://\S+`).FindString(welcome)
	secrets := regexp.MustCompile(`sk-\S+`).FindAllString(welcome, -1)
	require.Len(t, secrets, 2)
	alice, bob := secrets[0], secrets[1]
	chat := base + "/v1/chat/completions"

	res, body := call(t, "POST", chat, alice, `{"model": "calculator", "messages": [{"role": "user", "content": "6 * 7\n1 << 10"}]}`)
	require.Equal(t, 200, res.StatusCode, body)
	var reply llm.ChatResponse
	require.NoError(t, json.Unmarshal([]byte(body), &reply))
	assert.Equal(t, "6 * 7 = 42\n1 << 10 = 1024\n", reply.Choices[0].Message.Content.Text())
	assert.Equal(t, llm.FinishStop, reply.Choices[0].FinishReason)
	assert.Equal(t, 4, reply.Usage.TotalTokens)

	res, body = call(t, "POST", chat, alice, `{"model": "calculator", "stream": true, "messages": [{"role": "user", "content": "1+1\nwhat?"}]}`)
	assert.Equal(t, 200, res.StatusCode)
	assert.Contains(t, body, `"content":"1+1 = 2\n"`)
	assert.Contains(t, body, `data: {"error":{"message":"This is not a sum: \"what?\""`)
	assert.NotContains(t, body, "[DONE]")
	assert.True(t, strings.HasSuffix(body, "\n\n(interrupted)"), body)

	for _, c := range []struct {
		key, body string
		status    int
		want      string
	}{
		{bob, `{"model": "calculator", "messages": [{"role": "user", "content": "two and two"}]}`, 400, `"code":"not_a_sum"`},
		{bob, `{"model": "calculator", "messages": [{"role": "user", "content": "1"}], "n": 2}`, 400, `"param":"n"`},
		{bob, `{"model": "abacus", "messages": [{"role": "user", "content": "1"}]}`, 404, `"code":"model_not_found"`},
		{bob, `{"model": "calculator", "messages": [{"role": "user", "content": "1"}]}`, 429, `"code":"rate_limit_exceeded"`},
		{"sk-eve", `{}`, 401, `"code":"invalid_api_key"`},
	} {
		res, body := call(t, "POST", chat, c.key, c.body)
		assert.Equal(t, c.status, res.StatusCode, body)
		assert.Contains(t, body, c.want)
	}

	res, body = call(t, "GET", base+"/v1/models", alice, "")
	assert.Equal(t, 200, res.StatusCode)
	assert.Contains(t, body, `"id":"calculator"`)

	// Both keys belong to one account. Requests for an unknown model and requests
	// that did not reach the calculator are not recorded.
	res, body = call(t, "GET", base+"/v1/dashboard/billing/usage", alice, "")
	assert.Equal(t, 200, res.StatusCode)
	var usage struct{ Requests, Prompt_tokens, Completion_tokens int }
	require.NoError(t, json.Unmarshal([]byte(body), &usage))
	assert.Equal(t, 4, usage.Requests, body)
}

func TestCalculator_StreamsAndStopsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		req := &llm.ChatRequest{Model: model, Messages: []llm.Message{{Role: llm.RoleUser, Content: llm.TextContent("1\n2\n3")}}}
		start := time.Now()
		var lines []string
		for chunk, err := range (calculator{time.Minute}).Chat(ctx, req) {
			require.NoError(t, err)
			lines = append(lines, chunk.Choices[0].Delta.Content)
			assert.Equal(t, time.Duration(len(lines))*time.Minute, time.Since(start))
			if len(lines) == 2 {
				cancel()
			}
		}
		assert.Equal(t, []string{"1 = 1\n", "2 = 2\n"}, lines)
	})
}
