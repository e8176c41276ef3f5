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
	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/messages"
	"github.com/llmhttp/llmhttp/responses"
	"github.com/llmhttp/llmhttp/route"
	"github.com/llmhttp/llmhttp/upstream"
	"github.com/llmhttp/llmhttp/usagebuffer"
)

// A simulation is a Handler with its server and clients, whose faults are random but
// determined by a seed, and the state of all requests. Requests are numbered from 0.
type simulation struct {
	seed     uint64
	started  time.Time
	rng      *rand.Rand // of the goroutine that runs the simulation
	requests int
	kind     serverKind
	shutdown bool // the Handler is shut down while requests are in progress

	servers
	quota      atomic.Int64   // in tokens, of each key
	wg         sync.WaitGroup // goroutines of the Backend
	inProgress atomic.Int32   // calls of the Handler
	requestStates
}

// servers are the Handler, the server in front of it and the server behind it.
type servers struct {
	handler   *llmhttp.Handler
	buffer    *usagebuffer.Buffer // between the Handler and the usage store, if there is one
	server    *httptest.Server
	serverLog lockedBuffer
	inner     *httptest.Server // behind the upstream, if there is one
	client    *http.Client
	closers   []func()
}

// requestStates holds what the parts of a simulation have observed.
type requestStates struct {
	mu       sync.Mutex // guards the fields below
	failures []string
	accounts map[string]*requestAccount // by the ID of the request
	conns    map[net.Conn]bool
	inUse    int // requests that hold a place in the limit of concurrent requests
	closing  bool
}

// A requestAccount counts what the parts of a simulation have seen of a request.
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

func newSimulation(seed uint64) *simulation {
	sim := &simulation{seed: seed, started: time.Now(), rng: rand.New(rand.NewPCG(seed, 1))}
	sim.accounts, sim.conns = make(map[string]*requestAccount), make(map[net.Conn]bool)
	sim.kind = serverKind(sim.rng.IntN(int(serverKinds)))
	sim.requests = 20 + sim.rng.IntN(100)
	sim.shutdown = sim.rng.IntN(3) == 0
	return sim
}

// rand returns the random numbers for one purpose of one request.
func (sim *simulation) rand(n int, purpose uint64) *rand.Rand {
	return rand.New(rand.NewPCG(sim.seed+purpose, uint64(n)))
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

func (sim *simulation) fail(format string, args ...any) {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	if len(sim.failures) < 20 {
		sim.failures = append(sim.failures, fmt.Sprintf(format, args...))
	}
}

// account calls f with the account of a request.
func (sim *simulation) account(id string, f func(a *requestAccount)) {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	a := sim.accounts[id]
	if a == nil {
		a = new(requestAccount)
		sim.accounts[id] = a
	}
	f(a)
}

func (sim *simulation) isRecorded(n int) (recorded bool) {
	sim.account(requestID(n), func(a *requestAccount) { recorded = len(a.records) > 0 })
	return recorded
}

// run sends all requests and closes the servers.
func (sim *simulation) run() {
	sim.start()
	var wg sync.WaitGroup
	next := make(chan int)
	for range 1 + sim.rng.IntN(16) {
		wg.Go(func() {
			for n := range next {
				sim.send(n)
			}
		})
	}
	shutdownAt := sim.rng.IntN(sim.requests)
	for n := range sim.requests {
		if sim.shutdown && n == shutdownAt {
			grace := time.Duration(sim.rng.IntN(100)) * time.Millisecond
			wg.Go(func() { sim.shutdownHandler(grace) })
		}
		next <- n
	}
	close(next)
	wg.Wait()
	sim.stop()
}

func (sim *simulation) shutdownHandler(grace time.Duration) {
	sim.mu.Lock()
	sim.closing = true
	sim.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	sim.handler.Shutdown(ctx)
}

func (sim *simulation) isClosing() bool {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	return sim.closing
}

// start starts the servers.
func (sim *simulation) start() {
	backend := sim.newBackend()
	sim.quota.Store(1 << 40)
	sim.handler = llmhttp.NewHandler(&countingBackend{sim, backend}, sim.keys(), &llmhttp.Options{
		Routes:  audio.Routes(nil),
		Usage:   sim.newUsageStore(),
		Limiter: &limiter{sim, llmhttp.NewLimiter()},
		Observe: sim.observe,
		Logger:  slog.New(slog.DiscardHandler),
		Protocols: []llmhttp.Protocol{
			messages.New(nil),
			responses.New(&responses.Options{Store: &responseStore{sim, memory.NewResponseStore()}}),
		},
		RequestID: func(r *http.Request) string { return r.Header.Get("X-Soak") },
		Bounds: llmhttp.Bounds{
			Timeout:      handlerTimeout,
			KeepAlive:    5 * time.Millisecond,
			ReadTimeout:  readTimeout,
			WriteTimeout: 30 * time.Second,
			MaxBody:      maxBody,
		},
	})
	sim.server = sim.newServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		sim.inProgress.Add(1)
		defer sim.inProgress.Add(-1)
		sim.handler.ServeHTTP(rw, r)
	}))
	sim.client = sim.newClient()
}

// newUsageStore returns the usage store, perhaps behind a Buffer.
func (sim *simulation) newUsageStore() llmhttp.UsageStore {
	if sim.rng.IntN(3) != 0 {
		return &usageStore{sim}
	}
	outage := sim.rng.IntN(20)
	store := &bufferedStore{usageStore: usageStore{sim}, rng: rand.New(rand.NewPCG(sim.seed, 2)), outage: outage, end: outage + sim.rng.IntN(20),
		stored: make(map[string]bool)}
	sim.buffer = usagebuffer.New(store, &usagebuffer.Options{
		BatchSize: 1 + sim.rng.IntN(10), Delay: time.Duration(1+sim.rng.IntN(10)) * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	return sim.buffer
}

const (
	handlerTimeout = 500 * time.Millisecond
	readTimeout    = 500 * time.Millisecond
	maxBody        = 1 << 20
)

// newBackend returns the misbehaving Backend, perhaps behind a Router or another
// server.
func (sim *simulation) newBackend() llmhttp.Backend {
	var b llmhttp.Backend = &backend{sim}
	if sim.rng.IntN(4) == 0 {
		b = sim.newUpstream(b)
	}
	if sim.rng.IntN(3) == 0 {
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
func (sim *simulation) newUpstream(b llmhttp.Backend) llmhttp.Backend {
	sim.inner = httptest.NewUnstartedServer(llmhttp.NewHandler(b, llmhttp.AllowAll("inner"), &llmhttp.Options{
		Routes:    audio.Routes(nil),
		RequestID: func(r *http.Request) string { return r.Header.Get("X-Request-Id") },
		Logger:    slog.New(slog.DiscardHandler), Bounds: llmhttp.Bounds{Timeout: handlerTimeout},
	}))
	sim.inner.Config.ErrorLog = log.New(&sim.serverLog, "", 0)
	sim.inner.Start()
	u, err := upstream.New(sim.inner.URL+"/v1", &upstream.Options{IdleTimeout: 300 * time.Millisecond})
	if err != nil {
		panic(err)
	}
	sim.closers = append(sim.closers, u.CloseIdleConnections)
	return u
}

func (sim *simulation) newServer(h http.Handler) *httptest.Server {
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(&sim.serverLog, "", 0)
	s.Config.ConnState = func(c net.Conn, state http.ConnState) {
		sim.mu.Lock()
		defer sim.mu.Unlock()
		if state == http.StateClosed {
			delete(sim.conns, c)
		} else {
			sim.conns[c] = true
		}
	}
	switch sim.kind {
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

func (sim *simulation) newClient() *http.Client {
	if sim.kind == serverHTTP2 {
		return sim.server.Client()
	}
	transport := &http.Transport{}
	if sim.kind == serverH2C {
		transport.Protocols = new(http.Protocols)
		transport.Protocols.SetUnencryptedHTTP2(true)
	}
	sim.closers = append(sim.closers, transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// stop closes everything.
func (sim *simulation) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	sim.checkQuota()
	if err := sim.handler.Shutdown(ctx); err != nil {
		sim.fail("Shutdown after the last request: %v", err)
	}
	if sim.buffer != nil && !eventually(func() bool { return sim.buffer.Close(ctx) == nil }) {
		sim.fail("the Buffer keeps %d records", sim.buffer.Waiting())
	}
	sim.client.CloseIdleConnections()
	sim.server.Close()
	for _, f := range sim.closers {
		f()
	}
	if sim.inner != nil {
		sim.inner.Close()
	}
	sim.wg.Wait()
}

// checkQuota checks that requests that have ended reserve nothing of a quota. It
// does not if the Handler refuses requests, or may have read the usage a second
// time: what is settled meanwhile counts twice until the next read.
func (sim *simulation) checkQuota() {
	const secondRead = 4 * time.Second
	if sim.shutdown || sim.buffer != nil || time.Since(sim.started) > secondRead || !eventually(func() bool { return sim.inProgress.Load() == 0 }) {
		return
	}
	n := sim.requests
	for sim.clientPlan(n).wire != &wires[0] || sim.clientPlan(n).behavior != wellBehaved || !sim.clientPlan(n).mustSucceed() {
		n++
	}
	prompt := 4 + (len(mark(n))+3)/4 // tokens, the least that a chat reserves
	sim.quota.Store(sim.recorded("sk-good") + int64(prompt) - 1)
	if status := sim.probe(n); status != http.StatusTooManyRequests && time.Since(sim.started) < secondRead {
		sim.fail("request %d got status %d beyond the quota", n, status)
	}
	sim.quota.Add(1)
	if status := sim.probe(n); status != http.StatusOK && time.Since(sim.started) < secondRead {
		sim.fail("request %d got status %d within the quota", n, status)
	}
}

// probe sends request n and returns the status of the reply.
func (sim *simulation) probe(n int) int {
	resp, err := sim.client.Do(sim.clientPlan(n).request(context.Background()))
	if err != nil {
		sim.fail("request %d: %v", n, err)
		return 0
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// check checks the final state, after all requests have ended.
func (sim *simulation) check() {
	if !eventually(func() bool { return len(handlerGoroutines()) == 0 }) {
		sim.fail("goroutines are left:\n%s", strings.Join(handlerGoroutines(), "\n\n"))
	}
	sim.mu.Lock()
	conns, inUse := len(sim.conns), sim.inUse
	sim.mu.Unlock()
	if conns > 0 {
		sim.fail("%d connections are left", conns)
	}
	if inUse != 0 {
		sim.fail("%d requests still count as concurrent", inUse)
	}
	if text := sim.serverLog.String(); strings.Contains(text, "panic") || strings.Contains(text, "superfluous") {
		sim.fail("net/http logged: %s", text)
	}
	for id, a := range sim.accounts {
		a.check(func(format string, args ...any) {
			sim.fail("request %s: %s; %s", id, fmt.Sprintf(format, args...), sim.describe(id))
		})
	}
}

// isNotFound reports whether the Backend answered with a 404, which is not
// recorded. In a stream that has begun, the status is 200.
func isNotFound(s *llmhttp.RequestSummary) bool {
	e, ok := errors.AsType[*llm.Error](s.Err)
	return s.Status == http.StatusNotFound || ok && e.Status == http.StatusNotFound
}

// describe describes what the client and the Backend of a request do.
func (sim *simulation) describe(id string) string {
	n, err := strconv.Atoi(strings.TrimPrefix(id, "r"))
	if err != nil {
		return ""
	}
	p := sim.clientPlan(n)
	s := fmt.Sprintf("server %d, %s, stream %v, client behavior %d, Backend behavior %d", sim.kind, p.wire.path, p.stream, p.behavior, sim.script(n).behavior)
	for _, e := range sim.accounts[id].ended {
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
	used := int64(0)
	for _, r := range a.records {
		used += r.Units.Tokens()
		if r.Units.PromptTokens < 0 || r.Units.CompletionTokens < 0 || r.Units.Images < 0 {
			fail("negative usage: %+v", r)
		}
	}
	if int64(a.tokens) != used {
		fail("%d tokens were taken from the limits, and %d recorded", a.tokens, used)
	}
	if a.requests < min(a.backend, 1) || a.requests > 1 {
		fail("%d requests were taken from the limits, and %d calls of the Backend", a.requests, a.backend)
	}
	if len(a.ended) == 1 && len(a.records) == 1 && a.ended[0].Record.Units.Tokens() != used {
		fail("the Observer got %d tokens, and %d were recorded", a.ended[0].Record.Units.Tokens(), used)
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
