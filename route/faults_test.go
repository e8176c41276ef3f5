package route_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/route"
)

// patience is how long a test waits for what must come.
const patience = 30 * time.Second

// upstreamVariable makes this program an upstream server, to be killed.
const upstreamVariable = "LLMHTTP_ROUTE_TEST_UPSTREAM"

func TestMain(m *testing.M) {
	if os.Getenv(upstreamVariable) == "" {
		os.Exit(m.Run())
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr())
	go http.Serve(l, llmhttp.NewHandler(victim(), llmhttp.AllowAll("acme"), nil))
	io.Copy(io.Discard, os.Stdin) // until who started it is gone
}

const (
	early = "early" // a prompt that the victim answers at once, but not to the end
	late  = "late"  // one that it does not answer
)

// victim returns a Backend that leaves every reply unfinished.
func victim() llmhttp.Backend {
	return &memory.Backend{Script: func(r *llmhttp.ChatRequest) []memory.Step {
		if r.Messages[0].Content.Text() == late {
			return []memory.Step{memory.Hang()}
		}
		return []memory.Step{memory.Say("victim"), memory.Hang()}
	}}
}

// A remote is a Backend over a server of the same API.
type remote struct {
	base   string
	client *http.Client
}

func newRemote(t testing.TB, base string) *remote {
	tr := &http.Transport{MaxIdleConnsPerHost: 500}
	t.Cleanup(tr.CloseIdleConnections)
	return &remote{base, &http.Client{Transport: tr}}
}

func (b *remote) Chat(ctx context.Context, req *llmhttp.ChatRequest) llmhttp.ChatStream {
	return func(yield func(*llmhttp.ChatChunk, error) bool) {
		ask := *req
		ask.Stream = true
		body, err := json.Marshal(ask)
		if err != nil {
			yield(nil, err)
			return
		}
		r, err := http.NewRequestWithContext(ctx, "POST", b.base+"/v1/chat/completions", bytes.NewReader(body))
		if err != nil {
			yield(nil, err)
			return
		}
		resp, err := b.client.Do(r)
		if err != nil {
			yield(nil, err)
			return
		}
		defer resp.Body.Close()
		if resp.StatusCode != 200 {
			seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
			yield(nil, &llmhttp.Error{Status: resp.StatusCode, RetryAfter: time.Duration(seconds) * time.Second})
			return
		}
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			data, ok := strings.CutPrefix(lines.Text(), "data: ")
			switch {
			case !ok:
				continue
			case data == "[DONE]":
				return
			case strings.HasPrefix(data, `{"error"`):
				yield(nil, llmhttp.Errorf(502, "", "the upstream broke off"))
				return
			}
			c := new(llmhttp.ChatChunk)
			if err := json.Unmarshal([]byte(data), c); err != nil {
				yield(nil, err)
				return
			}
			if !yield(c, nil) {
				return
			}
		}
		yield(nil, errors.Join(io.ErrUnexpectedEOF, lines.Err()))
	}
}

// An outcome is what a client of a stream got.
type outcome struct {
	prompt string
	status int
	text   string
	failed bool // by an error event
	done   bool
}

// stream asks base for a stream. It calls first with the first text.
func stream(client *http.Client, base, prompt string, first func(text string)) (outcome, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "POST", base+"/v1/chat/completions",
		strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"`+prompt+`"}],"stream":true}`))
	if err != nil {
		return outcome{}, err
	}
	resp, err := client.Do(r)
	if err != nil {
		return outcome{}, err
	}
	defer resp.Body.Close()
	o := outcome{prompt: prompt, status: resp.StatusCode}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		switch {
		case !ok:
		case data == "[DONE]":
			o.done = true
		case strings.HasPrefix(data, `{"error"`):
			o.failed = true
		default:
			var c llmhttp.ChatChunk
			if err := json.Unmarshal([]byte(data), &c); err != nil {
				return o, err
			}
			for _, choice := range c.Choices {
				if text := choice.Delta.Content; text != "" {
					if o.text == "" {
						first(text)
					}
					o.text += text
				}
			}
		}
	}
	return o, ctx.Err() // that a broken stream is cut is as it should be
}

// An account is what a gateway's Observer was told.
type account struct {
	mu        sync.Mutex
	exchanges []*llmhttp.RequestSummary
}

func (a *account) observe(ctx context.Context, _ *http.Request) (context.Context, func(*llmhttp.RequestSummary)) {
	return ctx, func(e *llmhttp.RequestSummary) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.exchanges = append(a.exchanges, e)
	}
}

func (a *account) all() []*llmhttp.RequestSummary {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]*llmhttp.RequestSummary(nil), a.exchanges...)
}

// eventually waits until ok returns true. It starts no goroutine, and calls ok
// on that of the test.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("waited in vain until %s", what)
			return
		}
	}
}

// quiet checks, when all else of the test is over, that no goroutine is left of it.
func quiet(t testing.TB) {
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
	})
}

// startProcess starts a victim as a process of its own. It returns its address
// and what kills it.
func startProcess(t *testing.T) (addr string, kill func()) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), upstreamVariable+"=1")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	kill = sync.OnceFunc(func() {
		cmd.Process.Kill() // SIGKILL
		cmd.Wait()
		stdin.Close()
	})
	t.Cleanup(kill)
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSpace(line), kill
}

// startServer starts a victim on a listener of its own. What kills it closes
// the listener and every connection.
func startServer(t *testing.T) (addr string, kill func()) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &http.Server{Handler: llmhttp.NewHandler(victim(), llmhttp.AllowAll("acme"), nil)}
	served := make(chan struct{})
	go func() { defer close(served); s.Serve(l) }()
	kill = sync.OnceFunc(func() { s.Close(); <-served })
	t.Cleanup(kill)
	return l.Addr().String(), kill
}

// Of 200 streams through a gateway, those that had begun when one of two
// upstreams died end with an error event; all others are answered in full.
func TestUpstreamDies(t *testing.T) {
	for name, start := range map[string]func(*testing.T) (string, func()){"process": startProcess, "server": startServer} {
		t.Run(name, func(t *testing.T) {
			const streams = 200
			quiet(t)
			addr, kill := start(t)
			survivor := httptest.NewServer(llmhttp.NewHandler(
				memory.Scripted(memory.Say("surv"), memory.Say("ivor")), llmhttp.AllowAll("acme"), nil))
			t.Cleanup(survivor.Close)

			router := newRouter(t, nil, route.Route{Model: "m", Targets: []route.Target{
				{Name: "victim", Backend: newRemote(t, "http://"+addr)},
				{Name: "survivor", Backend: newRemote(t, survivor.URL)},
			}})
			told, usage := new(account), memory.NewUsageStore()
			gateway := httptest.NewServer(llmhttp.NewHandler(router, llmhttp.AllowAll("acme"),
				&llmhttp.Options{Observe: told.observe, Usage: usage, Logger: slog.New(slog.DiscardHandler)}))
			t.Cleanup(gateway.Close)
			tr := &http.Transport{MaxIdleConnsPerHost: streams}
			t.Cleanup(tr.CloseIdleConnections)

			var mu sync.Mutex
			var results []outcome
			begun := 0 // by the victim
			var wg sync.WaitGroup
			for i := range streams {
				wg.Go(func() {
					o, err := stream(&http.Client{Transport: tr}, gateway.URL, []string{early, late}[i%2], func(text string) {
						mu.Lock()
						defer mu.Unlock()
						if text == "victim" {
							begun++
						}
					})
					assert.NoError(t, err)
					mu.Lock()
					defer mu.Unlock()
					results = append(results, o)
				})
			}
			// Until the survivor has answered its half, and the victim begun what it will.
			eventually(t, "all that can has begun", func() bool {
				mu.Lock()
				defer mu.Unlock()
				done := 0
				for _, o := range results {
					if o.prompt == early {
						done++
					}
				}
				return len(results) == streams/2 && begun == streams/2-done
			})
			assert.Equal(t, streams/2, router.Status()[0].InFlight)

			kill()
			wg.Wait()

			broken, whole := 0, 0
			for _, o := range results {
				assert.Equal(t, 200, o.status)
				switch o.text {
				case "victim":
					broken++
					assert.True(t, o.failed)
					assert.False(t, o.done)
					assert.Equal(t, early, o.prompt)
				case "survivor":
					whole++
					assert.False(t, o.failed)
					assert.True(t, o.done)
				default:
					t.Errorf("a client got %q", o.text)
				}
			}
			assert.Equal(t, begun, broken)
			assert.Equal(t, streams-begun, whole)

			eventually(t, "the Observer was told of all", func() bool { return len(told.all()) == streams })
			again := 0
			for _, e := range told.all() {
				switch {
				case e.Err != nil:
					assert.Equal(t, "victim", e.Target)
					assert.Equal(t, 1, e.Tries)
					assert.Equal(t, 1, e.Chunks-1, "that announces the role, and a text")
				default:
					assert.Equal(t, "survivor", e.Target)
					if again += e.Tries - 1; e.Tries > 2 {
						t.Errorf("a request took %d tries", e.Tries)
					}
				}
				assert.True(t, e.Estimated)
				assert.Positive(t, e.Usage.CompletionTokens)
			}
			assert.Equal(t, streams/2-begun, again)
			sums, err := usage.Query(t.Context(), llmhttp.UsageQuery{Account: "acme", From: time.Now().Add(-time.Hour), To: time.Now().Add(time.Hour)})
			require.NoError(t, err)
			require.Len(t, sums, 1)
			assert.Equal(t, int64(streams), sums[0].Requests)

			s := router.Status()
			assert.Equal(t, route.StateOpen, s[0].State)
			assert.Equal(t, int64(streams/2), s[0].Failures)
			assert.Equal(t, route.StateClosed, s[1].State)
			assert.Zero(t, s[0].InFlight+s[1].InFlight)
		})
	}
}

// An upstream that is down is used again when it is up.
func TestUpstreamReturns(t *testing.T) {
	quiet(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())

	r := inOrder(t, &route.Options{OpenFor: 20 * time.Millisecond, Failures: 2}, newRemote(t, "http://"+addr), steps(says("b")))
	for range 5 {
		text, err := say(t.Context(), r)
		require.NoError(t, err)
		assert.Equal(t, "b", text)
	}
	assert.Equal(t, "500 connection refused", r.Status()[0].LastError)
	assert.GreaterOrEqual(t, r.Status()[0].Failures, int64(2))

	l, err = net.Listen("tcp", addr)
	require.NoError(t, err)
	s := &http.Server{Handler: llmhttp.NewHandler(memory.Scripted(memory.Say("a")), llmhttp.AllowAll("acme"), nil)}
	served := make(chan struct{})
	go func() { defer close(served); s.Serve(l) }()
	t.Cleanup(func() { s.Close(); <-served })
	eventually(t, "the upstream is used again", func() bool {
		text, err := say(t.Context(), r)
		require.NoError(t, err)
		return text == "a"
	})
	assert.Equal(t, route.StateClosed, r.Status()[0].State)
}

// Upstreams that do everything wrong before they have said anything cost the
// client nothing, and keep no connection.
func TestUpstreamFaults(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
	write := func(text string) func(c *net.TCPConn) {
		return func(c *net.TCPConn) { io.WriteString(c, text) }
	}
	for name, fault := range map[string]func(c *net.TCPConn){
		"hangs":             func(c *net.TCPConn) { io.Copy(io.Discard, c) },
		"hangs after head":  func(c *net.TCPConn) { io.WriteString(c, head+"\r\n"); io.Copy(io.Discard, c) },
		"resets":            func(c *net.TCPConn) { c.SetLinger(0) },
		"closes":            func(*net.TCPConn) {},
		"closes after head": write(head + "Content-Length: 100\r\n\r\n"),
		"ends at once":      write(head + "Content-Length: 0\r\n\r\n"),
		"garbage":           write("\x00\xff\r\n\r\n"),
		"garbage in a body": write(head + "\r\ndata: {\x00\r\n\r\n"),
		"an announcement":   write(head + "\r\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\r\n\r\n"),
		"500":               write("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"),
		"503, come back":    write("HTTP/1.1 503 No\r\nRetry-After: 30\r\nContent-Length: 0\r\n\r\n"),
		"429":               write("HTTP/1.1 429 No\r\nContent-Length: 0\r\n\r\n"),
	} {
		t.Run(name, func(t *testing.T) {
			quiet(t)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			var conns sync.WaitGroup
			conns.Go(func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					conns.Go(func() {
						defer c.Close()
						if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
							fault(c.(*net.TCPConn))
						}
					})
				}
			})
			b := newRemote(t, "http://"+l.Addr().String())
			var opts route.Options
			if strings.HasPrefix(name, "hangs") {
				opts.TryTimeout = 100 * time.Millisecond
			}
			r := inOrder(t, &opts, b, steps(says("b")))
			text, err := say(t.Context(), r)
			require.NoError(t, err)
			assert.Equal(t, "b", text)
			s := r.Status()
			assert.Equal(t, int64(1), s[0].Tries)
			assert.NotEmpty(t, s[0].LastError)
			assert.Equal(t, name != "429", s[0].Failures == 1)
			assert.Zero(t, s[0].InFlight)

			l.Close()
			b.client.CloseIdleConnections()
			over := make(chan struct{})
			go func() { defer close(over); conns.Wait() }()
			select {
			case <-over:
			case <-time.After(patience):
				t.Error("a connection is left")
			}
		})
	}
}
