package otelllm_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/trace"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/otelllm"
	"github.com/llmhttp/llmhttp/route"
)

var errCause = errors.New("cause-marker")

// An outcome is what a request that ends in a certain way leaves.
type outcome struct {
	config config
	body   string                         // chatBody if empty
	send   func(t *testing.T, f *fixture) // sends the request in another way, and waits for its end

	class  string // error.type; empty for success
	span   string // the name of the request's span; empty if there is none
	failed bool   // the span has the status Error
	limit  string // llmhttp.limit
	cut    bool
	used   bool // tokens were used, as the Backend reported them
	model  any  // gen_ai.request.model of metrics
	reply  any  // gen_ai.response.model of metrics
}

// waits returns a Backend that sends reached when it is called, yields a chunk if
// yields is true, and waits until its request ends.
func waits(reached chan<- struct{}, yields bool) llmhttp.Backend {
	return backend(func(ctx context.Context, yield func(*llm.ChatChunk, error) bool) {
		if yields {
			yield(llm.TextChunk("reply-marker"), nil)
		}
		reached <- struct{}{}
		<-ctx.Done()
	})
}

func limited(l llmhttp.Limits) config {
	return config{key: llmhttp.Key{ID: "key_1", Account: "acme", Limits: l}, opts: llmhttp.Options{Usage: memory.NewUsageStore()}}
}

func fails(err error, text ...string) config {
	return config{backend: backend(func(_ context.Context, yield func(*llm.ChatChunk, error) bool) {
		for _, s := range text {
			yield(llm.TextChunk(s), nil)
		}
		yield(nil, err)
	})}
}

func outcomes() map[string]outcome {
	none := llmhttp.Rate{N: -1}
	reached := make(chan struct{}, 10)
	interrupt := func(t *testing.T, f *fixture) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			f.send(context.Background(), "POST", chatPath, streamBody)
		}()
		<-reached
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		f.handler.Shutdown(ctx)
		<-done
	}
	leave := func(t *testing.T, f *fixture) {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			f.send(ctx, "POST", chatPath, streamBody)
		}()
		<-reached
		cancel()
		<-done
	}
	refuse := func(t *testing.T, f *fixture) {
		require.NoError(t, f.handler.Shutdown(context.Background()))
		f.send(context.Background(), "POST", chatPath, chatBody)
	}
	limiterAway := config{}
	limiterAway.opts.Limiter = brokenLimiter{}
	limiterAway.key = llmhttp.Key{ID: "key_1", Account: "acme", Limits: llmhttp.Limits{Requests: llmhttp.PerMinute(1)}}
	silent := config{backend: waits(make(chan struct{}, 1), false)}
	silent.opts.Bounds.Timeout = time.Millisecond
	return map[string]outcome{
		"whole":                {span: "chat m", used: true, model: "m", reply: "m-2026"},
		"stream":               {body: streamBody, span: "chat m", used: true, model: "m", reply: "m-2026"},
		"limit of requests":    {config: limited(llmhttp.Limits{Requests: none}), class: "rate_limit", limit: "requests"},
		"limit of tokens":      {config: limited(llmhttp.Limits{Tokens: none}), class: "rate_limit", limit: "tokens", model: "_OTHER"},
		"quota":                {config: limited(llmhttp.Limits{Quota: llmhttp.Quota{Tokens: -1}}), class: "rate_limit", limit: "quota", model: "_OTHER"},
		"limit of concurrency": {config: limited(llmhttp.Limits{Concurrent: -1}), class: "rate_limit", limit: "concurrent"},
		"limiter away":         {config: limiterAway, class: "limiter"},
		"bad request":          {body: "{", class: "invalid_request"},
		"unknown model":        {config: fails(llm.ModelNotFound("m")), class: "not_found", span: "chat", model: "_OTHER"},
		"backend error":        {config: fails(errCause), class: "backend", span: "chat", failed: true, model: "_OTHER"},
		"error in mid-stream":  {config: fails(errCause, "reply-marker"), body: streamBody, class: "backend", span: "chat", failed: true, cut: true, model: "_OTHER"},
		"429 in mid-stream": {config: fails(llm.Errorf(429, "", "x"), "reply-marker"), body: streamBody, class: "rate_limit", span: "chat", failed: true,
			cut: true, model: "_OTHER"},
		"client gone":            {config: config{backend: waits(reached, false)}, send: leave, class: "canceled", span: "chat", model: "_OTHER"},
		"client gone mid-stream": {config: config{backend: waits(reached, true)}, send: leave, class: "canceled", span: "chat", cut: true, model: "_OTHER"},
		"timeout":                {config: silent, class: "timeout", span: "chat", failed: true, model: "_OTHER"},
		"Shutdown":               {config: config{backend: waits(reached, true)}, send: interrupt, class: "shutdown", span: "chat", failed: true, cut: true, model: "_OTHER"},
		"after Shutdown":         {send: refuse, class: "shutdown"},
	}
}

// A brokenLimiter is a Limiter whose store is unavailable.
type brokenLimiter struct{}

func (brokenLimiter) Take(context.Context, ...llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
	return nil, errCause
}
func (brokenLimiter) Adjust(context.Context, ...llmhttp.BucketAmount) error { return errCause }

func TestOutcomes(t *testing.T) {
	for name, o := range outcomes() {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, o.config)
			switch {
			case o.send != nil:
				o.send(t, f)
			case o.body != "":
				f.send(t.Context(), "POST", chatPath, o.body)
			default:
				f.send(t.Context(), "POST", chatPath, chatBody)
			}
			s := <-f.ended
			assert.Equal(t, o.class, string(s.ErrorClass), "%v", s.Err)
			o.checkMetrics(t, f.metrics())
			o.checkSpans(t, f)
			f.checkNoContent()
		})
	}
}

func (o *outcome) checkMetrics(t *testing.T, got map[string]metricdata.Metrics) {
	t.Helper()
	want := map[string]any{"gen_ai.operation.name": "chat", "gen_ai.provider.name": "llmhttp", "llmhttp.protocol": "chat"}
	if o.model != nil {
		want["gen_ai.request.model"] = o.model
	}
	if o.reply != nil {
		want["gen_ai.response.model"] = o.reply
	}
	if o.class != "" {
		want["error.type"] = o.class
	}
	duration := points(got["gen_ai.server.request.duration"])
	require.Len(t, duration, 1)
	assert.Equal(t, want, duration[0].attrs)
	assert.EqualValues(t, 1, duration[0].count)
	assert.Positive(t, duration[0].sum)

	active := points(got["llmhttp.requests.active"])
	require.Len(t, active, 1)
	assert.Zero(t, active[0].sum)

	assert.Equal(t, o.class == "", len(points(got["gen_ai.server.time_to_first_token"])) == 1)
	assert.Equal(t, o.class == "", len(points(got["gen_ai.server.time_per_output_token"])) == 1)
	assert.Equal(t, o.cut, len(points(got["llmhttp.streams.cut"])) == 1)
	if o.limit != "" {
		assert.Equal(t, []point{{attrs: map[string]any{"llmhttp.limit": o.limit, "llmhttp.limit.subject": "key"}, sum: 1}}, points(got["llmhttp.refusals"]))
	} else {
		assert.Empty(t, points(got["llmhttp.refusals"]))
	}
	tokens := make(map[any]float64)
	for _, p := range points(got["gen_ai.client.token.usage"]) {
		tokens[p.attrs["gen_ai.token.type"]] = p.sum
	}
	details := make(map[any]float64)
	for _, p := range points(got["llmhttp.token.details"]) {
		details[p.attrs["llmhttp.token.kind"]] = p.sum
	}
	if o.used {
		assert.Equal(t, map[any]float64{"input": 10, "output": 2}, tokens)
		assert.Equal(t, map[any]float64{"cache_read": 4, "cache_write": 3, "reasoning": 1}, details)
	} else {
		assert.Empty(t, tokens)
		assert.Empty(t, details)
	}
}

func (o *outcome) checkSpans(t *testing.T, f *fixture) {
	t.Helper()
	server, own := f.spansOf()
	require.NotNil(t, server)
	if o.cut { // the Handler panics, so otelhttp does not learn the route
		assert.Equal(t, "POST", server.Name)
	} else {
		assert.Equal(t, "POST "+chatPath, server.Name)
	}
	assert.Equal(t, traceID, server.SpanContext.TraceID().String())
	assert.Equal(t, parentID, server.Parent.SpanID().String())
	if o.span == "" {
		assert.Empty(t, own)
		attrs := attributes(server.Attributes)
		assert.Equal(t, o.class, attrs["error.type"])
		if o.limit != "" {
			assert.Equal(t, o.limit, attrs["llmhttp.limit"])
			assert.Equal(t, "key", attrs["llmhttp.limit.subject"])
		}
		return
	}
	require.Len(t, own, 1)
	require.Contains(t, own, o.span)
	span := own[o.span]
	assert.Equal(t, server.SpanContext.SpanID(), span.Parent.SpanID())
	assert.Equal(t, trace.SpanKindInternal, span.SpanKind)
	assert.Equal(t, o.failed, span.Status.Code == codes.Error)
	assert.False(t, span.StartTime.After(span.EndTime))
	attrs := attributes(span.Attributes)
	if o.class != "" {
		assert.Equal(t, o.class, attrs["error.type"])
	} else {
		assert.NotContains(t, attrs, "error.type")
	}
	if o.cut {
		assert.Equal(t, []string{"error"}, attrs["gen_ai.response.finish_reasons"])
	}
	assert.Equal(t, "chat", attrs["gen_ai.operation.name"])
	assert.Equal(t, "m", attrs["gen_ai.request.model"])
}

// A fallback leaves a CLIENT span for each try, whose context the target gets.
func TestFallback(t *testing.T) {
	var seen []trace.SpanContext
	see := func(b llmhttp.Backend) llmhttp.Backend {
		return llmhttp.BackendFunc(func(ctx context.Context, r *llm.ChatRequest) llm.ChatStream {
			seen = append(seen, trace.SpanContextFromContext(ctx))
			return b.Chat(ctx, r)
		})
	}
	down := fails(&llm.Error{Status: 503, Code: "code-of-a-server", Message: "cause-marker"}).backend
	router, err := route.New([]route.Route{{Model: "*", Strategy: route.InOrder, Targets: []route.Target{
		{Name: "down", Backend: see(down)}, {Name: "up", Backend: see(chunks(reply()))},
	}}}, nil)
	require.NoError(t, err)
	f := newFixture(t, config{backend: router, telemetry: otelllm.Options{
		Targets: map[string]otelllm.Target{"up": {ProviderName: "anthropic", Address: "up.test", Port: 443}},
	}})
	s := f.chat(chatBody)
	require.NoError(t, s.Err)
	got := f.metrics()
	assert.ElementsMatch(t, []map[string]any{
		{"gen_ai.operation.name": "chat", "gen_ai.provider.name": "llmhttp", "llmhttp.target": "down", "error.type": "backend"},
		{"gen_ai.operation.name": "chat", "gen_ai.provider.name": "anthropic", "llmhttp.target": "up"},
	}, attributesOf(points(got["llmhttp.try.duration"])))
	assert.Equal(t, []point{{attrs: map[string]any{"llmhttp.target": "up"}, sum: 1}}, points(got["llmhttp.fallbacks"]))
	f.checkNoContent()

	_, own := f.spansOf()
	require.Len(t, own, 3)
	chat, first, second := own["chat m"], own["chat down"], own["chat up"]
	for i, span := range []struct{ got, parent trace.SpanID }{
		{first.Parent.SpanID(), chat.SpanContext.SpanID()}, {second.Parent.SpanID(), chat.SpanContext.SpanID()},
		{first.SpanContext.SpanID(), seen[0].SpanID()}, {second.SpanContext.SpanID(), seen[1].SpanID()},
	} {
		assert.Equal(t, span.parent, span.got, i)
	}
	assert.Equal(t, trace.SpanKindClient, first.SpanKind)
	assert.Equal(t, codes.Error, first.Status.Code)
	assert.Equal(t, codes.Unset, second.Status.Code)
	assert.Equal(t, codes.Unset, chat.Status.Code)
	assert.Equal(t, map[string]any{"gen_ai.operation.name": "chat", "gen_ai.provider.name": "anthropic", "gen_ai.request.model": "m",
		"llmhttp.target": "up", "server.address": "up.test", "server.port": int64(443)}, attributes(second.Attributes))
}

func attributesOf(list []point) []map[string]any {
	var all []map[string]any
	for _, p := range list {
		all = append(all, p.attrs)
	}
	return all
}

// Requests that call no model leave nothing but the metrics that there always are.
func TestOtherEndpoints(t *testing.T) {
	f := newFixture(t, config{})
	for _, path := range []string{"/v1/models", "/v1/none"} {
		f.send(t.Context(), http.MethodGet, path, "")
		<-f.ended
	}
	got := f.metrics()
	require.Len(t, got, 4)
	assert.Contains(t, got, "llmhttp.usage.unpriced")
	assert.Contains(t, got, "llmhttp.requests.active")
	assert.Contains(t, got, "llmhttp.replies.not_stored")
	assert.Contains(t, got, "llmhttp.usage.record_failures")
	_, own := f.spansOf()
	assert.Empty(t, own)
}
