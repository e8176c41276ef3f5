package otelllm

import (
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/llmhttp/llmhttp"
)

var (
	spanKindInternal = trace.WithSpanKind(trace.SpanKindInternal)
	spanKindClient   = trace.WithSpanKind(trace.SpanKindClient)
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

// newSpanStart returns the start of a span. Its name has no model that is not known,
// so that there are few names.
func (t *Telemetry) newSpanStart(l requestLabels) *spanStart {
	name := operationName(l.operation)
	if t.models.has(l.requestModel) {
		name += " " + l.requestModel
	}
	return &spanStart{name, trace.WithAttributes(l.attributes(t.opts.Provider)...)}
}

// requestAttributes returns the attributes of a request that need not be known
// when its span starts.
func requestAttributes(info *llmhttp.RequestInfo) attributeList {
	p := &info.Params
	l := attributeList{attrProtocol.String(info.Protocol), attrRequestID.String(info.ID), attrKey.String(info.KeyID), attrAccount.String(info.Account)}
	l.addString(semconv.GenAIConversationIDKey, info.Conversation)
	if info.Stream {
		l = append(l, semconv.GenAIRequestStreamKey.Bool(true))
	}
	if p.Choices > 1 {
		l.addInt(semconv.GenAIRequestChoiceCountKey, p.Choices)
	}
	l.addInt(semconv.GenAIRequestMaxTokensKey, p.MaxTokens)
	l.addInt(semconv.GenAIEmbeddingsDimensionCountKey, p.Dimensions)
	if p.Seed != nil {
		l = append(l, semconv.GenAIRequestSeedKey.Int(*p.Seed))
	}
	l.addFloat(semconv.GenAIRequestTemperatureKey, p.Temperature)
	l.addFloat(semconv.GenAIRequestTopPKey, p.TopP)
	l.addFloat(semconv.GenAIRequestTopKKey, p.TopK)
	l.addFloat(semconv.GenAIRequestFrequencyPenaltyKey, p.FrequencyPenalty)
	l.addFloat(semconv.GenAIRequestPresencePenaltyKey, p.PresencePenalty)
	if len(p.Stop) > 0 {
		l = append(l, semconv.GenAIRequestStopSequencesKey.StringSlice(p.Stop))
	}
	if p.EncodingFormat != "" {
		l = append(l, semconv.GenAIRequestEncodingFormatsKey.StringSlice([]string{p.EncodingFormat}))
	}
	l.addString(attrReasoningEffort, p.ReasoningEffort)
	l.addString(semconv.GenAIOutputTypeKey, outputType(info))
	return l
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
func replyAttributes(s *llmhttp.RequestSummary) attributeList {
	var l attributeList
	l.addString(semconv.GenAIResponseIDKey, s.Reply.ID)
	l.addString(semconv.GenAIResponseModelKey, s.Reply.Model)
	if len(s.Reply.FinishReasons) > 0 {
		reasons := make([]string, len(s.Reply.FinishReasons))
		for i, reason := range s.Reply.FinishReasons {
			reasons[i] = string(reason)
		}
		l = append(l, semconv.GenAIResponseFinishReasonsKey.StringSlice(reasons))
	}
	if s.Streamed && s.FirstChunk > 0 {
		l = append(l, semconv.GenAIResponseTimeToFirstChunkKey.Float64(s.FirstChunk.Seconds()))
	}
	if s.Estimated {
		l = append(l, attrEstimated.Bool(true))
	}
	u := &s.Usage
	l.addInt(semconv.GenAIUsageInputTokensKey, u.PromptTokens)
	l.addInt(semconv.GenAIUsageOutputTokensKey, u.CompletionTokens)
	l.addInt(semconv.GenAIUsageCacheReadInputTokensKey, u.PromptTokensDetails.CachedTokens)
	l.addInt(semconv.GenAIUsageCacheCreationInputTokensKey, u.PromptTokensDetails.CacheWriteTokens)
	l.addInt(semconv.GenAIUsageReasoningOutputTokensKey, u.CompletionTokensDetails.ReasoningTokens)
	return l
}
