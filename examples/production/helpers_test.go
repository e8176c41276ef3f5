package main

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/internal/proctest"
	"github.com/llmhttp/llmhttp/internal/servertest"
)

// inmemory is the path of examples/inmemory, which the tests use as upstream.
// llmhttpctl is the path of the command that creates keys.
var inmemory, llmhttpctl string

// If this environment variable is set, the test binary runs main. So the
// example has the race detector if the test has it.
const runMain = "LLMHTTP_TEST_PRODUCTION"

func TestMain(m *testing.M) {
	if os.Getenv(runMain) != "" {
		main()
		return
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	defer servertest.Close()
	dir, err := os.MkdirTemp("", "llmhttp-production")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	build := func(name, sources string) string {
		binary := filepath.Join(dir, name)
		cmd := exec.Command("go", "build", "-o", binary, ".")
		cmd.Dir = sources
		if out, err := cmd.CombinedOutput(); err != nil {
			panic(fmt.Sprintf("%v\n%s", err, out))
		}
		return binary
	}
	llmhttpctl = build("llmhttpctl", "../../llmhttpctl")
	if inmemory = os.Getenv("LLMHTTP_EXAMPLE"); inmemory == "" {
		inmemory = build("inmemory", "../inmemory")
	}
	return m.Run()
}

// timeout is how long a test waits for something before it fails.
const timeout = proctest.Timeout

// eventually waits until check does not fail.
func eventually(t *testing.T, check func(c *assert.CollectT)) {
	t.Helper()
	require.EventuallyWithT(t, check, timeout, 10*time.Millisecond)
}

// A process is a server in a process of its own.
type process struct {
	*proctest.Process
	url string
}

// start starts a server and waits until it listens. It is killed at the end of
// the test.
func start(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := proctest.Start(t, cmd)
	return &process{p, p.URL}
}

// awaitOutput waits until the process has written text. A process may write
// its log only after it has replied.
func (p *process) awaitOutput(t *testing.T, text string) {
	t.Helper()
	eventually(t, func(c *assert.CollectT) { require.Contains(c, p.Output.String(), text) })
}

// awaitReply waits until the reply to GET path is want.
func (p *process) awaitReply(t *testing.T, path, want string) {
	t.Helper()
	eventually(t, func(c *assert.CollectT) {
		_, reply := probe(p.url + path)
		require.Equal(c, want, reply)
	})
}

// stop stops the process with SIGTERM. Its exit status must be 0.
func (p *process) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, p.Cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, p.Wait(t))
}

// upstreamKey is the API key of the upstream.
const upstreamKey = "sk-upstream-secret"

// startUpstream starts a server of models whose streams pause between words.
func startUpstream(t *testing.T, pause time.Duration) *process {
	t.Helper()
	return start(t, exec.Command(inmemory, "-addr", "127.0.0.1:0", "-key", upstreamKey, "-delay", pause.String()))
}

// newDatabase creates a schema and returns its DSN. The DSN has a password,
// which the server does not check.
func newDatabase(t *testing.T, s *servertest.Server) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.DSN())
	require.NoError(t, err)
	defer conn.Close(t.Context())
	schema := "test_" + strings.ToLower(rand.Text())
	_, err = conn.Exec(t.Context(), "CREATE SCHEMA "+schema)
	require.NoError(t, err)
	return strings.Replace(s.DSN(), "postgres@", "postgres:pg-secret@", 1) + "&search_path=" + schema
}

// newCommand returns a command that runs the example on a free port.
func newCommand(env []string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], append([]string{"-addr", "127.0.0.1:0", "-drain-delay", "0s"}, args...)...)
	// The race detector would otherwise delay the end of the process by a second.
	cmd.Env = append(append(os.Environ(), "GORACE=atexit_sleep_ms=0", runMain+"=1"), env...)
	return cmd
}

// startCopy starts a copy of the example. At the end of the test its output
// must contain no secret and no prompt.
func startCopy(t *testing.T, dsn, redis string, upstream *process, args ...string) *process {
	t.Helper()
	p := start(t, newCommand([]string{
		"LLMHTTP_DSN=" + dsn, "LLMHTTP_REDIS=" + redis,
		"LLMHTTP_UPSTREAM=models=" + upstream.url + "/v1", "LLMHTTP_KEY_MODELS=" + upstreamKey,
	}, args...))
	t.Cleanup(func() {
		for _, secret := range []string{"sk-", "pg-secret", strings.TrimPrefix(upstream.url, "http://"), "word"} {
			assert.NotContains(t, p.Output.String(), secret)
		}
	})
	return p
}

// A fleet consists of two copies behind a load balancer.
type fleet struct {
	dsn           string
	upstream      *process
	first, second *process
	url           string // of the load balancer
}

func newFleet(t *testing.T, pause time.Duration, args ...string) *fleet {
	t.Helper()
	f := &fleet{dsn: newDatabase(t, servertest.SharedPostgres(t)), upstream: startUpstream(t, pause)}
	redis := servertest.SharedRedis(t).DSN()
	args = append(args, "-redis-timeout", "10s") // so that a slow machine does not make Redis unavailable
	f.first = startCopy(t, f.dsn, redis, f.upstream, args...)
	f.second = startCopy(t, f.dsn, redis, f.upstream, args...)
	f.url = startBalancer(t, f.first, f.second)
	return f
}

// startBalancer starts a load balancer that sends requests to the ready copies
// in turn. It returns its URL.
func startBalancer(t *testing.T, copies ...*process) string {
	t.Helper()
	var turn atomic.Int64
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	proxy := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			for end := time.Now().Add(timeout); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				p := copies[turn.Add(1)%int64(len(copies))]
				if status, _ := probe(p.url + "/readyz"); status == http.StatusOK {
					target, _ := url.Parse(p.url)
					r.SetURL(target)
					return
				}
			}
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) { w.WriteHeader(http.StatusBadGateway) },
	}
	s := httptest.NewServer(proxy)
	t.Cleanup(s.Close)
	return s.URL
}

// probe sends a GET request on a new connection. The status is 0 if there is no
// reply.
func probe(url string) (status int, reply string) {
	client := http.Client{Timeout: timeout, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, strings.TrimSpace(string(text))
}

// runCtl runs llmhttpctl and returns the lines of JSON that it prints.
func runCtl[T any](t *testing.T, dsn string, args ...string) (lines []T) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), llmhttpctl, append(args, "--json")...)
	cmd.Env = append(os.Environ(), "LLMHTTP_DSN="+dsn)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s", &stderr)
	for line := range bytes.Lines(out) {
		var v T
		require.NoError(t, json.Unmarshal(line, &v), "%s", line)
		lines = append(lines, v)
	}
	return lines
}

type key struct{ ID, Secret string }

// createKey creates a key of an account with the name of the test.
func createKey(t *testing.T, dsn string, args ...string) key {
	t.Helper()
	return runCtl[key](t, dsn, append([]string{"keys", "create", "--account", t.Name()}, args...)...)[0]
}

type usage struct {
	Requests         int `json:"requests"`
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
}

func (u *usage) add(v usage) {
	u.Requests += v.Requests
	u.PromptTokens += v.PromptTokens
	u.CompletionTokens += v.CompletionTokens
}

// storedUsage returns the usage of an account in the database.
func storedUsage(t *testing.T, dsn, account string) (sum usage) {
	t.Helper()
	for _, u := range runCtl[usage](t, dsn, "usage", "--account", account, "--by", "model") {
		sum.add(u)
	}
	return sum
}

const chatPath, usagePath = "/v1/chat/completions", "/v1/dashboard/billing/usage"

// A client sends requests with a secret to one server.
type client struct{ url, secret string }

// do sends a request. Its response is closed at the end of the test.
func (c client) do(t *testing.T, method, path, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(t.Context(), method, c.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.secret)
	resp, err := http.DefaultClient.Do(req)
	if err == nil {
		t.Cleanup(func() { resp.Body.Close() })
	}
	return resp, err
}

// send sends a request and reads the reply. The status is 0 if there is none.
// It can be called on any goroutine.
func (c client) send(t *testing.T, method, path, body string) (status int, reply string) {
	resp, err := c.do(t, method, path, body)
	if err != nil {
		return 0, err.Error()
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

func chatBody(stream bool, words int) string {
	return fmt.Sprintf(`{"model": "demo-chat", "stream": %t, "messages": [{"role": "user", "content": %q}]}`,
		stream, strings.TrimSpace(strings.Repeat("word ", words)))
}

// chat sends a chat of one word. It can be called on any goroutine.
func (c client) chat(t *testing.T) (status int, reply string) {
	return c.send(t, "POST", chatPath, chatBody(false, 1))
}

// mustChat sends a chat that must succeed, and returns the usage in the reply.
func (c client) mustChat(t *testing.T, words int) usage {
	t.Helper()
	status, reply := c.send(t, "POST", chatPath, chatBody(false, words))
	require.Equal(t, 200, status, reply)
	var r struct{ Usage usage }
	require.NoError(t, json.Unmarshal([]byte(reply), &r))
	r.Usage.Requests = 1
	return r.Usage
}

// A stream is a streamed reply.
type stream struct {
	body  *bufio.Reader
	close func() error
}

// startStream starts a reply with a chunk for each word and reads the first.
func (c client) startStream(t *testing.T, words int) *stream {
	t.Helper()
	resp, err := c.do(t, "POST", chatPath, chatBody(true, words))
	require.NoError(t, err)
	s := &stream{bufio.NewReader(resp.Body), resp.Body.Close}
	for {
		line, err := s.body.ReadString('\n')
		require.NoError(t, err, "status %d", resp.StatusCode)
		if strings.Contains(line, "word") {
			return s
		}
	}
}

// requireComplete reads the rest of a stream, which must have all of its words.
func (s *stream) requireComplete(t *testing.T, words int) {
	t.Helper()
	rest, err := io.ReadAll(s.body)
	require.NoError(t, err)
	assert.Equal(t, words-1, strings.Count(string(rest), "word"))
	assert.True(t, strings.HasSuffix(string(rest), "data: [DONE]\n\n"), "%s", rest)
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	return port
}
