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

// key is the one the example admits unless told otherwise.
const key = "sk-demo"

// example is the built server. Where LLMHTTP_EXAMPLE names one, it is used.
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
	done chan error // receives what became of cmd
	once sync.Once
}

// start runs the example until the end of the test, and then sees to it that
// it ends as it should.
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
			t.Logf("the server said:\n%s", s.out.String())
		}
	})

	select {
	case addr := <-s.out.addr:
		s.url = "http://" + addr
	case err := <-s.done:
		s.done <- err
		require.FailNow(t, "the example ended", "%v", err)
	case <-time.After(10 * time.Second):
		require.FailNow(t, "the example does not say where it listens")
	}
	return s
}

// stop ends the server as an operator would and returns how long it took.
func (s *server) stop(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	s.once.Do(func() {
		_ = s.cmd.Process.Signal(syscall.SIGTERM) // fails if it has ended: so will Wait
		select {
		case err := <-s.done:
			assert.NoError(t, err, "exit status after SIGTERM")
		case <-time.After(10 * time.Second):
			assert.Fail(t, "still running 10 s after SIGTERM")
			_ = s.cmd.Process.Kill()
			<-s.done
		}
	})
	return time.Since(began)
}

// api is the base URL clients are given.
func (s *server) api() string { return s.url + "/v1" }

// A usage is what the billing endpoint says an account used.
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

// usage asks for what was used until now. Whoever has a whole reply finds it
// reported.
func (s *server) usage(t *testing.T) (u usage) {
	t.Helper()
	body := s.get(t, s.api()+"/dashboard/billing/usage", key)
	require.NoError(t, json.Unmarshal(body, &u), "%s", body)
	return u
}

// abandoned waits until so many requests are on the record, of clients that
// left, with what was said to them.
func (s *server) abandoned(t *testing.T, requests int64) {
	t.Helper()
	await(t, "the record", func() bool { return s.usage(t).Requests == requests })
	assert.Positive(t, s.usage(t).CompletionTokens)
}

// image fetches a picture the way a browser would, without a key, and returns
// its size.
func (s *server) image(t *testing.T, url string) (width, height int) {
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

// addressLine is a whole line, for a write may end in the middle of a port.
var addressLine = regexp.MustCompile(`(127\.0\.0\.1:[1-9]\d*)\b.*\n`)

// output gathers what a server says, and picks its address from it.
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

// await waits until done says so.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !done(); time.Sleep(10 * time.Millisecond) {
		require.True(t, time.Now().Before(deadline), "waiting for %s", what)
	}
}

// hurried returns a context for calls that must not take long.
func hurried(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Second, errors.New("the server is too slow"))
	t.Cleanup(cancel)
	return ctx
}
