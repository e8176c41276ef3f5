package soak

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/messages"
	"github.com/llmhttp/llmhttp/responses"
	"github.com/llmhttp/llmhttp/route"
	"github.com/llmhttp/llmhttp/upstream"
)

// A world is a Handler, its server and its clients, and what is known of the
// requests. Requests are numbered from 0.
type world struct {
	seed     uint64
	started  time.Time
	rng      *rand.Rand // of the goroutine that runs the world
	requests int
	kind     serverKind
	shutdown bool // the Handler is shut down while requests are in progress

	servers
	quota      atomic.Int64   // in tokens, of each key
	wg         sync.WaitGroup // goroutines of the Backend
	inProgress atomic.Int32   // calls of the Handler
	notes
}

// servers are the Handler and what is in front of it and behind it.
type servers struct {
	handler   *llmhttp.Handler
	buffer    *llmhttp.UsageBuffer // between the Handler and the usage store, if there is one
	server    *httptest.Server
	serverLog lockedBuffer
	inner     *httptest.Server // behind the upstream, if there is one
	client    *http.Client
	closers   []func()
}

// notes are what is known of the requests.
type notes struct {
	mu       sync.Mutex // guards the fields below
	failures []string
	accounts map[string]*requestAccount // by the ID of the request
	conns    map[net.Conn]bool
	inUse    int // places among the concurrent requests
	closing  bool
}

// A requestAccount is what the parts of a world have seen of a request.
type requestAccount struct {
	backend  int // calls that are to be recorded
	records  []llmhttp.UsageRecord
	begun    int // calls of the Observer
	ended    []*llmhttp.RequestSummary
	requests int // that were taken from the limits
	tokens   int

	triesBegun, triesEnded int
}

type serverKind int

const (
	serverHTTP1 serverKind = iota
	serverHTTP2
	serverH2C
	serverKinds
)

func newWorld(seed uint64) *world {
	w := &world{seed: seed, started: time.Now(), rng: rand.New(rand.NewPCG(seed, 1))}
	w.accounts, w.conns = make(map[string]*requestAccount), make(map[net.Conn]bool)
	w.kind = serverKind(w.rng.IntN(int(serverKinds)))
	w.requests = 20 + w.rng.IntN(100)
	w.shutdown = w.rng.IntN(3) == 0
	return w
}

// rand returns the random numbers for one purpose of one request.
func (w *world) rand(n int, purpose uint64) *rand.Rand {
	return rand.New(rand.NewPCG(w.seed+purpose, uint64(n)))
}

// The purposes of random numbers.
const (
	forClient = 10 + iota
	forBackend
	forKeys
	forUsage
	forQuota
	forLimiter
	forAdjust
	forAcquire
	forObserver
	forResponses
)

func requestID(n int) string { return "r" + strconv.Itoa(n) }

// number returns the number of the request that ctx belongs to.
func number(ctx context.Context) int {
	n, err := strconv.Atoi(strings.TrimPrefix(llmhttp.RequestIDFrom(ctx), "r"))
	if err != nil {
		panic("the context has no request: " + err.Error())
	}
	return n
}

func (w *world) fail(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.failures) < 20 {
		w.failures = append(w.failures, fmt.Sprintf(format, args...))
	}
}

// account calls f with the account of a request.
func (w *world) account(id string, f func(a *requestAccount)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := w.accounts[id]
	if a == nil {
		a = new(requestAccount)
		w.accounts[id] = a
	}
	f(a)
}

func (w *world) isRecorded(n int) (recorded bool) {
	w.account(requestID(n), func(a *requestAccount) { recorded = len(a.records) > 0 })
	return recorded
}

// run sends all requests and closes the servers.
func (w *world) run() {
	w.start()
	var wg sync.WaitGroup
	next := make(chan int)
	for range 1 + w.rng.IntN(16) {
		wg.Go(func() {
			for n := range next {
				w.send(n)
			}
		})
	}
	shutdownAt := w.rng.IntN(w.requests)
	for n := range w.requests {
		if w.shutdown && n == shutdownAt {
			grace := time.Duration(w.rng.IntN(100)) * time.Millisecond
			wg.Go(func() { w.shutdownHandler(grace) })
		}
		next <- n
	}
	close(next)
	wg.Wait()
	w.stop()
}

func (w *world) shutdownHandler(grace time.Duration) {
	w.mu.Lock()
	w.closing = true
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	w.handler.Shutdown(ctx)
}

func (w *world) isClosing() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closing
}

// start starts the servers.
func (w *world) start() {
	backend := w.newBackend()
	w.quota.Store(1 << 40)
	w.handler = llmhttp.NewHandler(&countingBackend{w, llmhttp.Forwarder{Backend: backend}}, w.keys(), &llmhttp.Options{
		Usage:   w.newUsageStore(),
		Limiter: &limiter{w, llmhttp.NewLimiter()},
		Observe: w.observe,
		Logger:  slog.New(slog.DiscardHandler),
		Protocols: []llmhttp.Protocol{
			messages.New(nil),
			responses.New(&responses.Options{Store: &responseStore{w, memory.NewResponseStore()}}),
		},
		RequestID:    func(r *http.Request) string { return r.Header.Get("X-Soak") },
		Timeout:      handlerTimeout,
		KeepAlive:    5 * time.Millisecond,
		ReadTimeout:  readTimeout,
		WriteTimeout: 30 * time.Second,
		MaxBody:      maxBody,
	})
	w.server = w.newServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.inProgress.Add(1)
		defer w.inProgress.Add(-1)
		w.handler.ServeHTTP(rw, r)
	}))
	w.client = w.newClient()
}

// newUsageStore returns the usage store, perhaps behind a UsageBuffer.
func (w *world) newUsageStore() llmhttp.UsageStore {
	if w.rng.IntN(3) != 0 {
		return &usageStore{w}
	}
	outage := w.rng.IntN(20)
	store := &bufferedStore{usageStore: usageStore{w}, rng: rand.New(rand.NewPCG(w.seed, 2)), outage: outage, end: outage + w.rng.IntN(20),
		stored: make(map[string]bool)}
	w.buffer = llmhttp.NewUsageBuffer(store, 1+w.rng.IntN(10), time.Duration(1+w.rng.IntN(10))*time.Millisecond)
	w.buffer.Logger = slog.New(slog.DiscardHandler)
	return w.buffer
}

const (
	handlerTimeout = 500 * time.Millisecond
	readTimeout    = 500 * time.Millisecond
	maxBody        = 1 << 20
)

// newBackend returns the misbehaving Backend, perhaps behind a Router or another
// server.
func (w *world) newBackend() llmhttp.Backend {
	var b llmhttp.Backend = &backend{w}
	if w.rng.IntN(4) == 0 {
		b = w.newUpstream(b)
	}
	if w.rng.IntN(3) == 0 {
		r, err := route.New([]route.Route{{Model: "*", Targets: []route.Target{{Name: "first", Backend: b}, {Name: "second", Backend: b, Weight: 3}}}},
			&route.Options{Tries: 3, Backoff: 5 * time.Millisecond, TryTimeout: 200 * time.Millisecond, OpenFor: 20 * time.Millisecond, Failures: 3,
				Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			panic(err)
		}
		b = r
	}
	return b
}

// newUpstream returns a Backend that forwards to another server with b.
func (w *world) newUpstream(b llmhttp.Backend) llmhttp.Backend {
	w.inner = httptest.NewUnstartedServer(llmhttp.NewHandler(b, llmhttp.AllowAll("inner"), &llmhttp.Options{
		RequestID: func(r *http.Request) string { return r.Header.Get("X-Request-Id") },
		Logger:    slog.New(slog.DiscardHandler), Timeout: handlerTimeout,
	}))
	w.inner.Config.ErrorLog = log.New(&w.serverLog, "", 0)
	w.inner.Start()
	u, err := upstream.New(w.inner.URL+"/v1", &upstream.Options{IdleTimeout: 300 * time.Millisecond})
	if err != nil {
		panic(err)
	}
	w.closers = append(w.closers, u.CloseIdleConnections)
	return u
}

func (w *world) newServer(h http.Handler) *httptest.Server {
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(&w.serverLog, "", 0)
	s.Config.ConnState = func(c net.Conn, state http.ConnState) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if state == http.StateClosed {
			delete(w.conns, c)
		} else {
			w.conns[c] = true
		}
	}
	switch w.kind {
	case serverHTTP2:
		s.EnableHTTP2 = true
		s.StartTLS()
	case serverH2C:
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetHTTP1(true)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
		s.Start()
	default:
		s.Start()
	}
	return s
}

func (w *world) newClient() *http.Client {
	if w.kind == serverHTTP2 {
		return w.server.Client()
	}
	transport := &http.Transport{}
	if w.kind == serverH2C {
		transport.Protocols = new(http.Protocols)
		transport.Protocols.SetUnencryptedHTTP2(true)
	}
	w.closers = append(w.closers, transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// stop closes everything.
func (w *world) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	w.checkQuota()
	if err := w.handler.Shutdown(ctx); err != nil {
		w.fail("Shutdown after the last request: %v", err)
	}
	if w.buffer != nil && !eventually(func() bool { return w.buffer.Close(ctx) == nil }) {
		w.fail("the UsageBuffer keeps %d records", w.buffer.Waiting())
	}
	w.client.CloseIdleConnections()
	w.server.Close()
	for _, f := range w.closers {
		f()
	}
	if w.inner != nil {
		w.inner.Close()
	}
	w.wg.Wait()
}

// checkQuota checks that requests that have ended reserve nothing of a quota. It
// does not if the Handler refuses requests, or may have read the usage a second
// time: what is settled meanwhile counts twice until the next read.
func (w *world) checkQuota() {
	const secondRead = 4 * time.Second
	if w.shutdown || w.buffer != nil || time.Since(w.started) > secondRead || !eventually(func() bool { return w.inProgress.Load() == 0 }) {
		return
	}
	n := w.requests
	for w.clientPlan(n).wire != &wires[0] || w.clientPlan(n).manner != polite || !w.clientPlan(n).mustSucceed() {
		n++
	}
	prompt := 4 + (len(mark(n))+3)/4 // tokens, the least that a chat reserves
	w.quota.Store(int64(w.recorded("sk-good") + prompt - 1))
	if status := w.probe(n); status != http.StatusTooManyRequests && time.Since(w.started) < secondRead {
		w.fail("request %d got status %d beyond the quota", n, status)
	}
	w.quota.Add(1)
	if status := w.probe(n); status != http.StatusOK && time.Since(w.started) < secondRead {
		w.fail("request %d got status %d within the quota", n, status)
	}
}

// probe sends request n and returns the status of the reply.
func (w *world) probe(n int) int {
	resp, err := w.client.Do(w.clientPlan(n).request(context.Background()))
	if err != nil {
		w.fail("request %d: %v", n, err)
		return 0
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// check checks what must be true when all requests have ended.
func (w *world) check() {
	if !eventually(func() bool { return len(handlerGoroutines()) == 0 }) {
		w.fail("goroutines are left:\n%s", strings.Join(handlerGoroutines(), "\n\n"))
	}
	w.mu.Lock()
	conns, inUse := len(w.conns), w.inUse
	w.mu.Unlock()
	if conns > 0 {
		w.fail("%d connections are left", conns)
	}
	if inUse != 0 {
		w.fail("%d requests still count as concurrent", inUse)
	}
	if text := w.serverLog.String(); strings.Contains(text, "panic") || strings.Contains(text, "superfluous") {
		w.fail("net/http logged: %s", text)
	}
	for id, a := range w.accounts {
		a.check(func(format string, args ...any) {
			w.fail("request %s: %s; %s", id, fmt.Sprintf(format, args...), w.describe(id))
		})
	}
}

// isNotFound reports whether the Backend answered with a 404, which is not
// recorded. In a stream that has begun, the status is 200.
func isNotFound(s *llmhttp.RequestSummary) bool {
	e, ok := errors.AsType[*llmhttp.Error](s.Err)
	return s.Status == http.StatusNotFound || ok && e.Status == http.StatusNotFound
}

// describe says what the client and the Backend of a request do.
func (w *world) describe(id string) string {
	n, err := strconv.Atoi(strings.TrimPrefix(id, "r"))
	if err != nil {
		return ""
	}
	p := w.clientPlan(n)
	s := fmt.Sprintf("server %d, %s, stream %v, manner %d, behavior %d", w.kind, p.wire.path, p.stream, p.manner, w.script(n).behavior)
	for _, e := range w.accounts[id].ended {
		s += fmt.Sprintf(", status %d, error %v", e.Status, e.Err)
	}
	return s
}

func (a *requestAccount) check(fail func(format string, args ...any)) {
	if a.begun != len(a.ended) {
		fail("the Observer began %d times and ended %d times", a.begun, len(a.ended))
	}
	if a.triesBegun != a.triesEnded {
		fail("the Observer saw %d tries begin and %d end", a.triesBegun, a.triesEnded)
	}
	notFound := len(a.ended) == 0 || isNotFound(a.ended[0]) // some Observers are not told how a request ends
	if want := min(a.backend, 1); len(a.records) != want && !(notFound && len(a.records) == 0) {
		fail("%d records, want %d: %+v", len(a.records), want, a.records)
	}
	used := 0
	for _, r := range a.records {
		used += r.Usage.TotalTokens
		if r.Usage.PromptTokens < 0 || r.Usage.CompletionTokens < 0 || r.Images < 0 {
			fail("negative usage: %+v", r)
		}
	}
	if a.tokens != used {
		fail("%d tokens were taken from the limits, and %d recorded", a.tokens, used)
	}
	if a.requests < min(a.backend, 1) || a.requests > 1 {
		fail("%d requests were taken from the limits, and %d calls of the Backend", a.requests, a.backend)
	}
	if len(a.ended) == 1 && len(a.records) == 1 && a.ended[0].Usage.TotalTokens != used {
		fail("the Observer got %d tokens, and %d were recorded", a.ended[0].Usage.TotalTokens, used)
	}
}

// A lockedBuffer may be written to concurrently.
type lockedBuffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if os.Getenv("SOAK_LOG") != "" {
		io.Writer(os.Stderr).Write(p)
	}
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
