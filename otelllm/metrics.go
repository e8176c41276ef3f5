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
	account := ""
	if t.opts.Accounts {
		account = s.Account
	}
	if s.Limit != "" {
		m.refusals.Add(ctx, 1, t.options.get(labels{account: account, extra: attrLimit, value: s.Limit}).add...)
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
	l := labels{operation: operationName(s.Operation), protocol: s.Protocol, errorType: string(s.ErrorClass)}
	if s.Model != "" {
		l.model = t.models.label(s.Model)
	}
	opts := t.options.get(l)
	m.requestDuration.Record(ctx, s.Duration.Seconds(), opts.record...)
	switch {
	case s.Err == nil:
		t.recordTokenTimes(ctx, s, opts)
	case s.Cut():
		m.streamsCut.Add(ctx, 1, opts.add...)
	}
	l.errorType, l.account = "", account
	t.recordUsage(ctx, s, l)
}

func (t *Telemetry) recordTokenTimes(ctx context.Context, s *llmhttp.RequestSummary, opts *measurement) {
	if s.FirstToken == 0 {
		return
	}
	t.metrics.firstToken.Record(ctx, s.FirstToken.Seconds(), opts.record...)
	// A Backend that yields the reply in one chunk does not tell how long its
	// tokens took.
	if n := s.Usage.CompletionTokens; n > 1 && s.LastToken > s.FirstToken && !s.Estimated {
		t.metrics.perToken.Record(ctx, (s.LastToken-s.FirstToken).Seconds()/float64(n-1), opts.record...)
	}
}

// recordUsage records what a request used, whether it succeeded or not.
func (t *Telemetry) recordUsage(ctx context.Context, s *llmhttp.RequestSummary, l labels) {
	if s.Request == nil {
		return
	}
	m, u := t.metrics, &s.Usage
	with := func(key attribute.Key, value string) *measurement {
		l := l
		l.extra, l.value = key, value
		return t.options.get(l)
	}
	usage := func(typ string, n int) {
		if n > 0 && !s.Estimated {
			m.tokenUsage.Record(ctx, int64(n), with(attrTokenType, typ).record...)
		}
	}
	usage(tokenInput, u.PromptTokens)
	usage(tokenOutput, u.CompletionTokens)
	detail := func(kind string, n int) {
		if n > 0 {
			m.tokenDetails.Add(ctx, int64(n), with(attrTokenKind, kind).add...)
		}
	}
	detail(tokenCacheRead, u.PromptTokensDetails.CachedTokens)
	detail(tokenCacheWrite, u.PromptTokensDetails.CacheWriteTokens)
	detail(tokenReasoning, u.CompletionTokensDetails.ReasoningTokens)
	if t.opts.Cost != nil {
		if cost := t.opts.Cost(sum(s)); cost > 0 {
			m.spend.Add(ctx, cost, t.options.get(l).add...)
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
