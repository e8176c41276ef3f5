// Messages and replies on spans and as events.

package otelllm

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/log"
	"go.opentelemetry.io/otel/trace"

	"github.com/llmhttp/llmhttp"
)

// wantsContent reports whether content is to be collected for a request with the
// context ctx. A span that is not sampled has no children that are.
func (t *Telemetry) wantsContent(ctx context.Context) bool {
	if t.opts.ContentHook != nil || t.emitsEvents(ctx) {
		return true
	}
	if !t.opts.CaptureContent {
		return false
	}
	parent := trace.SpanContextFromContext(ctx)
	return !parent.IsValid() || parent.IsSampled()
}

func (t *Telemetry) emitsEvents(ctx context.Context) bool {
	return t.opts.ContentEvents && t.logger.Enabled(ctx, log.EnabledParameters{EventName: eventDetails})
}

func (r *request) keepTranscript(t *llmhttp.Transcript) { r.transcript = t }

// recordContent calls the hook, and then records the content on the span, as an
// event, or both.
func (r *request) recordContent(s *llmhttp.RequestSummary) {
	if r.transcript == nil {
		return
	}
	o := &r.t.opts
	onSpan, asEvent := o.CaptureContent && r.span.IsRecording(), r.t.emitsEvents(r.ctx)
	if o.ContentHook == nil && !onSpan && !asEvent {
		return
	}
	c := newContent(r.transcript, r.info.Protocol)
	if o.ContentHook != nil {
		o.ContentHook(r.ctx, r.span, c)
	}
	if onSpan {
		r.span.SetAttributes(c.attributes(textValue)...)
	}
	if asEvent {
		r.emit(s, c)
	}
}

// emit emits the event with the details of the request.
func (r *request) emit(s *llmhttp.RequestSummary, c *Content) {
	attrs := slices.Concat(
		samplingLabels(r.info).attributes(r.t.opts.ProviderName),
		requestAttributes(r.info),
		replyAttributes(s),
		c.attributes(structuredValue),
	)
	attrs.addString(attrErrorType, string(s.ErrorClass))
	var record log.Record
	record.SetEventName(eventDetails)
	record.SetTimestamp(time.Now())
	record.AddAttributes(attrs...)
	r.t.logger.Emit(r.ctx, record)
}

// attributes returns the attributes of c. encode turns JSON into a value.
func (c *Content) attributes(encode func([]byte) attribute.Value) attributeList {
	var l attributeList
	add := func(key attribute.Key, n int, v any) {
		if n == 0 {
			return
		}
		if b, err := json.Marshal(v); err == nil {
			l = append(l, attribute.KeyValue{Key: key, Value: encode(b)})
		}
	}
	add(attrSystem, len(c.System), c.System)
	add(attrInputMessages, len(c.Input), c.Input)
	add(attrOutputMessages, len(c.Output), c.Output)
	add(attrTools, len(c.Tools), c.Tools)
	if c.Truncated {
		l = append(l, attrTruncated.Bool(true))
	}
	return l
}

// textValue returns JSON as a text, as the conventions want it on spans.
func textValue(b []byte) attribute.Value { return attribute.StringValue(string(b)) }

// structuredValue returns the value of JSON that encoding/json wrote, as the
// conventions want it in events.
func structuredValue(b []byte) attribute.Value {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return attribute.Value{}
	}
	return valueOf(v)
}

// valueOf returns the value of what encoding/json decodes. Null is the empty value.
func valueOf(v any) attribute.Value {
	switch v := v.(type) {
	case string:
		return attribute.StringValue(v)
	case bool:
		return attribute.BoolValue(v)
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return attribute.Int64Value(n)
		}
		f, _ := v.Float64() // infinite if it is out of range
		return attribute.Float64Value(f)
	case []any:
		values := make([]attribute.Value, len(v))
		for i := range v {
			values[i] = valueOf(v[i])
		}
		return attribute.SliceValue(values...)
	case map[string]any:
		members := make([]attribute.KeyValue, 0, len(v))
		for name, value := range v {
			members = append(members, attribute.KeyValue{Key: attribute.Key(name), Value: valueOf(value)})
		}
		return attribute.MapValue(members...)
	}
	return attribute.Value{}
}
