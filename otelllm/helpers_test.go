package otelllm_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/all"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/otelllm"
)

const (
	chatPath   = "/v1/chat/completions"
	chatBody   = `{"model":"m","messages":[{"role":"user","content":"prompt-marker"}]}`
	streamBody = `{"model":"m","messages":[{"role":"user","content":"prompt-marker"}],"stream":true}`
	secret     = "sk-fixture-5d41402abc4b2a76b9719d91"

	traceID     = "0af7651916cd43dd8448eb211c80319c"
	parentID    = "b7ad6b7169203331"
	traceparent = "00-" + traceID + "-" + parentID + "-01"
)

// A fixture is a Handler behind otelhttp, with exporters in memory.
type fixture struct {
	t       *testing.T
	handler *llmhttp.Handler
	server  *httptest.Server
	spans   *tracetest.InMemoryExporter
	tracers *sdktrace.TracerProvider
	reader  *sdkmetric.ManualReader
	ended   chan *llmhttp.RequestSummary
}

// A config describes a fixture. The zero value is ready to use.
type config struct {
	backend   llmhttp.Backend // nil means one that replies with reply
	key       llmhttp.Key
	opts      llmhttp.Options
	telemetry otelllm.Options
	sampler   sdktrace.Sampler
	bare      bool // without otelhttp
}

func newFixture(t *testing.T, c config) *fixture {
	t.Helper()
	f := &fixture{t: t, spans: tracetest.NewInMemoryExporter(), reader: sdkmetric.NewManualReader(), ended: make(chan *llmhttp.RequestSummary, 100)}
	if c.sampler == nil {
		c.sampler = sdktrace.ParentBased(sdktrace.AlwaysSample())
	}
	f.tracers = sdktrace.NewTracerProvider(sdktrace.WithSyncer(f.spans), sdktrace.WithSampler(c.sampler))
	c.telemetry.TracerProvider = f.tracers
	c.telemetry.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(f.reader))
	telemetry, err := otelllm.New(&c.telemetry)
	require.NoError(t, err)
	if c.backend == nil {
		c.backend = chunks(reply())
	}
	if c.key.ID == "" {
		c.key.ID, c.key.Account = "key_1", "acme"
	}
	keys := llmhttp.KeyStoreFunc(func(_ context.Context, s string) (*llmhttp.Key, error) {
		if s != secret {
			return nil, llmhttp.ErrKeyNotFound
		}
		return &c.key, nil
	})
	if c.opts.Logger == nil {
		c.opts.Logger = slog.New(slog.DiscardHandler)
	}
	signal := func(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
		return ctx, llmhttp.Observation{Ended: func(s *llmhttp.RequestSummary) { f.ended <- s }}
	}
	// The functions for the end are called in reverse order, so signal is the last.
	c.opts.Observe = llmhttp.Observers(signal, telemetry.Observe, c.opts.Observe)
	c.opts.Routes = append(all.Routes(nil), c.opts.Routes...)
	f.handler = llmhttp.NewHandler(c.backend, keys, &c.opts)
	var h http.Handler = f.handler
	if !c.bare {
		h = otelhttp.NewHandler(h, "llmhttp", otelhttp.WithTracerProvider(f.tracers), otelhttp.WithPropagators(propagation.TraceContext{}),
			otelhttp.WithMeterProvider(sdkmetric.NewMeterProvider()))
	}
	f.server = httptest.NewServer(h)
	t.Cleanup(f.server.Close)
	return f
}

// reply returns the chunks of a reply of two tokens, a while after each other.
func reply() []*llm.ChatChunk {
	first, second := llm.TextChunk("reply-"), llm.TextChunk("marker")
	first.ID, first.Model = "reply-1", "m-2026"
	second.Choices[0].FinishReason = llm.FinishStop
	second.Usage = &llm.Usage{PromptTokens: 10, CompletionTokens: 2,
		PromptTokensDetails:     llm.PromptTokensDetails{CachedTokens: 4, CacheWriteTokens: 3},
		CompletionTokensDetails: llm.CompletionTokensDetails{ReasoningTokens: 1}}
	return []*llm.ChatChunk{first, second}
}

// chunks returns a Backend that yields copies of list.
func chunks(list []*llm.ChatChunk) llmhttp.Backend {
	data, err := json.Marshal(list)
	if err != nil {
		panic(err)
	}
	return llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream {
		return func(yield func(*llm.ChatChunk, error) bool) {
			var list []*llm.ChatChunk
			if err := json.Unmarshal(data, &list); err != nil {
				panic(err)
			}
			for _, c := range list {
				if !yield(c, nil) {
					return
				}
			}
		}
	})
}

// backend returns a Backend whose streams are f.
func backend(f func(ctx context.Context, yield func(*llm.ChatChunk, error) bool)) llmhttp.Backend {
	return llmhttp.BackendFunc(func(ctx context.Context, _ *llm.ChatRequest) llm.ChatStream {
		return func(yield func(*llm.ChatChunk, error) bool) { f(ctx, yield) }
	})
}

// send sends a request with the client's traceparent.
func (f *fixture) send(ctx context.Context, method, path, body string, header ...string) (status int, text string, err error) {
	req, err := http.NewRequestWithContext(ctx, method, f.server.URL+path, strings.NewReader(body))
	require.NoError(f.t, err)
	req.Header.Set("Authorization", "Bearer "+secret)
	req.Header.Set("Traceparent", traceparent)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := f.server.Client().Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

// chat sends a chat and returns its summary.
func (f *fixture) chat(body string) *llmhttp.RequestSummary {
	f.t.Helper()
	f.send(f.t.Context(), "POST", chatPath, body)
	return <-f.ended
}

// metrics returns all metrics by their names.
func (f *fixture) metrics() map[string]metricdata.Metrics {
	f.t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(f.t, f.reader.Collect(context.Background(), &all))
	byName := make(map[string]metricdata.Metrics)
	for _, scope := range all.ScopeMetrics {
		assert.Equal(f.t, "https://opentelemetry.io/schemas/1.41.0", scope.Scope.SchemaURL)
		for _, m := range scope.Metrics {
			byName[m.Name] = m
		}
	}
	return byName
}

// A point is a data point of any metric: its attributes, and its sum and, for a
// histogram, its count.
type point struct {
	attrs map[string]any
	sum   float64
	count uint64
}

func points(m metricdata.Metrics) []point {
	var list []point
	add := func(set attribute.Set, sum float64, count uint64) {
		list = append(list, point{attributes(set.ToSlice()), sum, count})
	}
	switch d := m.Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range d.DataPoints {
			add(p.Attributes, float64(p.Value), 0)
		}
	case metricdata.Sum[float64]:
		for _, p := range d.DataPoints {
			add(p.Attributes, p.Value, 0)
		}
	case metricdata.Gauge[int64]:
		for _, p := range d.DataPoints {
			add(p.Attributes, float64(p.Value), 0)
		}
	case metricdata.Histogram[float64]:
		for _, p := range d.DataPoints {
			add(p.Attributes, p.Sum, p.Count)
		}
	case metricdata.Histogram[int64]:
		for _, p := range d.DataPoints {
			add(p.Attributes, float64(p.Sum), p.Count)
		}
	}
	return list
}

func attributes(list []attribute.KeyValue) map[string]any {
	m := make(map[string]any)
	for _, kv := range list {
		m[string(kv.Key)] = kv.Value.AsInterface()
	}
	return m
}

// spansOf returns the spans that ended, by their names, without that of otelhttp,
// which is returned separately. The fixture's server must have no request in progress.
func (f *fixture) spansOf() (http *tracetest.SpanStub, own map[string]tracetest.SpanStub) {
	f.server.Close() // waits for otelhttp
	own = make(map[string]tracetest.SpanStub)
	for _, s := range f.spans.GetSpans() {
		if s.SpanKind == trace.SpanKindServer {
			http = &s
			continue
		}
		own[s.Name] = s
	}
	return http, own
}

// checkNoContent checks that no telemetry contains a secret, a prompt or a reply.
func (f *fixture) checkNoContent() {
	f.t.Helper()
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	for _, s := range f.spans.GetSpans() {
		require.NoError(f.t, enc.Encode([]any{s.Name, attributes(s.Attributes), s.Events, s.Status}))
	}
	for _, m := range f.metrics() {
		for _, p := range points(m) {
			require.NoError(f.t, enc.Encode(p.attrs))
		}
	}
	for _, marker := range []string{secret, "prompt-marker", "reply-marker", "cause-marker"} {
		assert.NotContains(f.t, out.String(), marker)
	}
}

// serve calls the Handler without a network.
func (f *fixture) serve(method, path, body, key string) {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+key)
	f.handler.ServeHTTP(httptest.NewRecorder(), r)
}
