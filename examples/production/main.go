// Production serves models of other servers as a fleet would: any number of
// copies behind one address share keys and usage in PostgreSQL and limits in
// Redis. A single one does with SQLite and without Redis.
//
//	go run ./examples/production -upstream models=https://models.example.com/v1
//
// Each flag may be in the environment instead: -drain-delay is
// LLMHTTP_DRAIN_DELAY. The key of the upstream named models is only there, as
// LLMHTTP_KEY_MODELS. The command llmhttpctl makes the keys of clients.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/redislimit"
	"github.com/llmhttp/llmhttp/route"
	"github.com/llmhttp/llmhttp/sqlstore"
	"github.com/llmhttp/llmhttp/upstream"
)

// A config is what the flags say.
type config struct {
	addr, dsn, redis    string
	redisFallback, demo bool
	upstreams           []string

	redisTimeout, keyTTL, usageDelay, drainDelay, drain time.Duration
}

// storeTimeout is how long the last usage may take to be stored. With the
// defaults for draining, a process ends within the 30 s that it usually gets.
const storeTimeout = 5 * time.Second

func main() {
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	var c config
	flag.StringVar(&c.addr, "addr", "127.0.0.1:8080", "`address` to listen on")
	flag.StringVar(&c.dsn, "dsn", "llmhttp.db", "`database` for keys and usage: postgres://user:password@host/database, or a file of SQLite")
	flag.StringVar(&c.redis, "redis", "", "Redis that counts limits: redis://user:password@host:6379/0; without this `URL`, each process counts for itself")
	flag.BoolVar(&c.redisFallback, "redis-fallback", false, "count in each process while Redis is away, instead of refusing requests of keys with limits")
	flag.DurationVar(&c.redisTimeout, "redis-timeout", 250*time.Millisecond, "how `long` Redis may take before it counts as away")
	flag.Func("upstream", "server of models, as `name=URL`; may be given several times, and each is asked for every model", func(s string) error {
		c.upstreams = append(c.upstreams, strings.Fields(s)...)
		return nil
	})
	flag.BoolVar(&c.demo, "demo", false, "serve a model that repeats what it is told, instead of upstreams")
	flag.DurationVar(&c.keyTTL, "key-ttl", 10*time.Second, "how `long` a key that was revoked elsewhere may go on working")
	flag.DurationVar(&c.usageDelay, "usage-delay", time.Second, "how `long` usage is gathered, which is lost if the process is killed")
	flag.DurationVar(&c.drainDelay, "drain-delay", 5*time.Second, "how `long` to serve after SIGTERM, until the balancer has seen /readyz")
	flag.DurationVar(&c.drain, "drain", 15*time.Second, "how `long` requests may go on after that")
	flag.Parse()
	err := environment(flag.CommandLine)
	if err == nil {
		err = run(&c)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "production:", err)
		os.Exit(1)
	}
}

// environment sets flags that were not given, as far as it has them.
func environment(flags *flag.FlagSet) (err error) {
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	given := make(map[string]bool)
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	flags.VisitAll(func(f *flag.Flag) {
		name := "LLMHTTP_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		if value := os.Getenv(name); value != "" && !given[f.Name] {
			if e := f.Value.Set(value); e != nil {
				err = errors.Join(err, fmt.Errorf("%s: %w", name, e))
			}
		}
	})
	return err
}

// run opens what the server needs, serves, and closes it in reverse order.
func run(c *config) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	backend, err := c.backend()
	if err != nil {
		return err
	}

	store, err := sqlstore.Open(ctx, c.dsn, &sqlstore.Options{KeyTTL: c.keyTTL})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	ready := &readiness{checks: []check{{"the database", store.Ping}}}

	var limiter llmhttp.Limiter // if nil, the Handler limits by itself
	if c.redis != "" {
		o, e := redis.ParseURL(c.redis)
		if e != nil { // which may repeat the password
			return errors.New("-redis: not a URL such as redis://user:password@host:6379/0")
		}
		o.ContextTimeoutEnabled = true
		o.DialerRetries = 1 // at once, if it is away
		logging.Disable()   // the limiter logs what matters, and as JSON
		client := redis.NewClient(o)
		defer client.Close()
		var fallback llmhttp.Limiter // if nil, requests are refused while Redis is away
		if c.redisFallback {
			fallback = llmhttp.NewLimiter()
		} else {
			ready.checks = append(ready.checks, check{"Redis", func(ctx context.Context) error { return client.Ping(ctx).Err() }})
		}
		shared := redislimit.New(client, &redislimit.Options{Timeout: c.redisTimeout, Fallback: fallback})
		defer func() { err = errors.Join(err, shared.Close()) }()
		limiter = shared
	}

	usage := llmhttp.NewUsageBuffer(store, 0, c.usageDelay)
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
		defer cancel()
		err = errors.Join(err, usage.Close(ctx))
	}()

	var watching sync.WaitGroup
	ready.look(ctx)
	watching.Go(func() { ready.watch(ctx) })
	defer func() { stop(); watching.Wait() }()

	h := llmhttp.NewHandler(backend, store, &llmhttp.Options{Usage: usage, Limiter: limiter, Observe: observe})
	return c.serve(ctx, h, ready)
}

var upstreamName = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

// backend returns one that asks the upstream with the fewest requests in
// flight, and then the others if that fails or does not know the model.
func (c *config) backend() (llmhttp.Backend, error) {
	switch {
	case c.demo && len(c.upstreams) > 0:
		return nil, errors.New("there must be either -demo or -upstream")
	case c.demo:
		return memory.Echo(), nil
	case len(c.upstreams) == 0:
		return nil, errors.New("no models to serve: name a server of them with -upstream, or give -demo")
	}
	var targets []route.Target
	for i, u := range c.upstreams {
		name, address, _ := strings.Cut(u, "=")
		if !upstreamName.MatchString(name) {
			return nil, fmt.Errorf("-upstream %d is not of the form name=URL, with lower case letters, digits and _ in the name", i+1)
		}
		b, err := upstream.New(address, &upstream.Options{Name: name, Key: os.Getenv("LLMHTTP_KEY_" + strings.ToUpper(name))})
		if err != nil {
			return nil, fmt.Errorf("-upstream %s: %w", name, err)
		}
		targets = append(targets, route.Target{Name: name, Backend: b})
	}
	b, err := route.New([]route.Route{{Model: "*", Strategy: route.LeastInFlight, Targets: targets}}, nil)
	if err != nil {
		return nil, fmt.Errorf("-upstream: %w", err)
	}
	return b, nil
}

// serve serves until ctx is done, and then brings all requests to an end.
func (c *config) serve(ctx context.Context, h *llmhttp.Handler, ready *readiness) error {
	mux := http.NewServeMux()
	mux.Handle("/", h) // the API answers for unknown addresses as well
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if ctx.Err() != nil {
			http.Error(w, "draining", http.StatusServiceUnavailable)
		} else if away := ready.away.Load(); away != nil {
			http.Error(w, away.what+" does not answer", http.StatusServiceUnavailable)
		} else {
			fmt.Fprintln(w, "ok")
		}
	})
	l, err := net.Listen("tcp", c.addr)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 10 * time.Second,
		WriteTimeout:      5 * time.Minute, // of short replies; streams have deadlines of the Handler's
		IdleTimeout:       2 * time.Minute, // longer than balancers keep connections, so that they close them
		ErrorLog:          slog.NewLogLogger(slog.Default().Handler(), slog.LevelWarn),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	fmt.Printf("listening on http://%s\n", l.Addr())

	select {
	case err := <-served:
		return err
	case <-ctx.Done(): // and /readyz says so
	}
	slog.Info("draining")
	time.Sleep(c.drainDelay)
	draining, cancel := context.WithTimeout(context.Background(), c.drain)
	defer cancel()
	if err := h.Shutdown(draining); err != nil {
		slog.Warn("requests were cut", "err", err)
	}
	closing, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := server.Shutdown(closing); err != nil {
		server.Close()
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// A readiness knows whether all that requests need answers. It asks by itself:
// so /readyz is quick, and costs nothing however often it is called.
type readiness struct {
	checks []check
	away   atomic.Pointer[check] // one that fails; nil if none does
}

// A check is whether something answers.
type check struct {
	what string
	ping func(context.Context) error
}

// watch looks every second, until ctx is done.
func (r *readiness) watch(ctx context.Context) {
	for tick := time.Tick(time.Second); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick:
			r.look(ctx)
		}
	}
}

func (r *readiness) look(ctx context.Context) {
	for i := range r.checks {
		c := &r.checks[i]
		asking, cancel := context.WithTimeout(ctx, time.Second)
		err := c.ping(asking)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			if r.away.Swap(c) != c {
				slog.Error("not ready", "away", c.what, "err", err)
			}
			return
		}
	}
	if r.away.Swap(nil) != nil {
		slog.Info("ready")
	}
}

// observe logs a line for each request, with neither secrets nor what was said:
// errors that are the client's fault may quote it, so their texts are not in it.
func observe(ctx context.Context, r *http.Request) (context.Context, func(*llmhttp.RequestSummary)) {
	return ctx, func(x *llmhttp.RequestSummary) {
		attrs := []slog.Attr{
			slog.String("request_id", x.ID), slog.String("key", x.KeyID), slog.String("endpoint", string(x.Endpoint)),
			slog.String("model", x.Model), slog.Int("status", x.Status),
			slog.String("target", x.Target), slog.Int("tries", x.Tries),
			slog.Bool("streamed", x.Streamed), slog.Int("tokens", x.Usage.TotalTokens),
			slog.Int64("first_ms", x.FirstChunk.Milliseconds()), slog.Int64("took_ms", x.Duration.Milliseconds()),
		}
		if x.Err != nil && !isClients(x) {
			attrs = append(attrs, slog.String("err", x.Err.Error()))
		}
		slog.LogAttrs(ctx, slog.LevelInfo, "served", attrs...)
	}
}

// isClients reports whether the error of x is its client's fault. Such a one may
// come in the middle of a stream, whose status is 200.
func isClients(x *llmhttp.RequestSummary) bool {
	status := x.Status
	if e, ok := errors.AsType[*llmhttp.Error](x.Err); ok && e.Status != 0 {
		status = e.Status
	}
	return status >= 400 && status < 499
}
