package otelllm

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/llmhttp/llmhttp"
)

// metrics has the instruments.
type metrics struct {
	requestDuration metric.Float64Histogram
	firstToken      metric.Float64Histogram
	perToken        metric.Float64Histogram
	tokenUsage      metric.Int64Histogram

	active         metric.Int64UpDownCounter
	refusals       metric.Int64Counter
	tryDuration    metric.Float64Histogram
	fallbacks      metric.Int64Counter
	streamsCut     metric.Int64Counter
	tokenDetails   metric.Int64Counter
	spend          metric.Float64Counter
	recordFailures metric.Int64Counter
}

func newMetrics(meter metric.Meter, buffer *llmhttp.UsageBuffer) (*metrics, error) {
	var errs []error
	seconds := func(name, description string, bounds []float64) metric.Float64Histogram {
		h, err := meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description), metric.WithExplicitBucketBoundaries(bounds...))
		errs = append(errs, err)
		return h
	}
	counter := func(name, unit, description string) metric.Int64Counter {
		c, err := meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
		errs = append(errs, err)
		return c
	}
	m := &metrics{
		requestDuration: seconds(metricRequestDuration, "Duration of requests", boundsDuration),
		firstToken:      seconds(metricFirstToken, "Time to the first token of successful replies", boundsFirstToken),
		perToken:        seconds(metricPerToken, "Time per output token after the first one, for successful replies", boundsPerToken),
		refusals:        counter(metricRefusals, "{request}", "Requests that a limit refused"),
		tryDuration:     seconds(metricTryDuration, "Duration of tries at targets", boundsDuration),
		fallbacks:       counter(metricFallbacks, "{try}", "Tries at a target after another target had failed"),
		streamsCut:      counter(metricStreamsCut, "{request}", "Streams that failed after they had begun"),
		tokenDetails:    counter(metricTokenDetails, "{token}", "Tokens that were read from or written to a prompt cache, or used for reasoning"),
		recordFailures:  counter(metricRecordFailures, "{record}", "Usage records that the usage store did not take"),
	}
	var err error
	m.tokenUsage, err = meter.Int64Histogram(metricTokenUsage, metric.WithUnit("{token}"),
		metric.WithDescription("Tokens of requests, as the Backend reported them"), metric.WithExplicitBucketBoundaries(boundsTokens...))
	errs = append(errs, err)
	m.active, err = meter.Int64UpDownCounter(metricActive, metric.WithUnit("{request}"), metric.WithDescription("Requests in progress"))
	errs = append(errs, err)
	m.spend, err = meter.Float64Counter(metricSpend, metric.WithUnit("{USD}"), metric.WithDescription("Cost of usage in US dollars, estimated usage included"))
	errs = append(errs, err, observeBuffer(meter, buffer))
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	// A counter that appears with its first increment does not look like an increase.
	m.recordFailures.Add(context.Background(), 0)
	return m, nil
}

// observeBuffer makes the instruments of buffer, which may be nil.
func observeBuffer(meter metric.Meter, buffer *llmhttp.UsageBuffer) error {
	if buffer == nil {
		return nil
	}
	_, err := meter.Int64ObservableGauge(metricBufferWaiting, metric.WithUnit("{record}"),
		metric.WithDescription("Usage records that wait to be written to the store"),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(int64(buffer.Waiting()))
			return nil
		}))
	_, err2 := meter.Int64ObservableCounter(metricBufferDropped, metric.WithUnit("{record}"),
		metric.WithDescription("Usage records that were dropped"),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(buffer.Dropped())
			return nil
		}))
	return errors.Join(err, err2)
}

// operationName returns the value of gen_ai.operation.name.
func operationName(op llmhttp.Operation) string {
	switch op {
	case llmhttp.OperationEmbeddings:
		return operationEmbeddings
	case llmhttp.OperationImages:
		return operationGenerate
	}
	return operationChat
}

// record records the metrics of a request that has ended.
func (t *Telemetry) record(ctx context.Context, s *llmhttp.RequestSummary) {
	m := t.metrics
	m.active.Add(ctx, -1)
	if s.Limit != "" {
		m.refusals.Add(ctx, 1, metric.WithAttributes(t.withAccount(s, attrLimit.String(s.Limit))...))
	}
	if s.RecordErr != nil {
		m.recordFailures.Add(ctx, 1)
	}
	if s.Operation == "" {
		return
	}
	if s.Err == nil && s.Request != nil {
		t.models.add(s.Model)
	}
	attrs := append(make([]attribute.KeyValue, 0, 6),
		attrOperation.String(operationName(s.Operation)), attrProvider.String(t.opts.Provider), attrProtocol.String(s.Protocol))
	if s.Model != "" {
		attrs = append(attrs, attrRequestModel.String(t.models.label(s.Model)))
	}
	plain := metric.WithAttributeSet(attribute.NewSet(attrs...))
	if s.Err != nil {
		failed := metric.WithAttributeSet(attribute.NewSet(append(attrs, attrErrorType.String(string(s.ErrorClass)))...))
		m.requestDuration.Record(ctx, s.Duration.Seconds(), failed)
		if s.Cut() {
			m.streamsCut.Add(ctx, 1, failed)
		}
	} else {
		m.requestDuration.Record(ctx, s.Duration.Seconds(), plain)
		t.recordTokenTimes(ctx, s, plain)
	}
	t.recordUsage(ctx, s, attrs)
}

func (t *Telemetry) recordTokenTimes(ctx context.Context, s *llmhttp.RequestSummary, attrs metric.MeasurementOption) {
	if s.FirstToken == 0 {
		return
	}
	t.metrics.firstToken.Record(ctx, s.FirstToken.Seconds(), attrs)
	// A Backend that yields the reply in one chunk does not tell how long its
	// tokens took.
	if n := s.Usage.CompletionTokens; n > 1 && s.LastToken > s.FirstToken && !s.Estimated {
		t.metrics.perToken.Record(ctx, (s.LastToken-s.FirstToken).Seconds()/float64(n-1), attrs)
	}
}

// recordUsage records what a request used, whether it succeeded or not.
func (t *Telemetry) recordUsage(ctx context.Context, s *llmhttp.RequestSummary, attrs []attribute.KeyValue) {
	if s.Request == nil {
		return
	}
	attrs = t.withAccount(s, attrs...)
	m, u := t.metrics, &s.Usage
	if !s.Estimated {
		for _, n := range []struct {
			typ   string
			count int
		}{{tokenInput, u.PromptTokens}, {tokenOutput, u.CompletionTokens}} {
			if n.count > 0 {
				m.tokenUsage.Record(ctx, int64(n.count), withAttribute(attrs, attrTokenType.String(n.typ)))
			}
		}
	}
	for _, n := range []struct {
		kind  string
		count int
	}{
		{tokenCacheRead, u.PromptTokensDetails.CachedTokens}, {tokenCacheWrite, u.PromptTokensDetails.CacheWriteTokens},
		{tokenReasoning, u.CompletionTokensDetails.ReasoningTokens},
	} {
		if n.count > 0 {
			m.tokenDetails.Add(ctx, int64(n.count), withAttribute(attrs, attrTokenKind.String(n.kind)))
		}
	}
	if t.opts.Cost != nil {
		if cost := t.opts.Cost(sum(s)); cost > 0 {
			m.spend.Add(ctx, cost, metric.WithAttributeSet(attribute.NewSet(attrs...)))
		}
	}
}

// sum returns what a request used in the form that Options.Cost takes.
func sum(s *llmhttp.RequestSummary) llmhttp.UsageSum {
	u := &s.Usage
	return llmhttp.UsageSum{
		Start: s.Time, Model: s.Model, Requests: 1, Images: int64(s.Images),
		PromptTokens: int64(u.PromptTokens), CompletionTokens: int64(u.CompletionTokens), CachedTokens: int64(u.PromptTokensDetails.CachedTokens),
	}
}

func (t *Telemetry) withAccount(s *llmhttp.RequestSummary, attrs ...attribute.KeyValue) []attribute.KeyValue {
	if t.opts.Accounts && s.Account != "" {
		attrs = append(attrs, attrAccount.String(s.Account))
	}
	return attrs
}

// withAttribute returns attrs and kv as the attributes of a measurement.
func withAttribute(attrs []attribute.KeyValue, kv attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(append(attrs[:len(attrs):len(attrs)], kv)...))
}
