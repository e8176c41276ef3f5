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

// patience is how long anything may take that is not to take long.
const patience = 20 * time.Second

const (
	clientKey = "sk-client-0123456789"
	serverKey = "sk-server-abcdefghij9"
)

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		serveChild()
		return
	}
	os.Exit(m.Run())
}

// await waits until cond holds.
func await(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			require.FailNow(t, "waited too long for "+what)
		}
	}
}

// noLeaks fails a test that leaves goroutines behind. It is to be called first,
// so that it looks last.
func noLeaks(t testing.TB) {
	t.Helper()
	t.Cleanup(func() {
		var left []string
		for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
			left = left[:0]
			buf := make([]byte, 4<<20)
			buf = buf[:runtime.Stack(buf, true)]
			for i, stack := range strings.Split(string(buf), "\n\n") {
				if i == 0 || strings.Contains(stack, "testing.(*T).Run(") || strings.Contains(stack, "testing.(*F).Fuzz") {
					continue
				}
				for _, what := range []string{"llmhttp/upstream", "llmhttp/llmhttp.", "net/http.(*conn).serve", "net/http.(*persistConn)"} {
					if strings.Contains(stack, what) {
						left = append(left, stack)
						break
					}
				}
			}
			if len(left) == 0 {
				return
			}
			if time.Now().After(deadline) {
				assert.Fail(t, "goroutines left behind", "%s", strings.Join(left, "\n\n"))
				return
			}
		}
	})
}

// A rawServer replies to HTTP requests with whatever bytes a test wants.
type rawServer struct {
	t       testing.TB
	l       net.Listener
	reply   func(c net.Conn, r *rawRequest)
	conns   atomic.Int64 // that were accepted
	open    atomic.Int64 // that are not closed
	aborted atomic.Int64 // that the client closed while a reply was awaited or written

	mu       sync.Mutex
	requests []*rawRequest
	hanging  map[net.Conn]struct{}
	closing  bool
}

// A rawRequest is a request and its body.
type rawRequest struct {
	*http.Request
	n    int // how many came before it
	body string
}

// newRawServer returns a server that calls reply for each request. When reply
// returns, the next one is read from the connection unless that was closed.
func newRawServer(t testing.TB, reply func(c net.Conn, r *rawRequest)) *rawServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &rawServer{t: t, l: l, reply: reply, hanging: map[net.Conn]struct{}{}}
	go s.serve(l)
	t.Cleanup(func() {
		l.Close()
		s.mu.Lock()
		s.closing = true
		s.mu.Unlock()
		for deadline := time.Now().Add(patience); s.open.Load() > 0; time.Sleep(2 * time.Millisecond) {
			if time.Now().After(deadline) {
				assert.Fail(t, "connections left open", "%d", s.open.Load())
				break
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for c := range s.hanging {
			c.Close()
		}
	})
	return s
}

func (s *rawServer) url() string { return "http://" + s.l.Addr().String() + "/v1" }

func (s *rawServer) serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		s.conns.Add(1)
		s.open.Add(1)
		s.mu.Lock()
		s.hanging[c] = struct{}{}
		s.mu.Unlock()
		go func() {
			defer s.open.Add(-1)
			defer c.Close()
			defer func() {
				s.mu.Lock()
				delete(s.hanging, c)
				s.mu.Unlock()
			}()
			in := bufio.NewReader(c)
			for {
				r, err := http.ReadRequest(in)
				if err != nil {
					return
				}
				body, err := io.ReadAll(r.Body)
				if err != nil {
					return
				}
				s.mu.Lock()
				rr := &rawRequest{r, len(s.requests), string(body)}
				s.requests = append(s.requests, rr)
				s.mu.Unlock()
				s.reply(c, rr)
			}
		}()
	}
}

func (s *rawServer) all() []*rawRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*rawRequest(nil), s.requests...)
}

// hang waits until the client closes the connection.
func (s *rawServer) hang(c net.Conn) {
	io.Copy(io.Discard, c)
	s.aborted.Add(1)
	c.Close()
}

// whole writes a reply with a Content-Length.
func whole(c net.Conn, status int, contentType, body string, headers ...string) {
	fmt.Fprintf(c, "HTTP/1.1 %d X\r\nContent-Type: %s\r\nContent-Length: %d\r\n%s\r\n%s", status, contentType, len(body), headerLines(headers), body)
}

func headerLines(headers []string) string {
	if len(headers) == 0 {
		return ""
	}
	return strings.Join(headers, "\r\n") + "\r\n"
}

// begin writes the head of a chunked reply, and piece a piece of it.
func begin(c net.Conn, contentType string) {
	fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nTransfer-Encoding: chunked\r\n\r\n", contentType)
}

func piece(c net.Conn, text string) error {
	_, err := fmt.Fprintf(c, "%x\r\n%s\r\n", len(text), text)
	return err
}

func end(c net.Conn) { io.WriteString(c, "0\r\n\r\n") }

// events writes a stream of the given data, which ends well.
func events(c net.Conn, data ...string) {
	begin(c, "text/event-stream")
	for _, d := range data {
		piece(c, "data: "+d+"\n\n")
	}
	end(c)
}

// chunk is a chunk that says text.
func chunk(text string) string {
	b, _ := json.Marshal(text)
	return `{"id":"up-1","object":"chat.completion.chunk","created":1755137933,"model":"m","choices":[{"index":0,"delta":{"content":` + string(b) + `},"finish_reason":null}]}`
}

const (
	chunkEnd   = `{"id":"up-1","object":"chat.completion.chunk","created":1755137933,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	chunkUsage = `{"id":"up-1","object":"chat.completion.chunk","created":1755137933,"model":"m","choices":[],"usage":{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12}}`
	wholeReply = `{"id":"up-1","object":"chat.completion","created":1755137933,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hello there"},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12}}`
	done       = "[DONE]"
)

// A gateway is a Handler over an upstream Backend, with everything around it
// watched.
type gateway struct {
	*httptest.Server
	t       testing.TB
	backend *upstream.Backend
	usage   *memory.UsageStore
	log     *logBuffer

	mu    sync.Mutex
	ended []*llmhttp.RequestSummary
}

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

// newGateway returns a gateway to the server at base. When the test is over,
// nothing may be left of it, and its log must not tell what nobody may learn.
func newGateway(t testing.TB, base string, opts *upstream.Options, change ...func(*llmhttp.Options)) *gateway {
	t.Helper()
	if opts == nil {
		opts = new(upstream.Options)
	}
	if opts.Key == "" && opts.KeyFunc == nil {
		opts.Key = serverKey
	}
	b, err := upstream.New(base, opts)
	require.NoError(t, err)
	g := &gateway{t: t, backend: b, usage: memory.NewUsageStore(), log: new(logBuffer)}
	hopts := &llmhttp.Options{
		Usage: g.usage, Logger: slog.New(slog.NewJSONHandler(g.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Observe: func(ctx context.Context, _ *http.Request) (context.Context, func(*llmhttp.RequestSummary)) {
			return ctx, func(e *llmhttp.RequestSummary) {
				g.mu.Lock()
				defer g.mu.Unlock()
				g.ended = append(g.ended, e)
			}
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
	g.Server = httptest.NewServer(llmhttp.NewHandler(b, keys, hopts))
	host := strings.TrimSuffix(strings.TrimPrefix(base, "http://"), "/v1")
	t.Cleanup(func() {
		g.Close()
		b.CloseIdleConnections()
		g.keeps("the log", g.log.String(), host)
		for _, e := range g.exchanges() {
			if e.Err != nil {
				g.keeps("an error", e.Err.Error(), host)
			}
		}
	})
	return g
}

// keeps checks that text does not tell what nobody may learn.
func (g *gateway) keeps(what, text, host string) {
	g.t.Helper()
	for _, secret := range []string{clientKey, serverKey, host, "127.0.0.1"} {
		assert.NotContains(g.t, text, secret, what)
	}
}

func (g *gateway) exchanges() []*llmhttp.RequestSummary {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]*llmhttp.RequestSummary(nil), g.ended...)
}

// only waits for the one exchange there was, and returns it.
func (g *gateway) only() *llmhttp.RequestSummary {
	g.t.Helper()
	await(g.t, "the exchange", func() bool { return len(g.exchanges()) > 0 })
	list := g.exchanges()
	require.Len(g.t, list, 1)
	return list[0]
}

// used returns what was recorded, once all exchanges have ended.
func (g *gateway) used(requests int) llmhttp.UsageSum {
	g.t.Helper()
	await(g.t, "the exchanges", func() bool { return len(g.exchanges()) >= requests })
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
		r.Header.Set("Content-Type", "application/json")
	}
	return r
}

// An answer is what the client got.
type answer struct {
	*http.Response
	body string
	err  error // of reading the body
}

func (g *gateway) do(method, path, body string) answer {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	resp, err := g.Client().Do(g.request(ctx, method, path, body))
	require.NoError(g.t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answer{resp, string(b), err}
}

const (
	chatPath  = "/v1/chat/completions"
	askWhole  = `{"model":"m","messages":[{"role":"user","content":"Hello?"}]}`
	askStream = `{"model":"m","messages":[{"role":"user","content":"Hello?"}],"stream":true}`
	askUsage  = `{"model":"m","messages":[{"role":"user","content":"Hello?"}],"stream":true,"stream_options":{"include_usage":true}}`
)

func (g *gateway) chat(body string) answer { g.t.Helper(); return g.do("POST", chatPath, body) }

// quiet is a logger that nobody reads.
var quiet = slog.New(slog.DiscardHandler)

// frames returns the data of the events of a stream.
func frames(t testing.TB, body string) (list []string) {
	t.Helper()
	for _, event := range strings.Split(strings.TrimSuffix(body, "\n\n"), "\n\n") {
		data, ok := strings.CutPrefix(event, "data: ")
		require.True(t, ok, "%q", event)
		list = append(list, data)
	}
	return list
}

// textOf joins the content of a stream.
func textOf(t testing.TB, body string) (text, reason string) {
	t.Helper()
	for _, f := range frames(t, body) {
		var c llmhttp.ChatChunk
		if f == done || strings.HasPrefix(f, `{"error":`) {
			continue
		}
		require.NoError(t, json.Unmarshal([]byte(f), &c), "%s", f)
		for _, choice := range c.Choices {
			text += choice.Delta.Content
			reason += string(choice.FinishReason)
		}
	}
	return text, reason
}

// wantError checks that the answer is an error, and returns it.
func (a answer) wantError(t testing.TB, status int) apiError {
	t.Helper()
	require.NoError(t, a.err)
	require.Equal(t, status, a.StatusCode, "%s", a.body)
	return readError(t, a.body)
}

type apiError struct{ Message, Type, Param, Code string }

func readError(t testing.TB, body string) apiError {
	t.Helper()
	var v struct {
		Error struct {
			Message, Type string
			Param, Code   *string
		}
	}
	require.NoError(t, json.Unmarshal([]byte(body), &v), "%s", body)
	e := apiError{Message: v.Error.Message, Type: v.Error.Type}
	if v.Error.Param != nil {
		e.Param = *v.Error.Param
	}
	if v.Error.Code != nil {
		e.Code = *v.Error.Code
	}
	return e
}
