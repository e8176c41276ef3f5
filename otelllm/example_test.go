package otelllm_test

import (
	"context"
	"fmt"
	"log"
	"net/http/httptest"
	"strings"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/otelllm"
)

func Example() {
	spans := tracetest.NewInMemoryExporter() // a host has another exporter, and gives it to sdktrace.WithBatcher
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	telemetry, err := otelllm.New(&otelllm.Options{ProviderName: "acme", TracerProvider: tracers})
	if err != nil {
		log.Fatal(err)
	}
	backend := llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream { return llm.Reply("Hi!") })
	h := llmhttp.NewHandler(backend, llmhttp.AllowAll("acme"), &llmhttp.Options{Observe: telemetry.Observe})
	traced := otelhttp.NewHandler(h, "llmhttp",
		otelhttp.WithTracerProvider(tracers),
		otelhttp.WithPropagators(propagation.TraceContext{}), // reads the traceparent of clients
		otelhttp.WithMeterProvider(noop.NewMeterProvider()))  // no metrics that have the Host header as an attribute

	r := httptest.NewRequest("POST", "/v1/chat/completions",
		strings.NewReader(`{"model": "demo-chat", "messages": [{"role": "user", "content": "Hello!"}]}`))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	traced.ServeHTTP(httptest.NewRecorder(), r)
	for _, s := range spans.GetSpans() {
		fmt.Println(s.SpanContext.TraceID(), s.SpanKind, s.Name)
	}
	// Output:
	// 0af7651916cd43dd8448eb211c80319c internal chat demo-chat
	// 0af7651916cd43dd8448eb211c80319c server POST /v1/chat/completions
}
