package llmhttp_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
)

// fxPatience is how long a test waits for what must come. It is only waited
// out by a test that fails.
const fxPatience = 20 * time.Second

// fxSecret is the API key of fxKey.
const fxSecret = "sk-fixture-5d41402abc4b2a76b9719d91"

func fxKey() llmhttp.Key { return llmhttp.Key{ID: "key_1", Account: "acme"} }

// fxKeys knows fxSecret alone.
func fxKeys(k llmhttp.Key) llmhttp.KeyStore {
	return llmhttp.KeyFunc(func(_ context.Context, secret string) (*llmhttp.Key, error) {
		if secret != fxSecret {
			return nil, llmhttp.ErrKeyNotFound
		}
		return &k, nil
	})
}

// fxLimited is a KeyStore with one key that has limits.
func fxLimited(l llmhttp.Limits) llmhttp.KeyStore {
	k := fxKey()
	k.Limits = l
	return fxKeys(k)
}

// An fxBackend can do everything, as far as its funcs are set.
type fxBackend struct {
	chat   func(context.Context, *llmhttp.ChatRequest) llmhttp.ChatStream
	models func(context.Context) ([]llmhttp.Model, error)
	images func(context.Context, *llmhttp.ImageRequest) (*llmhttp.ImageResponse, error)
	sizes  func(context.Context, string) ([]string, error)
	embed  func(context.Context, *llmhttp.EmbeddingRequest) (*llmhttp.EmbeddingResponse, error)
}

func (b *fxBackend) Chat(ctx context.Context, r *llmhttp.ChatRequest) llmhttp.ChatStream {
	if b.chat == nil {
		return llmhttp.Reply("Hello!")
	}
	return b.chat(ctx, r)
}

func (b *fxBackend) ListModels(ctx context.Context) ([]llmhttp.Model, error) {
	if b.models == nil {
		return []llmhttp.Model{
			{ID: "demo-chat", Created: 1686935002, OwnedBy: "acme"},
			{ID: "hf.co/u/Q:Q4", Created: 1686935003, OwnedBy: "acme"},
		}, nil
	}
	return b.models(ctx)
}

func (b *fxBackend) GenerateImages(ctx context.Context, r *llmhttp.ImageRequest) (*llmhttp.ImageResponse, error) {
	if b.images == nil {
		resp := &llmhttp.ImageResponse{}
		for range r.Count() {
			resp.Data = append(resp.Data, llmhttp.Image{Data: []byte("\x89PNG\r\n\x1a\nrest")})
		}
		return resp, nil
	}
	return b.images(ctx, r)
}

func (b *fxBackend) ImageSizes(ctx context.Context, model string) ([]string, error) {
	if b.sizes == nil {
		return nil, nil
	}
	return b.sizes(ctx, model)
}

func (b *fxBackend) Embed(ctx context.Context, r *llmhttp.EmbeddingRequest) (*llmhttp.EmbeddingResponse, error) {
	if b.embed != nil {
		return b.embed(ctx, r)
	}
	n := r.Input.Len()
	resp := &llmhttp.EmbeddingResponse{Usage: &llmhttp.Usage{PromptTokens: 8}}
	for range n {
		resp.Vectors = append(resp.Vectors, []float32{0.25, -1, 3.5e-7})
	}
	return resp, nil
}

// fxChat is a Backend that only chats.
func fxChat(f func(ctx context.Context, yield func(*llmhttp.ChatChunk, error) bool)) llmhttp.Backend {
	return llmhttp.BackendFunc(func(ctx context.Context, _ *llmhttp.ChatRequest) llmhttp.ChatStream {
		return func(yield func(*llmhttp.ChatChunk, error) bool) { f(ctx, yield) }
	})
}

// An fxLog is a Logger's output.
type fxLog struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *fxLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *fxLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *fxLog) logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// An fxObserver keeps every Exchange.
type fxObserver struct {
	mu    sync.Mutex
	begun int
	ended []*llmhttp.RequestSummary
}

func (o *fxObserver) observe(ctx context.Context, _ *http.Request) (context.Context, func(*llmhttp.RequestSummary)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.begun++
	return ctx, func(e *llmhttp.RequestSummary) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.ended = append(o.ended, e)
	}
}

func (o *fxObserver) exchanges() []*llmhttp.RequestSummary {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]*llmhttp.RequestSummary(nil), o.ended...)
}

// only waits for the one exchange there was, and returns it.
func (o *fxObserver) only(t testing.TB) *llmhttp.RequestSummary {
	t.Helper()
	fxAwait(t, "the Exchange", func() bool { return len(o.exchanges()) > 0 })
	list := o.exchanges()
	require.Len(t, list, 1, "the Observer is told once")
	return list[0]
}

// An fxUsage is a UsageStore that keeps what it is given.
type fxUsage struct {
	before func(ctx context.Context) error // called before a record is kept

	mu      sync.Mutex
	calls   int
	records []llmhttp.UsageRecord
	queries []llmhttp.UsageQuery
	sums    []llmhttp.UsageSum
}

func (u *fxUsage) Record(ctx context.Context, records ...llmhttp.UsageRecord) error {
	u.mu.Lock()
	u.calls++
	u.mu.Unlock()
	if u.before != nil {
		if err := u.before(ctx); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.records = append(u.records, records...)
	return nil
}

func (u *fxUsage) Query(_ context.Context, q llmhttp.UsageQuery) ([]llmhttp.UsageSum, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.queries = append(u.queries, q)
	return u.sums, nil
}

func (u *fxUsage) all() []llmhttp.UsageRecord {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]llmhttp.UsageRecord(nil), u.records...)
}

func (u *fxUsage) count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.calls
}

// only waits for the one record there was, and returns it.
func (u *fxUsage) only(t testing.TB) llmhttp.UsageRecord {
	t.Helper()
	fxAwait(t, "the UsageRecord", func() bool { return len(u.all()) > 0 })
	list := u.all()
	require.Len(t, list, 1, "usage is recorded once")
	return list[0]
}

// An fxConfig says how a server is to be. Its zero value is ready to use.
type fxConfig struct {
	backend llmhttp.Backend
	keys    llmhttp.KeyStore
	opts    llmhttp.Options
	usage   *fxUsage
	wrap    func(http.Handler) http.Handler
	server  func(*http.Server)
	http2   bool
}

// An fxServer is a Handler in a server, with everything around it watched.
type fxServer struct {
	*httptest.Server
	t     testing.TB
	h     *llmhttp.Handler
	log   *fxLog
	watch *fxObserver
	usage *fxUsage
}

// fxHandler makes the Handler that c describes.
func fxHandler(c fxConfig) *fxServer {
	s := &fxServer{log: new(fxLog), watch: new(fxObserver), usage: c.usage}
	if s.usage == nil {
		s.usage = new(fxUsage)
	}
	if c.backend == nil {
		c.backend = new(fxBackend)
	}
	if c.keys == nil {
		c.keys = fxKeys(fxKey())
	}
	if c.opts.Logger == nil {
		c.opts.Logger = s.log.logger()
	}
	if c.opts.Usage == nil {
		c.opts.Usage = s.usage
	}
	c.opts.Observe = llmhttp.Observers(s.watch.observe, c.opts.Observe)
	s.h = llmhttp.NewHandler(c.backend, c.keys, &c.opts)
	return s
}

// fxStart starts a server, which ends with the test.
func fxStart(t testing.TB, c fxConfig) *fxServer {
	t.Helper()
	s := fxHandler(c)
	s.t = t
	var handler http.Handler = s.h
	if c.wrap != nil {
		handler = c.wrap(handler)
	}
	s.Server = httptest.NewUnstartedServer(handler)
	s.Config.ErrorLog = slog.NewLogLogger(slog.NewJSONHandler(s.log, nil), slog.LevelError)
	if c.server != nil {
		c.server(s.Config)
	}
	if c.http2 {
		s.EnableHTTP2 = true
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

// An fxReply is what a client got.
type fxReply struct {
	*http.Response
	body string
	err  error // of reading the body
}

type fxMod func(*http.Request)

func fxHeader(name, value string) fxMod {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

// fxChunked sends the body without a Content-Length.
func fxChunked(r *http.Request) { r.ContentLength = -1 }

// fxNoKey sends no key.
func fxNoKey(r *http.Request) { r.Header.Del("Authorization") }

func (s *fxServer) request(ctx context.Context, method, path, body string, mods ...fxMod) *http.Request {
	s.t.Helper()
	var rd io.Reader
	if body != "" {
		rd = struct{ io.Reader }{strings.NewReader(body)}
	}
	r, err := http.NewRequestWithContext(ctx, method, s.URL+path, rd)
	require.NoError(s.t, err)
	r.ContentLength = int64(len(body))
	r.Header.Set("Authorization", "Bearer "+fxSecret)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, m := range mods {
		m(r)
	}
	return r
}

// do sends a request and reads the whole reply. It follows no redirect.
func (s *fxServer) do(method, path, body string, mods ...fxMod) fxReply {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), fxPatience)
	defer cancel()
	client := *s.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := client.Do(s.request(ctx, method, path, body, mods...))
	require.NoError(s.t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return fxReply{resp, string(b), err}
}

func (s *fxServer) chat(body string, mods ...fxMod) fxReply {
	s.t.Helper()
	return s.do(http.MethodPost, "/v1/chat/completions", body, mods...)
}

// open sends a request and returns as soon as the header came.
func (s *fxServer) open(ctx context.Context, method, path, body string, mods ...fxMod) (*http.Response, error) {
	return s.Client().Do(s.request(ctx, method, path, body, mods...))
}

const (
	fxWhole  = `{"model":"demo-chat","messages":[{"role":"user","content":"Hello, how are you?"}]}`
	fxStream = `{"model":"demo-chat","messages":[{"role":"user","content":"Hello, how are you?"}],"stream":true}`
)

// fxMessage is a whole request with one more member.
func fxMember(member string) string {
	return strings.TrimSuffix(fxWhole, "}") + "," + member + "}"
}

// fxErrorBody is the error object of the format, byte for byte.
func fxErrorBody(message, typ, param, code string) string {
	text := func(s string) string {
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
		return text(s)
	}
	return `{"error":{"message":` + text(message) + `,"type":` + text(typ) + `,"param":` + nullable(param) + `,"code":` + nullable(code) + `}}`
}

type fxErrorObject struct {
	Message, Type, Param, Code string
}

// fxError reads an error object strictly: four members, in their order.
func fxError(t testing.TB, body string) fxErrorObject {
	t.Helper()
	var doc struct {
		Error struct {
			Message, Type string
			Param, Code   *string
		}
	}
	require.NoError(t, json.Unmarshal([]byte(body), &doc), "body: %s", body)
	e := fxErrorObject{Message: doc.Error.Message, Type: doc.Error.Type}
	if doc.Error.Param != nil {
		e.Param = *doc.Error.Param
	}
	if doc.Error.Code != nil {
		e.Code = *doc.Error.Code
	}
	require.Equal(t, fxErrorBody(e.Message, e.Type, e.Param, e.Code), body)
	require.NotEmpty(t, e.Message)
	require.NotEmpty(t, e.Type)
	return e
}

// fxCheckHead checks what every reply has.
func fxCheckHead(t testing.TB, r *http.Response) {
	t.Helper()
	assert.NotEmpty(t, r.Header.Get("X-Request-Id"), "x-request-id")
	assert.Regexp(t, `^\d+$`, r.Header.Get("Openai-Processing-Ms"), "openai-processing-ms")
	assert.Len(t, r.Header.Values("X-Request-Id"), 1)
}

// checkError checks that a reply is an error as the format has it.
func (r fxReply) checkError(t testing.TB, status int) fxErrorObject {
	t.Helper()
	require.NoError(t, r.err)
	require.Equal(t, status, r.StatusCode, "body: %s", r.body)
	assert.Equal(t, "application/json", r.Header.Get("Content-Type"))
	assert.Empty(t, r.Header.Get("Location"))
	fxCheckHead(t, r.Response)
	return fxError(t, r.body)
}

// fxFrames returns the data of the events of a stream, which has nothing but
// them, and comments.
func fxFrames(t testing.TB, body string) []string {
	t.Helper()
	var frames []string
	for rest := body; rest != ""; {
		line, after, ok := strings.Cut(rest, "\n")
		require.True(t, ok, "a line is cut: %q", rest)
		rest = after
		if strings.HasPrefix(line, ":") {
			continue
		}
		data, ok := strings.CutPrefix(line, "data: ")
		require.True(t, ok, "not a data line: %q", line)
		rest, ok = strings.CutPrefix(rest, "\n")
		require.True(t, ok, "an event does not end: %q", rest)
		frames = append(frames, data)
	}
	return frames
}

// fxText joins the content of a stream's first choice, and returns its finish
// reason.
func fxText(t testing.TB, frames []string) (text, reason string) {
	t.Helper()
	for _, f := range frames {
		if f == "[DONE]" || strings.HasPrefix(f, `{"error":`) {
			continue
		}
		var c struct {
			Choices []struct {
				Index int
				Delta struct{ Content *string }
				Fin   *string `json:"finish_reason"`
			}
		}
		require.NoError(t, json.Unmarshal([]byte(f), &c), "%s", f)
		for _, choice := range c.Choices {
			if choice.Index != 0 {
				continue
			}
			if choice.Delta.Content != nil {
				text += *choice.Delta.Content
			}
			if choice.Fin != nil {
				reason = *choice.Fin
			}
		}
	}
	return text, reason
}

// fxAwait waits until cond holds.
func fxAwait(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(fxPatience)
	for !cond() {
		if time.Now().After(deadline) {
			require.FailNow(t, "waited too long for "+what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// fxReceive waits for a value.
func fxReceive[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(fxPatience):
		require.FailNow(t, "waited too long for "+what)
		panic("unreachable")
	}
}

// fxNoLeaks fails a test that leaves goroutines of this package, or of a
// server, behind. It is to be called first, so that it looks last.
func fxNoLeaks(t testing.TB) {
	t.Helper()
	t.Cleanup(func() {
		var left []string
		for deadline := time.Now().Add(fxPatience); ; {
			left = left[:0]
			buf := make([]byte, 1<<20)
			buf = buf[:runtime.Stack(buf, true)]
			for i, stack := range strings.Split(string(buf), "\n\n") {
				if i > 0 && (strings.Contains(stack, "github.com/llmhttp/llmhttp.") || strings.Contains(stack, "net/http.(*conn).serve")) &&
					!strings.Contains(stack, "testing.(*T).Run") {
					left = append(left, stack)
				}
			}
			if len(left) == 0 {
				return
			}
			if time.Now().After(deadline) {
				assert.Fail(t, "goroutines left behind", "%s", strings.Join(left, "\n\n"))
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
}

// fxDial returns a raw connection to s.
func (s *fxServer) dial() net.Conn {
	s.t.Helper()
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	require.NoError(s.t, err)
	s.t.Cleanup(func() { c.Close() })
	require.NoError(s.t, c.SetDeadline(time.Now().Add(fxPatience)))
	return c
}

// raw sends bytes, and returns all that comes back until the server closes.
func (s *fxServer) raw(request string) string {
	s.t.Helper()
	c := s.dial()
	_, err := io.WriteString(c, request)
	require.NoError(s.t, err)
	b, err := io.ReadAll(c)
	require.NoError(s.t, err)
	return string(b)
}

// fxParse reads a raw reply.
func fxParse(t testing.TB, method, raw string) fxReply {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(raw)), &http.Request{Method: method})
	require.NoError(t, err, "%q", raw)
	b, err := io.ReadAll(resp.Body)
	return fxReply{resp, string(b), err}
}

// fxPost is a raw request.
func fxPost(proto, path, body string, headers ...string) string {
	h := "POST " + path + " " + proto + "\r\nHost: x\r\nAuthorization: Bearer " + fxSecret + "\r\nContent-Type: application/json\r\n"
	for _, line := range headers {
		h += line + "\r\n"
	}
	return h + "Content-Length: " + itoa(len(body)) + "\r\n\r\n" + body
}

func itoa(n int) string { b, _ := json.Marshal(n); return string(b) }

// An fxPipe is a listener within a synctest bubble: its connections are pipes,
// on which time stands still.
type fxPipe struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *fxPipe) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *fxPipe) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *fxPipe) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// fxServePipe serves a Handler on pipes. It must be called, and the server
// closed, within the bubble.
func fxServePipe(t testing.TB, c fxConfig) (s *fxServer, dial func() net.Conn, done func()) {
	s = fxHandler(c)
	s.t = t
	var handler http.Handler = s.h
	if c.wrap != nil {
		handler = c.wrap(handler)
	}
	l := &fxPipe{conns: make(chan net.Conn), done: make(chan struct{})}
	srv := &http.Server{Handler: handler, ErrorLog: slog.NewLogLogger(slog.NewJSONHandler(s.log, nil), slog.LevelError)}
	if c.server != nil {
		c.server(srv)
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve: %v", err)
		}
	}()
	dial = func() net.Conn {
		a, b := net.Pipe()
		l.conns <- b
		return a
	}
	return s, dial, func() { srv.Close(); <-stopped }
}
