package route_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/all"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/route"
	"github.com/llmhttp/llmhttp/upstream"
)

// waitLimit is how long a test waits for something that must happen.
const waitLimit = 30 * time.Second

// serverVariable makes the test program run a server that a test kills.
const serverVariable = "LLMHTTP_ROUTE_TEST_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(serverVariable) == "" {
		os.Exit(m.Run())
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr())
	go http.Serve(l, newHandler(unfinished()))
	io.Copy(io.Discard, os.Stdin) // until the test ends
}

func newHandler(b llmhttp.Backend) http.Handler {
	return llmhttp.NewHandler(b, llmhttp.AllowAll("acme"), &llmhttp.Options{Routes: all.Routes(nil)})
}

// Prompts for unfinished.
const (
	promptStarted = "started" // gets the beginning of a reply
	promptSilent  = "silent"  // gets nothing
)

// unfinished returns a Backend that finishes no reply.
func unfinished() llmhttp.Backend {
	return &memory.Backend{Script: func(r *llm.ChatRequest) []memory.Step {
		if r.Messages[0].Content.Text() == promptSilent {
			return []memory.Step{memory.Hang()}
		}
		return []memory.Step{memory.Say("victim"), memory.Hang()}
	}}
}

// newUpstream returns a Backend for the server at addr.
func newUpstream(t testing.TB, addr string) *upstream.Backend {
	t.Helper()
	b, err := upstream.New("http://"+addr+"/v1", nil)
	require.NoError(t, err)
	t.Cleanup(b.CloseIdleConnections)
	return b
}

// A streamResult is what a client got of a stream.
type streamResult struct {
	prompt string
	status int
	text   string
	failed bool // by an error event
	done   bool
}

// readStream requests a stream and reads it to its end. It calls started with
// the first text.
func readStream(client *http.Client, base, prompt string, started func(text string)) (streamResult, error) {
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "POST", base+"/v1/chat/completions",
		strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"`+prompt+`"}],"stream":true}`))
	if err != nil {
		return streamResult{}, err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(r)
	if err != nil {
		return streamResult{}, err
	}
	defer resp.Body.Close()
	res := streamResult{prompt: prompt, status: resp.StatusCode}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		switch {
		case !ok:
		case data == "[DONE]":
			res.done = true
		case strings.HasPrefix(data, `{"error"`):
			res.failed = true
		default:
			var c llm.ChatChunk
			if err := json.Unmarshal([]byte(data), &c); err != nil {
				return res, err
			}
			for _, choice := range c.Choices {
				if text := choice.Delta.Content; text != "" {
					if res.text == "" {
						started(text)
					}
					res.text += text
				}
			}
		}
	}
	return res, ctx.Err() // the connection of a stream that failed is cut, so lines.Err does not matter
}

// eventually waits until ok returns true. Unlike assert.Eventually it starts no
// goroutine.
func eventually(t testing.TB, ok func() bool, what string) {
	t.Helper()
	for deadline := time.Now().Add(waitLimit); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("it did not happen that %s", what)
			return
		}
	}
}

// checkGoroutines checks after the test that no goroutine of it is left.
func checkGoroutines(t testing.TB) {
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		eventually(t, func() bool { return runtime.NumGoroutine() <= before }, "all goroutines ended")
	})
}

// startProcess starts a server in a process of its own. It returns its address
// and a function that kills it.
func startProcess(t *testing.T) (addr string, kill func()) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serverVariable+"=1")
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

// startServer starts a server in this process. It returns its address and a
// function that closes its listener and all connections.
func startServer(t *testing.T) (addr string, kill func()) {
	s := httptest.NewServer(newHandler(unfinished()))
	kill = sync.OnceFunc(func() {
		s.Listener.Close()
		s.CloseClientConnections()
		s.Close()
	})
	t.Cleanup(kill)
	return s.Listener.Addr().String(), kill
}

// When one of two servers dies, the streams that it has started end with an
// error event. All others of the 200 are answered completely.
func TestServers_OneDies(t *testing.T) {
	for name, start := range map[string]func(*testing.T) (string, func()){"process": startProcess, "server": startServer} {
		t.Run(name, func(t *testing.T) { testOneDies(t, start) })
	}
}

// testOneDies starts the victim with start, which returns its address and a function
// that kills it.
func testOneDies(t *testing.T, start func(*testing.T) (string, func())) {
	const streams = 200
	checkGoroutines(t)
	addr, kill := start(t)
	survivor := httptest.NewServer(newHandler(memory.Scripted(memory.Say("surv"), memory.Say("ivor"))))
	t.Cleanup(survivor.Close)

	router := newRouter(t, nil, route.Route{Model: "m", Targets: []route.Target{
		{Name: "victim", Backend: newUpstream(t, addr)},
		{Name: "survivor", Backend: newUpstream(t, survivor.Listener.Addr().String())},
	}})
	var observed summaries
	usage := memory.NewUsageStore()
	gateway := httptest.NewServer(llmhttp.NewHandler(router, llmhttp.AllowAll("acme"),
		&llmhttp.Options{Observe: observed.observe, Usage: usage, Logger: slog.New(slog.DiscardHandler)}))
	t.Cleanup(gateway.Close)
	transport := &http.Transport{MaxIdleConnsPerHost: streams}
	t.Cleanup(transport.CloseIdleConnections)

	var clients streamClients
	for i := range streams {
		clients.start(t, &http.Client{Transport: transport}, gateway.URL, []string{promptStarted, promptSilent}[i%2])
	}
	eventually(t, func() bool { return clients.allReady(streams / 2) },
		"the survivor answered its half and the victim started what it could")
	assert.Equal(t, streams/2, router.Status()[0].InFlight)
	kill()
	clients.wg.Wait()
	clients.checkResults(t)

	eventually(t, func() bool { return len(observed.all()) == streams }, "the Observer got all summaries")
	assert.Equal(t, streams/2-clients.started, checkSummaries(t, observed.all()))
	sums, err := usage.Query(t.Context(), llmhttp.UsageQuery{Account: "acme", From: time.Now().Add(-time.Hour), To: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	require.Len(t, sums, 1)
	assert.Equal(t, int64(streams), sums[0].Requests)

	s := router.Status()
	assert.Equal(t, route.StateOpen, s[0].State)
	assert.Equal(t, int64(streams/2), s[0].Failures)
	assert.Equal(t, route.StateClosed, s[1].State)
	assert.Zero(t, s[0].InFlight+s[1].InFlight)
}

// streamClients read streams at the same time.
type streamClients struct {
	wg sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	results []streamResult
	started int // streams of the victim with a text
}

// start starts a client that reads a stream.
func (c *streamClients) start(t *testing.T, client *http.Client, url, prompt string) {
	c.wg.Go(func() {
		res, err := readStream(client, url, prompt, func(text string) {
			c.mu.Lock()
			defer c.mu.Unlock()
			if text == "victim" {
				c.started++
			}
		})
		assert.NoError(t, err)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.results = append(c.results, res)
	})
}

// allReady reports whether half of the streams have ended, which are those of the
// survivor, and all streams of the victim that can start have started.
func (c *streamClients) allReady(half int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	done := 0
	for _, res := range c.results {
		if res.prompt == promptStarted {
			done++
		}
	}
	return len(c.results) == half && c.started == half-done
}

// checkResults checks that the streams that the victim had started are broken and that
// all others are complete.
func (c *streamClients) checkResults(t *testing.T) {
	t.Helper()
	broken := 0
	for _, res := range c.results {
		assert.Equal(t, 200, res.status)
		switch res.text {
		case "victim":
			broken++
			assert.True(t, res.failed)
			assert.False(t, res.done)
			assert.Equal(t, promptStarted, res.prompt)
		case "survivor":
			assert.False(t, res.failed)
			assert.True(t, res.done)
		default:
			t.Errorf("a client got %q", res.text)
		}
	}
	assert.Equal(t, c.started, broken)
}

// checkSummaries checks what the Observer got, and returns the number of tries that were
// repeated.
func checkSummaries(t *testing.T, list []*llmhttp.RequestSummary) (again int) {
	t.Helper()
	for _, e := range list {
		if e.Err != nil {
			assert.Equal(t, "victim", e.Record.Target)
			assert.Len(t, e.Tries, 1)
			assert.Equal(t, 2, e.Chunks, "the role and a text")
		} else {
			assert.Equal(t, "survivor", e.Record.Target)
			assert.LessOrEqual(t, len(e.Tries), 2)
			again += len(e.Tries) - 1
		}
		assert.Equal(t, e.Err != nil, e.Record.Estimated, "the survivor reports its usage")
		assert.Positive(t, e.Record.Units.CompletionTokens)
	}
	return again
}

func TestServers_OneReturns(t *testing.T) {
	checkGoroutines(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())

	r := newInOrderRouter(t, &route.Options{OpenFor: time.Millisecond, Failures: 2}, newUpstream(t, addr), newFake(say("b")))
	assert.Equal(t, "bbbbb", askTimes(t, r, 5))
	assert.Equal(t, "502 connection refused", r.Status()[0].LastError)
	assert.GreaterOrEqual(t, r.Status()[0].Failures, int64(2))

	l, err = net.Listen("tcp", addr)
	require.NoError(t, err)
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: newHandler(memory.Scripted(memory.Say("a")))}}
	s.Start()
	t.Cleanup(s.Close)
	eventually(t, func() bool { return askTimes(t, r, 1) == "a" }, "the server was used again")
	assert.Equal(t, route.StateClosed, r.Status()[0].State)
}

// A server that fails before its reply begins does not affect the client, and no
// connection to it is left.
func TestServers_Faults(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
	write := func(text string) func(c *net.TCPConn) {
		return func(c *net.TCPConn) { io.WriteString(c, text) }
	}
	for name, test := range map[string]struct {
		fault   func(c *net.TCPConn)
		hangs   bool
		failure bool
	}{
		"no reply":        {func(c *net.TCPConn) { io.Copy(io.Discard, c) }, true, true},
		"head only":       {func(c *net.TCPConn) { io.WriteString(c, head+"\r\n"); io.Copy(io.Discard, c) }, true, true},
		"reset":           {func(c *net.TCPConn) { c.SetLinger(0) }, false, true},
		"close":           {func(*net.TCPConn) {}, false, true},
		"close in body":   {write(head + "Content-Length: 100\r\n\r\n"), false, true},
		"empty body":      {write(head + "Content-Length: 0\r\n\r\n"), false, true},
		"garbage":         {write("\x00\xff\r\n\r\n"), false, true},
		"garbage in body": {write(head + "\r\ndata: {\x00\r\n\r\n"), false, true},
		"role only":       {write(head + "\r\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\r\n\r\n"), false, true},
		"500":             {write("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"), false, true},
		"503":             {write("HTTP/1.1 503 No\r\nRetry-After: 30\r\nContent-Length: 0\r\n\r\n"), false, true},
		"429":             {write("HTTP/1.1 429 No\r\nContent-Length: 0\r\n\r\n"), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			checkGoroutines(t)
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
							test.fault(c.(*net.TCPConn))
						}
					})
				}
			})
			b := newUpstream(t, l.Addr().String())
			var opts route.Options
			if test.hangs {
				opts.TryTimeout = 50 * time.Millisecond
			}
			r := newInOrderRouter(t, &opts, b, newFake(say("b")))
			assert.Equal(t, "b", askTimes(t, r, 1))
			s := r.Status()
			assert.Equal(t, int64(1), s[0].Tries)
			assert.NotEmpty(t, s[0].LastError)
			assert.Equal(t, test.failure, s[0].Failures == 1)
			assert.Zero(t, s[0].InFlight)

			l.Close()
			b.CloseIdleConnections()
			ended := make(chan struct{})
			go func() { defer close(ended); conns.Wait() }()
			select {
			case <-ended:
			case <-time.After(waitLimit):
				t.Error("a connection is left")
			}
		})
	}
}
