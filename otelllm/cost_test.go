package otelllm_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/otelllm"
)

// sampled returns a Telemetry that samples one trace in a hundred.
func sampled(t testing.TB) *otelllm.Telemetry {
	t.Helper()
	telemetry, err := otelllm.New(&otelllm.Options{
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithBatcher(tracetest.NewNoopExporter()),
			sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(0.01)))),
		MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())),
	})
	require.NoError(t, err)
	return telemetry
}

// BenchmarkObserve measures what a Telemetry does for a whole request. The budget is
// a part of the CPU of the request, which package bench measures.
func BenchmarkObserve(b *testing.B) {
	observe := sampled(b).Observe
	info := &llmhttp.RequestInfo{ID: "req_1", Model: "m", Protocol: "chat", Operation: llmhttp.OperationChat, Arrived: time.Now()}
	summary := &llmhttp.RequestSummary{Request: info}
	summary.Record.Operation = info.Operation
	summary.Record.Model, summary.Record.Protocol, summary.Reply.Model, summary.Duration = info.Model, info.Protocol, "m-2026", time.Second
	summary.Record.Units = llmhttp.Units{PromptTokens: 90, CompletionTokens: 15}
	b.ReportAllocs()
	for b.Loop() {
		ctx, o := observe(b.Context(), nil)
		o.Started(ctx, info)
		o.Ended(summary)
	}
}

func newHandler(b llmhttp.Backend, observe llmhttp.Observer) *llmhttp.Handler {
	keys := llmhttp.KeyStoreFunc(func(context.Context, string) (*llmhttp.Key, error) { return &llmhttp.Key{ID: "key_1"}, nil })
	return llmhttp.NewHandler(b, keys, &llmhttp.Options{Observe: observe, Logger: slog.New(slog.DiscardHandler)})
}

func serveOnce(h http.Handler, body string) {
	r := httptest.NewRequest("POST", chatPath, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+secret)
	h.ServeHTTP(httptest.NewRecorder(), r)
}

// A chunk costs no allocation, however long a stream is.
func TestAllocs_PerChunk(t *testing.T) {
	chunk := llm.TextChunk("token ")
	stream := func(n int) llmhttp.Backend {
		return llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream {
			return func(yield func(*llm.ChatChunk, error) bool) {
				for range n {
					if !yield(chunk, nil) {
						return
					}
				}
			}
		})
	}
	// What the reply itself allocates, such as the memory of the ResponseRecorder, is the
	// same with and without.
	extra := func(n int) float64 {
		without, with := newHandler(stream(n), nil), newHandler(stream(n), sampled(t).Observe)
		base := testing.AllocsPerRun(50, func() { serveOnce(without, streamBody) })
		return testing.AllocsPerRun(50, func() { serveOnce(with, streamBody) }) - base
	}
	short, long := extra(100), extra(5100)
	t.Logf("%v more allocations for 100 chunks, %v for 5100", short, long)
	assert.InDelta(t, short, long, 100, "less than 0.02 for each chunk")
}
