package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
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
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/servertest"
)

// What the tests run besides the server itself: examples/inmemory, for the
// models, and the command that makes keys.
var inmemory, llmhttpctl string

// TestMain lets the test's binary be the server as well: so it has the race
// detector that the test has.
func TestMain(m *testing.M) {
	if os.Getenv("LLMHTTP_TEST_PRODUCTION") != "" {
		main()
		return
	}
	os.Exit(func() int {
		defer servertest.Close()
		dir, err := os.MkdirTemp("", "llmhttp-production")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		build := func(name, pkg string) string {
			binary := filepath.Join(dir, name)
			if out, err := exec.Command("go", "build", "-o", binary, pkg).CombinedOutput(); err != nil {
				panic(fmt.Sprintf("%v\n%s", err, out))
			}
			return binary
		}
		llmhttpctl = build("llmhttpctl", "github.com/llmhttp/llmhttp/sqlstore/cmd/llmhttpctl")
		if inmemory = os.Getenv("LLMHTTP_EXAMPLE"); inmemory == "" {
			inmemory = build("inmemory", "github.com/llmhttp/llmhttp/examples/inmemory")
		}
		return m.Run()
	}())
}

const patience = 30 * time.Second

// A process is a server that runs on its own.
type process struct {
	cmd  *exec.Cmd
	url  string
	out  log
	done chan struct{} // closed when it has ended
	err  error         // set before
}

// start runs a server until the end of the test, and waits until it listens.
func start(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{cmd: cmd, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &p.out, &p.out
	require.NoError(t, cmd.Start())
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-p.done
		if t.Failed() {
			t.Logf("%s said:\n%s", cmd, p.out.String())
		}
	})
	listening := regexp.MustCompile(`listening on (http://\S+)\n`)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		m := listening.FindStringSubmatch(p.out.String())
		require.NotNil(c, m, "it does not say where it listens")
		p.url = m[1]
	}, patience, 5*time.Millisecond)
	return p
}

func (p *process) signal(t *testing.T, s os.Signal) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(s))
}

// says waits until the process, which may answer before it logs, has said so.
func (p *process) says(t *testing.T, text string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(p.out.String(), text) }, patience, 5*time.Millisecond)
}

// await waits until the process has ended, and returns how.
func (p *process) await(t *testing.T) error {
	t.Helper()
	select {
	case <-p.done:
		return p.err
	case <-time.After(patience):
		require.FailNow(t, "still running")
		return nil
	}
}

// stop ends a process in order.
func (p *process) stop(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGTERM)
	require.NoError(t, p.await(t))
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

const upstreamKey = "sk-upstream-secret"

// startModels starts a server of models, whose streams pause between words.
func startModels(t *testing.T, pause time.Duration) *process {
	t.Helper()
	return start(t, exec.Command(inmemory, "-addr", "127.0.0.1:0", "-key", upstreamKey, "-delay", pause.String()))
}

// database returns the DSN of a schema of the test's own, with a password for
// which the server does not ask.
func database(t *testing.T, s *servertest.Server) (dsn string) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), s.DSN())
	require.NoError(t, err)
	defer c.Close(t.Context())
	schema := "test_" + strings.ToLower(rand.Text())
	_, err = c.Exec(t.Context(), "CREATE SCHEMA "+schema)
	require.NoError(t, err)
	return strings.Replace(s.DSN(), "postgres@", "postgres:pg-secret@", 1) + "&search_path=" + schema
}

// command is the server's, on a free port, with no time lost to a balancer
// that is not there.
func command(env []string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], append([]string{"-addr", "127.0.0.1:0", "-drain-delay", "0s"}, args...)...)
	cmd.Env = append(append(os.Environ(), "GORACE=atexit_sleep_ms=0", "LLMHTTP_TEST_PRODUCTION=1"), env...)
	return cmd
}

// startCopy starts a copy of the server in front of models. It must keep
// secrets, and what was said, to itself.
func startCopy(t *testing.T, dsn, redis string, models *process, args ...string) *process {
	t.Helper()
	p := start(t, command([]string{
		"LLMHTTP_DSN=" + dsn, "LLMHTTP_REDIS=" + redis,
		"LLMHTTP_UPSTREAM=models=" + models.url + "/v1", "LLMHTTP_KEY_MODELS=" + upstreamKey,
	}, args...))
	t.Cleanup(func() {
		for _, secret := range []string{"sk-", "pg-secret", strings.TrimPrefix(models.url, "http://"), "word"} {
			assert.NotContains(t, p.out.String(), secret)
		}
	})
	return p
}

// A fleet is two copies behind one address.
type fleet struct {
	dsn           string
	models        *process
	first, second *process
	url           string
}

func newFleet(t *testing.T, pause time.Duration, args ...string) *fleet {
	t.Helper()
	f := &fleet{dsn: database(t, servertest.SharedPostgres(t)), models: startModels(t, pause)}
	redis := servertest.SharedRedis(t).DSN()
	args = append(args, "-redis-timeout", "10s")
	f.first = startCopy(t, f.dsn, redis, f.models, args...)
	f.second = startCopy(t, f.dsn, redis, f.models, args...)
	f.url = balance(t, f.first, f.second)
	return f
}

// balance sends requests to copies in turn, as far as they are ready.
func balance(t *testing.T, copies ...*process) (address string) {
	t.Helper()
	var turn atomic.Int64
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	proxy := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			for begun := time.Now(); time.Since(begun) < patience; time.Sleep(10 * time.Millisecond) {
				p := copies[turn.Add(1)%int64(len(copies))]
				if status, _ := probe(p.url + "/readyz"); status == http.StatusOK {
					u, _ := url.Parse(p.url)
					r.SetURL(u)
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

// probe is what balancers do. The status is 0 if nobody answers.
func probe(address string) (status int, reply string) {
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get(address)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	return res.StatusCode, strings.TrimSpace(string(text))
}

// eventually waits until a probe of p has the reply.
func eventually(t *testing.T, p *process, path, want string) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, reply := probe(p.url + path)
		require.Equal(c, want, reply)
	}, patience, 20*time.Millisecond)
}

// ctl runs llmhttpctl, and returns the lines of JSON it writes.
func ctl[T any](t *testing.T, dsn string, args ...string) (lines []T) {
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

// newKey creates a key of the test's own account.
func newKey(t *testing.T, dsn string, args ...string) key {
	t.Helper()
	return ctl[key](t, dsn, append([]string{"keys", "create", "--account", t.Name()}, args...)...)[0]
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

// stored returns what the database has of an account.
func stored(t *testing.T, dsn, account string) (sum usage) {
	t.Helper()
	for _, u := range ctl[usage](t, dsn, "usage", "--account", account, "--total") {
		sum.add(u)
	}
	return sum
}

const chatPath, usagePath = "/v1/chat/completions", "/v1/dashboard/billing/usage"

func body(stream bool, words int) string {
	return fmt.Sprintf(`{"model": "demo-chat", "stream": %t, "messages": [{"role": "user", "content": %q}]}`,
		stream, strings.TrimSpace(strings.Repeat("word ", words)))
}

func send(t *testing.T, base, secret, method, path, body string) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, method, base+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+secret)
	res, err := http.DefaultClient.Do(req)
	if err == nil {
		t.Cleanup(func() { res.Body.Close() })
	}
	return res, err
}

// call returns the status 0 if it gets no reply. It may be called on any
// goroutine.
func call(t *testing.T, base, secret, method, path, body string) (status int, reply string) {
	res, err := send(t, base, secret, method, path, body)
	if err != nil {
		return 0, err.Error()
	}
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err.Error()
	}
	return res.StatusCode, string(text)
}

// ask asks for a chat that must succeed.
func ask(t *testing.T, base, secret string, words int) (used usage) {
	t.Helper()
	status, reply := call(t, base, secret, "POST", chatPath, body(false, words))
	require.Equal(t, 200, status, reply)
	var r struct{ Usage usage }
	require.NoError(t, json.Unmarshal([]byte(reply), &r))
	r.Usage.Requests = 1
	return r.Usage
}

// A stream reads a reply chunk by chunk.
type stream struct {
	body  *bufio.Reader
	close func() error
}

// speak begins a stream that says words, one in each chunk, and reads the
// first.
func speak(t *testing.T, base, secret string, words int) *stream {
	t.Helper()
	res, err := send(t, base, secret, "POST", chatPath, body(true, words))
	require.NoError(t, err)
	s := &stream{bufio.NewReader(res.Body), res.Body.Close}
	for {
		line, err := s.body.ReadString('\n')
		require.NoError(t, err, "status %d", res.StatusCode)
		if strings.Contains(line, "word") {
			return s
		}
	}
}

// complete reads the rest of a stream, which must have all of its words.
func (s *stream) complete(t *testing.T, words int) {
	t.Helper()
	rest, err := io.ReadAll(s.body)
	require.NoError(t, err)
	assert.Equal(t, words-1, strings.Count(string(rest), "word"))
	assert.True(t, strings.HasSuffix(string(rest), "data: [DONE]\n\n"), "%s", rest)
}

// A key works at all copies, and one that is revoked works at none, soon.
func TestKeys(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 0, "-key-ttl", "300ms")
	k := newKey(t, f.dsn)
	for range 4 {
		ask(t, f.url, k.Secret, 1)
	}
	for _, p := range []*process{f.first, f.second} {
		p.says(t, `"status":200`)
	}
	status, reply := call(t, f.url, "sk-"+strings.Repeat("x", 40), "POST", chatPath, body(false, 1))
	assert.Equal(t, 401, status, reply)

	ctl[key](t, f.dsn, "keys", "revoke", k.ID)
	for _, p := range []*process{f.first, f.second} {
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			status, _ := call(t, p.url, k.Secret, "POST", chatPath, body(false, 1))
			require.Equal(c, 401, status)
		}, patience, 20*time.Millisecond)
	}

	// What is logged of a request says who answered it, and not from where.
	k = newKey(t, f.dsn)
	ask(t, f.first.url, k.Secret, 1)
	require.NoError(t, f.models.cmd.Process.Kill())
	f.models.await(t)
	status, reply = call(t, f.first.url, k.Secret, "POST", chatPath, body(false, 1))
	assert.GreaterOrEqual(t, status, 500, reply)
	var lines []map[string]any
	require.EventuallyWithT(t, func(c *assert.CollectT) { // the client may be first
		lines = nil
		for line := range strings.Lines(f.first.out.String()) {
			if strings.Contains(line, `"msg":"served"`) && strings.Contains(line, k.ID) {
				var v map[string]any
				require.NoError(c, json.Unmarshal([]byte(line), &v))
				lines = append(lines, v)
			}
		}
		require.Len(c, lines, 2)
	}, patience, 5*time.Millisecond)
	for name, want := range map[string]any{
		"level": "INFO", "endpoint": "chat", "model": "demo-chat", "status": 200.0, "target": "models", "tries": 1.0, "streamed": false,
	} {
		assert.Equal(t, want, lines[0][name], name)
	}
	assert.NotContains(t, lines[0], "err")
	assert.Equal(t, "models", lines[1]["target"])
	assert.NotEmpty(t, lines[1]["err"])
}

// However requests are spread, the copies admit what one would.
func TestLimits(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 20*time.Millisecond)
	const limit, requests = 40, 120
	k := newKey(t, f.dsn, "--requests", fmt.Sprint(limit, "/d")) // which is none more in the time of a test
	var all sync.WaitGroup
	var admitted, refused atomic.Int64
	for range 20 {
		all.Go(func() {
			for range requests / 20 {
				switch status, reply := call(t, f.url, k.Secret, "POST", chatPath, body(false, 1)); status {
				case 200:
					admitted.Add(1)
				case 429:
					refused.Add(1)
				default:
					assert.Fail(t, "unexpected status", "%d %s", status, reply)
				}
			}
		})
	}
	all.Wait()
	assert.EqualValues(t, limit, admitted.Load())
	assert.EqualValues(t, requests-limit, refused.Load())
	f.first.says(t, `"status":200`)
	f.second.says(t, `"status":200`)

	k = newKey(t, f.dsn, "--concurrent", "3")
	streams := []*stream{
		speak(t, f.first.url, k.Secret, 5000), speak(t, f.first.url, k.Secret, 5000), speak(t, f.second.url, k.Secret, 5000),
	}
	for _, p := range []*process{f.first, f.second} {
		status, reply := call(t, p.url, k.Secret, "POST", chatPath, body(false, 1))
		assert.Equal(t, 429, status, reply)
	}
	streams[0].close()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		status, _ := call(t, f.second.url, k.Secret, "POST", chatPath, body(false, 1))
		require.Equal(c, 200, status)
	}, patience, 20*time.Millisecond)
}

// What was used of an account is the sum over the copies, whoever is asked.
func TestUsage(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 0, "-usage-delay", "100ms")
	k := newKey(t, f.dsn)
	var want usage
	for i := range 20 {
		want.add(ask(t, f.url, k.Secret, 1+i))
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		require.Equal(c, want, stored(t, f.dsn, t.Name()))
	}, patience, 50*time.Millisecond)
	for _, p := range []*process{f.first, f.second} {
		status, reply := call(t, p.url, k.Secret, "GET", usagePath, "")
		require.Equal(t, 200, status, reply)
		var got usage
		require.NoError(t, json.Unmarshal([]byte(reply), &got))
		assert.Equal(t, want, got)
	}
}

// At SIGTERM a copy finishes what it has begun, and stores what was used.
// Clients of the address notice nothing.
func TestRestart(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 20*time.Millisecond, "-usage-delay", "1h", "-drain-delay", "5s", "-drain", "60s")
	k := newKey(t, f.dsn)
	other := newKey(t, f.dsn, "--account", t.Name()+"/other")
	const words = 80
	var streams []*stream
	for range 2 {
		streams = append(streams, speak(t, f.first.url, k.Secret, words), speak(t, f.second.url, k.Secret, words))
	}
	f.first.signal(t, syscall.SIGTERM)
	eventually(t, f.first, "/readyz", "draining")
	ask(t, f.first.url, other.Secret, 1) // for a balancer that has not seen it yet
	asked := 1
	for ; asked < 50; asked++ { // a hundred would be stored at once
		ask(t, f.url, other.Secret, 1)
		time.Sleep(20 * time.Millisecond)
	}
	for _, s := range streams {
		s.complete(t, words)
	}
	require.NoError(t, f.first.await(t))
	assert.NotContains(t, f.first.out.String(), "requests were cut")
	assert.Equal(t, 2, stored(t, f.dsn, t.Name()).Requests)
	f.second.stop(t)
	assert.Equal(t, 4, stored(t, f.dsn, t.Name()).Requests)
	assert.Equal(t, asked, stored(t, f.dsn, t.Name()+"/other").Requests)
}

// What takes longer than -drain is ended with an error, and counts.
func TestDrainTakesTooLong(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 20*time.Millisecond, "-usage-delay", "1h", "-drain", "50ms")
	k := newKey(t, f.dsn)
	s := speak(t, f.first.url, k.Secret, 5000)
	f.first.stop(t)
	rest, err := io.ReadAll(s.body)
	assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
	assert.Contains(t, string(rest), `data: {"error":{"message":"The server is shutting down.`)
	assert.NotContains(t, string(rest), "[DONE]")
	assert.Contains(t, f.first.out.String(), "requests were cut")
	got := stored(t, f.dsn, t.Name())
	assert.Equal(t, 1, got.Requests)
	assert.Positive(t, got.CompletionTokens)
}

// A copy that is killed loses what it has gathered since it last stored, and
// nothing else. The other goes on.
func TestKill(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 20*time.Millisecond, "-usage-delay", "1h")
	k := newKey(t, f.dsn)
	const kept, lost, after = 5, 7, 10
	for range kept {
		ask(t, f.first.url, k.Secret, 1)
	}
	status, reply := call(t, f.first.url, k.Secret, "GET", usagePath, "") // stores first
	require.Equal(t, 200, status, reply)
	for range lost {
		ask(t, f.first.url, k.Secret, 1)
	}
	cut, going := speak(t, f.first.url, k.Secret, 5000), speak(t, f.second.url, k.Secret, 50)
	f.first.signal(t, syscall.SIGKILL)
	require.Error(t, f.first.await(t))
	rest, err := io.ReadAll(cut.body)
	assert.Error(t, err)
	assert.NotContains(t, string(rest), "[DONE]")

	for range after {
		ask(t, f.url, k.Secret, 1)
	}
	going.complete(t, 50)
	assert.Equal(t, kept, stored(t, f.dsn, t.Name()).Requests)
	f.second.stop(t)
	assert.Equal(t, kept+after+1, stored(t, f.dsn, t.Name()).Requests)
	t.Logf("of %d requests at the copy that was killed, %d were stored, and %d and the one in progress were lost", kept+lost+1, kept, lost)
}

// Without its database a copy is not ready, and then it is again. What was
// used meanwhile is not lost.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	postgres := servertest.Postgres(t, servertest.Args("-c", "fsync=off"))
	dsn := database(t, postgres)
	p := startCopy(t, dsn, "", startModels(t, 0), "-key-ttl", "1h", "-usage-delay", "50ms")
	k := newKey(t, dsn)
	eventually(t, p, "/readyz", "ok")
	ask(t, p.url, k.Secret, 1)
	postgres.Stop(t)
	eventually(t, p, "/readyz", "the database does not answer")
	status, _ := probe(p.url + "/readyz")
	assert.Equal(t, 503, status)
	status, reply := probe(p.url + "/healthz")
	assert.Equal(t, 200, status, reply)
	for range 3 {
		ask(t, p.url, k.Secret, 1) // the key is known
	}
	status, reply = call(t, p.url, "sk-"+strings.Repeat("x", 40), "POST", chatPath, body(false, 1))
	assert.Equal(t, 503, status, reply)

	postgres.Start(t)
	eventually(t, p, "/readyz", "ok")
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		require.Equal(c, 4, stored(t, dsn, t.Name()).Requests)
	}, patience, 50*time.Millisecond)

	// Who is ended meanwhile says what is lost.
	postgres.Stop(t)
	ask(t, p.url, k.Secret, 1)
	p.signal(t, syscall.SIGTERM)
	assert.Error(t, p.await(t))
	assert.Contains(t, p.out.String(), "1 usage records not stored")
	assert.Contains(t, p.out.String(), `"msg":"not ready","away":"the database"`)
	assert.Contains(t, p.out.String(), `"msg":"ready"`)
}

// Without Redis a copy refuses requests of keys with limits, and is not ready;
// unless it may limit by itself.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	dsn, models := database(t, servertest.SharedPostgres(t)), startModels(t, 0)
	refuses := startCopy(t, dsn, redis.DSN(), models, "-redis-timeout", "1s")
	limits := startCopy(t, dsn, redis.DSN(), models, "-redis-timeout", "1s", "-redis-fallback")
	k := newKey(t, dsn, "--requests", "5/d")
	eventually(t, refuses, "/readyz", "ok")
	for _, p := range []*process{refuses, limits} {
		ask(t, p.url, k.Secret, 1)
	}
	redis.Stop(t)
	eventually(t, refuses, "/readyz", "Redis does not answer")
	status, reply := call(t, refuses.url, k.Secret, "POST", chatPath, body(false, 1))
	assert.Equal(t, 503, status, reply)
	for range 5 {
		ask(t, limits.url, k.Secret, 1)
	}
	status, reply = call(t, limits.url, k.Secret, "POST", chatPath, body(false, 1))
	assert.Equal(t, 429, status, reply)
	eventually(t, limits, "/readyz", "ok")

	redis.Start(t)
	eventually(t, refuses, "/readyz", "ok")
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		status, _ := call(t, refuses.url, k.Secret, "POST", chatPath, body(false, 1))
		require.Equal(c, 200, status)
	}, patience, 20*time.Millisecond)
	for _, p := range []*process{refuses, limits} {
		p.stop(t)
		// The client of Redis has no log of its own.
		for line := range strings.Lines(p.out.String()) {
			assert.True(t, strings.HasPrefix(line, "{") || strings.HasPrefix(line, "listening "), line)
		}
	}
}

// Without PostgreSQL and Redis there is a file, which lasts.
func TestSQLite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	dsn := filepath.Join(dir, "llmhttp.db")
	run := func() *process {
		cmd := command([]string{"LLMHTTP_DSN=", "LLMHTTP_REDIS="}, "-demo")
		cmd.Dir = dir
		return start(t, cmd)
	}
	p := run()
	k := newKey(t, dsn, "--requests", "3/d")
	eventually(t, p, "/readyz", "ok")
	for range 3 {
		ask(t, p.url, k.Secret, 1)
	}
	status, reply := call(t, p.url, k.Secret, "POST", chatPath, body(false, 1))
	assert.Equal(t, 429, status, reply)
	p.stop(t)
	p = run()
	ask(t, p.url, k.Secret, 1)
	p.stop(t)
	assert.Equal(t, 4, stored(t, dsn, t.Name()).Requests)
}

// What is wrong ends the server before it listens, and is told without what
// may be a secret.
func TestBadConfig(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		env, args []string
		want      string
	}{
		{nil, nil, "no models to serve: name a server of them with -upstream, or give -demo"},
		{nil, []string{"-demo", "now"}, `unexpected argument "now"`},
		{[]string{"LLMHTTP_UPSTREAM=a=http://a/v1"}, []string{"-demo"}, "there must be either -demo or -upstream"},
		{[]string{"LLMHTTP_UPSTREAM=a=http://a/v1 http://pass@b/v1"}, nil,
			"-upstream 2 is not of the form name=URL, with lower case letters, digits and _ in the name"},
		{nil, []string{"-upstream", "a-b=http://a/v1"}, "-upstream 1 is not of the form name=URL, with lower case letters, digits and _ in the name"},
		{nil, []string{"-upstream", "a=pass"}, `-upstream a: upstream: the base URL must begin with "http://" or "https://"`},
		{nil, []string{"-upstream", "a=http://a/v1", "-upstream", "a=http://b/v1"}, `-upstream: route: routes[0].targets[1].name: "a" is the name of targets[0] already`},
		{[]string{"LLMHTTP_DRAIN=pass"}, nil, "LLMHTTP_DRAIN: parse error"},
		{[]string{"LLMHTTP_REDIS=redis://:pa/ss@a"}, []string{"-demo"}, "-redis: not a URL such as redis://user:password@host:6379/0"},
		{[]string{"LLMHTTP_DSN=postgres://a:pass@127.0.0.1:1/a"}, []string{"-demo"}, "sqlstore: failed to connect to `user=a database=a`:"},
	} {
		cmd := command(append([]string{"LLMHTTP_DSN=" + filepath.Join(t.TempDir(), "llm.db")}, c.env...), c.args...)
		out, err := cmd.CombinedOutput()
		exit, ok := errors.AsType[*exec.ExitError](err)
		require.True(t, ok, "%v %s", err, out)
		assert.Equal(t, 1, exit.ExitCode())
		first, _, _ := strings.Cut(string(out), "\n")
		assert.Equal(t, "production: "+c.want, first)
		assert.NotContains(t, string(out), "pass@")
		assert.NotContains(t, string(out), "pa/ss")
	}
}

// The commands in the README do what it says of them.
func TestReadme(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, section, ok := strings.Cut(string(text), "\n## In production\n")
	require.True(t, ok)
	section, _, _ = strings.Cut(section, "\n## ")
	var blocks []string
	for _, m := range regexp.MustCompile("(?ms)^```\n(.*?)^```$").FindAllStringSubmatch(section, -1) {
		blocks = append(blocks, m[1])
	}
	require.Len(t, blocks, 3)

	// The script ends the copies however it ends itself, and waits where its
	// reader would.
	script := `set -euo pipefail
trap 'kill $(jobs -p) 2>/dev/null && wait' EXIT
cd ../..
` + blocks[0] + `
for port in 8080 8081; do
  until [[ $(curl -sS http://127.0.0.1:$port/readyz) = ok ]]; do sleep 0.1; done
done
` + blocks[1] + `
until [[ $(bin/llmhttpctl usage --account acme) = *" 2 "* ]]; do sleep 0.1; done
` + blocks[2]
	script = strings.NewReplacer(
		"8080", freePort(t), "8081", freePort(t), "bin/", t.TempDir()+"/", "curl http", "curl -sS --max-time 20 http",
		"postgres://postgres@127.0.0.1:5432/postgres", "'"+database(t, servertest.SharedPostgres(t))+"'",
		"redis://127.0.0.1:6379", servertest.SharedRedis(t).DSN(),
	).Replace(script)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // it builds
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", script)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = patience
	cmd.Env = append(os.Environ(), "LLMHTTP_DRAIN_DELAY=0s", "GOWORK=") // a reader has go.work
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Equal(t, 2, strings.Count(string(out), `"content":"Hello there!"`), "%s", out)
	assert.Equal(t, 1, strings.Count(string(out), `"code":"rate_limit_exceeded"`), "%s", out)
	assert.Regexp(t, `demo-chat +2 `, string(out))
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
