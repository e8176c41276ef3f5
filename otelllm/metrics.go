package otelllm

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/llmhttp/llmhttp"
)

// metrics has the instruments.
type metrics struct {
	requestDuration metric.Float64Histogram
	firstToken      metric.Float64Histogram
	perToken        metric.Float64Histogram
	tokenUsage      metric.Int64Histogram

	refusals       metric.Int64Counter
	tryDuration    metric.Float64Histogram
	fallbacks      metric.Int64Counter
	streamsCut     metric.Int64Counter
	tokenDetails   metric.Int64Counter
	spend          metric.Float64Counter
	recordFailures metric.Int64Counter

	active atomic.Int64 // requests in progress

	measurements   *cache[labels, *measurement]
	refusalOptions *cache[refusalLabels, []metric.AddOption]
	tryOptions     *cache[tryLabels, []metric.RecordOption]
}

func newMetrics(meter metric.Meter, provider string, buffer *llmhttp.UsageBuffer) (*metrics, error) {
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
	m.measurements = newCache(func(l labels) *measurement { return l.measurement(provider) })
	m.refusalOptions, m.tryOptions = newCache(refusalLabels.options), newCache(tryLabels.options)
	var err error
	m.tokenUsage, err = meter.Int64Histogram(metricTokenUsage, metric.WithUnit("{token}"),
		metric.WithDescription("Tokens of requests, as the Backend reported them"), metric.WithExplicitBucketBoundaries(boundsTokens...))
	errs = append(errs, err)
	_, err = meter.Int64ObservableUpDownCounter(metricActive, metric.WithUnit("{request}"), metric.WithDescription("Requests in progress"),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(m.active.Load())
			return nil
		}))
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
	m.active.Add(-1)
	account := ""
	if t.opts.Accounts {
		account = s.Account
	}
	if s.Limit != "" {
		m.refusals.Add(ctx, 1, m.refusalOptions.get(refusalLabels{s.Limit, account})...)
	}
	if s.RecordErr != nil {
		m.recordFailures.Add(ctx, 1)
	}
	if s.Operation == "" {
		return
	}
	success := s.Err == nil && s.Request != nil
	with := m.measurements.get(labels{s.Operation, s.Protocol, t.models.label(s.Model, success), t.models.label(s.Reply.Model, success), s.ErrorClass, account})
	m.requestDuration.Record(ctx, s.Duration.Seconds(), with.request...)
	if s.Err == nil {
		m.recordTokenTimes(ctx, s, with)
	} else if s.Cut() {
		m.streamsCut.Add(ctx, 1, with.cut...)
	}
	if s.Request != nil {
		t.recordUsage(ctx, s, with)
	}
}

// recordTokenTimes records when tokens were generated. A Backend that yields the
// reply in one chunk does not tell that, unless the client asked for a stream.
func (m *metrics) recordTokenTimes(ctx context.Context, s *llmhttp.RequestSummary, with *measurement) {
	several := s.LastToken > s.FirstToken
	if several || s.Streamed && s.FirstToken > 0 {
		m.firstToken.Record(ctx, s.FirstToken.Seconds(), with.request...)
	}
	if n := s.Usage.CompletionTokens; several && n > 1 && !s.Estimated {
		m.perToken.Record(ctx, (s.LastToken-s.FirstToken).Seconds()/float64(n-1), with.request...)
	}
}

// recordUsage records what a request used, whether it succeeded or not.
func (t *Telemetry) recordUsage(ctx context.Context, s *llmhttp.RequestSummary, with *measurement) {
	m, u := t.metrics, &s.Usage
	if !s.Estimated {
		recordTokens(ctx, m.tokenUsage, u.PromptTokens, with.input)
		recordTokens(ctx, m.tokenUsage, u.CompletionTokens, with.output)
	}
	addTokens(ctx, m.tokenDetails, u.PromptTokensDetails.CachedTokens, with.read)
	addTokens(ctx, m.tokenDetails, u.PromptTokensDetails.CacheWriteTokens, with.write)
	addTokens(ctx, m.tokenDetails, u.CompletionTokensDetails.ReasoningTokens, with.thoughts)
	if t.opts.Cost != nil {
		if cost := t.opts.Cost(sum(s)); cost > 0 {
			m.spend.Add(ctx, cost, with.spend...)
		}
	}
}

func recordTokens(ctx context.Context, h metric.Int64Histogram, n int, opts []metric.RecordOption) {
	if n > 0 {
		h.Record(ctx, int64(n), opts...)
	}
}

func addTokens(ctx context.Context, c metric.Int64Counter, n int, opts []metric.AddOption) {
	if n > 0 {
		c.Add(ctx, int64(n), opts...)
	}
}

// recordTry records the metric of a try that has ended.
func (m *metrics) recordTry(ctx context.Context, d time.Duration, l tryLabels) {
	m.tryDuration.Record(ctx, d.Seconds(), m.tryOptions.get(l)...)
}

// sum returns what a request used in the form that Options.Cost takes.
func sum(s *llmhttp.RequestSummary) llmhttp.UsageSum {
	u := &s.Usage
	return llmhttp.UsageSum{
		Start: s.Time, Model: s.Model, Requests: 1, Images: int64(s.Images),
		PromptTokens: int64(u.PromptTokens), CompletionTokens: int64(u.CompletionTokens), CachedTokens: int64(u.PromptTokensDetails.CachedTokens),
		ReasoningTokens: int64(u.CompletionTokensDetails.ReasoningTokens),
	}
}
