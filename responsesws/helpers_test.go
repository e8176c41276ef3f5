package responsesws_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/responses"
	"github.com/llmhttp/llmhttp/responsesws"
)

// An object is a JSON object.
type object = map[string]any

// A config configures a server.
type config struct {
	chat      func(ctx context.Context, req *llm.ChatRequest) llm.ChatStream // nil repeats the last text
	key       llmhttp.Key
	keys      llmhttp.KeyStore // nil accepts "Bearer sk-test" for key
	opts      llmhttp.Options
	responses *responses.Options
	ws        responsesws.Options
	inner     func(http.Handler) http.Handler // middleware behind the WebSocket; nil for none
	base      context.Context                 // of the http.Server; nil for the background
}

// A server serves a Handler of this package over pipes, for tests in a synctest bubble, and keeps what its Handler
// and its Backend were told.
type server struct {
	t       testing.TB
	api     *llmhttp.Handler
	handler *responsesws.Handler
	http    *http.Server
	client  *http.Client
	pipes   *pipeListener
	log     *logBuffer

	mu        sync.Mutex // guards the fields below
	requests  []*llm.ChatRequest
	infos     []*llmhttp.RequestInfo
	summaries []*llmhttp.RequestSummary
}

// start starts a server that ends with t.
func start(t testing.TB, c config) *server {
	t.Helper()
	s := &server{t: t, log: new(logBuffer)}
	logger := slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if c.chat == nil {
		c.chat = echo
	}
	c.key.ID = "key_1"
	if c.keys == nil {
		c.keys = llmhttp.KeyStoreFunc(func(_ context.Context, secret string) (*llmhttp.Key, error) {
			if secret != "sk-test" {
				return nil, llmhttp.ErrKeyNotFound
			}
			return &c.key, nil
		})
	}
	backend := llmhttp.BackendFunc(func(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
		s.mu.Lock()
		s.requests = append(s.requests, req)
		s.mu.Unlock()
		return c.chat(ctx, req)
	})
	c.opts.Protocols = []llmhttp.Protocol{responses.New(c.responses)}
	c.opts.Logger, c.opts.Observe = logger, s.observe
	s.api = llmhttp.NewHandler(backend, c.keys, &c.opts)
	next := http.Handler(s.api)
	if c.inner != nil {
		next = c.inner(next)
	}
	c.ws.Logger = logger
	s.handler = responsesws.New(next, &c.ws)
	s.pipes = &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	s.http = &http.Server{Handler: s.handler, ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelError)}
	if c.base != nil {
		s.http.BaseContext = func(net.Listener) context.Context { return c.base }
	}
	served := make(chan error, 1)
	go func() { served <- s.http.Serve(s.pipes) }()
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return s.pipes.dial() }}
	s.client = &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		s.http.Close()
		assert.ErrorIs(t, <-served, http.ErrServerClosed)
		done, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.handler.Shutdown(done)
	})
	return s
}

// echo repeats the last text.
func echo(_ context.Context, req *llm.ChatRequest) llm.ChatStream {
	return llm.Reply("You said: " + req.Messages[len(req.Messages)-1].Content.Text())
}

func (s *server) observe(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
	return ctx, llmhttp.Observation{
		Started: func(ctx context.Context, info *llmhttp.RequestInfo) context.Context {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.infos = append(s.infos, info)
			return ctx
		},
		Ended: func(summary *llmhttp.RequestSummary) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.summaries = append(s.summaries, summary)
		},
	}
}

// ended returns the summaries of the requests that have ended, without those of upgrades.
func (s *server) ended() []*llmhttp.RequestSummary {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.summaries), func(r *llmhttp.RequestSummary) bool { return strings.HasPrefix(r.Route, "GET") })
}

// asked returns the texts of the messages of the requests that the Backend got.
func (s *server) asked() (texts [][]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.requests {
		var of []string
		for _, m := range r.Messages {
			of = append(of, m.Content.Text())
		}
		texts = append(texts, of)
	}
	return texts
}

// upgrade asks for a WebSocket, with headers in pairs that replace others.
func (s *server) upgrade(path string, header ...string) (*websocket.Conn, *http.Response, error) {
	h := http.Header{"Authorization": {"Bearer sk-test"}}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	ws, resp, err := websocket.Dial(s.t.Context(), "http://localhost"+path, &websocket.DialOptions{HTTPClient: s.client, HTTPHeader: h})
	if err == nil {
		ws.SetReadLimit(-1)
	}
	return ws, resp, err
}

// dial opens a WebSocket that is closed when the test ends.
func (s *server) dial(header ...string) *client {
	s.t.Helper()
	ws, _, err := s.upgrade("/v1/responses", header...)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = ws.CloseNow() })
	return &client{s.t, ws}
}

// A client is a client of a WebSocket.
type client struct {
	t  testing.TB
	ws *websocket.Conn
}

// send sends a message.
func (c *client) send(message string) {
	c.t.Helper()
	require.NoError(c.t, c.ws.Write(c.t.Context(), websocket.MessageText, []byte(message)))
}

// create sends response.create with members that follow its type.
func (c *client) create(members string) {
	c.t.Helper()
	c.send(`{"type":"response.create","model":"m",` + members + `}`)
}

// receive returns the next message.
func (c *client) receive() object {
	c.t.Helper()
	typ, data, err := c.ws.Read(c.t.Context())
	require.NoError(c.t, err)
	require.Equal(c.t, websocket.MessageText, typ)
	var o object
	require.NoError(c.t, json.Unmarshal(data, &o), "%s", data)
	return o
}

// terminal reads messages until one ends a response or is an error, and returns it.
func (c *client) terminal() object {
	c.t.Helper()
	for {
		o := c.receive()
		switch o["type"] {
		case "response.completed", "response.incomplete", "response.failed", "error":
			return o
		}
	}
}

// complete is terminal for a response that must be completed. It returns the response.
func (c *client) complete() object {
	c.t.Helper()
	o := c.terminal()
	require.Equal(c.t, "response.completed", o["type"], "%v", o)
	return o["response"].(object)
}

// fail is terminal for an error. It returns its status and its code.
func (c *client) fail() (status int, code any) {
	c.t.Helper()
	o := c.terminal()
	require.Equal(c.t, "error", o["type"], "%v", o)
	return int(o["status"].(float64)), o["error"].(object)["code"]
}

// closed reads until the connection is closed, and returns the code.
func (c *client) closed() websocket.StatusCode {
	c.t.Helper()
	for {
		if _, _, err := c.ws.Read(c.t.Context()); err != nil {
			return websocket.CloseStatus(err)
		}
	}
}

// outputText returns the text of a response.
func outputText(response object) (text string) {
	for _, item := range response["output"].([]any) {
		if parts, ok := item.(object)["content"].([]any); ok {
			for _, p := range parts {
				text += p.(object)["text"].(string)
			}
		}
	}
	return text
}

// user returns an input item.
func user(text string) string {
	return `{"type":"message","role":"user","content":"` + text + `"}`
}

// A pipeListener accepts pipes, which hold no data.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

func (l *pipeListener) dial() (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case l.conns <- theirs:
		return ours, nil
	case <-l.closed:
		return nil, errors.New("closed")
	}
}

// A logBuffer holds what was logged.
type logBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// readAll returns a body.
func readAll(t testing.TB, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	require.NoError(t, err)
	return string(b)
}
