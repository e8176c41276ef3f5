package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image/png"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
)

// inmemory is the built examples/inmemory, or what LLMHTTP_EXAMPLE names.
var inmemory string

// TestMain lets the test's binary be the gateway as well: so it has the race
// detector that the test has.
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
		if out, err := exec.Command("go", "build", "-o", inmemory, "../inmemory").CombinedOutput(); err != nil {
			panic(fmt.Sprintf("%v\n%s", err, out))
		}
		return m.Run()
	}())
}

// A process is a server that runs on its own.
type process struct {
	cmd  *exec.Cmd
	host string
	out  log
	done chan struct{} // closed when it has ended
	err  error         // set before
}

// start runs a server until the end of the test, and waits until it listens.
func start(t *testing.T, binary string, env []string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(binary, append([]string{"-addr", "127.0.0.1:0"}, args...)...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	require.NoError(t, p.cmd.Start())
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.done
		if t.Failed() {
			t.Logf("%s said:\n%s", binary, p.out.String())
		}
	})
	listening := regexp.MustCompile(`listening on http://(\S+)\n`)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		m := listening.FindStringSubmatch(p.out.String())
		require.NotNil(c, m, "it does not say where it listens:\n%s", p.out.String())
		p.host = m[1]
	}, 20*time.Second, 5*time.Millisecond)
	return p
}

// await waits until the process has ended, and returns how.
func (p *process) await(t *testing.T) error {
	t.Helper()
	select {
	case <-p.done:
		return p.err
	case <-time.After(20 * time.Second):
		require.FailNow(t, "still running")
		return nil
	}
}

// A log is what a process says.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// A setup is a gateway, as gateway.json has it, and the two servers behind it.
type setup struct{ first, second, gateway *process }

func newSetup(t *testing.T, delay time.Duration, args ...string) *setup {
	t.Helper()
	s := &setup{
		first:  start(t, inmemory, nil, "-key", "sk-first-secret", "-delay", delay.String()),
		second: start(t, inmemory, nil, "-key", "sk-second-secret", "-delay", delay.String()),
	}
	config, err := os.ReadFile("gateway.json")
	require.NoError(t, err)
	text := strings.NewReplacer("127.0.0.1:8081", s.first.host, "127.0.0.1:8082", s.second.host).Replace(string(config))
	file := filepath.Join(t.TempDir(), "gateway.json")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	s.gateway = start(t, os.Args[0], []string{
		"LLMHTTP_TEST_GATEWAY=1", "FIRST_KEY=sk-first-secret", "SECOND_KEY=sk-second-secret", "GATEWAY_KEY=sk-gateway-secret",
	}, append([]string{"-config", file}, args...)...)
	t.Cleanup(func() { // nobody's secrets are logged, and no address of a server
		said := s.gateway.out.String()
		for _, secret := range []string{"-secret", "sk-trial", s.first.host, s.second.host} {
			assert.NotContains(t, said, secret)
		}
	})
	return s
}

// served returns the lines that the gateway has logged of requests, each as
// its values by name. There must be n, or soon will.
func (s *setup) served(t *testing.T, n int) (lines []map[string]string) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		lines = nil
		for line := range strings.Lines(s.gateway.out.String()) {
			if !strings.Contains(line, " msg=served ") {
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

func (s *setup) send(t *testing.T, secret, method, path, body string) *http.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, method, "http://"+s.gateway.host+path, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+secret)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { res.Body.Close() })
	return res
}

func (s *setup) call(t *testing.T, secret, method, path, body string) (status int, reply string) {
	t.Helper()
	res := s.send(t, secret, method, path, body)
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(text)
}

const (
	chatPath = "/v1/chat/completions"
	hello    = `{"model": "demo-chat", "messages": [{"role": "user", "content": "Hello!"}]}`
)

func TestGateway(t *testing.T) {
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

	// What fails is told in the gateway's names.
	for _, c := range []struct {
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
		status, reply := s.call(t, c.secret, "POST", chatPath, c.body)
		assert.Equal(t, c.status, status, reply)
		assert.Contains(t, reply, c.want)
	}

	// Images are fetched from the server that drew them, and served anew.
	status, reply = s.call(t, demo, "POST", "/v1/images/generations", `{"model": "demo-image-small", "prompt": "A cat", "size": "256x256"}`)
	assert.Equal(t, 200, status)
	var drawn llmhttp.ImageResponse
	require.NoError(t, json.Unmarshal([]byte(reply), &drawn), reply)
	require.Len(t, drawn.Data, 1)
	path, ok := strings.CutPrefix(drawn.Data[0].URL, "http://"+s.gateway.host)
	require.True(t, ok, drawn.Data[0].URL)
	res, err := http.Get("http://" + s.gateway.host + path)
	require.NoError(t, err)
	defer res.Body.Close()
	picture, err := png.Decode(res.Body)
	require.NoError(t, err)
	assert.Equal(t, 256, picture.Bounds().Dx())

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

	// Each account has its own usage. Unknown models are not part of it.
	status, reply = s.call(t, demo, "GET", "/v1/dashboard/billing/usage", "")
	assert.Equal(t, 200, status)
	var usage struct{ Requests, Images int }
	require.NoError(t, json.Unmarshal([]byte(reply), &usage), reply)
	assert.Equal(t, 5, usage.Requests, reply)
	assert.Equal(t, 1, usage.Images)

	// There is a line for each request, with who answered it.
	targets := make(map[string]int)
	lines := s.served(t, 15)
	for _, line := range lines[:3] {
		targets[line["target"]]++
		assert.Equal(t, "1", line["tries"])
	}
	assert.Equal(t, map[string]int{"first": 2, "second": 1}, targets)
	stream := lines[4]
	for name, want := range map[string]string{
		"key": "trial", "endpoint": "chat", "model": "parrot", "status": "200", "target": "second", "tries": "1", "streamed": "true", "err": "",
	} {
		assert.Equal(t, want, stream[name], name)
	}
	assert.Regexp(t, `^req_\w+$`, stream["request_id"])
	assert.Regexp(t, `^[1-9]\d*$`, stream["tokens"])
	assert.Equal(t, "400", lines[8]["status"])
	assert.NotContains(t, s.gateway.out.String(), "robot")
	assert.Equal(t, `""`, lines[9]["key"])
	assert.Equal(t, "401", lines[9]["status"])
}

// A stream reads a reply chunk by chunk.
type stream struct {
	res  *http.Response
	body *bufio.Reader
}

// speak begins a stream that says words, one in each chunk.
func (s *setup) speak(t *testing.T, model string, words int) *stream {
	t.Helper()
	text := strings.TrimSpace(strings.Repeat("word ", words))
	res := s.send(t, "sk-gateway-secret", "POST", chatPath,
		fmt.Sprintf(`{"model": %q, "stream": true, "messages": [{"role": "user", "content": %q}]}`, model, text))
	require.Equal(t, 200, res.StatusCode)
	return &stream{res, bufio.NewReader(res.Body)}
}

// hear reads until a word has come.
func (s *stream) hear(t *testing.T) {
	t.Helper()
	for {
		line, err := s.body.ReadString('\n')
		require.NoError(t, err)
		if strings.Contains(line, "word") {
			return
		}
	}
}

// Of two servers one dies. Whoever it was talking to learns of it; nobody else
// does.
func TestUpstreamDies(t *testing.T) {
	t.Parallel()
	s := newSetup(t, 20*time.Millisecond)
	cut := s.speak(t, "parrot", 1000) // by the second, which comes first
	cut.hear(t)
	require.NoError(t, s.second.cmd.Process.Kill())
	rest, err := io.ReadAll(cut.body)
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
	lines := s.served(t, 1+requests)
	assert.Equal(t, "second", lines[0]["target"])
	assert.Equal(t, "200", lines[0]["status"])
	assert.NotEmpty(t, lines[0]["err"])
	assert.NotEqual(t, "0", lines[0]["tokens"])
	retried := 0
	for _, line := range lines[1:] {
		assert.Equal(t, "first", line["target"])
		if line["tries"] == "2" {
			retried++
		}
	}
	assert.Positive(t, retried)
	assert.Contains(t, s.gateway.out.String(), `msg="circuit breaker opened"`)
}

// At SIGTERM, requests in progress are finished and no others are begun.
func TestDrain(t *testing.T) {
	t.Parallel()
	s := newSetup(t, 20*time.Millisecond, "-drain", "30s")
	going := s.speak(t, "demo-chat", 50)
	going.hear(t)
	require.NoError(t, s.gateway.cmd.Process.Signal(syscall.SIGTERM))
	require.Eventually(t, func() bool {
		return strings.Contains(s.gateway.out.String(), "draining ...")
	}, 20*time.Second, time.Millisecond)
	require.Eventually(t, func() bool {
		req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+s.gateway.host+"/v1/models", nil)
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer sk-gateway-secret")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return true // the stream is over already
		}
		res.Body.Close()
		return res.StatusCode == 503
	}, 20*time.Second, time.Millisecond)
	rest, err := io.ReadAll(going.body)
	require.NoError(t, err)
	assert.Equal(t, 49, strings.Count(string(rest), "word"))
	assert.True(t, strings.HasSuffix(string(rest), "data: [DONE]\n\n"), "%s", rest)
	assert.NoError(t, s.gateway.await(t))
}

// What takes longer than the gateway may drain is ended with an error.
func TestDrainTakesTooLong(t *testing.T) {
	t.Parallel()
	s := newSetup(t, 20*time.Millisecond, "-drain", "50ms")
	going := s.speak(t, "demo-chat", 5000)
	going.hear(t)
	require.NoError(t, s.gateway.cmd.Process.Signal(syscall.SIGTERM))
	rest, err := io.ReadAll(going.body)
	assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
	assert.Contains(t, string(rest), `data: {"error":{"message":"The server is shutting down.`)
	assert.NotContains(t, string(rest), "[DONE]")
	assert.NoError(t, s.gateway.await(t))
	assert.Contains(t, s.gateway.out.String(), "requests were cut")

	// The server behind it is not left talking to nobody.
	require.NoError(t, s.first.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, s.second.cmd.Process.Signal(syscall.SIGTERM))
	for _, p := range []*process{s.first, s.second} {
		assert.NoError(t, p.await(t))
		assert.NotContains(t, p.out.String(), "streams were cut")
	}
}

// A file that is wrong ends the gateway before it listens.
func TestBadConfig(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-config", "main_test.go")
	cmd.Env = append(os.Environ(), "LLMHTTP_TEST_GATEWAY=1")
	out, err := cmd.CombinedOutput()
	exit, ok := errors.AsType[*exec.ExitError](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, 1, exit.ExitCode())
	assert.Equal(t, "gateway: main_test.go:1: invalid character 'p' looking for beginning of value\n", string(out))
}

// What may quote a client is not logged, whenever it came.
func TestClientsErrors(t *testing.T) {
	told := fmt.Errorf("target: %w", &llmhttp.Error{Status: 400, Message: "The prompt 'secret' was flagged."})
	for _, test := range []struct {
		status int
		err    error
		want   bool
	}{
		{400, told, true},
		{200, told, true}, // in the middle of a stream
		{200, &llmhttp.Error{Status: 502, Err: told}, false},
		{200, io.ErrUnexpectedEOF, false},
		{401, llmhttp.ErrKeyNotFound, true},
		{499, context.Canceled, false},
		{500, io.ErrUnexpectedEOF, false},
	} {
		assert.Equal(t, test.want, isClients(&llmhttp.RequestSummary{Status: test.status, Err: test.err}), "%d %v", test.status, test.err)
	}
}
