package otelllm_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
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

// BenchmarkCost reports cpu-ratio: the CPU time of whole requests over a connection
// with a Telemetry, divided by that without. Both are sent in alternating batches by a
// client of the same process that only writes and reads bytes. Run it with -cpu 1:
// otherwise the scheduler is a part of the difference.
func BenchmarkCost(b *testing.B) {
	const batch = 200
	body := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"%s"}],"temperature":0.7,"max_tokens":100}`, strings.Repeat("word ", 80))
	request := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		chatPath, secret, len(body), body)
	without, with := newHandlers(b, wholeReply)
	var spent [2]time.Duration
	var conns [2]net.Conn
	for i, h := range []http.Handler{without, with} {
		server := httptest.NewServer(h)
		defer server.Close()
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		require.NoError(b, err)
		defer conn.Close()
		conns[i] = conn
	}
	reply := make([]byte, 8<<10) // a reply arrives in one segment
	for b.Loop() {
		for i, conn := range conns {
			start := cpuTime(b)
			for range batch {
				if _, err := conn.Write(request); err != nil {
					b.Fatal(err)
				}
				n, err := conn.Read(reply)
				if err != nil || !bytes.HasPrefix(reply, []byte("HTTP/1.1 200")) || reply[n-1] != '}' && reply[n-1] != '\n' {
					b.Fatalf("%v %s", err, reply[:n])
				}
			}
			spent[i] += cpuTime(b) - start
		}
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
