package llmhttp_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/all"
	"github.com/llmhttp/llmhttp/internal/endpointtest"
)

// A config describes a test server. The zero value is ready to use.
type config struct {
	backend llmhttp.Backend  // nil means a stubBackend
	keys    llmhttp.KeyStore // nil means testKey
	opts    llmhttp.Options  // Observe is called beside the server's own Observer
	usage   *usageLog        // nil means a new one
	wrap    func(http.Handler) http.Handler
	server  func(*http.Server) // changes the server before it starts
	http2   bool               // the client speaks HTTP/2
}

// A testServer is a Handler in an HTTP server, with a client. It keeps the log, the usage
// records and the summaries of the Handler.
type testServer struct {
	t         testing.TB
	handler   *llmhttp.Handler
	wrapped   http.Handler // handler and the middleware around it
	url       string
	client    *http.Client
	connect   func() (net.Conn, error)
	inBubble  bool // connections are pipes, and the clock is synctest's
	log       *logBuffer
	observer  *summaryLog
	usage     *usageLog
	configure func(*http.Server)
}

// newHandler makes a testServer without a server, whose handler is to be called directly.
func newHandler(t testing.TB, c config) *testServer {
	s := &testServer{t: t, log: new(logBuffer), observer: new(summaryLog), usage: c.usage, configure: c.server}
	if s.usage == nil {
		s.usage = new(usageLog)
	}
	if c.backend == nil {
		c.backend = new(stubBackend)
	}
	if c.keys == nil {
		c.keys = keysFor(testKey())
	}
	if c.opts.Logger == nil {
		c.opts.Logger = slog.New(slog.NewJSONHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	if c.opts.Usage == nil {
		c.opts.Usage = s.usage
	}
	if c.opts.Routes == nil {
		c.opts.Routes = all.Routes(nil)
	}
	c.opts.Observe = llmhttp.Observers(s.observer.observe, c.opts.Observe)
	s.handler = llmhttp.NewHandler(c.backend, c.keys, &c.opts)
	s.wrapped = s.handler
	if c.wrap != nil {
		s.wrapped = c.wrap(s.handler)
	}
	return s
}

// setUp prepares srv to serve s.
func (s *testServer) setUp(srv *http.Server) {
	srv.Handler = s.wrapped
	srv.ErrorLog = slog.NewLogLogger(slog.NewJSONHandler(s.log, nil), slog.LevelError)
	if s.configure != nil {
		s.configure(srv)
	}
}

// startServer starts a server on the loopback interface, which ends with t.
func startServer(t testing.TB, c config) *testServer {
	t.Helper()
	s := newHandler(t, c)
	srv := httptest.NewUnstartedServer(nil)
	s.setUp(srv.Config)
	if c.http2 {
		srv.EnableHTTP2 = true
		srv.StartTLS()
	} else {
		srv.Start()
	}
	t.Cleanup(srv.Close)
	s.url, s.client = srv.URL, srv.Client()
	s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	s.connect = func() (net.Conn, error) { return net.Dial("tcp", srv.Listener.Addr().String()) }
	return s
}

// startPipeServer is like startServer, but for tests in a synctest bubble: its
// connections are pipes, which hold no data, and its HTTP/2 is not encrypted.
func startPipeServer(t testing.TB, c config) *testServer {
	t.Helper()
	s := newHandler(t, c)
	s.inBubble = true
	l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	srv := &http.Server{Protocols: new(http.Protocols)}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	s.setUp(srv)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	t.Cleanup(func() {
		srv.Close()
		assert.ErrorIs(t, <-served, http.ErrServerClosed)
	})
	transport := &http.Transport{
		DialContext:        func(context.Context, string, string) (net.Conn, error) { return l.dial() },
		Protocols:          new(http.Protocols),
		DisableCompression: true,
	}
	transport.Protocols.SetHTTP1(!c.http2)
	transport.Protocols.SetUnencryptedHTTP2(c.http2)
	t.Cleanup(transport.CloseIdleConnections)
	s.url, s.client, s.connect = "http://localhost", &http.Client{Transport: transport}, l.dial
	return s
}

// A pipeListener accepts the connections that dial makes.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *pipeListener) dial() (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

// A requestOption changes a request before it is sent.
type requestOption func(*http.Request)

// withHeader sets a header.
func withHeader(name, value string) requestOption {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

// withSecret sends another API key.
func withSecret(secret string) requestOption { return withHeader("Authorization", "Bearer "+secret) }

// withoutKey sends no API key.
func withoutKey(r *http.Request) { r.Header.Del("Authorization") }

// chunked sends the body without a Content-Length.
func chunked(r *http.Request) { r.ContentLength = -1 }

// open sends a request and returns as soon as the head of the reply has come.
func (s *testServer) open(ctx context.Context, method, path, body string, options ...requestOption) (*http.Response, error) {
	// net/http writes a strings.Reader together with the header. A body in a
	// second write fails on a pipe that the server closes after it refused.
	body, contentType := requestBody(s.t, path, body)
	r, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.GetBody = nil // so that net/http never sends a request twice
	r.Header.Set("Authorization", "Bearer "+testSecret)
	if body != "" {
		r.Header.Set("Content-Type", contentType)
	}
	for _, change := range options {
		change(r)
	}
	return s.client.Do(r)
}

// requestBody returns body, or the form that is made of it if the path is one of forms and body is a
// JSON object, and its Content-Type.
func requestBody(t testing.TB, path, body string) (_, contentType string) {
	t.Helper()
	isForm := slices.Contains([]string{transcriptionsPath, translationsPath, imageEditsPath}, path)
	if isForm && strings.HasPrefix(body, "{") && json.Valid([]byte(body)) {
		return endpointtest.Form(t, body), endpointtest.FormType
	}
	return body, "application/json"
}

// do sends a request and reads the whole reply. It follows no redirect.
func (s *testServer) do(method, path, body string, options ...requestOption) reply {
	s.t.Helper()
	ctx := s.t.Context()
	if !s.inBubble { // where a request may take minutes of the fake clock
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, testTimeout)
		defer cancel()
	}
	resp, err := s.open(ctx, method, path, body, options...)
	require.NoError(s.t, err)
	return readReply(resp)
}

// begin sends a request and returns a channel for its reply.
func (s *testServer) begin(method, path, body string) <-chan reply {
	c := make(chan reply, 1)
	go func() { c <- s.do(method, path, body) }()
	return c
}

// chat posts a chat request and reads the whole reply.
func (s *testServer) chat(body string, options ...requestOption) reply {
	s.t.Helper()
	return s.do(http.MethodPost, chatPath, body, options...)
}

// get gets a path.
func (s *testServer) get(path string, options ...requestOption) reply {
	s.t.Helper()
	return s.do(http.MethodGet, path, "", options...)
}

// dial returns a connection to the server, which is closed when the test ends.
func (s *testServer) dial() net.Conn {
	s.t.Helper()
	c, err := s.connect()
	require.NoError(s.t, err)
	s.t.Cleanup(func() { c.Close() })
	if !s.inBubble {
		require.NoError(s.t, c.SetDeadline(time.Now().Add(testTimeout)))
	}
	return c
}

// send opens a connection and sends a raw request, or the beginning of one.
func (s *testServer) send(request string) net.Conn {
	s.t.Helper()
	c := s.dial()
	_, err := io.WriteString(c, request)
	require.NoError(s.t, err)
	return c
}

// raw sends a raw request and returns all bytes that come back until the server closes
// the connection.
func (s *testServer) raw(request string) string {
	s.t.Helper()
	return readAll(s.t, s.send(request))
}

func readAll(t testing.TB, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	require.NoError(t, err)
	return string(b)
}

// rawPost returns the bytes of a POST request with testSecret.
func rawPost(proto, path, body string, headers ...string) string {
	head := []string{"POST " + path + " " + proto, "Host: x", "Authorization: Bearer " + testSecret,
		"Content-Type: application/json", "Content-Length: " + strconv.Itoa(len(body))}
	return strings.Join(append(head, headers...), "\r\n") + "\r\n\r\n" + body
}

// summaries returns the summary of each request that has ended.
func (s *testServer) summaries() []*llmhttp.RequestSummary {
	s.observer.mu.Lock()
	defer s.observer.mu.Unlock()
	return append([]*llmhttp.RequestSummary(nil), s.observer.ended...)
}

// summary waits for the end of the only request, and returns its summary.
func (s *testServer) summary() *llmhttp.RequestSummary {
	s.t.Helper()
	s.waitForSummaries(1)
	return s.summaries()[0]
}

// waitForSummaries waits until n requests have ended, and fails if there are more.
func (s *testServer) waitForSummaries(n int) {
	s.t.Helper()
	waitFor(s.t, "the end of requests", func() bool { return len(s.summaries()) >= n })
	require.Len(s.t, s.summaries(), n, "the Observer sees each request once")
}

// waitForRequest waits until a request has begun.
func (s *testServer) waitForRequest() {
	s.t.Helper()
	waitFor(s.t, "the request", func() bool {
		s.observer.mu.Lock()
		defer s.observer.mu.Unlock()
		return s.observer.begun > 0
	})
}

// record waits for the only usage record, and returns it.
func (s *testServer) record() llmhttp.UsageRecord {
	s.t.Helper()
	waitFor(s.t, "the usage record", func() bool { return len(s.usage.records()) > 0 })
	records := s.usage.records()
	require.Len(s.t, records, 1, "usage is recorded once")
	return records[0]
}

// shutdown shuts the Handler down, which must succeed: no request is left in progress.
func (s *testServer) shutdown() {
	s.t.Helper()
	require.NoError(s.t, s.handler.Shutdown(s.t.Context()))
}

// newChatRequest returns a request for a Handler that is called directly.
func newChatRequest(body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, chatPath, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+testSecret)
	r.Header.Set("Content-Type", "application/json")
	return r
}

// serve calls h with a chat request, without a network. It reports whether h aborted the
// connection.
func serve(h http.Handler, w http.ResponseWriter, body string) (cut bool) {
	defer func() {
		if p := recover(); p == http.ErrAbortHandler {
			cut = true
		} else if p != nil {
			panic(p)
		}
	}()
	h.ServeHTTP(w, newChatRequest(body))
	return false
}

// A reply is a response whose body was read to its end.
type reply struct {
	*http.Response
	body string
	err  error // of reading the body
}

func readReply(resp *http.Response) reply {
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return reply{resp, string(b), err}
}

// readRest reads the rest of a reply from in. The part that was already read is
// beginning.
func readRest(resp *http.Response, beginning string, in *bufio.Reader) reply {
	defer resp.Body.Close()
	b, err := io.ReadAll(in)
	return reply{resp, beginning + string(b), err}
}

// parseReply parses the raw bytes of a reply.
func parseReply(t testing.TB, method, raw string) reply {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(raw)), &http.Request{Method: method})
	require.NoError(t, err, "%q", raw)
	return readReply(resp)
}

// events returns the data of the events of a stream. See splitEvents.
func (r reply) events(t testing.TB) []string {
	t.Helper()
	events, _, err := splitEvents(r.body)
	require.NoError(t, err, "%s", r.body)
	require.NotEmpty(t, events)
	return events
}

// text joins the content of a stream's first choice, and returns its finish reason.
func (r reply) text(t testing.TB) (text, finishReason string) {
	t.Helper()
	for _, event := range r.events(t) {
		if event == "[DONE]" || strings.HasPrefix(event, `{"error":`) {
			continue
		}
		var chunk struct {
			Choices []struct {
				Index        int
				Delta        struct{ Content string }
				FinishReason string `json:"finish_reason"`
			}
		}
		require.NoError(t, json.Unmarshal([]byte(event), &chunk), "%s", event)
		for _, c := range chunk.Choices {
			if c.Index == 0 {
				text += c.Delta.Content
				finishReason += c.FinishReason
			}
		}
	}
	return text, finishReason
}

// checkText checks that a stream has the text want and ends normally.
func (r reply) checkText(t testing.TB, want string) {
	t.Helper()
	require.NoError(t, r.err)
	assert.Equal(t, http.StatusOK, r.StatusCode)
	text, finishReason := r.text(t)
	assert.Equal(t, want, text)
	assert.Equal(t, "stop", finishReason)
	assert.True(t, strings.HasSuffix(r.body, "\n\ndata: [DONE]\n\n"))
}

// checkCut checks that a stream ends with an error event and a cut connection, and
// returns the error.
func (r reply) checkCut(t testing.TB) apiError {
	t.Helper()
	assert.Equal(t, http.StatusOK, r.StatusCode)
	require.Error(t, r.err, "the connection must be cut")
	if r.ProtoMajor == 1 {
		require.ErrorIs(t, r.err, io.ErrUnexpectedEOF)
	}
	assert.NotContains(t, r.body, "[DONE]")
	_, finishReason := r.text(t)
	assert.Empty(t, finishReason, "a finish reason was invented")
	events := r.events(t)
	return parseError(t, events[len(events)-1])
}

// checkError checks that r is an error in the form of the API, and returns it.
func (r reply) checkError(t testing.TB, status int) apiError {
	t.Helper()
	require.NoError(t, r.err)
	require.Equal(t, status, r.StatusCode, "%s", r.body)
	assert.Equal(t, "application/json", r.Header.Get("Content-Type"))
	assert.Empty(t, r.Header.Get("Location"))
	r.checkHeaders(t)
	return parseError(t, r.body)
}

// checkHeaders checks the headers that every reply has.
func (r reply) checkHeaders(t testing.TB) {
	t.Helper()
	assert.Len(t, r.Header.Values("X-Request-Id"), 1)
	assert.NotEmpty(t, r.Header.Get("X-Request-Id"))
	assert.Regexp(t, `^\d+$`, r.Header.Get("Openai-Processing-Ms"))
}

// An apiError is the error object of the API. An empty Param or Code is null.
type apiError struct{ Message, Type, Param, Code string }

// parseError decodes an error object. It requires that the four members are there, in
// their order, and nothing else.
func parseError(t testing.TB, body string) apiError {
	t.Helper()
	var doc struct{ Error apiError }
	require.NoError(t, json.Unmarshal([]byte(body), &doc), "%s", body)
	e := doc.Error
	require.Equal(t, errorBody(e.Message, e.Type, e.Param, e.Code), body)
	require.NotEmpty(t, e.Message)
	require.NotEmpty(t, e.Type)
	return e
}

// errorBody returns an error object as the Handler writes it.
func errorBody(message, typ, param, code string) string {
	quote := func(s string) string {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(s); err != nil {
			panic(err)
		}
		return strings.TrimSuffix(b.String(), "\n")
	}
	nullable := func(s string) string {
		if s == "" {
			return "null"
		}
		return quote(s)
	}
	return `{"error":{"message":` + quote(message) + `,"type":` + quote(typ) + `,"param":` + nullable(param) + `,"code":` + nullable(code) + `}}`
}

// readUntil reads lines until one contains want, and returns what it has read.
func readUntil(t testing.TB, r *bufio.Reader, want string) string {
	t.Helper()
	var read strings.Builder
	for {
		line, err := r.ReadString('\n')
		read.WriteString(line)
		if strings.Contains(line, want) {
			return read.String()
		}
		require.NoError(t, err, "no %q in %q", want, read.String())
	}
}
