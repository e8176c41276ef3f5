package otelllm_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/completion"
	"github.com/llmhttp/llmhttp/imageedit"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/moderation"
	"github.com/llmhttp/llmhttp/otelllm"
	"github.com/llmhttp/llmhttp/rerank"
	"github.com/llmhttp/llmhttp/usagebuffer"
)

// The metrics of the conventions, copied from their tables:
// https://github.com/open-telemetry/semantic-conventions/blob/v1.41.0/docs/gen-ai/gen-ai-metrics.md
var conventions = []struct {
	name, unit string
	bounds     []float64
	required   []string
	optional   []string
}{
	{"gen_ai.server.request.duration", "s",
		[]float64{0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92},
		[]string{"gen_ai.operation.name", "gen_ai.provider.name"}, []string{"error.type", "gen_ai.request.model", "gen_ai.response.model", "llmhttp.protocol"}},
	{"gen_ai.server.time_to_first_token", "s",
		[]float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10},
		[]string{"gen_ai.operation.name", "gen_ai.provider.name"}, []string{"gen_ai.request.model", "gen_ai.response.model", "llmhttp.protocol"}},
	{"gen_ai.server.time_per_output_token", "s",
		[]float64{0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5},
		[]string{"gen_ai.operation.name", "gen_ai.provider.name"}, []string{"gen_ai.request.model", "gen_ai.response.model", "llmhttp.protocol"}},
	{"gen_ai.client.token.usage", "{token}",
		[]float64{1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864},
		[]string{"gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.token.type"}, []string{"gen_ai.request.model", "gen_ai.response.model", "llmhttp.protocol"}},
}

func TestConventions_Metrics(t *testing.T) {
	f := newFixture(t, config{})
	f.chat(streamBody)
	got := f.metrics()
	for _, want := range conventions {
		m, ok := got[want.name]
		require.True(t, ok, want.name)
		assert.Equal(t, want.unit, m.Unit)
		var bounds []float64
		switch d := m.Data.(type) {
		case metricdata.Histogram[float64]:
			bounds = d.DataPoints[0].Bounds
		case metricdata.Histogram[int64]:
			bounds = d.DataPoints[0].Bounds
		}
		assert.Equal(t, want.bounds, bounds, want.name)
		for _, p := range points(m) {
			for _, name := range want.required {
				assert.Contains(t, p.attrs, name, want.name)
			}
			for name := range p.attrs {
				assert.Contains(t, append(want.required, want.optional...), name, want.name)
			}
		}
	}
	for name := range got {
		known := strings.HasPrefix(name, "llmhttp.")
		for _, c := range conventions {
			known = known || c.name == name
		}
		assert.True(t, known, "%s is neither a metric of the conventions nor of llmhttp", name)
	}
}

// The attributes of spans have the names and types of
// https://github.com/open-telemetry/semantic-conventions/blob/v1.41.0/docs/gen-ai/gen-ai-spans.md.
func TestConventions_Span(t *testing.T) {
	const body = `{"model":"m","messages":[{"role":"user","content":"x"}],"n":2,"max_tokens":7,"temperature":0.5,"top_p":0.25,"top_k":40,
		"presence_penalty":1,"frequency_penalty":-1,"seed":9,"stop":["x","y"],"stream":true,"response_format":{"type":"json_object"},"reasoning_effort":"low"}`
	f := newFixture(t, config{opts: llmhttp.Options{Observe: func(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
		llmhttp.SetConversation(ctx, "conversation-1")
		return ctx, llmhttp.Observation{}
	}}})
	s := f.chat(body)
	_, own := f.spansOf()
	got := attributes(own["chat m"].Attributes)
	assert.InDelta(t, s.FirstChunk.Seconds(), got["gen_ai.response.time_to_first_chunk"], 1e-9)
	delete(got, "gen_ai.response.time_to_first_chunk")
	assert.Equal(t, map[string]any{
		"gen_ai.operation.name": "chat", "gen_ai.provider.name": "llmhttp", "gen_ai.request.model": "m", "gen_ai.output.type": "json",
		"gen_ai.conversation.id":      "conversation-1",
		"gen_ai.request.choice.count": int64(2), "gen_ai.request.seed": int64(9), "gen_ai.request.stream": true, "gen_ai.request.max_tokens": int64(7),
		"gen_ai.request.temperature": 0.5, "gen_ai.request.top_p": 0.25, "gen_ai.request.top_k": 40.0,
		"gen_ai.request.presence_penalty": 1.0, "gen_ai.request.frequency_penalty": -1.0, "gen_ai.request.stop_sequences": []string{"x", "y"},
		"gen_ai.response.id": "reply-1", "gen_ai.response.model": "m-2026", "gen_ai.response.finish_reasons": []string{"stop"},
		"gen_ai.usage.input_tokens": int64(10), "gen_ai.usage.output_tokens": int64(2), "gen_ai.usage.cache_read.input_tokens": int64(4),
		"gen_ai.usage.cache_creation.input_tokens": int64(3), "gen_ai.usage.reasoning.output_tokens": int64(1),
		"llmhttp.request.id": s.Record.ID, "llmhttp.key": "key_1", "llmhttp.account": "acme", "llmhttp.protocol": "chat", "llmhttp.request.reasoning_effort": "low",
	}, got)
}

// The texts that a client chooses are cut, without half a character at the end.
func TestSpan_TextsOfClientsAreBounded(t *testing.T) {
	long := strings.Repeat("é", 100_000)
	f := newFixture(t, config{})
	f.chat(`{"model":"m","messages":[{"role":"user","content":"x"}],"stop":["a` + long + `"],"reasoning_effort":"` + long + `"}`)
	_, own := f.spansOf()
	got := attributes(own["chat m"].Attributes)
	assert.Equal(t, []string{"a" + strings.Repeat("é", 127)}, got["gen_ai.request.stop_sequences"])
	assert.Equal(t, strings.Repeat("é", 128), got["llmhttp.request.reasoning_effort"])
}

func TestConventions_OtherOperations(t *testing.T) {
	for _, test := range []struct {
		path, body, span string
		want             map[string]any
	}{
		{"/v1/embeddings", `{"model":"m","input":"x","dimensions":2,"encoding_format":"float"}`, "embeddings m",
			map[string]any{"gen_ai.operation.name": "embeddings", "gen_ai.embeddings.dimension.count": int64(2), "gen_ai.request.encoding_formats": []string{"float"}}},
		{"/v1/rerank", `{"model":"m","query":"q","documents":["x"]}`, "rerank m", map[string]any{"gen_ai.operation.name": "rerank"}},
		{"/v1/completions", `{"model":"m","prompt":["x","y"],"max_tokens":7}`, "text_completion m",
			map[string]any{"gen_ai.operation.name": "text_completion", "gen_ai.request.choice.count": int64(2), "gen_ai.request.max_tokens": int64(7)}},
		{"/v1/moderations", `{"model":"m","input":"x"}`, "moderations m", map[string]any{"gen_ai.operation.name": "moderations"}},
		{"/v1/audio/speech", `{"model":"m","input":"x","voice":"v","response_format":"wav"}`, "generate_content m",
			map[string]any{"gen_ai.operation.name": "generate_content", "gen_ai.output.type": "speech"}},
		{"/v1/images/generations", `{"model":"m","prompt":"x","n":2}`, "generate_content m",
			map[string]any{"gen_ai.operation.name": "generate_content", "gen_ai.output.type": "image", "gen_ai.request.choice.count": int64(2)}},
		{"/v1/images/edits", `{"model":"m","prompt":"x","images":[{"image_url":"data:image/png;base64,eA=="}]}`, "generate_content m",
			map[string]any{"gen_ai.operation.name": "generate_content", "gen_ai.output.type": "image"}},
	} {
		f := newFixture(t, config{backend: other{}})
		f.send(t.Context(), "POST", test.path, test.body, "Content-Type", "application/json")
		s := <-f.ended
		require.NoError(t, s.Err)
		_, own := f.spansOf()
		require.Contains(t, own, test.span)
		got := attributes(own[test.span].Attributes)
		for name, value := range test.want {
			assert.Equal(t, value, got[name], name)
		}
	}
}

// An operation of a host has its own name in spans and metrics. The host's Routes bound how many there are.
func TestConventions_OperationsOfHosts(t *testing.T) {
	serve := func(c *llmhttp.Call) error {
		if err := c.Reserve(llmhttp.Estimate{Model: "m"}); err != nil {
			return err
		}
		err := c.Ask(func(context.Context, llmhttp.Backend) (llmhttp.Used, error) {
			return llmhttp.Used{Usage: &llm.Usage{PromptTokens: 7}}, nil
		})
		if err != nil {
			return err
		}
		return c.Reply("", func(b []byte) ([]byte, error) { return append(b, "{}"...), nil })
	}
	endpoint := &llmhttp.Endpoint{Operation: "classify", Scope: "classify", Output: llmhttp.OutputNone}
	f := newFixture(t, config{opts: llmhttp.Options{Routes: []llmhttp.Route{llmhttp.NewRoute("POST /v1/classify", endpoint, serve)}}})
	f.send(t.Context(), "POST", "/v1/classify", "{}", "Content-Type", "application/json")
	require.NoError(t, (<-f.ended).Err)
	_, own := f.spansOf()
	require.Contains(t, own, "classify m")
	assert.Equal(t, "classify", attributes(own["classify m"].Attributes)["gen_ai.operation.name"])
	for _, name := range []string{"gen_ai.server.request.duration", "gen_ai.client.token.usage"} {
		list := points(f.metrics()[name])
		require.NotEmpty(t, list, name)
		for _, p := range list {
			assert.Equal(t, "classify", p.attrs["gen_ai.operation.name"], name)
		}
	}
}

// other is a Backend for operations other than chat.
type other struct{ llmhttp.Backend }

func (other) Embed(_ context.Context, r *llm.EmbeddingRequest) (*llm.EmbeddingResponse, error) {
	return &llm.EmbeddingResponse{Vectors: slices.Repeat([][]float32{{1}}, r.Input.Len())}, nil
}

func (other) Complete(context.Context, *completion.Request) llm.ChatStream {
	return llm.Reply("x")
}

func (other) Rerank(context.Context, *rerank.Request) (*rerank.Response, error) {
	return &rerank.Response{Results: make([]rerank.Result, 1)}, nil
}

func (other) Moderate(context.Context, *moderation.Request) (*moderation.Response, error) {
	return &moderation.Response{Results: make([]moderation.Result, 1)}, nil
}

func (other) Speak(context.Context, *audio.SpeechRequest) audio.SpeechStream {
	return func(yield func(*audio.SpeechChunk, error) bool) {
		yield(&audio.SpeechChunk{Audio: []byte("a")}, nil)
	}
}

func (other) GenerateImages(context.Context, *llm.ImageRequest) (*llm.ImageResponse, error) {
	return &llm.ImageResponse{Data: []llm.Image{{URL: "https://images.test/1"}}}, nil
}

func (other) EditImages(context.Context, *imageedit.Request) (*llm.ImageResponse, error) {
	return &llm.ImageResponse{Data: []llm.Image{{Data: []byte("x")}}}, nil
}

// However many names of models, keys and paths clients make up, the number of series
// is bounded.
func TestCardinality(t *testing.T) {
	const requests = 2500 // more than the 2000 series of a metric at which the SDK cuts
	for _, test := range []struct {
		name    string
		models  []string
		backend llmhttp.Backend
		most    int // series of one metric
	}{
		{"models are refused", nil, fails(llm.ModelNotFound("m")).backend, 3},
		{"models are accepted", nil, nil, 3 * 101}, // 100 names and _OTHER, three kinds of tokens
		{"replies have the names of requests", nil, echoModel, 3 * 101},
		{"list of models", []string{"a", "b"}, nil, 3 * 3},
		{"list of models, in replies too", []string{"a", "b"}, echoModel, 3 * 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t, config{backend: test.backend, telemetry: otelllm.Options{Models: test.models}, sampler: sdktrace.NeverSample(), bare: true})
			call := func(method, path, body, key string) {
				f.serve(method, path, body, key)
				<-f.ended
			}
			for i := range requests {
				call("POST", chatPath, fmt.Sprintf(`{"model":"hostile-%d","messages":[{"role":"user","content":"x"}]}`, i), secret)
				call("POST", chatPath, chatBody, fmt.Sprintf("sk-hostile-%d", i))
				call("GET", fmt.Sprintf("/v1/hostile-%d", i), "", secret)
			}
			call("POST", chatPath, strings.Replace(chatBody, `"m"`, `"a"`, 1), secret)
			var total uint64
			for name, m := range f.metrics() {
				list := points(m)
				assert.LessOrEqual(t, len(list), test.most, name)
				for _, p := range list {
					assert.NotContains(t, fmt.Sprint(p.attrs), "overflow", "the SDK had to cut %s", name)
					if name == "gen_ai.server.request.duration" {
						total += p.count
					}
				}
			}
			assert.EqualValues(t, 2*requests+1, total)
		})
	}
}

// Requests whose traces are not sampled are recorded in batches, but before metrics are
// collected. The number of requests is not a multiple of the size of a batch.
func TestBatch_IsCompleteWhenMetricsAreCollected(t *testing.T) {
	const requests, senders = 25, 8
	f := newFixture(t, config{sampler: sdktrace.NeverSample(), bare: true})
	go func() {
		for range 2 * requests * senders {
			<-f.ended
		}
	}()
	for round := range 2 {
		var wg sync.WaitGroup
		for range senders {
			wg.Go(func() {
				for range requests {
					f.serve("POST", chatPath, chatBody, secret)
				}
			})
		}
		wg.Wait()
		got := points(f.metrics()["gen_ai.server.request.duration"])
		require.Len(t, got, 1)
		assert.EqualValues(t, (round+1)*requests*senders, got[0].count)
	}
}

// A request whose trace is sampled can be an exemplar, which names the trace.
func TestBatch_SampledRequestsAreExemplars(t *testing.T) {
	f := newFixture(t, config{})
	f.chat(chatBody)
	points := f.metrics()["gen_ai.server.request.duration"].Data.(metricdata.Histogram[float64]).DataPoints
	require.Len(t, points[0].Exemplars, 1)
	assert.Contains(t, traceparent, hex.EncodeToString(points[0].Exemplars[0].TraceID))
}

// echoModel is a Backend that replies with the name of the model in the request.
var echoModel = llmhttp.BackendFunc(func(_ context.Context, req *llm.ChatRequest) llm.ChatStream {
	return func(yield func(*llm.ChatChunk, error) bool) {
		c := llm.TextChunk("x")
		c.Model, c.Usage = req.Model, &llm.Usage{PromptTokens: 1, CompletionTokens: 1}
		yield(c, nil)
	}
})

// The time of the first token is known from streams, and from whole replies that the
// Backend yields in several chunks.
func TestTimeToFirstToken(t *testing.T) {
	one := chunks([]*llm.ChatChunk{llm.TextChunk("a")})
	for _, test := range []struct {
		name    string
		backend llmhttp.Backend
		body    string
		want    int
	}{
		{"several chunks", nil, chatBody, 1},
		{"one chunk", one, chatBody, 0},
		{"stream of one chunk", one, streamBody, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t, config{backend: test.backend})
			f.chat(test.body)
			assert.Len(t, points(f.metrics()["gen_ai.server.time_to_first_token"]), test.want)
		})
	}
}

func TestAccountsAndSpend(t *testing.T) {
	f := newFixture(t, config{
		telemetry: otelllm.Options{ProviderName: "acme-models", Accounts: true},
		opts: llmhttp.Options{Price: func(r *llmhttp.UsageRecord) (llmhttp.Cost, error) {
			return llmhttp.Cost{
				Input: llm.MoneyUnit.Scale(r.Units.PromptTokens, 1), Output: llm.MoneyUnit.Scale(10*r.Units.CompletionTokens, 1),
				CacheRead: llm.MoneyUnit.Scale(r.Units.CachedTokens, 2),
			}, nil
		}},
	})
	f.chat(chatBody)
	f.chat(streamBody)
	spend := points(f.metrics()["llmhttp.spend"])
	assert.Equal(t, []point{{attrs: map[string]any{"gen_ai.operation.name": "chat", "gen_ai.provider.name": "acme-models", "gen_ai.request.model": "m",
		"gen_ai.response.model": "m-2026", "llmhttp.protocol": "chat", "llmhttp.account": "acme"}, sum: 2 * (10 + 20 + 2)}}, spend)
}

// What requests cost is told by model, and by account only if the host wants that.
func TestSpend_ByModel(t *testing.T) {
	f := newFixture(t, config{
		backend: echoModel,
		opts: llmhttp.Options{Price: func(r *llmhttp.UsageRecord) (llmhttp.Cost, error) {
			prices := map[string]llm.Money{"large": llm.USD(5), "small": llm.MoneyUnit / 8}
			return llmhttp.Cost{Output: prices[r.ServedModel]}, nil
		}},
	})
	for _, model := range []string{"large", "small", "free", "small"} {
		f.chat(strings.Replace(chatBody, `"m"`, `"`+model+`"`, 1))
	}
	got := make(map[any]float64)
	for _, p := range points(f.metrics()["llmhttp.spend"]) {
		got[p.attrs["gen_ai.request.model"]] = p.sum
		assert.NotContains(t, p.attrs, "llmhttp.account")
	}
	assert.Equal(t, map[any]float64{"large": 5, "small": 0.25}, got)
}

// However many accounts there are, a metric has at most the series of 1,000 of them, and what
// the others cost is not lost.
func TestAccounts_Cardinality(t *testing.T) {
	const accounts = 5_000
	reader := sdkmetric.NewManualReader()
	telemetry, err := otelllm.New(&otelllm.Options{Accounts: true, TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample())),
		MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
	require.NoError(t, err)
	info := &llmhttp.RequestInfo{ID: "req_1", Model: "m", Protocol: "chat", Operation: llmhttp.OperationChat}
	for i := range 2 * accounts {
		ctx, o := telemetry.Observe(t.Context(), nil)
		o.Started(ctx, info)
		s := &llmhttp.RequestSummary{Request: info}
		s.Record.Operation, s.Record.Model, s.Record.Account = info.Operation, info.Model, fmt.Sprintf("account-%d", i%accounts)
		s.Record.Cost.Output = llm.MoneyUnit
		o.Ended(s)
	}
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &all))
	got := make(map[any]float64)
	for _, m := range all.ScopeMetrics[0].Metrics {
		if m.Name == "llmhttp.spend" {
			for _, p := range points(m) {
				got[p.attrs["llmhttp.account"]] = p.sum
			}
		}
	}
	assert.Equal(t, 1_001, len(got), "1,000 accounts and _OTHER")
	assert.EqualValues(t, 2, got["account-0"])
	assert.EqualValues(t, 2, got["account-999"])
	assert.EqualValues(t, 2*(accounts-1_000), got["_OTHER"])
}

// Records without a price are counted, from zero on.
func TestUnpriced(t *testing.T) {
	f := newFixture(t, config{opts: llmhttp.Options{Price: func(r *llmhttp.UsageRecord) (llmhttp.Cost, error) {
		return llmhttp.Cost{Output: llm.MoneyUnit}, errors.New("no price")
	}}})
	assert.Equal(t, []point{{attrs: map[string]any{}}}, points(f.metrics()["llmhttp.usage.unpriced"]))
	f.chat(chatBody)
	assert.Equal(t, []point{{attrs: map[string]any{}, sum: 1}}, points(f.metrics()["llmhttp.usage.unpriced"]))
	assert.NotContains(t, f.metrics(), "llmhttp.spend")
}

// A usage that the Backend did not report is not counted as tokens.
func TestEstimatedUsage(t *testing.T) {
	f := newFixture(t, config{backend: chunks([]*llm.ChatChunk{llm.TextChunk("a"), llm.TextChunk("b")})})
	s := f.chat(chatBody)
	require.True(t, s.Record.Estimated)
	assert.NotContains(t, f.metrics(), "gen_ai.client.token.usage")
	_, own := f.spansOf()
	assert.Equal(t, true, attributes(own["chat m"].Attributes)["llmhttp.usage.estimated"])
}

// A failingStore is a UsageStore that takes nothing.
type failingStore struct{}

func (failingStore) Record(context.Context, ...llmhttp.UsageRecord) error { return errCause }

func (failingStore) Query(context.Context, llmhttp.UsageQuery) ([]llmhttp.UsageSum, error) {
	return nil, errCause
}

func TestUsageStoreAway(t *testing.T) {
	buffer := usagebuffer.New(failingStore{}, &usagebuffer.Options{BatchSize: 100, Delay: math.MaxInt32, Logger: slog.New(slog.DiscardHandler)})
	f := newFixture(t, config{opts: llmhttp.Options{Usage: buffer}, telemetry: otelllm.Options{UsageBuffer: buffer}})
	f.chat(chatBody)
	require.NoError(t, buffer.Record(t.Context(), make([]llmhttp.UsageRecord, 9_999)...))
	require.Error(t, buffer.Record(t.Context(), make([]llmhttp.UsageRecord, 3)...))
	f.chat(chatBody)
	got := f.metrics()
	assert.Equal(t, []point{{attrs: map[string]any{}, sum: 10_000}}, points(got["llmhttp.usage_buffer.waiting"]))
	assert.Equal(t, []point{{attrs: map[string]any{}, sum: 4}}, points(got["llmhttp.usage_buffer.dropped"]))
	assert.Equal(t, []point{{attrs: map[string]any{}, sum: 1}}, points(got["llmhttp.usage.record_failures"]))
}

// The gauges of checks need no requests, and exist before a check fails.
func TestHealth(t *testing.T) {
	ready := true
	f := newFixture(t, config{telemetry: otelllm.Options{Health: func() (bool, map[string]bool) {
		return ready, map[string]bool{"keys": true, "limits": ready}
	}}})
	for _, want := range []float64{1, 0, 1} {
		ready = want == 1
		got := f.metrics()
		assert.Equal(t, []point{{attrs: map[string]any{}, sum: want}}, points(got["llmhttp.ready"]))
		assert.ElementsMatch(t, []point{
			{attrs: map[string]any{"llmhttp.check": "keys"}, sum: 1}, {attrs: map[string]any{"llmhttp.check": "limits"}, sum: want},
		}, points(got["llmhttp.check.success"]))
	}
	assert.NotContains(t, newFixture(t, config{}).metrics(), "llmhttp.ready")
}

// The replies that a response store does not take are counted.
func TestResponseStoreAway(t *testing.T) {
	failed := func(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
		return ctx, llmhttp.Observation{Ended: func(s *llmhttp.RequestSummary) { s.SaveErr = errCause }} // called before that of the Telemetry
	}
	f := newFixture(t, config{opts: llmhttp.Options{Observe: failed}})
	f.chat(chatBody)
	assert.Equal(t, []point{{attrs: map[string]any{}, sum: 1}}, points(f.metrics()["llmhttp.replies.not_stored"]))
}

func TestLogHandler(t *testing.T) {
	var out strings.Builder
	log := slog.New(otelllm.LogHandler(slog.NewJSONHandler(&out, nil))).With("service", "x")
	f := newFixture(t, config{opts: llmhttp.Options{Observe: llmhttp.LogRequests(log)}})
	f.chat(chatBody)
	var line map[string]any
	require.NoError(t, json.Unmarshal([]byte(out.String()), &line))
	server, _ := f.spansOf()
	assert.Equal(t, traceID, line["trace_id"])
	assert.Equal(t, server.SpanContext.SpanID().String(), line["span_id"])
	assert.Equal(t, "x", line["service"])
	out.Reset()
	log.Info("no span")
	assert.NotContains(t, out.String(), "trace_id")
}

// Without providers in the Options, the global ones are used.
func TestNew_Defaults(t *testing.T) {
	telemetry, err := otelllm.New(nil)
	require.NoError(t, err)
	assert.NotNil(t, telemetry)
	_, err = otelllm.New(&otelllm.Options{MeterProvider: sdkmetric.NewMeterProvider()})
	assert.NoError(t, err)
}
