// LogHandler, which adds the IDs of spans to log lines.

package otelllm

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/trace"
)

// LogHandler returns a Handler that adds trace_id and span_id to the records whose
// context has a span, and passes them on to h. With it, the lines of
// [llmhttp.LogRequests] and of Options.Logger have the IDs of their trace and span.
// LogHandler panics if h is nil.
func LogHandler(h slog.Handler) slog.Handler {
	if isNil(h) {
		panic("otelllm: nil Handler")
	}
	return logHandler{h}
}

type logHandler struct{ slog.Handler }

func (h logHandler) Handle(ctx context.Context, r slog.Record) error {
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		r = r.Clone()
		r.AddAttrs(slog.String("trace_id", span.TraceID().String()), slog.String("span_id", span.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logHandler{h.Handler.WithAttrs(attrs)}
}

func (h logHandler) WithGroup(name string) slog.Handler { return logHandler{h.Handler.WithGroup(name)} }
