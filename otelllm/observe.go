package otelllm

import (
	"context"
	"net/http"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/llmhttp/llmhttp"
)

// Observe is an [llmhttp.Observer].
func (t *Telemetry) Observe(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
	t.metrics.active.Add(ctx, 1)
	r := &request{t: t, ctx: ctx, parent: trace.SpanFromContext(ctx)}
	o := llmhttp.Observation{Started: r.started, Try: r.try, Ended: r.ended}
	if t.wantsContent(r.parent.SpanContext()) {
		o.Transcript, o.TranscriptLimit = r.keepTranscript, t.opts.ContentLimit
	}
	return ctx, o
}

// A request is the state of one request.
type request struct {
	t          *Telemetry
	ctx        context.Context // of the request; then of its span
	parent     trace.Span
	span       trace.Span // nil until the request started
	info       *llmhttp.RequestInfo
	tries      tries
	transcript *llmhttp.Transcript
}

// started begins the span.
func (r *request) started(ctx context.Context, info *llmhttp.RequestInfo) context.Context {
	r.info = info
	t := r.t
	name := operationName(info.Operation)
	if t.models.has(info.Model) {
		name += " " + info.Model
	}
	ctx, r.span = t.tracer.Start(ctx, name, trace.WithTimestamp(info.Arrived), trace.WithSpanKind(trace.SpanKindInternal), trace.WithAttributes(
		attrOperation.String(operationName(info.Operation)), attrProvider.String(t.opts.Provider), attrRequestModel.String(info.Model),
		attrProtocol.String(info.Protocol)))
	if r.span.IsRecording() {
		r.span.SetAttributes(requestAttributes(info)...)
	}
	r.ctx = ctx
	return ctx
}

// ended ends the span and records the metrics.
func (r *request) ended(s *llmhttp.RequestSummary) {
	if r.span == nil {
		r.refused(s)
	} else {
		r.endSpan(s)
	}
	r.t.record(r.ctx, s)
}

// refused describes a request without a span of its own on the span around it.
func (r *request) refused(s *llmhttp.RequestSummary) {
	if !r.parent.IsRecording() || s.Err == nil {
		return
	}
	r.parent.SetAttributes(attrErrorType.String(string(s.ErrorClass)), attrRequestID.String(s.ID))
	if s.Limit != "" {
		r.parent.SetAttributes(attrLimit.String(s.Limit))
	}
}

func (r *request) endSpan(s *llmhttp.RequestSummary) {
	defer r.span.End()
	r.recordContent()
	if !r.span.IsRecording() {
		return
	}
	if s.Err == nil {
		r.span.SetName(operationName(s.Operation) + " " + s.Model) // the Backend knows the model
	} else {
		r.span.SetAttributes(attrErrorType.String(string(s.ErrorClass)))
		if isServerError(s.ErrorClass) {
			r.span.SetStatus(codes.Error, string(s.ErrorClass))
		}
	}
	r.span.SetAttributes(replyAttributes(s)...)
}

// isServerError reports whether a span of a server has the status Error.
func isServerError(c llmhttp.ErrorClass) bool {
	return !c.IsClientError() && c != llmhttp.ClassCanceled
}

// requestAttributes returns the attributes of a request that need not be known
// when its span starts.
func requestAttributes(info *llmhttp.RequestInfo) []attribute.KeyValue {
	p := &info.Params
	attrs := append(make([]attribute.KeyValue, 0, 20),
		attrRequestID.String(info.ID), attrKey.String(info.KeyID), attrAccount.String(info.Account))
	number := func(key attribute.Key, n int) {
		if n != 0 {
			attrs = append(attrs, key.Int(n))
		}
	}
	float := func(key attribute.Key, f *float64) {
		if f != nil {
			attrs = append(attrs, key.Float64(*f))
		}
	}
	if info.Stream {
		attrs = append(attrs, attrStream.Bool(true))
	}
	if p.Choices > 1 {
		number(attrChoiceCount, p.Choices)
	}
	number(attrMaxTokens, p.MaxTokens)
	number(attrDimensions, p.Dimensions)
	if p.Seed != nil {
		attrs = append(attrs, attrSeed.Int(*p.Seed))
	}
	float(attrTemperature, p.Temperature)
	float(attrTopP, p.TopP)
	float(attrTopK, p.TopK)
	float(attrFrequencyPenalty, p.FrequencyPenalty)
	float(attrPresencePenalty, p.PresencePenalty)
	if len(p.Stop) > 0 {
		attrs = append(attrs, attrStopSequences.StringSlice(p.Stop))
	}
	if p.EncodingFormat != "" {
		attrs = append(attrs, attrEncodingFormats.StringSlice([]string{p.EncodingFormat}))
	}
	if p.ReasoningEffort != "" {
		attrs = append(attrs, attrReasoningEffort.String(p.ReasoningEffort))
	}
	if typ := outputType(info); typ != "" {
		attrs = append(attrs, attrOutputType.String(typ))
	}
	return attrs
}

// outputType returns the value of gen_ai.output.type, or "" if the client did not
// ask for a type.
func outputType(info *llmhttp.RequestInfo) string {
	switch {
	case info.Operation == llmhttp.OperationImages:
		return outputImage
	case info.Params.ResponseFormat == "text":
		return outputText
	case info.Params.ResponseFormat != "":
		return outputJSON
	}
	return ""
}

// replyAttributes returns the attributes of a request that has ended.
func replyAttributes(s *llmhttp.RequestSummary) []attribute.KeyValue {
	attrs := make([]attribute.KeyValue, 0, 12)
	text := func(key attribute.Key, value string) {
		if value != "" {
			attrs = append(attrs, key.String(value))
		}
	}
	number := func(key attribute.Key, n int) {
		if n > 0 {
			attrs = append(attrs, key.Int(n))
		}
	}
	text(attrResponseID, s.Reply.ID)
	text(attrResponseModel, s.Reply.Model)
	if len(s.Reply.FinishReasons) > 0 {
		reasons := make([]string, len(s.Reply.FinishReasons))
		for i, reason := range s.Reply.FinishReasons {
			reasons[i] = string(reason)
		}
		attrs = append(attrs, attrFinishReasons.StringSlice(reasons))
	}
	if s.Streamed && s.FirstChunk > 0 {
		attrs = append(attrs, attrFirstChunk.Float64(s.FirstChunk.Seconds()))
	}
	if s.Estimated {
		attrs = append(attrs, attrEstimated.Bool(true))
	}
	u := &s.Usage
	number(attrInputTokens, u.PromptTokens)
	number(attrOutputTokens, u.CompletionTokens)
	number(attrCacheRead, u.PromptTokensDetails.CachedTokens)
	number(attrCacheCreation, u.PromptTokensDetails.CacheWriteTokens)
	number(attrReasoning, u.CompletionTokensDetails.ReasoningTokens)
	return attrs
}

// try begins the span of a try.
func (r *request) try(ctx context.Context, target string) (context.Context, func(llmhttp.Try)) {
	if r.span == nil {
		return ctx, nil // not of a call that generates anything
	}
	t := r.t
	op := operationName(r.info.Operation)
	described := t.opts.Targets[target]
	if described.Provider == "" {
		described.Provider = t.opts.Provider
	}
	attrs := append(make([]attribute.KeyValue, 0, 6),
		attrOperation.String(op), attrProvider.String(described.Provider), attrRequestModel.String(r.info.Model), attrTarget.String(target))
	if described.Address != "" {
		attrs = append(attrs, attrServerAddress.String(described.Address))
	}
	if described.Port != 0 {
		attrs = append(attrs, attrServerPort.Int(described.Port))
	}
	ctx, span := t.tracer.Start(ctx, op+" "+target, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attrs...))
	if r.tries.begin(target) {
		t.metrics.fallbacks.Add(ctx, 1, metric.WithAttributes(attrTarget.String(target)))
	}
	return ctx, func(try llmhttp.Try) {
		r.tries.end(&try)
		labels := append(make([]attribute.KeyValue, 0, 4),
			attrOperation.String(op), attrProvider.String(described.Provider), attrTarget.String(target))
		if try.Err != nil {
			class := string(try.ErrorClass)
			labels = append(labels, attrErrorType.String(class))
			span.SetAttributes(attrErrorType.String(class))
			span.SetStatus(codes.Error, class) // of a client, for which any error is one
		}
		span.End()
		t.metrics.tryDuration.Record(ctx, try.Duration.Seconds(), metric.WithAttributeSet(attribute.NewSet(labels...)))
	}
}

// tries finds out which tries are fallbacks.
type tries struct {
	mu     sync.Mutex // guards failed
	failed string     // the target that failed last
}

// begin reports whether a try at target takes the place of one at another target.
func (t *tries) begin(target string) (fallback bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed != "" && t.failed != target
}

func (t *tries) end(try *llmhttp.Try) {
	if try.Err == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed = try.Target
}
