// Inside serves the API as a part of a service that has routes, sessions, logs and traces of its own:
// people who are signed in use it from the pages of the service, programs use it with API keys, and
// the console trusts the sign-in of a proxy.
//
//	go run ./examples/inside -log zap
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/rs/cors"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/trace"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/console"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/otelllm"
)

// A service is the program that the API is a part of.
type service struct {
	sessions *sessions
	keys     *memory.KeyStore // a database in production, as the usage
	usage    *memory.UsageStore
	backend  llmhttp.Backend
	logger   *slog.Logger
	tracers  trace.TracerProvider
}

func newService(b llmhttp.Backend, logs slog.Handler, tracers trace.TracerProvider) *service {
	return &service{
		sessions: newSessions(), keys: memory.NewKeyStore("sk-demo"), usage: memory.NewUsageStore(), backend: b,
		logger:  slog.New(otelllm.LogHandler(logs)), // with the trace of the request
		tracers: tracers,
	}
}

// handlers returns all routes of the service, and the Handler of the API for llmhttp.Serve.
func (s *service) handlers() (http.Handler, *llmhttp.Handler, error) {
	telemetry, err := otelllm.New(&otelllm.Options{TracerProvider: s.tracers})
	if err != nil {
		return nil, nil, err
	}
	monitor := console.NewMonitor()
	keys := s.sessions.keyStore(console.NewKeyStore(s.keys))
	api := llmhttp.NewHandler(s.backend, keys, &llmhttp.Options{
		Usage: s.usage, Logger: s.logger,
		Observe: llmhttp.Observers(telemetry.Observe, monitor.Observe, llmhttp.LogRequests(s.logger)),
	})
	admin, err := console.New(s.keys, &console.Options{User: userOfProxy, Usage: s.usage, API: api, Monitor: monitor, Logger: s.logger})
	if err != nil {
		return nil, nil, err
	}
	r := chi.NewRouter()
	r.Use(middleware.Recoverer) // it lets http.ErrAbortHandler pass
	r.Post("/sign-in", s.sessions.signIn)
	r.Mount("/v1", allowPartners(s.sessions.middleware(api)))
	r.Mount("/console", admin)
	return otelhttp.NewHandler(r, "inside", otelhttp.WithTracerProvider(s.tracers)), api, nil
}

// allowPartners lets pages of other origins use the API with a key of their own. Browsers do not
// send them cookies of this service, because AllowCredentials is false.
func allowPartners(next http.Handler) http.Handler {
	return cors.New(cors.Options{
		AllowedOrigins: []string{"https://partner.example.com"},
		AllowedMethods: []string{http.MethodGet, http.MethodPost},
		AllowedHeaders: []string{"*"}, // client libraries send headers of their own
		ExposedHeaders: []string{"X-Request-Id", "Retry-After"},
	}).Handler(next)
}

// userOfProxy returns who uses the console: whom the proxy in front, on the same machine, has signed
// in. Without the check of the address, anybody could send the header.
func userOfProxy(r *http.Request) (console.User, error) {
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	email := r.Header.Get("X-Forwarded-Email")
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() || email == "" {
		return console.User{}, console.ErrNoUser
	}
	return console.User{Name: email, Account: email, Admin: strings.HasSuffix(email, "@ops.example.com")}, nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to listen on")
	kind := flag.String("log", "slog", "the `library` that logs: slog, zap or zerolog")
	flag.Parse()
	if err := run(ctx, *addr, *kind, os.Stderr); err != nil {
		log.Fatal(err)
	}
}

// run serves until ctx is done.
func run(ctx context.Context, addr, kind string, logs io.Writer) error {
	logHandler := logHandlers[kind]
	if logHandler == nil {
		return errors.New("unknown logger " + kind)
	}
	s := newService(memory.Echo(), logHandler(logs), nil)
	routes, api, err := s.handlers()
	l, listenErr := net.Listen("tcp", addr)
	if err := cmp.Or(err, listenErr); err != nil {
		return err
	}
	s.logger.Info("listening", "url", "http://"+l.Addr().String())
	server := &http.Server{Handler: routes, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, WriteTimeout: 5 * time.Minute}
	return llmhttp.Serve(ctx, server, api, nil, l)
}
