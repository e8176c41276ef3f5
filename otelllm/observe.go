// The functions of an Observation: the spans of a request and of its attempts, and fallbacks.

package otelllm

import (
	"cmp"
	"context"
	"net/http"
	"sync"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/llmhttp/llmhttp"
)

// Observe is an [llmhttp.Observer].
func (t *Telemetry) Observe(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
	t.metrics.active.Add(1)
	r := &request{t: t, ctx: ctx}
	o := llmhttp.Observation{Started: r.started, Try: r.try, Ended: r.ended}
	if t.wantsContent(ctx) {
		o.Transcript, o.TranscriptLimit = r.keepTranscript, t.opts.ContentLimit
	}
	return ctx, o
}

// A request has the functions of an Observation, and what they keep between their calls.
type request struct {
	t          *Telemetry
	ctx        context.Context // of the request; then of its span
	span       trace.Span      // nil until the request started
	info       *llmhttp.RequestInfo
	fallbacks  fallbackDetector
	transcript *llmhttp.Transcript
}

func (r *request) started(ctx context.Context, info *llmhttp.RequestInfo) context.Context {
	r.info = info
	start := r.t.spanStartFor(info)
	r.ctx, r.span = r.t.tracer.Start(ctx, start.name, start.attributes, spanKindInternal, trace.WithTimestamp(info.Arrived))
	if r.span.IsRecording() {
		r.span.SetAttributes(requestAttributes(info)...)
	}
	return r.ctx
}

// ended records the metrics and ends the span. Functions of the host, which may panic,
// are called last.
func (r *request) ended(s *llmhttp.RequestSummary) {
	r.t.metrics.active.Add(-1)
	if r.isSampled() {
		r.t.record(r.ctx, s) // at once, because an exemplar names the trace
	} else {
		r.t.batch.add(s)
	}
	if r.span == nil {
		r.describeRefusal(s)
	} else {
		r.endSpan(s)
	}
}

// isSampled reports whether the trace of the request is sampled.
func (r *request) isSampled() bool {
	if r.span != nil { // asking the context takes longer
		return r.span.SpanContext().IsSampled()
	}
	return trace.SpanContextFromContext(r.ctx).IsSampled()
}

// describeRefusal describes a request without a span of its own on the span around it.
func (r *request) describeRefusal(s *llmhttp.RequestSummary) {
	if s.Err == nil {
		return
	}
	if parent := trace.SpanFromContext(r.ctx); parent.IsRecording() {
		l := attributeList{attrErrorType.String(string(s.ErrorClass)), attrRequestID.String(s.Record.RequestID)}
		l.addString(attrLimit, s.Refused.Limit)
		l.addString(attrLimitSubject, s.Refused.Subject.Kind)
		parent.SetAttributes(l...)
	}
}

func (r *request) endSpan(s *llmhttp.RequestSummary) {
	defer r.span.End()
	r.recordContent(s)
	if !r.span.IsRecording() {
		return
	}
	if s.Err == nil {
		r.span.SetName(operationName(s.Record.Operation) + " " + s.Record.Model) // the Backend knows the model
	} else {
		r.span.SetAttributes(attrErrorType.String(string(s.ErrorClass)))
		if isServerError(s) {
			r.span.SetStatus(codes.Error, string(s.ErrorClass))
		}
	}
	r.span.SetAttributes(replyAttributes(s)...)
}

// isServerError reports whether the error of a request sets the status of its span. A
// stream that was cut does so, whatever the class of its error.
func isServerError(s *llmhttp.RequestSummary) bool {
	return s.ErrorClass != llmhttp.ClassCanceled && (s.Aborted() || !s.ErrorClass.IsClientError())
}

func (r *request) try(ctx context.Context, target string) (context.Context, func(llmhttp.TargetTry)) {
	if r.span == nil {
		return ctx, nil // a list of models, for example, has no span
	}
	t := r.t
	server := t.opts.Targets[target]
	server.ProviderName = cmp.Or(server.ProviderName, t.opts.ProviderName)
	op := operationName(r.info.Operation)
	l := attributeList{
		attrOperation.String(op),
		attrProvider.String(server.ProviderName),
		attrRequestModel.String(r.info.Model),
		attrTarget.String(target),
	}
	l.addString(attrServerAddress, server.Address)
	l.addInt(attrServerPort, server.Port)
	ctx, span := t.tracer.Start(ctx, op+" "+target, spanKindClient, trace.WithAttributes(l...))
	if r.fallbacks.isFallback(target) {
		t.metrics.fallbacks.Add(ctx, 1, metric.WithAttributes(attrTarget.String(target)))
	}
	return ctx, func(try llmhttp.TargetTry) {
		r.fallbacks.noteEnd(&try)
		if try.Err != nil {
			class := string(try.ErrorClass)
			span.SetAttributes(attrErrorType.String(class))
			span.SetStatus(codes.Error, class) // every error of a CLIENT span sets the status Error
		}
		span.End()
		t.metrics.recordTry(ctx, try.Duration, tryLabels{r.info.Operation, server.ProviderName, target, try.ErrorClass})
	}
}

// A fallbackDetector finds out which tries are fallbacks.
type fallbackDetector struct {
	mu     sync.Mutex // guards failed
	failed string     // the target that failed last
}

// isFallback reports whether a try at target takes the place of one at another target.
func (d *fallbackDetector) isFallback(target string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed != "" && d.failed != target
}

func (d *fallbackDetector) noteEnd(try *llmhttp.TargetTry) {
	if try.Err == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed = try.Target
}
