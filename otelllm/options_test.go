package otelllm_test

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/llmhttp/llmhttp/otelllm"
)

func TestNew_Port(t *testing.T) {
	for port, want := range map[int]string{
		-1: `otelllm: Options.Targets["a"].Port is -1`, 0: "", 443: "", 65535: "", 65536: `otelllm: Options.Targets["a"].Port is 65536`,
	} {
		_, err := otelllm.New(&otelllm.Options{Targets: map[string]otelllm.Target{"a": {Port: port}}})
		if want == "" {
			assert.NoError(t, err)
		} else {
			assert.EqualError(t, err, want)
		}
	}
}

func TestNew_TypedNils(t *testing.T) {
	_, err := otelllm.New(&otelllm.Options{TracerProvider: (*sdktrace.TracerProvider)(nil)})
	assert.EqualError(t, err, "otelllm: Options.TracerProvider holds a nil *trace.TracerProvider")
	_, err = otelllm.New(&otelllm.Options{MeterProvider: (*sdkmetric.MeterProvider)(nil)})
	assert.EqualError(t, err, "otelllm: Options.MeterProvider holds a nil *metric.MeterProvider")
	assert.PanicsWithValue(t, "otelllm: nil Handler", func() { otelllm.LogHandler((*slog.TextHandler)(nil)) })
}
