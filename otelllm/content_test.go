package otelllm_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/otelllm"
)

const contentBody = `{"model":"m","messages":[{"role":"developer","content":"be brief"},
	{"role":"user","content":[{"type":"text","text":"what is this?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]},
	{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"look","arguments":"{\"a\":1}"}}]},
	{"role":"tool","tool_call_id":"c","content":"it is ` + secret + `"}],
	"tools":[{"type":"function","function":{"name":"look","parameters":{"type":"object"}}}]}`

// contentInput is what is recorded of the messages of contentBody.
const contentInput = `[{"role":"system","parts":[{"type":"text","content":"be brief"}]},
	{"role":"user","parts":[{"type":"text","content":"what is this?"},{"type":"image"}]},
	{"role":"assistant","parts":[{"type":"tool_call","id":"c","name":"look","arguments":{"a":1}}]},
	{"role":"tool","parts":[{"type":"tool_call_response","id":"c","response":"it is [redacted]"}]}]`

// Content is recorded on the span if that was asked for and the span is sampled. The
// hook gets it in any case, and can change it.
func TestContent(t *testing.T) {
	for _, test := range []struct {
		name                 string
		capture, hook, keeps bool
		limit                int64
	}{
		{"off", false, false, true, 0},
		{"on the span", true, false, true, 0},
		{"hook", false, true, true, 0},
		{"both", true, true, true, 0},
		{"not sampled", true, true, false, 0},
		{"limit", true, false, true, 20},
		{"no limit", true, false, true, -1},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := otelllm.Options{CaptureContent: test.capture, ContentLimit: test.limit}
			var hooked *otelllm.Content
			if test.hook {
				o.ContentHook = func(ctx context.Context, span trace.Span, c *otelllm.Content) {
					assert.Equal(t, trace.SpanFromContext(ctx), span)
					span.SetAttributes(attribute.String("reference", "https://store.test/1"))
					hooked = c
					c.Output = nil
				}
			}
			sampler := sdktrace.AlwaysSample()
			if !test.keeps {
				sampler = sdktrace.NeverSample()
			}
			f := newFixture(t, config{telemetry: o, sampler: sampler})
			f.chat(contentBody)
			_, own := f.spansOf()
			got := attributes(own["chat m"].Attributes)
			require.Equal(t, test.hook, hooked != nil)
			if hooked != nil {
				assert.Len(t, hooked.Input, 4)
			}
			if test.hook && test.keeps {
				assert.Equal(t, "https://store.test/1", got["reference"])
			}
			if !test.capture || !test.keeps {
				assert.NotContains(t, got, "gen_ai.input.messages")
				return
			}
			if test.limit > 0 {
				assert.Equal(t, true, got["llmhttp.content.truncated"])
				assert.Less(t, len(got["gen_ai.input.messages"].(string)), 200)
				return
			}
			assert.JSONEq(t, contentInput, got["gen_ai.input.messages"].(string))
			assert.JSONEq(t, `[{"type":"function","name":"look","parameters":{"type":"object"}}]`, got["gen_ai.tool.definitions"].(string))
			if test.hook {
				assert.NotContains(t, got, "gen_ai.output.messages")
			} else {
				assert.JSONEq(t, `[{"role":"assistant","parts":[{"type":"text","content":"reply-marker"}],"finish_reason":"stop"}]`, got["gen_ai.output.messages"].(string))
			}
		})
	}
}

// A hook that panics costs only the content.
func TestContentHook_Panics(t *testing.T) {
	f := newFixture(t, config{
		telemetry: otelllm.Options{ContentHook: func(context.Context, trace.Span, *otelllm.Content) { panic("hook") }},
		opts: llmhttp.Options{Price: func(*llmhttp.UsageRecord) (llmhttp.Cost, error) {
			return llmhttp.Cost{Output: llm.USD(3)}, nil
		}},
	})
	f.chat(chatBody)
	got := f.metrics()
	for name, want := range map[string]float64{"llmhttp.requests.active": 0, "llmhttp.spend": 3} {
		list := points(got[name])
		require.Len(t, list, 1, name)
		assert.InDelta(t, want, list[0].sum, 0, name)
	}
	assert.Len(t, points(got["gen_ai.server.request.duration"]), 1)
	_, own := f.spansOf()
	assert.Len(t, own, 1, "the span has ended")
}

// A logExporter keeps log records.
type logExporter struct{ records []sdklog.Record }

func (e *logExporter) Export(_ context.Context, records []sdklog.Record) error {
	for i := range records {
		e.records = append(e.records, records[i].Clone())
	}
	return nil
}
func (*logExporter) Shutdown(context.Context) error   { return nil }
func (*logExporter) ForceFlush(context.Context) error { return nil }

// plain returns v as encoding/json would decode it.
func plain(v attribute.Value) any {
	switch v.Type() {
	case attribute.SLICE:
		list := []any{}
		for _, element := range v.AsSlice() {
			list = append(list, plain(element))
		}
		return list
	case attribute.MAP:
		members := make(map[string]any)
		for _, kv := range v.AsMap() {
			members[string(kv.Key)] = plain(kv.Value)
		}
		return members
	}
	return v.AsInterface()
}

// An event has the attributes of the span and structured content, whether the span is
// sampled or not. It belongs to the span.
func TestContent_Events(t *testing.T) {
	for _, sampler := range []sdktrace.Sampler{sdktrace.AlwaysSample(), sdktrace.NeverSample()} {
		t.Run(sampler.Description(), func(t *testing.T) {
			logs := new(logExporter)
			f := newFixture(t, config{sampler: sampler, telemetry: otelllm.Options{ContentEvents: true,
				LoggerProvider: sdklog.NewLoggerProvider(sdklog.WithProcessor(sdklog.NewSimpleProcessor(logs)))}})
			s := f.chat(contentBody)
			require.Len(t, logs.records, 1)
			event := &logs.records[0]
			assert.Equal(t, "gen_ai.client.inference.operation.details", event.EventName())
			assert.Equal(t, traceID, event.TraceID().String())
			got := make(map[string]any)
			event.WalkAttributes(func(kv attribute.KeyValue) bool {
				got[string(kv.Key)] = plain(kv.Value)
				return true
			})
			var input any
			require.NoError(t, json.Unmarshal([]byte(contentInput), &input))
			input.([]any)[2].(map[string]any)["parts"].([]any)[0].(map[string]any)["arguments"] = map[string]any{"a": int64(1)}
			assert.Equal(t, map[string]any{
				"gen_ai.operation.name": "chat", "gen_ai.provider.name": "llmhttp", "gen_ai.request.model": "m",
				"gen_ai.response.id": "reply-1", "gen_ai.response.model": "m-2026", "gen_ai.response.finish_reasons": []string{"stop"},
				"gen_ai.usage.input_tokens": int64(10), "gen_ai.usage.output_tokens": int64(2), "gen_ai.usage.cache_read.input_tokens": int64(4),
				"gen_ai.usage.cache_creation.input_tokens": int64(3), "gen_ai.usage.reasoning.output_tokens": int64(1),
				"llmhttp.request.id": s.Record.ID, "llmhttp.key": "key_1", "llmhttp.account": "acme", "llmhttp.protocol": "chat",
				"gen_ai.input.messages": input,
				"gen_ai.output.messages": []any{map[string]any{"role": "assistant", "finish_reason": "stop",
					"parts": []any{map[string]any{"type": "text", "content": "reply-marker"}}}},
				"gen_ai.tool.definitions": []any{map[string]any{"type": "function", "name": "look", "parameters": map[string]any{"type": "object"}}},
			}, got)
			server, own := f.spansOf()
			if server != nil {
				assert.Equal(t, own["chat m"].SpanContext.SpanID(), event.SpanID())
				assert.NotContains(t, attributes(own["chat m"].Attributes), "gen_ai.input.messages")
			}
		})
	}
}

// No event is emitted unless it was asked for, and not for requests that did not reach
// the Backend.
func TestContent_NoEvents(t *testing.T) {
	for _, test := range []struct {
		body string
		on   bool
	}{{chatBody, false}, {"{", true}} {
		logs := new(logExporter)
		f := newFixture(t, config{telemetry: otelllm.Options{ContentEvents: test.on, CaptureContent: true,
			LoggerProvider: sdklog.NewLoggerProvider(sdklog.WithProcessor(sdklog.NewSimpleProcessor(logs)))}})
		f.chat(test.body)
		assert.Empty(t, logs.records)
	}
}
