package upstream_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/upstream"
)

// testTimeout is when a test gives up waiting for what should happen at once.
const testTimeout = 20 * time.Second

const (
	clientKey = "sk-client-0123456789"
	serverKey = "sk-server-abcdefghij9"
)

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		serveAsChild()
		return
	}
	os.Exit(m.Run())
}

// waitFor waits until cond returns true.
func waitFor(t testing.TB, what string, cond func() bool) {
	t.Helper()
	require.Eventually(t, cond, testTimeout, 2*time.Millisecond, what)
}

// checkLeaks fails the test if it leaves goroutines behind. It must be called
// before other cleanups are registered.
func checkLeaks(t testing.TB) {
	t.Helper()
	t.Cleanup(func() {
		var left []string
		for deadline := time.Now().Add(testTimeout); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
			if left = leakedGoroutines(); len(left) == 0 {
				return
			}
		}
		assert.Fail(t, "goroutines left behind", "%s", strings.Join(left, "\n\n"))
	})
}

// leakedGoroutines returns the stacks of goroutines of the packages under test.
func leakedGoroutines() (left []string) {
	buf := make([]byte, 4<<20)
	buf = buf[:runtime.Stack(buf, true)]
	for _, stack := range strings.Split(string(buf), "\n\n")[1:] {
		if strings.Contains(stack, "testing.(*T).Run(") || strings.Contains(stack, "testing.(*F).Fuzz") {
			continue
		}
		for _, part := range []string{"llmhttp/upstream", "llmhttp/llmhttp.", "net/http.(*conn).serve", "net/http.(*persistConn)"} {
			if strings.Contains(stack, part) {
				left = append(left, stack)
				break
			}
		}
	}
	return left
}

// A rawServer accepts TCP connections and replies to HTTP requests with bytes
// that the test writes, valid or not.
type rawServer struct {
	listener net.Listener
	reply    func(c net.Conn, r *rawRequest)
	accepted atomic.Int64 // connections
	open     atomic.Int64 // connections that are not closed
	aborted  atomic.Int64 // connections that the client closed before the reply was complete

	mu       sync.Mutex // guards requests
	requests []*rawRequest
}

// A rawRequest is a request that was read to its end.
type rawRequest struct {
	*http.Request
	n    int // how many requests the server got before
	body string
}

// newRawServer starts a server that calls reply for each request. If reply does
// not close the connection, the server then reads the next request from it. At
// the end of the test, all connections must have been closed.
func newRawServer(t testing.TB, reply func(c net.Conn, r *rawRequest)) *rawServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &rawServer{listener: l, reply: reply}
	go s.serve()
	t.Cleanup(func() {
		l.Close()
		assert.Eventually(t, func() bool { return s.open.Load() == 0 }, testTimeout, 2*time.Millisecond, "connections left open")
	})
	return s
}

func (s *rawServer) url() string { return "http://" + s.listener.Addr().String() + "/v1" }

func (s *rawServer) serve() {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.accepted.Add(1)
		s.open.Add(1)
		go func() {
			defer s.open.Add(-1)
			defer c.Close()
			for in := bufio.NewReader(c); ; {
				r, err := s.readRequest(in)
				if err != nil {
					return
				}
				s.reply(c, r)
			}
		}()
	}
}

func (s *rawServer) readRequest(in *bufio.Reader) (*rawRequest, error) {
	r, err := http.ReadRequest(in)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	raw := &rawRequest{r, len(s.requests), string(body)}
	s.requests = append(s.requests, raw)
	return raw, nil
}

// received returns the requests that the server has got.
func (s *rawServer) received() []*rawRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// last returns the last request that the server has got.
func (s *rawServer) last() *rawRequest {
	list := s.received()
	return list[len(list)-1]
}

// hang waits until the client closes the connection.
func (s *rawServer) hang(c net.Conn) {
	io.Copy(io.Discard, c)
	s.aborted.Add(1)
	c.Close()
}

// writeReply writes a reply with a Content-Length. Each of headers is a line.
func writeReply(c net.Conn, status int, contentType, body string, headers ...string) {
	lines := append([]string{"Content-Type: " + contentType, fmt.Sprintf("Content-Length: %d", len(body))}, headers...)
	fmt.Fprintf(c, "HTTP/1.1 %d X\r\n%s\r\n\r\n%s", status, strings.Join(lines, "\r\n"), body)
}

// writeHead writes the header of a chunked reply, to be followed by calls of
// writePiece and one of writeEnd.
func writeHead(c net.Conn, contentType string) {
	fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nTransfer-Encoding: chunked\r\n\r\n", contentType)
}

func writePiece(c net.Conn, text string) error {
	_, err := fmt.Fprintf(c, "%x\r\n%s\r\n", len(text), text)
	return err
}

func writeEnd(c net.Conn) { io.WriteString(c, "0\r\n\r\n") }

// writeEvents writes a complete stream of events with the given data.
func writeEvents(c net.Conn, data ...string) {
	writeHead(c, mediaEvents)
	for _, d := range data {
		writePiece(c, sse(d))
	}
	writeEnd(c)
}

const (
	mediaJSON   = "application/json"
	mediaEvents = "text/event-stream"
)

// sse returns a stream of events with the given data.
func sse(data ...string) string {
	return "data: " + strings.Join(data, "\n\ndata: ") + "\n\n"
}

// textChunk returns a chunk with content.
func textChunk(content string) string {
	b, _ := json.Marshal(content)
	return `{"id":"up-1","object":"chat.completion.chunk","created":1755137933,"model":"m","choices":[{"index":0,"delta":{"content":` + string(b) + `},"finish_reason":null}]}`
}

const (
	stopChunk  = `{"id":"up-1","object":"chat.completion.chunk","created":1755137933,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	usageChunk = `{"id":"up-1","object":"chat.completion.chunk","created":1755137933,"model":"m","choices":[],"usage":{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12}}`
	wholeReply = `{"id":"up-1","object":"chat.completion","created":1755137933,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hello there"},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12}}`
	done       = "[DONE]"
)

// newBackend returns a Backend whose connections are closed after the test.
func newBackend(t testing.TB, base string, opts *upstream.Options) *upstream.Backend {
	t.Helper()
	b, err := upstream.New(base, opts)
	require.NoError(t, err)
	t.Cleanup(b.CloseIdleConnections)
	return b
}

// A roundTripper is an http.RoundTripper that is a function.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// response returns a response with the status 200, as from a Transport.
func response(contentType string, body io.Reader) *http.Response {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {contentType}}, ContentLength: -1, Body: io.NopCloser(body)}
}

// A gateway is a Handler with an upstream Backend, whose log and usage the test
// can look at.
type gateway struct {
	*httptest.Server
	t       testing.TB
	backend *upstream.Backend
	usage   *memory.UsageStore
	log     *logBuffer

	mu        sync.Mutex // guards summaries
	summaries []*llmhttp.RequestSummary
}

// A logBuffer is a bytes.Buffer for concurrent use.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// newGateway starts a gateway to the server at base. At the end of the test, it
// checks that neither the log nor an error has a secret.
func newGateway(t testing.TB, base string, opts *upstream.Options, change ...func(*llmhttp.Options)) *gateway {
	t.Helper()
	if opts == nil {
		opts = new(upstream.Options)
	}
	if opts.Key == "" && opts.KeyFunc == nil {
		opts.Key = serverKey
	}
	g := &gateway{t: t, backend: newBackend(t, base, opts), usage: memory.NewUsageStore(), log: new(logBuffer)}
	hopts := &llmhttp.Options{
		Usage: g.usage, Logger: slog.New(slog.NewJSONHandler(g.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Observe: func(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
			return ctx, llmhttp.Observation{Ended: func(s *llmhttp.RequestSummary) {
				g.mu.Lock()
				defer g.mu.Unlock()
				g.summaries = append(g.summaries, s)
			}}
		},
	}
	for _, f := range change {
		f(hopts)
	}
	keys := llmhttp.KeyFunc(func(_ context.Context, secret string) (*llmhttp.Key, error) {
		if secret != clientKey {
			return nil, llmhttp.ErrKeyNotFound
		}
		return &llmhttp.Key{ID: "client", Account: "client"}, nil
	})
	g.Server = httptest.NewServer(llmhttp.NewHandler(g.backend, keys, hopts))
	host := strings.TrimSuffix(strings.TrimPrefix(base, "http://"), "/v1")
	t.Cleanup(func() {
		g.Close()
		g.checkNoSecrets("log", g.log.String(), host)
		for _, s := range g.ended() {
			if s.Err != nil {
				g.checkNoSecrets("error", s.Err.Error(), host)
			}
		}
	})
	return g
}

func (g *gateway) checkNoSecrets(what, text, host string) {
	g.t.Helper()
	for _, secret := range []string{clientKey, serverKey, host, "127.0.0.1"} {
		assert.NotContains(g.t, text, secret, what)
	}
}

// ended returns the summaries of the requests that have ended.
func (g *gateway) ended() []*llmhttp.RequestSummary {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.summaries)
}

// summary waits for the end of the only request, and returns its summary.
func (g *gateway) summary() *llmhttp.RequestSummary {
	g.t.Helper()
	waitFor(g.t, "the end of the request", func() bool { return len(g.ended()) > 0 })
	list := g.ended()
	require.Len(g.t, list, 1)
	return list[0]
}

// used waits for the end of n requests, and returns the usage that was recorded.
func (g *gateway) used(n int) llmhttp.UsageSum {
	g.t.Helper()
	waitFor(g.t, "the end of the requests", func() bool { return len(g.ended()) >= n })
	sums, err := g.usage.Query(context.Background(), llmhttp.UsageQuery{
		Account: "client", From: time.Unix(0, 0), To: time.Now().Add(time.Hour)})
	require.NoError(g.t, err)
	var all llmhttp.UsageSum
	for _, s := range sums {
		all.Requests += s.Requests
		all.PromptTokens += s.PromptTokens
		all.CompletionTokens += s.CompletionTokens
		all.Images += s.Images
	}
	return all
}

func (g *gateway) request(ctx context.Context, method, path, body string) *http.Request {
	g.t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, g.URL+path, strings.NewReader(body))
	require.NoError(g.t, err)
	r.Header.Set("Authorization", "Bearer "+clientKey)
	if body != "" {
		r.Header.Set("Content-Type", mediaJSON)
	}
	return r
}

// A reply is what the client of a gateway got.
type reply struct {
	*http.Response
	body string
	err  error // of reading the body
}

// do sends a request to the gateway and reads the reply.
func (g *gateway) do(method, path, body string) reply {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	resp, err := g.Client().Do(g.request(ctx, method, path, body))
	require.NoError(g.t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return reply{resp, string(b), err}
}

func (g *gateway) chat(body string) reply { g.t.Helper(); return g.do("POST", chatPath, body) }

const (
	chatPath  = "/v1/chat/completions"
	askWhole  = `{"model":"m","messages":[{"role":"user","content":"Hello?"}]}`
	askStream = `{"model":"m","messages":[{"role":"user","content":"Hello?"}],"stream":true}`
	askUsage  = `{"model":"m","messages":[{"role":"user","content":"Hello?"}],"stream":true,"stream_options":{"include_usage":true}}`
)

// with adds members to a request.
func with(body, members string) string { return strings.TrimSuffix(body, "}") + "," + members + "}" }

// noLog is a logger that discards everything.
var noLog = slog.New(slog.DiscardHandler)

// eventData returns the data of the events of a stream.
func eventData(t testing.TB, body string) (list []string) {
	t.Helper()
	for _, event := range strings.Split(strings.TrimSuffix(body, "\n\n"), "\n\n") {
		data, ok := strings.CutPrefix(event, "data: ")
		require.True(t, ok, "%q", event)
		list = append(list, data)
	}
	return list
}

// streamText returns the content and the finish_reason of a stream.
func streamText(t testing.TB, body string) (content, reason string) {
	t.Helper()
	for _, data := range eventData(t, body) {
		if data == done || strings.HasPrefix(data, `{"error":`) {
			continue
		}
		var c llmhttp.ChatChunk
		require.NoError(t, json.Unmarshal([]byte(data), &c), "%s", data)
		for _, choice := range c.Choices {
			content += choice.Delta.Content
			reason += string(choice.FinishReason)
		}
	}
	return content, reason
}

// requireComplete checks that the reply is a stream that ends with [DONE].
func (r reply) requireComplete(t testing.TB) {
	t.Helper()
	require.NoError(t, r.err)
	require.Equal(t, http.StatusOK, r.StatusCode, "%s", r.body)
	require.True(t, strings.HasSuffix(r.body, sse(done)), "%s", r.body)
}

// requireError checks that the reply is an error, and returns it.
func (r reply) requireError(t testing.TB, status int) apiError {
	t.Helper()
	require.NoError(t, r.err)
	require.Equal(t, status, r.StatusCode, "%s", r.body)
	return readError(t, r.body)
}

// An apiError is the error object of the API, with "" for null.
type apiError struct{ Message, Type, Param, Code string }

func readError(t testing.TB, body string) apiError {
	t.Helper()
	var v struct{ Error apiError }
	require.NoError(t, json.Unmarshal([]byte(body), &v), "%s", body)
	return v.Error
}
