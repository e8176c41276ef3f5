// The instruments, and what is recorded with them.

package otelllm

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/llmhttp/llmhttp"
)

// metrics has the instruments, and caches of the attributes with which they are used.
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
	unpriced       metric.Int64Counter
	recordFailures metric.Int64Counter
	notStored      metric.Int64Counter

	active atomic.Int64 // requests in progress

	// The attributes, by the values in them.
	byRequest *cache[requestLabels, *requestOptions]
	byRefusal *cache[refusalLabels, []metric.AddOption]
	byTry     *cache[tryLabels, []metric.RecordOption]
}

// newMetrics makes the instruments. flush is called at the beginning of each collection
// of metrics.
func newMetrics(meter metric.Meter, o *Options, flush func()) (*metrics, error) {
	b := builder{meter: meter}
	m := &metrics{
		requestDuration: b.seconds(metricRequestDuration, "Duration of requests", boundsDuration),
		firstToken:      b.seconds(metricFirstToken, "Time to the first token of successful replies", boundsFirstToken),
		perToken:        b.seconds(metricPerToken, "Time per output token after the first one, for successful replies", boundsPerToken),
		tokenUsage:      b.tokens(metricTokenUsage, "Tokens of requests, as the Backend reported them"),
		refusals:        b.counter(metricRefusals, "{request}", "Requests that a limit refused"),
		tryDuration:     b.seconds(metricTryDuration, "Duration of tries at targets", boundsDuration),
		fallbacks:       b.counter(metricFallbacks, "{try}", "Tries at a target after another target had failed"),
		streamsCut:      b.counter(metricStreamsCut, "{request}", "Streams that failed after they had begun"),
		tokenDetails: b.counter(
			metricTokenDetails,
			"{token}",
			"Tokens that were read from or written to a prompt cache, or used for reasoning",
		),
		spend:          b.money(metricSpend, "Cost of usage in the currency of Options.Price, estimated usage included"),
		unpriced:       b.counter(metricUnpriced, "{record}", "Usage records whose price is not known"),
		recordFailures: b.counter(metricRecordFailures, "{record}", "Usage records that the usage store did not take"),
		notStored:      b.counter(metricNotStored, "{reply}", "Replies that were sent although the response store did not take them"),

		byRequest: newCache(func(l requestLabels) *requestOptions { return newRequestOptions(l, o.ProviderName) }),
		byRefusal: newCache(refusalLabels.options),
		byTry:     newCache(tryLabels.options),
	}
	// The SDK calls the functions of observable instruments before it reads the other
	// instruments. It calls no function without an instrument, so flush shares one.
	b.observeLevel(metricActive, "{request}", "Requests in progress", func() int64 {
		flush()
		return m.active.Load()
	})
	if buffer := o.UsageBuffer; buffer != nil {
		b.observeLevel(metricBufferWaiting, "{record}", "Usage records that wait to be written to the store",
			func() int64 { return int64(buffer.Waiting()) })
		b.observeCount(metricBufferDropped, "{record}", "Usage records that were dropped", buffer.Dropped)
	}
	if o.Health != nil {
		b.observeHealth(o.Health)
	}
	if b.err != nil {
		return nil, b.err
	}
	// A counter that appears with its first increment does not look like an increase.
	m.unpriced.Add(context.Background(), 0)
	m.recordFailures.Add(context.Background(), 0)
	m.notStored.Add(context.Background(), 0)
	return m, nil
}

// A builder makes instruments. err has the errors of those that it could not make.
type builder struct {
	meter metric.Meter
	err   error
}

func (b *builder) seconds(name, description string, bounds []float64) metric.Float64Histogram {
	h, err := b.meter.Float64Histogram(
		name,
		metric.WithUnit("s"),
		metric.WithDescription(description),
		metric.WithExplicitBucketBoundaries(bounds...),
	)
	b.err = errors.Join(b.err, err)
	return h
}

func (b *builder) tokens(name, description string) metric.Int64Histogram {
	h, err := b.meter.Int64Histogram(
		name,
		metric.WithUnit("{token}"),
		metric.WithDescription(description),
		metric.WithExplicitBucketBoundaries(boundsTokens...),
	)
	b.err = errors.Join(b.err, err)
	return h
}

func (b *builder) counter(name, unit, description string) metric.Int64Counter {
	c, err := b.meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
	b.err = errors.Join(b.err, err)
	return c
}

func (b *builder) money(name, description string) metric.Float64Counter {
	c, err := b.meter.Float64Counter(name, metric.WithUnit("{currency}"), metric.WithDescription(description))
	b.err = errors.Join(b.err, err)
	return c
}

// observeLevel makes an instrument for a value that rises and falls.
func (b *builder) observeLevel(name, unit, description string, value func() int64) {
	_, err := b.meter.Int64ObservableUpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(description), observe(value))
	b.err = errors.Join(b.err, err)
}

// observeCount makes an instrument for a value that only rises.
func (b *builder) observeCount(name, unit, description string, value func() int64) {
	_, err := b.meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(description), observe(value))
	b.err = errors.Join(b.err, err)
}

// observeHealth makes the instruments for the result of [Options.Health].
func (b *builder) observeHealth(health func() (bool, map[string]bool)) {
	ready, err := b.meter.Int64ObservableGauge(
		metricReady,
		metric.WithUnit("{process}"),
		metric.WithDescription("1 if the process is ready for requests, otherwise 0"),
	)
	b.err = errors.Join(b.err, err)
	success, err := b.meter.Int64ObservableGauge(
		metricCheckSuccess,
		metric.WithUnit("{check}"),
		metric.WithDescription("1 if the last check succeeded, otherwise 0"),
	)
	b.err = errors.Join(b.err, err)
	_, err = b.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		isReady, checks := health()
		o.ObserveInt64(ready, toInt(isReady))
		for name, ok := range checks {
			o.ObserveInt64(success, toInt(ok), metric.WithAttributes(attrCheck.String(name)))
		}
		return nil
	}, ready, success)
	b.err = errors.Join(b.err, err)
}

func toInt(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func observe(value func() int64) metric.Int64ObservableOption {
	return metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
		o.Observe(value())
		return nil
	})
}

// record records the metrics of a request that has ended.
func (t *Telemetry) record(ctx context.Context, s *llmhttp.RequestSummary) {
	m := t.metrics
	if r := s.Refused; r.Limit != "" {
		m.refusals.Add(ctx, 1, m.byRefusal.get(refusalLabels{r.Limit, r.Subject.Kind, t.account(s)})...)
	}
	if s.Record.Unpriced {
		m.unpriced.Add(ctx, 1)
	}
	if s.RecordErr != nil {
		m.recordFailures.Add(ctx, 1)
	}
	if s.SaveErr != nil {
		m.notStored.Add(ctx, 1)
	}
	if s.Record.Operation == "" {
		return
	}
	opts := t.optionsFor(s)
	m.requestDuration.Record(ctx, s.Duration.Seconds(), opts.times...)
	if s.Err == nil {
		m.recordTokenTimes(ctx, s, opts)
	} else if s.Aborted() {
		m.streamsCut.Add(ctx, 1, opts.cut...)
	}
	if s.Request != nil {
		m.recordUsage(ctx, s, opts)
	}
	if cost := s.Record.Cost.Total(); cost > 0 { // also of what a refused request has loaded
		m.spend.Add(ctx, cost.Float64(), opts.spend...)
	}
}

// optionsFor returns the attributes of the metrics of a request.
func (t *Telemetry) optionsFor(s *llmhttp.RequestSummary) *requestOptions {
	success := s.Err == nil && s.Request != nil
	return t.metrics.byRequest.get(requestLabels{
		operation: s.Record.Operation, protocol: s.Record.Protocol,
		requestModel: t.models.label(s.Record.Model, success), responseModel: t.models.label(s.Reply.Model, success),
		errorType: s.ErrorClass, account: t.account(s),
	})
}

// account returns the account as an attribute, or "" if metrics have none.
func (t *Telemetry) account(s *llmhttp.RequestSummary) string {
	if !t.opts.Accounts {
		return ""
	}
	return t.accounts.label(s.Record.Account, true)
}

// recordTokenTimes records when tokens were generated. If the Backend yields the
// reply in one chunk, that is not known, unless the client asked for a stream.
func (m *metrics) recordTokenTimes(ctx context.Context, s *llmhttp.RequestSummary, opts *requestOptions) {
	hasTimes := s.LastToken > s.FirstToken
	if hasTimes || s.Streamed && s.FirstToken > 0 {
		m.firstToken.Record(ctx, s.FirstToken.Seconds(), opts.times...)
	}
	if n := s.Record.Units.CompletionTokens; hasTimes && n > 1 && !s.Record.Estimated {
		m.perToken.Record(ctx, (s.LastToken-s.FirstToken).Seconds()/float64(n-1), opts.times...)
	}
}

// recordUsage records the tokens of a request, whether it succeeded or not.
func (m *metrics) recordUsage(ctx context.Context, s *llmhttp.RequestSummary, opts *requestOptions) {
	u := &s.Record.Units
	if !s.Record.Estimated {
		recordTokens(ctx, m.tokenUsage, u.PromptTokens, opts.input)
		recordTokens(ctx, m.tokenUsage, u.CompletionTokens, opts.output)
	}
	addTokens(ctx, m.tokenDetails, u.CachedTokens, opts.cacheRead)
	addTokens(ctx, m.tokenDetails, u.CacheWriteTokens, opts.cacheWrite)
	addTokens(ctx, m.tokenDetails, u.ReasoningTokens, opts.reasoning)
}

func recordTokens(ctx context.Context, h metric.Int64Histogram, n int64, opts []metric.RecordOption) {
	if n > 0 {
		h.Record(ctx, n, opts...)
	}
}

func addTokens(ctx context.Context, c metric.Int64Counter, n int64, opts []metric.AddOption) {
	if n > 0 {
		c.Add(ctx, n, opts...)
	}
}

func (m *metrics) recordTry(ctx context.Context, d time.Duration, l tryLabels) {
	m.tryDuration.Record(ctx, d.Seconds(), m.byTry.get(l)...)
}
