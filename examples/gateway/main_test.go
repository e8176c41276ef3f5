package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image/png"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/internal/proctest"
	"github.com/llmhttp/llmhttp/llm"
)

// inmemory is the path of a built examples/inmemory. LLMHTTP_EXAMPLE can set it.
var inmemory string

// TestMain makes the test binary serve as the gateway too, so that the gateway
// has the race detector if the tests have it.
func TestMain(m *testing.M) {
	if os.Getenv("LLMHTTP_TEST_GATEWAY") != "" {
		main()
		return
	}
	os.Exit(func() int {
		if inmemory = os.Getenv("LLMHTTP_EXAMPLE"); inmemory != "" {
			return m.Run()
		}
		dir, err := os.MkdirTemp("", "llmhttp-gateway")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		inmemory = filepath.Join(dir, "inmemory")
		build := exec.Command("go", "build", "-o", inmemory, ".")
		build.Dir = "../inmemory" // a module of its own
		if out, err := build.CombinedOutput(); err != nil {
			panic(fmt.Sprintf("%v\n%s", err, out))
		}
		return m.Run()
	}())
}

// start starts a server and waits until it listens. The test's cleanup kills it.
func start(t *testing.T, binary string, env []string, args ...string) *proctest.Process {
	t.Helper()
	cmd := exec.Command(binary, append([]string{"-addr", "127.0.0.1:0"}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	return proctest.Start(t, cmd)
}

// host returns the host of a server, with the port.
func host(p *proctest.Process) string { return strings.TrimPrefix(p.URL, "http://") }

// A setup is a gateway configured by gateway.json, and the two servers behind it.
type setup struct{ first, second, gateway *proctest.Process }

// newSetup starts the processes. The servers pause for delay before each chunk;
// args are for the gateway.
func newSetup(t *testing.T, delay time.Duration, args ...string) *setup {
	t.Helper()
	s := &setup{
		first:  start(t, inmemory, nil, "-key", "sk-first-secret", "-delay", delay.String()),
		second: start(t, inmemory, nil, "-key", "sk-second-secret", "-delay", delay.String()),
	}
	config, err := os.ReadFile("gateway.json")
	require.NoError(t, err)
	text := strings.NewReplacer("127.0.0.1:8081", host(s.first), "127.0.0.1:8082", host(s.second)).Replace(string(config))
	file := filepath.Join(t.TempDir(), "gateway.json")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	s.gateway = start(t, os.Args[0], []string{
		"LLMHTTP_TEST_GATEWAY=1", "FIRST_KEY=sk-first-secret", "SECOND_KEY=sk-second-secret", "GATEWAY_KEY=sk-gateway-secret",
	}, append([]string{"-config", file}, args...)...)
	t.Cleanup(func() { // the gateway logs neither secrets nor addresses of servers
		for _, secret := range []string{"-secret", "sk-trial", host(s.first), host(s.second)} {
			assert.NotContains(t, s.gateway.Output.String(), secret)
		}
	})
	return s
}

// waitForLines waits until the gateway has logged n requests, and returns the
// attributes of each line.
func (s *setup) waitForLines(t *testing.T, n int) (lines []map[string]string) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		lines = nil
		for line := range strings.Lines(s.gateway.Output.String()) {
			if !strings.Contains(line, " msg=request ") {
				continue
			}
			values := make(map[string]string)
			for _, m := range regexp.MustCompile(`(\w+)=("(?:[^"\\]|\\.)*"|\S*)`).FindAllStringSubmatch(line, -1) {
				values[m[1]] = m[2]
			}
			lines = append(lines, values)
		}
		require.Len(c, lines, n)
	}, 20*time.Second, 5*time.Millisecond)
	return lines
}

// send sends a request to the gateway. The test's cleanup closes the response.
func (s *setup) send(t *testing.T, secret, method, path, body string, header ...string) *http.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, method, s.gateway.URL+path, strings.NewReader(body))
	require.NoError(t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	req.Header.Set("Authorization", "Bearer "+secret)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { res.Body.Close() })
	return res
}

// call sends a request to the gateway and reads the reply.
func (s *setup) call(t *testing.T, secret, method, path, body string, header ...string) (status int, reply string) {
	t.Helper()
	res := s.send(t, secret, method, path, body, header...)
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(text)
}

const (
	chatPath = "/v1/chat/completions"
	hello    = `{"model": "demo-chat", "messages": [{"role": "user", "content": "Hello!"}]}`
)

func TestGateway_ServesEveryEndpoint(t *testing.T) {
	t.Parallel()
	s := newSetup(t, 0)
	const demo, trial = "sk-gateway-secret", "sk-trial"

	for range 3 {
		status, reply := s.call(t, demo, "POST", chatPath, hello)
		assert.Equal(t, 200, status)
		assert.Contains(t, reply, `"content":"Hello!"`)
	}
	parrot := strings.Replace(hello, "demo-chat", "parrot", 1)
	status, reply := s.call(t, trial, "POST", chatPath, parrot)
	assert.Equal(t, 200, status)
	assert.Contains(t, reply, `"model":"parrot"`)
	assert.Contains(t, reply, `"content":"Hello!"`)
	status, reply = s.call(t, trial, "POST", chatPath, strings.Replace(parrot, "{", `{"stream": true, `, 1))
	assert.Equal(t, 200, status)
	assert.Contains(t, reply, `"model":"parrot"`)
	assert.NotContains(t, reply, "demo-chat")
	assert.True(t, strings.HasSuffix(reply, "data: [DONE]\n\n"), reply)

	// Error messages contain the gateway's names of models.
	for _, test := range []struct {
		secret, body string
		status       int
		want         string
	}{
		{trial, hello, 404, "The model `demo-chat` does not exist"},
		{demo, strings.Replace(hello, "demo-chat", "other", 1), 404, "The model `other` does not exist"},
		{demo, strings.Replace(hello, "demo-chat", "demo-other", 1), 404, "The model `demo-other` does not exist"},
		{demo, strings.Replace(hello, "[{", `[{"role": "robot", "content": ""}, {`, 1), 400, `"param":"messages[0].role"`},
		{"sk-first-secret", hello, 401, `"code":"invalid_api_key"`},
	} {
		status, reply := s.call(t, test.secret, "POST", chatPath, test.body)
		assert.Equal(t, test.status, status, reply)
		assert.Contains(t, reply, test.want)
	}

	// The gateway fetches images from the server and serves them itself.
	status, reply = s.call(t, demo, "POST", "/v1/images/generations", `{"model": "demo-image-small", "prompt": "A cat", "size": "256x256", "response_format": "url"}`)
	assert.Equal(t, 200, status)
	var images llm.ImageResponse
	require.NoError(t, json.Unmarshal([]byte(reply), &images), reply)
	require.Len(t, images.Data, 1)
	path, ok := strings.CutPrefix(images.Data[0].URL, s.gateway.URL)
	require.True(t, ok, images.Data[0].URL)
	res, err := http.Get("http://" + host(s.gateway) + path)
	require.NoError(t, err)
	defer res.Body.Close()
	img, err := png.Decode(res.Body)
	require.NoError(t, err)
	assert.Equal(t, 256, img.Bounds().Dx())

	status, reply = s.call(t, demo, "POST", "/v1/embeddings", `{"model": "demo-embed", "input": "hello", "dimensions": 4}`)
	assert.Equal(t, 200, status)
	assert.Contains(t, reply, `"embedding":[`)

	status, reply = s.call(t, demo, "GET", "/v1/models", "")
	assert.Equal(t, 200, status)
	for _, model := range []string{"parrot", "demo-chat", "demo-embed", "demo-image-small", "demo-image-large"} {
		assert.Contains(t, reply, `"id":"`+model+`"`)
	}
	status, reply = s.call(t, trial, "GET", "/v1/models", "")
	assert.Equal(t, 200, status)
	assert.NotContains(t, reply, "demo-")

	// Usage is counted by account, and without requests for unknown models.
	status, reply = s.call(t, demo, "GET", "/v1/dashboard/billing/usage", "")
	assert.Equal(t, 200, status)
	var usage struct{ Requests, Images int }
	require.NoError(t, json.Unmarshal([]byte(reply), &usage), reply)
	assert.Equal(t, 5, usage.Requests, reply)
	assert.Equal(t, 1, usage.Images)

	// The log has a line for each request, with the target that answered it.
	targets := make(map[string]int)
	lines := s.waitForLines(t, 15)
	for _, line := range lines[:3] {
		targets[line["target"]]++
		assert.Equal(t, "1", line["tries"])
	}
	assert.Equal(t, map[string]int{"first": 2, "second": 1}, targets)
	stream := lines[4]
	for name, want := range map[string]string{
		"key": "trial", "scope": "chat", "model": "parrot", "status": "200", "target": "second", "tries": "1", "streamed": "true", "error": "", "error_class": "",
	} {
		assert.Equal(t, want, stream[name], name)
	}
	assert.Regexp(t, `^req_\w+$`, stream["request_id"])
	assert.Regexp(t, `^[1-9]\d*$`, stream["completion_tokens"])
	assert.Equal(t, "400", lines[8]["status"])
	assert.NotContains(t, s.gateway.Output.String(), "robot")
	assert.Empty(t, lines[9]["key"])
	assert.Equal(t, "401", lines[9]["status"])
}

// startStream starts a stream that repeats a number of words, one in each chunk,
// and reads the first. It returns the rest of the reply.
func (s *setup) startStream(t *testing.T, model string, words int) *bufio.Reader {
	t.Helper()
	text := strings.TrimSpace(strings.Repeat("word ", words))
	res := s.send(t, "sk-gateway-secret", "POST", chatPath,
		fmt.Sprintf(`{"model": %q, "stream": true, "messages": [{"role": "user", "content": %q}]}`, model, text))
	require.Equal(t, 200, res.StatusCode)
	body := bufio.NewReader(res.Body)
	for {
		line, err := body.ReadString('\n')
		require.NoError(t, err)
		if strings.Contains(line, "word") {
			return body
		}
	}
}

// When one of two servers dies, its streams end with an error, and other
// requests are answered by the other server.
func TestGateway_UpstreamDies(t *testing.T) {
	t.Parallel()
	s := newSetup(t, 20*time.Millisecond)
	cut := s.startStream(t, "parrot", 1000) // from the second server, which is the first target
	require.NoError(t, s.second.Cmd.Process.Kill())
	rest, err := io.ReadAll(cut)
	assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
	assert.Contains(t, string(rest), `data: {"error":{"message":"`)
	assert.NotContains(t, string(rest), "[DONE]")

	const requests = 12
	for i := range requests {
		body := hello
		if i%2 == 0 {
			body = strings.Replace(hello, "demo-chat", "parrot", 1)
		}
		status, reply := s.call(t, "sk-gateway-secret", "POST", chatPath, body)
		assert.Equal(t, 200, status, reply)
	}
	lines := s.waitForLines(t, 1+requests)
	assert.Equal(t, "second", lines[0]["target"])
	assert.Equal(t, "200", lines[0]["status"])
	assert.NotEmpty(t, lines[0]["error"])
	assert.NotEmpty(t, lines[0]["completion_tokens"])
	retried := 0
	for _, line := range lines[1:] {
		assert.Equal(t, "first", line["target"])
		if line["tries"] == "2" {
			retried++
		}
	}
	assert.Positive(t, retried)
	assert.Contains(t, s.gateway.Output.String(), `msg="circuit breaker opened"`)
}

// After SIGTERM, the gateway finishes the requests in progress and accepts no new
// connections.
func TestGateway_Drains(t *testing.T) {
	t.Parallel()
	s := newSetup(t, 20*time.Millisecond, "-drain", "30s")
	going := s.startStream(t, "demo-chat", 50)
	require.NoError(t, s.gateway.Cmd.Process.Signal(syscall.SIGTERM))
	require.Eventually(t, func() bool {
		return strings.Contains(s.gateway.Output.String(), "draining ...")
	}, 20*time.Second, time.Millisecond)
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", host(s.gateway))
		if err == nil {
			c.Close()
		}
		return err != nil
	}, 20*time.Second, time.Millisecond)
	rest, err := io.ReadAll(going)
	require.NoError(t, err)
	assert.Equal(t, 49, strings.Count(string(rest), "word"))
	assert.True(t, strings.HasSuffix(string(rest), "data: [DONE]\n\n"), "%s", rest)
	assert.NoError(t, s.gateway.Wait(t))
}

// A stream that takes longer than -drain ends with an error.
func TestGateway_DrainTimeout(t *testing.T) {
	t.Parallel()
	s := newSetup(t, 20*time.Millisecond, "-drain", "50ms")
	going := s.startStream(t, "demo-chat", 5000)
	require.NoError(t, s.gateway.Cmd.Process.Signal(syscall.SIGTERM))
	rest, err := io.ReadAll(going)
	assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
	assert.Contains(t, string(rest), `data: {"error":{"message":"The server is shutting down.`)
	assert.NotContains(t, string(rest), "[DONE]")
	assert.NoError(t, s.gateway.Wait(t))
	assert.Contains(t, s.gateway.Output.String(), "requests were interrupted")

	// The servers behind the gateway have no stream left.
	require.NoError(t, s.first.Cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, s.second.Cmd.Process.Signal(syscall.SIGTERM))
	for _, p := range []*proctest.Process{s.first, s.second} {
		assert.NoError(t, p.Wait(t))
		assert.NotContains(t, p.Output.String(), "requests were interrupted")
	}
}

// A configuration file that is not valid ends the process with an error.
func TestGateway_BadConfig(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-config", "main_test.go")
	cmd.Env = append(os.Environ(), "LLMHTTP_TEST_GATEWAY=1")
	out, err := cmd.CombinedOutput()
	exit, ok := errors.AsType[*exec.ExitError](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, 1, exit.ExitCode())
	assert.Equal(t, "gateway: main_test.go:1: jsontext: invalid character 'p' at start of value\n", string(out))
}

// Conversations that were compacted go on after a restart if the configuration names a secret.
func TestGateway_ResponsesSecret(t *testing.T) {
	t.Parallel()
	server := start(t, inmemory, nil, "-key", "sk-first-secret")
	startWith := func(members string) *setup {
		file := filepath.Join(t.TempDir(), "gateway.json")
		require.NoError(t, os.WriteFile(file, []byte(`{`+members+`"upstreams":[{"name":"a","url":"`+server.URL+`/v1","key_env":"FIRST_KEY"}],
			"routes":[{"model":"*","targets":[{"upstream":"a"}]}],"keys":[{"id":"demo","secret_env":"GATEWAY_KEY"}]}`), 0o600))
		return &setup{gateway: start(t, os.Args[0], []string{
			"LLMHTTP_TEST_GATEWAY=1", "FIRST_KEY=sk-first-secret", "GATEWAY_KEY=sk-gateway-secret", "SUMMARY_SECRET=0123456789abcdef",
		}, "-config", file)}
	}
	const named = `"responses_secret_env":"SUMMARY_SECRET",`
	status, reply := startWith(named).call(t, "sk-gateway-secret", "POST", "/v1/responses",
		`{"model":"demo-chat","input":[{"role":"user","content":"Hello!"},{"type":"compaction_trigger"}]}`, "Content-Type", "application/json")
	require.Equal(t, 200, status, reply)
	item := regexp.MustCompile(`\{"id":"cmp_[^}]*\}`).FindString(reply)
	for members, want := range map[string]int{named: 200, "": 400} {
		status, reply := startWith(members).call(t, "sk-gateway-secret", "POST", "/v1/responses",
			`{"model":"demo-chat","input":[`+item+`]}`, "Content-Type", "application/json")
		assert.Equal(t, want, status, reply)
	}
}
