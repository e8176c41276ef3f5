// Production serves models of other servers. Any number of copies behind one
// address share keys and usage in PostgreSQL and limits in Redis. A single copy
// can use SQLite and needs no Redis.
//
//	go run ./examples/production -upstream models=https://models.example.com/v1
//
// Each flag can also be set in the environment: -drain-delay is
// LLMHTTP_DRAIN_DELAY. The API key of an upstream named models is read only from
// LLMHTTP_KEY_MODELS. The command llmhttpctl creates the keys of clients.
//
// SIGTERM and SIGINT end the process after requests in progress. SIGHUP makes it read
// the files of -upstream-file and -prices again. Spans of upstreams that this adds have no
// server.address, because otelllm gets the addresses when the process starts.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/all"
	"github.com/llmhttp/llmhttp/console"
	"github.com/llmhttp/llmhttp/otelllm"
	"github.com/llmhttp/llmhttp/quotawatch"
	"github.com/llmhttp/llmhttp/responsesws"
	"github.com/llmhttp/llmhttp/route"
	"github.com/llmhttp/llmhttp/sqlstore"
	"github.com/llmhttp/llmhttp/usagebuffer"
)

// A config holds the values of the flags.
type config struct {
	addr, metrics, console, dsn, prices, webhook string

	accountMetrics bool

	upstreams    []string // name=URL
	upstreamFile string
	demo         bool
	breaker      route.Options
	redis        redisConfig
	protocols    protocolConfig
	proxies      networks
	bounds       bounds

	keyTTL, keyGrace, usageDelay, keepUsage, drainDelay, drain time.Duration
}

const (
	day              = 24 * time.Hour
	defaultKeepUsage = 400 * day // that of sqlstore
)

func (c *config) addFlags(f *flag.FlagSet) {
	f.StringVar(&c.addr, "addr", "127.0.0.1:8080", "the `address` to listen on")
	f.StringVar(&c.metrics, "metrics", "", "the `address` on which to serve /metrics for Prometheus; it should not be public")
	f.BoolVar(
		&c.accountMetrics,
		"account-metrics",
		false,
		"tell tokens, spend and refusals by account in the metrics, which then have series for each account",
	)
	f.StringVar(
		&c.dsn,
		"dsn",
		"llmhttp.db",
		"the `database` for keys, usage and responses: postgres://user:password@host/database, or the path of a SQLite file",
	)
	f.StringVar(
		&c.redis.url,
		"redis",
		"",
		"the `URL` of Redis for limits: redis://user:password@host:6379/0, redis+cluster://user:password@host:6379?addr=host2:6379, or redis+sentinel://user:password@sentinel:26379/0?master_name=name&addr=sentinel2:26379; without it, each process has its own limits",
	)
	f.BoolVar(
		&c.redis.fallback,
		"redis-fallback",
		false,
		"while Redis is unavailable, use limits per process instead of refusing requests of keys with limits",
	)
	f.DurationVar(&c.redis.timeout, "redis-timeout", 250*time.Millisecond, "the `time` after which Redis counts as unavailable")
	f.Func("upstream", "a server of models, as `name=URL`; can be repeated; requests are balanced over all of them", func(s string) error {
		c.upstreams = append(c.upstreams, strings.Fields(s)...)
		return nil
	})
	f.StringVar(
		&c.upstreamFile,
		"upstream-file",
		"",
		"a JSON `file` with more servers of models, such as {\"upstreams\": [{\"name\": \"spare\", \"url\": \"https://models.example.com/v1\", \"key_file\": \"/run/secrets/spare\"}]}; without key_file, the key is in the environment; the file is read again after SIGHUP",
	)
	f.BoolVar(&c.demo, "demo", false, "serve a model that repeats its input, instead of upstreams")
	f.DurationVar(&c.keyTTL, "key-ttl", 10*time.Second, "the `time` that keys are cached; a key that is revoked elsewhere works that long")
	f.DurationVar(
		&c.keyGrace,
		"key-grace",
		time.Minute,
		"the `time` after key-ttl for which cached keys are served while the database does not answer; a key that is revoked meanwhile works that long",
	)
	c.bounds.addFlags(f)
	f.BoolVar(&c.protocols.messages, "messages", true, "serve Anthropic's Messages API")
	f.BoolVar(&c.protocols.responses, "responses", true, "serve OpenAI's Responses API")
	f.BoolVar(
		&c.protocols.storeResponses,
		"store-responses",
		true,
		"store responses in the database, with what was said in them, so that clients can continue them by ID",
	)
	f.DurationVar(
		&c.protocols.keepResponses,
		"keep-responses",
		30*day,
		"the `time` after which a response is deleted, which counts from when it is stored; negative means never",
	)
	f.StringVar(
		&c.protocols.secretFile,
		"responses-secret-file",
		"",
		"a `file` with the secret that encrypts the reasoning and the summaries which clients of the Responses API send back, at least 32 characters; or LLMHTTP_RESPONSES_SECRET has the secret itself; without one, each process has its own, ignores the reasoning of others, and refuses their summaries",
	)
	f.Var(
		&c.proxies,
		"trusted-proxies",
		"the `addresses` or networks of the load balancers in front of the process, such as 10.0.0.0/8,192.0.2.7; for the log and the console, the client's address is what they append to X-Forwarded-For: without it, all clients behind them share one limit of sign-in attempts; their traceparent is continued: requests from other addresses begin a new trace, with a link",
	)
	f.StringVar(
		&c.console,
		"console",
		"",
		"serve the web console below /console/, with an administrator: `name:hash`, where llmhttpctl hash-password prints the hash",
	)
	f.StringVar(
		&c.prices,
		"prices",
		"",
		"a JSON `file` with the prices of models in US dollars, in the format of package pricing, such as {\"models\": {\"large\": {\"input\": 3, \"cache_read\": 0.3, \"output\": 15}, \"pictures\": {\"image\": 0.04}}, \"default\": {\"input\": 1, \"output\": 5}}: per million tokens, and for each image; it is read again after SIGHUP",
	)
	f.StringVar(
		&c.webhook,
		"quota-webhook",
		"",
		"the `URL` to which a JSON object is posted when a key, an account or an end user has used 80 % and all of its quota: by one of the copies, until the reply is a 2xx; requests are signed as Standard Webhooks describes, with the secret in LLMHTTP_QUOTA_WEBHOOK_SECRET: whsec_ and at least 24 random bytes in base64",
	)
	f.IntVar(
		&c.breaker.Failures,
		"breaker-failures",
		5,
		"the `number` of consecutive failures of an upstream with a model after which it is not asked for that model; negative means that it always is",
	)
	f.DurationVar(&c.breaker.OpenFor, "breaker-open", 10*time.Second, "the `time` until it is asked again")
	f.DurationVar(&c.usageDelay, "usage-delay", time.Second, "the `time` that usage is buffered; a process that is killed loses that usage")
	f.DurationVar(
		&c.keepUsage,
		"keep-usage",
		defaultKeepUsage,
		"the `time` after which the record of a request is deleted, at least 24h, by whole days in UTC; sums by day stay; negative means never",
	)
	f.DurationVar(
		&c.drainDelay,
		"drain-delay",
		5*time.Second,
		"the `time` to accept requests after SIGTERM, until the load balancer has noticed that /readyz fails",
	)
	f.DurationVar(&c.drain, "drain", 10*time.Second, "the `time` after drain-delay in which requests in progress can finish")
}

func main() {
	slog.SetDefault(slog.New(otelllm.LogHandler(slog.NewJSONHandler(os.Stderr, nil))))
	var c config
	c.addFlags(flag.CommandLine)
	flag.Parse()
	err := setFromEnvironment(flag.CommandLine)
	if err == nil {
		err = run(&c)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "production:", err)
		os.Exit(1)
	}
}

// setFromEnvironment sets the flags that are not on the command line from the
// environment.
func setFromEnvironment(flags *flag.FlagSet) (err error) {
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

// storeTimeout limits how long run waits for the last usage to be stored, and for
// the last telemetry to be exported. With the default drain times and the three
// seconds that [llmhttp.Serve] adds to them, a process ends within the 30 s that
// orchestrators usually allow.
const storeTimeout = 5 * time.Second

// run serves until SIGINT or SIGTERM. The deferred calls close what it has opened in reverse order.
func run(c *config) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once

	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	if err := c.bounds.validate(); err != nil {
		return err
	}
	models, err := newModels(c)
	if err != nil {
		return err
	}
	store, err := sqlstore.Open(ctx, c.dsn, &sqlstore.Options{KeyTTL: c.keyTTL, KeyGrace: c.keyGrace, KeepRecords: c.keepUsage})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	health := newHealthChecker(ctx)
	// A key that was read keyTTL before the database failed is served for keyGrace after
	// that. So the process is ready for as long as all keys in use are served.
	health.add("keys", max(c.keyGrace, 0), func(ctx context.Context) error { return tryKey(ctx, store) })

	limiter, closeLimiter, err := c.redis.openLimiter(health)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLimiter()) }()
	usage := usagebuffer.New(store, &usagebuffer.Options{Delay: c.usageDelay})
	health.add("usage", max(c.keyGrace, 0), usage.Check)
	protocols, err := c.protocols.protocols(store)
	if err != nil {
		return err
	}
	if c.protocols.responses && c.protocols.storeResponses {
		health.add("responses", neverUnready, func(ctx context.Context) error { return tryResponse(ctx, store) })
	}

	var background sync.WaitGroup
	health.check(ctx)
	background.Go(func() { health.run(ctx) })
	background.Go(func() { c.prune(ctx, store) })
	background.Go(func() { models.reloadOn(ctx, hangups) })
	defer func() { stop(); background.Wait() }()

	telemetry, err := newTelemetry(ctx, otelllm.Options{
		UsageBuffer: usage, Targets: targets(models.upstreams), Health: health.state, Accounts: c.accountMetrics,
	})
	if err != nil {
		return err
	}
	defer telemetry.shutdown()
	closeMetrics, err := telemetry.serve(c.metrics)
	if err != nil {
		return err
	}
	defer closeMetrics()
	monitor := console.NewMonitor()
	options := &llmhttp.Options{
		Usage: usage, Limiter: limiter, Protocols: protocols, Routes: all.Routes(&c.bounds.files), Bounds: c.bounds.Bounds,
		Observe: llmhttp.Observers(llmhttp.LogRequests(nil), telemetry.Observe, monitor.Observe),
		Accept:  llmhttp.AcceptOptions{Decode: decode},
	}
	if c.prices != "" {
		options.Price = models.price
	}
	if c.webhook != "" {
		hook, err := newWebhook(c.webhook, os.Getenv("LLMHTTP_QUOTA_WEBHOOK_SECRET"))
		if err != nil {
			return err
		}
		watcher := quotawatch.New(usage, hook.quotaReached, nil)
		defer func() { // when the requests have ended, before the store is closed
			ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
			defer cancel()
			_ = watcher.Close(ctx) // what remains is told by another copy
		}()
		options.Observe = llmhttp.Observers(options.Observe, watcher.Observe)
	}
	h := llmhttp.NewHandler(models.backend, console.NewKeyStore(store), options)
	ws := responsesws.New(telemetry.wrap(llmhttp.TrustProxies(h, c.proxies), c.proxies), nil) // a span for each response
	pages, err := c.withConsole(ws, store, models.router, &console.Options{
		Usage: usage, Limiter: limiter, API: h, Monitor: monitor,
	})
	if err != nil {
		return err
	}
	return c.serve(ctx, h, ws, newMux(pages, health), usage)
}

// prune deletes what is older than the flags say, as the store does once an hour, for
// processes that do not live that long.
func (c *config) prune(ctx context.Context, store *sqlstore.Store) {
	var errs [2]error
	if c.keepUsage >= 0 {
		keep := max(cmp.Or(c.keepUsage, defaultKeepUsage), day)
		_, errs[0] = store.Prune(ctx, time.Now().Add(-keep))
	}
	_, errs[1] = store.PruneResponses(ctx)
	if err := errors.Join(errs[:]...); err != nil && ctx.Err() == nil {
		slog.Error("not pruned", "err", err)
	}
}

// tryKey reads a key that does not exist. It returns nil if the database answers.
func tryKey(ctx context.Context, store *sqlstore.Store) error {
	_, err := store.Key(ctx, "key_readyz")
	if errors.Is(err, llmhttp.ErrKeyNotFound) {
		return nil
	}
	return err
}

// newMux returns the routes.
func newMux(h http.Handler, health *healthChecker) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", h) // replies to unknown paths with an error in the format of the API
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "ok") })
	mux.Handle("GET /readyz", health)
	return mux
}

// serve serves routes, which contain h, until ctx is done. Then requests in progress may
// finish.
func (c *config) serve(
	ctx context.Context, h *llmhttp.Handler, ws *responsesws.Handler, routes http.Handler, usage *usagebuffer.Buffer,
) error {
	l, err := net.Listen("tcp", c.addr)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           routes,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       time.Minute,
		WriteTimeout:      5 * time.Minute, // for other handlers; that of llmhttp sets its own deadlines
		IdleTimeout:       2 * time.Minute, // longer than a load balancer's, so that the balancer closes idle connections
		ErrorLog:          slog.NewLogLogger(slog.Default().Handler(), slog.LevelWarn),
	}
	server.RegisterOnShutdown(ws.Drain)
	context.AfterFunc(ctx, func() {
		slog.Info("draining; a second signal ends the process at once", "for_at_most", c.drainDelay+c.drain)
	})
	fmt.Printf("listening on http://%s\n", l.Addr())
	return llmhttp.Serve(ctx, server, h, &llmhttp.ServeOptions{
		Usage: usage, Delay: c.drainDelay,
		DrainTimeout: max(c.drain, 1), // zero would be the default
		FlushTimeout: storeTimeout,
	}, l)
}
