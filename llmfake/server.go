// Server: its options, addresses, environment and end. Functions of a test are called by Server.try,
// so that one that panics fails the test.

package llmfake

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/all"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmfake/simulator"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/messages"
	"github.com/llmhttp/llmhttp/responses"
)

// TB is the part of [testing.TB] that a [Server] uses. *testing.T, *testing.B and *testing.F
// implement it.
type TB interface {
	Helper()
	Name() string
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Failed() bool
	Cleanup(func())
	Setenv(key, value string)
	Output() io.Writer
}

// A Server is a fake of the servers of models, for one test. Create one with [NewServer] or
// [NewReplay]. Its methods may be called concurrently; those that can end the test, as t.Fatalf does,
// only on the goroutine of the test.
//
// A Server serves every format of llmhttp at once, for any model and any API key: chat
// completions, the Responses API, Anthropic's Messages API, embeddings, images, speech and the model
// list. Requests are read by an [llmhttp.Handler], so a request that the real server would
// refuse gets an error with the same status and format.
//
// An image may have any size of at most 4096 pixels a side, except for the models whose sizes the
// vendor lists: names that begin with dall-e-2, dall-e-3 and gpt-image-1 have only those.
type Server struct {
	t         TB
	handler   *llmhttp.Handler
	model     *simulator.Backend
	images    *memory.ImageStore
	imagePath string
	log       *slog.Logger
	replay    *replay         // nil unless NewReplay created the Server
	ctx       context.Context // ends when the Server is closed
	cancel    context.CancelFunc
	running   sync.WaitGroup // requests in progress

	mu       sync.Mutex // guards the fields below
	rules    []*Rule
	queue    Rule // replies that are for any request
	scripted bool // the test has set a reply
	journal  []*Request
	changed  chan struct{} // closed and replaced when a request arrives or ends
	key      string        // the only valid API key; empty if any is
	limits   llmhttp.Limits
	models   []llm.Model // besides those of the simulator
	chaos    *chaosState
	pace     *paceState // nil if there is none
	calls    int        // tool calls that have got an ID
	closed   bool
	loopback *network
	inMemory *network
	problems []string // what Errorf was called with
}

// NewServer returns a Server that ends with the test.
//
// Until the test sets a reply, a simulated model replies: it repeats the user's text, calls
// the tools that it is offered with valid arguments, and makes values for JSON schemas. As
// soon as the test calls [Server.Reply], [Server.Always], [Server.When] or [Server.Load], only
// the replies that it has set are given. A chat request without a reply then fails the test,
// and so does a reply that no request has got when the test ends.
//
// NewServer starts nothing. [Server.URL] listens on the loopback interface. [Server.Client]
// needs no network and works in a bubble of [testing/synctest] if NewServer is called in it.
func NewServer(t TB) *Server {
	s := newServer(t)
	s.closeAtEnd()
	return s
}

// closeAtEnd makes the test close s when it ends.
func (s *Server) closeAtEnd() {
	s.t.Cleanup(func() {
		s.t.Helper()
		s.Close()
		s.logSeeds()
	})
}

// logSeeds logs the seeds of random numbers if the test has failed.
func (s *Server) logSeeds() {
	s.t.Helper()
	s.mu.Lock()
	chaos, pace := s.chaos, s.pace
	s.mu.Unlock()
	if !s.t.Failed() {
		return
	}
	if chaos != nil {
		s.t.Logf("llmfake: the seed of the chaos was %d: set Chaos.Seed to it to repeat the faults", chaos.Seed)
	}
	if pace != nil && pace.Jitter > 0 {
		s.t.Logf("llmfake: the seed of the pace was %d: set Pace.Seed to it to repeat the delays", pace.Seed)
	}
}

func newServer(t TB) *Server {
	s := &Server{
		t:         t,
		model:     simulator.New(),
		images:    memory.NewImageStore("/llmfake/images/"),
		imagePath: "/llmfake/images/",
		changed:   make(chan struct{}),
		log:       slog.New(slog.DiscardHandler),
	}
	var observe llmhttp.Observer
	if _, isBenchmark := t.(interface{ Loop() bool }); !isBenchmark {
		s.log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: withoutTime}))
		observe = withoutProbes(tellingFaults(llmhttp.LogRequests(s.log)))
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.handler = llmhttp.NewHandler(backend{s}, llmhttp.KeyStoreFunc(s.lookup), &llmhttp.Options{
		Routes:    all.Routes(nil),
		Protocols: []llmhttp.Protocol{messages.New(nil), responses.New(&responses.Options{Store: memory.NewResponseStore()})},
		Usage:     memory.NewUsageStore(),
		Estimates: llmhttp.TokenEstimates{TextTokens: simulator.CountTokens},
		ImageURL:  s.imageURL,
		Observe:   observe,
		Logger:    s.log,
		// A web page that finds the server may have what a test may have.
		Accept: llmhttp.AcceptOptions{TrustedOrigins: []string{"*"}},
		Bounds: llmhttp.Bounds{
			KeepAlive: -1, // nothing is sent while a reply waits, and every early error has its status
			Timeout:   -1,
			MaxBody:   maxBody,
		},
	})
	return s
}

// withoutProbes returns an Observer that does not tell o of requests that are only decoded.
func withoutProbes(o llmhttp.Observer) llmhttp.Observer {
	return func(ctx context.Context, r *http.Request) (context.Context, llmhttp.Observation) {
		if exchangeFrom(ctx).isProbe() {
			return ctx, llmhttp.Observation{}
		}
		return o(ctx, r)
	}
}

// simulated is the ErrorClass of requests whose replies the [output] cuts, damages or replaces, in the log.
const simulated llmhttp.ErrorClass = "simulated"

// tellingFaults returns an Observer that tells o of simulated faults as such, and not as errors of the client
// or the server.
func tellingFaults(o llmhttp.Observer) llmhttp.Observer {
	return func(ctx context.Context, r *http.Request) (context.Context, llmhttp.Observation) {
		ctx, observation := o(ctx, r)
		ended := observation.Ended
		observation.Ended = func(s *llmhttp.RequestSummary) {
			if status, ok := exchangeFrom(ctx).out.fault(); ok {
				told := *s
				told.Err, told.ErrorClass, told.Status = nil, simulated, status
				s = &told
			}
			ended(s)
		}
		return ctx, observation
	}
}

func withoutTime(groups []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey && len(groups) == 0 {
		return slog.Attr{}
	}
	return a
}

// lookup implements [llmhttp.KeyStore].
func (s *Server) lookup(ctx context.Context, secret string) (*llmhttp.Key, error) {
	if exchangeFrom(ctx).isProbe() {
		return &llmhttp.Key{ID: "llmfake"}, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if secret == llmhttp.Anonymous || s.key != "" && secret != s.key {
		return nil, llmhttp.ErrKeyNotFound
	}
	return &llmhttp.Key{ID: "llmfake", Limits: s.limits}, nil
}

// RequireKey makes key the only valid API key. Requests with another one get a 401, as
// requests without a key always do.
func (s *Server) RequireKey(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.key = key
}

// Limit sets rate limits, which are enforced as those of a real server: requests beyond them
// get a 429 with Retry-After, and all replies have the headers of the format, such as
// x-ratelimit-remaining-requests. The zero Limits set none. A request that is refused needs no
// reply of the test.
func (s *Server) Limit(l llmhttp.Limits) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limits = l
}

// AddModels adds models to the model list. Requests may name any model, in the list or not.
func (s *Server) AddModels(ids ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addModelsLocked(ids)
}

func (s *Server) addModelsLocked(ids []string) {
	for _, id := range ids {
		s.models = append(s.models, llm.Model{ID: id, Created: 1767225600, OwnedBy: "llmfake"})
	}
}

// imageURL implements the function of [llmhttp.Options].
func (s *Server) imageURL(ctx context.Context, data []byte, mediaType string) (string, error) {
	path, err := s.images.Put(ctx, data, mediaType)
	if err != nil {
		return "", err
	}
	return exchangeFrom(ctx).origin() + path, nil
}

// errorf fails the test, unless the Server is closed.
func (s *Server) errorf(format string, args ...any) {
	s.t.Helper()
	text := fmt.Sprintf(format, args...)
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.problems = append(s.problems, text)
	}
	s.mu.Unlock()
	if !closed {
		s.t.Errorf("llmfake: %s", text)
	}
}

// Close stops the server: it interrupts requests in progress and waits for them. Then it fails
// the test if a reply that the test has set was not asked for. The test calls it when it ends;
// calls after the first do nothing.
func (s *Server) Close() {
	s.t.Helper()
	s.mu.Lock()
	if s.ctx.Err() != nil {
		s.mu.Unlock()
		return
	}
	s.cancel()
	networks := []*network{s.loopback, s.inMemory}
	s.mu.Unlock()
	for _, n := range networks {
		if n != nil {
			n.close()
		}
	}
	s.running.Wait()
	if s.replay != nil {
		s.replay.finish(s)
	}
	if left := s.LeftOver(); left != "" {
		s.errorf("%s", left)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// URL returns the address of the server on the loopback interface, such as
// "http://127.0.0.1:45678". Clients of Anthropic's API have it as their base URL; those of
// OpenAI's need [Server.OpenAIURL]. The first call starts to listen.
//
// In a bubble of [testing/synctest], where the clock stands still while there is a network, it
// ends the test: use [Server.Client] there.
func (s *Server) URL() string {
	s.t.Helper()
	if time.Now().Year() < 2010 { // the clock of a bubble begins in the year 2000
		s.t.Fatalf(
			"llmfake: the loopback interface does not work in a bubble of testing/synctest. Use the method Client, with which clients need no URL.",
		)
		return "http://127.0.0.1:0"
	}
	return s.Listen("127.0.0.1:0")
}

// OpenAIURL returns the base URL for clients of OpenAI's API, which ends in /v1. It calls
// [Server.URL].
func (s *Server) OpenAIURL() string {
	s.t.Helper()
	return s.URL() + "/v1"
}

// Listen is like [Server.URL], but listens on the given TCP address. It has no effect if the
// server listens already.
func (s *Server) Listen(addr string) string {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		s.t.Fatalf("llmfake: the server is closed")
		return ""
	}
	if s.loopback == nil {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			s.t.Fatalf("llmfake: %v", err)
			return ""
		}
		s.loopback = startNetwork(s, l)
	}
	return "http://" + s.loopback.listener.Addr().String()
}

// Client returns an HTTP client for the server. Every request that it sends arrives at the
// server, whatever the scheme and the host of its URL are, and what the path has before /v1/ is
// ignored: with it, a client needs no base URL and cannot reach the network by mistake.
// Connections are in memory, with the semantics of HTTP/1.1.
//
//	client := openai.NewClient(option.WithHTTPClient(srv.Client()), option.WithAPIKey("test"))
//
// Each call returns a new client with the same transport.
func (s *Server) Client() *http.Client { return &http.Client{Transport: s.Transport()} }

// Transport returns the transport of [Server.Client].
func (s *Server) Transport() http.RoundTripper {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return closedTransport{}
	}
	if s.inMemory == nil {
		s.inMemory = startNetwork(s, newPipeListener())
	}
	return s.inMemory.transport
}

// Setenv sets the environment variables from which SDKs and programs read the address of a
// server and its API key, for the time of the test: see [Server.Env]. As with t.Setenv, the
// test must not be parallel. A parallel test passes [Server.URL], [Server.Client] or, to a
// process that it starts, Env.
func (s *Server) Setenv() {
	s.t.Helper()
	for _, v := range s.Env() {
		name, value, _ := strings.Cut(v, "=")
		s.t.Setenv(name, value)
	}
}

// Env returns the variables that [Server.Setenv] sets, in the form of [os/exec.Cmd.Env]:
//
//   - OPENAI_BASE_URL, OPENAI_API_BASE and OPENAI_API_KEY
//   - ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY
//   - NO_PROXY and no_proxy, so that a proxy is not asked for the loopback interface
//   - LLMFAKE_URL, which has the address without a path
//
// While a cassette is recorded, the API keys are not among them, because the real server needs
// real ones.
func (s *Server) Env() []string {
	s.t.Helper()
	return s.EnvFor(s.URL())
}

// EnvFor is like [Server.Env] for a server that clients reach by another URL, because the test
// serves it with an HTTP server of its own.
func (s *Server) EnvFor(url string) []string {
	env := []string{
		"LLMFAKE_URL=" + url, "OPENAI_BASE_URL=" + url + "/v1", "OPENAI_API_BASE=" + url + "/v1", "ANTHROPIC_BASE_URL=" + url,
		"NO_PROXY=127.0.0.1,localhost,::1", "no_proxy=127.0.0.1,localhost,::1",
	}
	if s.replay != nil && s.replay.recording {
		return env
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := cmp.Or(s.key, "sk-llmfake")
	return append(env, "OPENAI_API_KEY="+key, "ANTHROPIC_API_KEY="+key)
}

// Problems returns the texts of the errors with which the Server has failed the test so far,
// for programs that implement [TB] themselves.
func (s *Server) Problems() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.problems...)
}
