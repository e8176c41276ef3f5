package otelllm

import (
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

// spanStart returns the start of the span for a request. The model is not in the
// name of the span until it is known, so that there are few names.
func (t *Telemetry) spanStart(info *llmhttp.RequestInfo) *spanStart {
	l := samplingLabels(info)
	if t.models.has(info.Model) {
		return t.spanStarts.get(l)
	}
	return &spanStart{name: operationName(info.Operation), attributes: trace.WithAttributes(l.attributes(t.opts.Provider)...)}
}

// newSpanStart returns the start of the span for a model that is known.
func (t *Telemetry) newSpanStart(l labels) *spanStart {
	return &spanStart{name: operationName(l.operation) + " " + l.requestModel, attributes: trace.WithAttributes(l.attributes(t.opts.Provider)...)}
}

// requestAttributes returns the attributes of a request that need not be known
// when its span starts.
func requestAttributes(info *llmhttp.RequestInfo) attributeList {
	p := &info.Params
	l := attributeList{attrProtocol.String(info.Protocol), attrRequestID.String(info.ID), attrKey.String(info.KeyID), attrAccount.String(info.Account)}
	l.text(attrConversation, info.Conversation)
	if info.Stream {
		l = append(l, attrStream.Bool(true))
	}
	if p.Choices > 1 {
		l.number(attrChoiceCount, p.Choices)
	}
	l.number(attrMaxTokens, p.MaxTokens)
	l.number(attrDimensions, p.Dimensions)
	if p.Seed != nil {
		l = append(l, attrSeed.Int(*p.Seed))
	}
	l.float(attrTemperature, p.Temperature)
	l.float(attrTopP, p.TopP)
	l.float(attrTopK, p.TopK)
	l.float(attrFrequencyPenalty, p.FrequencyPenalty)
	l.float(attrPresencePenalty, p.PresencePenalty)
	if len(p.Stop) > 0 {
		l = append(l, attrStopSequences.StringSlice(p.Stop))
	}
	if p.EncodingFormat != "" {
		l = append(l, attrEncodingFormats.StringSlice([]string{p.EncodingFormat}))
	}
	l.text(attrReasoningEffort, p.ReasoningEffort)
	l.text(attrOutputType, outputType(info))
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
	l.text(attrResponseID, s.Reply.ID)
	l.text(attrResponseModel, s.Reply.Model)
	if len(s.Reply.FinishReasons) > 0 {
		reasons := make([]string, len(s.Reply.FinishReasons))
		for i, reason := range s.Reply.FinishReasons {
			reasons[i] = string(reason)
		}
		l = append(l, attrFinishReasons.StringSlice(reasons))
	}
	if s.Streamed && s.FirstChunk > 0 {
		l = append(l, attrFirstChunk.Float64(s.FirstChunk.Seconds()))
	}
	if s.Estimated {
		l = append(l, attrEstimated.Bool(true))
	}
	u := &s.Usage
	l.number(attrInputTokens, u.PromptTokens)
	l.number(attrOutputTokens, u.CompletionTokens)
	l.number(attrCacheRead, u.PromptTokensDetails.CachedTokens)
	l.number(attrCacheCreation, u.PromptTokensDetails.CacheWriteTokens)
	l.number(attrReasoning, u.CompletionTokensDetails.ReasoningTokens)
	return l
}
