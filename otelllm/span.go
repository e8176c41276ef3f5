// The name and the attributes of the span of a request.

package otelllm

import (
	"cmp"
	"strings"

	"go.opentelemetry.io/otel/trace"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/imageedit"
)

var (
	spanKindInternal = trace.WithSpanKind(trace.SpanKindInternal)
	spanKindClient   = trace.WithSpanKind(trace.SpanKindClient)
)

// The limits of texts that clients choose, so that they cannot fill the memory of an
// exporter.
const (
	maxText = 256 // bytes of each
	maxStop = 16  // stop sequences
)

// A spanStart has the name of a span and the attributes that a sampler gets.
type spanStart struct {
	name       string
	attributes trace.SpanStartOption
}

// spanStartFor returns the start of the span for a request.
func (t *Telemetry) spanStartFor(info *llmhttp.RequestInfo) *spanStart {
	l := samplingLabels(info)
	if !t.models.has(info.Model) {
		return t.newSpanStart(l)
	}
	return t.spanStarts.get(l)
}

// newSpanStart returns the start of a span. Its name contains the model only if that is
// known, so that there are few names.
func (t *Telemetry) newSpanStart(l requestLabels) *spanStart {
	name := operationName(l.operation)
	if t.models.has(l.requestModel) {
		name += " " + l.requestModel
	}
	return &spanStart{name, trace.WithAttributes(l.attributes(t.opts.ProviderName)...)}
}

// requestAttributes returns the attributes of a request that need not be known
// when its span starts.
func requestAttributes(info *llmhttp.RequestInfo) attributeList {
	p := &info.Params
	l := attributeList{
		attrProtocol.String(info.Protocol),
		attrRequestID.String(info.ID),
		attrKey.String(info.KeyID),
		attrAccount.String(info.Account),
	}
	l.addString(attrConversation, info.Conversation)
	if info.Stream {
		l = append(l, attrStream.Bool(true))
	}
	if p.Choices > 1 {
		l.addInt(attrChoiceCount, p.Choices)
	}
	l.addInt(attrMaxTokens, p.MaxTokens)
	l.addInt(attrDimensions, p.Dimensions)
	if p.Seed != nil {
		l = append(l, attrSeed.Int(*p.Seed))
	}
	l.addFloat(attrTemperature, p.Temperature)
	l.addFloat(attrTopP, p.TopP)
	l.addFloat(attrTopK, p.TopK)
	l.addFloat(attrFrequencyPenalty, p.FrequencyPenalty)
	l.addFloat(attrPresencePenalty, p.PresencePenalty)
	if len(p.Stop) > 0 {
		stop := make([]string, min(len(p.Stop), maxStop))
		for i := range stop {
			stop[i] = clip(p.Stop[i])
		}
		l = append(l, attrStopSequences.StringSlice(stop))
	}
	if p.EncodingFormat != "" {
		l = append(l, attrEncodingFormats.StringSlice([]string{p.EncodingFormat}))
	}
	l.addString(attrReasoningEffort, clip(p.ReasoningEffort))
	l.addString(attrOutputType, outputType(info))
	return l
}

// clip returns at most the first maxText bytes of a text that a client chose.
func clip(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "")
}

// outputType returns the value of gen_ai.output.type, or "" if the client did not
// ask for a type.
func outputType(info *llmhttp.RequestInfo) string {
	switch {
	case info.Operation == llmhttp.OperationImages, info.Operation == imageedit.Operation:
		return outputImage
	case info.Operation == audio.OperationSpeech:
		return outputSpeech
	case info.Params.ResponseFormatType == "text":
		return outputText
	case info.Params.ResponseFormatType != "":
		return outputJSON
	}
	return ""
}

// replyAttributes returns the attributes of a request that has ended.
func replyAttributes(s *llmhttp.RequestSummary) attributeList {
	var l attributeList
	l.addString(attrResponseID, s.Reply.ID)
	l.addString(attrResponseModel, s.Reply.Model)
	if len(s.Reply.FinishReasons) > 0 {
		reasons := make([]string, len(s.Reply.FinishReasons))
		for i, reason := range s.Reply.FinishReasons {
			reasons[i] = cmp.Or(string(reason), finishError)
		}
		l = append(l, attrFinishReasons.StringSlice(reasons))
	}
	if s.Streamed && s.FirstChunk > 0 {
		l = append(l, attrFirstChunk.Float64(s.FirstChunk.Seconds()))
	}
	if s.Record.Estimated {
		l = append(l, attrEstimated.Bool(true))
	}
	u := &s.Record.Units
	l.addCount(attrInputTokens, u.PromptTokens)
	l.addCount(attrOutputTokens, u.CompletionTokens)
	l.addCount(attrCacheRead, u.CachedTokens)
	l.addCount(attrCacheCreation, u.CacheWriteTokens)
	l.addCount(attrReasoning, u.ReasoningTokens)
	return l
}
