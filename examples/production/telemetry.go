package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	prometheusexporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/llmhttp/llmhttp/otelllm"
)

// A telemetry exports spans and metrics: metrics on an address for Prometheus, and
// both by OTLP if the standard variables OTEL_* of the environment say so.
type telemetry struct {
	*otelllm.Telemetry
	tracers  *sdktrace.TracerProvider
	meters   *sdkmetric.MeterProvider
	registry *prometheus.Registry
}

// newTelemetry returns a telemetry. OTEL_TRACES_SAMPLER and similar variables are
// read by the SDK.
func newTelemetry(ctx context.Context, opts otelllm.Options) (*telemetry, error) {
	res, err := resource.New(ctx, resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", "llmhttp")), resource.WithFromEnv())
	if err != nil {
		return nil, err
	}
	t := &telemetry{registry: prometheus.NewRegistry()}
	t.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if t.meters, err = newMeters(ctx, res, t.registry); err != nil {
		return nil, err
	}
	if t.tracers, err = newTracers(ctx, res); err != nil {
		return nil, err
	}
	opts.MeterProvider, opts.TracerProvider = t.meters, t.tracers
	t.Telemetry, err = otelllm.New(&opts)
	return t, err
}

// newMeters returns a MeterProvider whose metrics are in the registry, and are
// exported if the environment says so.
func newMeters(ctx context.Context, res *resource.Resource, registry *prometheus.Registry) (*sdkmetric.MeterProvider, error) {
	pull, err := prometheusexporter.New(prometheusexporter.WithRegisterer(registry), prometheusexporter.WithoutScopeInfo())
	if err != nil {
		return nil, err
	}
	opts := []sdkmetric.Option{sdkmetric.WithResource(res), sdkmetric.WithReader(pull)}
	if exports("METRICS") {
		push, err := autoexport.NewMetricReader(ctx)
		if err != nil {
			return nil, err
		}
		opts = append(opts, sdkmetric.WithReader(push))
	}
	return sdkmetric.NewMeterProvider(opts...), nil
}

// newTracers returns a TracerProvider that samples nothing unless the environment
// says that spans are exported.
func newTracers(ctx context.Context, res *resource.Resource) (*sdktrace.TracerProvider, error) {
	if !exports("TRACES") {
		return sdktrace.NewTracerProvider(sdktrace.WithResource(res), sdktrace.WithSampler(sdktrace.NeverSample())), nil
	}
	exporter, err := autoexport.NewSpanExporter(ctx)
	if err != nil {
		return nil, err
	}
	return sdktrace.NewTracerProvider(sdktrace.WithResource(res), sdktrace.WithBatcher(exporter)), nil
}

// exports reports whether the environment asks for the export of a signal. Without
// these variables the exporters would send to localhost.
func exports(signal string) bool {
	if exporter := os.Getenv("OTEL_" + signal + "_EXPORTER"); exporter != "" {
		return exporter != "none"
	}
	return cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT"), os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT")) != ""
}

// wrap adds the spans of HTTP requests to h. A request that a proxy sent continues the
// trace of its traceparent. Others begin a trace, with a link to theirs: otherwise anybody
// could decide what is sampled, and write into the traces of others. wrap adds no metrics,
// because those have the Host header of clients as an attribute.
func (t *telemetry) wrap(h http.Handler, proxies networks) http.Handler {
	return otelhttp.NewHandler(h, "llmhttp", otelhttp.WithTracerProvider(t.tracers), otelhttp.WithPropagators(propagation.TraceContext{}),
		otelhttp.WithPublicEndpointFn(func(r *http.Request) bool { return !proxies.sent(r) }),
		otelhttp.WithMeterProvider(noop.NewMeterProvider()))
}

// targets returns the addresses of upstreams for the spans of tries. Those that SIGHUP adds later
// have none.
func targets(upstreams map[string]server) map[string]otelllm.Target {
	ports := map[string]int{"http": 80, "https": 443}
	all := make(map[string]otelllm.Target)
	for name, s := range upstreams {
		if u, err := url.Parse(s.config.URL); err == nil {
			port, _ := strconv.Atoi(u.Port()) // 0 without a port
			all[name] = otelllm.Target{Address: u.Hostname(), Port: cmp.Or(port, ports[u.Scheme])}
		}
	}
	return all
}

// A propagator sends the traceparent of a request's context, which is that of the
// span of a try.
type propagator struct{ http.RoundTripper }

func (p propagator) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context()) // a RoundTripper must not modify it
	propagation.TraceContext{}.Inject(r.Context(), propagation.HeaderCarrier(r.Header))
	return p.RoundTripper.RoundTrip(r)
}

// serve serves /metrics on addr until close is called. It does nothing if addr is
// empty.
func (t *telemetry) serve(addr string) (close func() error, err error) {
	if addr == "" {
		return func() error { return nil }, nil
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	slog.Info("serving metrics", "url", "http://"+l.Addr().String()+"/metrics")
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, WriteTimeout: time.Minute}
	go server.Serve(l)
	return server.Close, nil
}

// shutdown exports what is left.
func (t *telemetry) shutdown() {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	if err := errors.Join(t.tracers.Shutdown(ctx), t.meters.Shutdown(ctx)); err != nil {
		slog.Warn("telemetry not exported", "err", err)
	}
}
