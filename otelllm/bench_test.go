package otelllm_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/otelllm"
)

// newHandlers returns a Handler without a Telemetry and one with it, which samples
// one trace in a hundred.
func newHandlers(t testing.TB, b llmhttp.Backend) (without, with *llmhttp.Handler) {
	t.Helper()
	telemetry, err := otelllm.New(&otelllm.Options{
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithBatcher(tracetest.NewNoopExporter()),
			sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(0.01)))),
		MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())),
	})
	require.NoError(t, err)
	key := &llmhttp.Key{ID: "key_1", Account: "acme", Limits: llmhttp.Limits{Requests: llmhttp.PerMinute(1e9), Tokens: llmhttp.PerMinute(1e12)}}
	keys := llmhttp.KeyFunc(func(context.Context, string) (*llmhttp.Key, error) { return key, nil })
	handler := func(observe llmhttp.Observer) *llmhttp.Handler {
		return llmhttp.NewHandler(b, keys, &llmhttp.Options{Observe: observe, Logger: slog.New(slog.DiscardHandler)})
	}
	return handler(nil), handler(telemetry.Observe)
}

// wholeReply is a Backend that replies with one chunk.
var wholeReply = llmhttp.BackendFunc(func(context.Context, *llmhttp.ChatRequest) llmhttp.ChatStream {
	return func(yield func(*llmhttp.ChatChunk, error) bool) {
		c := llmhttp.TextChunk("The answer is that it depends on what you want to know about it.")
		c.Choices[0].FinishReason = llmhttp.FinishStop
		c.Usage = &llmhttp.Usage{PromptTokens: 90, CompletionTokens: 15}
		yield(c, nil)
	}
})

// BenchmarkCost reports cpu-ratio: the CPU time of whole requests with a Telemetry,
// divided by that without. The Handlers are called directly, in alternating batches.
func BenchmarkCost(b *testing.B) {
	const batch = 200
	body := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"%s"}],"temperature":0.7,"max_tokens":100}`, strings.Repeat("word ", 80))
	without, with := newHandlers(b, wholeReply)
	var spent [2]time.Duration
	run := func(i int, h http.Handler) {
		start := cpuTime(b)
		for range batch {
			serveOnce(h, body)
		}
		spent[i] += cpuTime(b) - start
	}
	for b.Loop() {
		run(0, without)
		run(1, with)
	}
	b.ReportMetric(float64(spent[1])/float64(spent[0]), "cpu-ratio")
	b.ReportMetric(float64(spent[1]-spent[0])/float64(b.N*batch), "cpu-ns/request")
}

// cpuTime returns the CPU time that the process has used.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func serveOnce(h http.Handler, body string) {
	r := httptest.NewRequest("POST", chatPath, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+secret)
	h.ServeHTTP(httptest.NewRecorder(), r)
}

// A chunk costs no allocation, however long a stream is.
func TestAllocs_PerChunk(t *testing.T) {
	chunk := llmhttp.TextChunk("token ")
	stream := func(n int) llmhttp.Backend {
		return llmhttp.BackendFunc(func(context.Context, *llmhttp.ChatRequest) llmhttp.ChatStream {
			return func(yield func(*llmhttp.ChatChunk, error) bool) {
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
		without, with := newHandlers(t, stream(n))
		few := testing.AllocsPerRun(50, func() { serveOnce(without, streamBody) })
		return testing.AllocsPerRun(50, func() { serveOnce(with, streamBody) }) - few
	}
	short, long := extra(100), extra(5100)
	t.Logf("%v more allocations for 100 chunks, %v for 5100", short, long)
	assert.InDelta(t, short, long, 100, "less than 0.02 for each chunk")
}
