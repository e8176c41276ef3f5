package clients

import (
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
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// key is the default API key of examples/inmemory.
const key = "sk-demo"

// example is the path of the server's binary: LLMHTTP_EXAMPLE if that is set, or
// else a build of examples/inmemory.
var example string

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	if example = os.Getenv("LLMHTTP_EXAMPLE"); example != "" {
		return m.Run(), nil
	}
	dir, err := os.MkdirTemp("", "llmhttp-clients")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)

	example = filepath.Join(dir, "inmemory")
	build := exec.Command("go", "build", "-o", example, ".")
	build.Dir = filepath.Join("..", "..", "examples", "inmemory")
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("building the example: %w\n%s", err, out)
	}
	return m.Run(), nil
}

// A server is a running example.
type server struct {
	url  string // scheme and host
	cmd  *exec.Cmd
	out  output
	done chan error // receives the result of cmd.Wait
	once sync.Once
}

// start starts the example. When the test ends, it stops the example and checks
// that its exit status is 0.
func start(t *testing.T, args ...string) *server {
	t.Helper()
	s := &server{out: output{addr: make(chan string, 1)}, done: make(chan error, 1)}
	s.cmd = exec.Command(example, append([]string{"-addr", "127.0.0.1:0"}, args...)...)
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.out
	require.NoError(t, s.cmd.Start())
	go func() { s.done <- s.cmd.Wait() }()
	t.Cleanup(func() {
		s.stop(t)
		if t.Failed() {
			t.Logf("output of the server:\n%s", s.out.String())
		}
	})

	select {
	case addr := <-s.out.addr:
		s.url = "http://" + addr
	case err := <-s.done:
		s.done <- err
		require.FailNow(t, "the example ended", "%v", err)
	case <-time.After(30 * time.Second):
		require.FailNow(t, "the example did not print its address")
	}
	return s
}

// stop sends SIGTERM and waits until the server has ended. Only the first call stops the server.
func (s *server) stop(t *testing.T) {
	t.Helper()
	s.once.Do(func() {
		_ = s.cmd.Process.Signal(syscall.SIGTERM) // fails if the server has ended; Wait then returns its status
		select {
		case err := <-s.done:
			assert.NoError(t, err, "exit status after SIGTERM")
		case <-time.After(30 * time.Second):
			assert.Fail(t, "still running 30 s after SIGTERM")
			_ = s.cmd.Process.Kill()
			<-s.done
		}
	})
}

// baseURL returns the base URL for clients.
func (s *server) baseURL() string { return s.url + "/v1" }

// A usage is the total in the reply of the usage endpoint.
type usage struct {
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
	TotalTokens      int64 `json:"total_tokens"`
	Requests         int64 `json:"requests"`
	Images           int64 `json:"images"`
}

func (u *usage) add(prompt, completion, total int64) {
	u.PromptTokens += prompt
	u.CompletionTokens += completion
	u.TotalTokens += total
}

// usage returns the usage of the account. A request is included as soon as its
// client has received the end of a successful reply.
func (s *server) usage(t *testing.T) (u usage) {
	t.Helper()
	body := s.get(t, s.baseURL()+"/dashboard/billing/usage", key)
	require.NoError(t, json.Unmarshal(body, &u), "%s", body)
	return u
}

// awaitUsage waits until so many requests are recorded, and checks that completion
// tokens are recorded too. It is for requests whose client has disconnected: these
// are recorded after the client has gone.
func (s *server) awaitUsage(t *testing.T, requests int64) {
	t.Helper()
	waitUntil(t, "the usage records", func() bool { return s.usage(t).Requests == requests })
	assert.Positive(t, s.usage(t).CompletionTokens)
}

// fetchImageSize fetches an image without a key and returns its size.
func (s *server) fetchImageSize(t *testing.T, url string) (width, height int) {
	t.Helper()
	require.Regexp(t, "^"+regexp.QuoteMeta(s.url)+"/", url)
	return pngSize(t, s.get(t, url, ""))
}

func (s *server) get(t *testing.T, url, key string) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, res.StatusCode, "%s", body)
	return body
}

func pngSize(t *testing.T, data []byte) (width, height int) {
	t.Helper()
	m, err := png.Decode(bytes.NewReader(data))
	require.NoError(t, err)
	return m.Bounds().Dx(), m.Bounds().Dy()
}

// addressLine matches a complete line, because a write may end within a port.
var addressLine = regexp.MustCompile(`(127\.0\.0\.1:[1-9]\d*)\b.*\n`)

// An output collects the output of a server and finds the address in it.
type output struct {
	addr chan string // receives the address, once

	mu    sync.Mutex
	text  bytes.Buffer
	found bool
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(p)
	if m := addressLine.FindSubmatch(o.text.Bytes()); m != nil && !o.found {
		o.found = true
		o.addr <- string(m[1])
	}
	return len(p), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// waitUntil calls done until it returns true. It fails after 30 seconds.
func waitUntil(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !done(); time.Sleep(10 * time.Millisecond) {
		require.True(t, time.Now().Before(deadline), "waiting for %s", what)
	}
}

// testContext returns a context for calls. Its timeout ends the test if the server
// hangs.
func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("the server did not answer in a minute"))
	t.Cleanup(cancel)
	return ctx
}
