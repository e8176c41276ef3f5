// The names of the conventions and of llmhttp, and the bounds of histograms.

package otelllm

import (
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
)

// The conventions for generative AI are in development, and names change between
// versions. This file has all of them as of version 1.41.0 of the semantic
// conventions, the last that contains them: they are now maintained at
// https://github.com/open-telemetry/semantic-conventions-genai, without a release.
const schemaURL = semconv.SchemaURL

// scopeName is the name of the instrumentation scope.
const scopeName = "github.com/llmhttp/llmhttp/otelllm"

// Attributes of the conventions.
const (
	attrOperation        = semconv.GenAIOperationNameKey
	attrProvider         = semconv.GenAIProviderNameKey
	attrConversation     = semconv.GenAIConversationIDKey
	attrOutputType       = semconv.GenAIOutputTypeKey
	attrTokenType        = semconv.GenAITokenTypeKey
	attrRequestModel     = semconv.GenAIRequestModelKey
	attrChoiceCount      = semconv.GenAIRequestChoiceCountKey
	attrSeed             = semconv.GenAIRequestSeedKey
	attrStream           = semconv.GenAIRequestStreamKey
	attrMaxTokens        = semconv.GenAIRequestMaxTokensKey
	attrTemperature      = semconv.GenAIRequestTemperatureKey
	attrTopP             = semconv.GenAIRequestTopPKey
	attrTopK             = semconv.GenAIRequestTopKKey
	attrFrequencyPenalty = semconv.GenAIRequestFrequencyPenaltyKey
	attrPresencePenalty  = semconv.GenAIRequestPresencePenaltyKey
	attrStopSequences    = semconv.GenAIRequestStopSequencesKey
	attrEncodingFormats  = semconv.GenAIRequestEncodingFormatsKey
	attrDimensions       = semconv.GenAIEmbeddingsDimensionCountKey
	attrResponseID       = semconv.GenAIResponseIDKey
	attrResponseModel    = semconv.GenAIResponseModelKey
	attrFinishReasons    = semconv.GenAIResponseFinishReasonsKey
	attrFirstChunk       = semconv.GenAIResponseTimeToFirstChunkKey
	attrInputTokens      = semconv.GenAIUsageInputTokensKey
	attrOutputTokens     = semconv.GenAIUsageOutputTokensKey
	attrCacheRead        = semconv.GenAIUsageCacheReadInputTokensKey
	attrCacheCreation    = semconv.GenAIUsageCacheCreationInputTokensKey
	attrReasoning        = semconv.GenAIUsageReasoningOutputTokensKey
	attrInputMessages    = semconv.GenAIInputMessagesKey
	attrOutputMessages   = semconv.GenAIOutputMessagesKey
	attrSystem           = semconv.GenAISystemInstructionsKey
	attrTools            = semconv.GenAIToolDefinitionsKey
	attrErrorType        = semconv.ErrorTypeKey
	attrServerAddress    = semconv.ServerAddressKey
	attrServerPort       = semconv.ServerPortKey
)

// Attributes of llmhttp.
const (
	attrRequestID       = attribute.Key("llmhttp.request.id")
	attrProtocol        = attribute.Key("llmhttp.protocol")
	attrKey             = attribute.Key("llmhttp.key")
	attrAccount         = attribute.Key("llmhttp.account")
	attrLimit           = attribute.Key("llmhttp.limit")
	attrLimitSubject    = attribute.Key("llmhttp.limit.subject") // the kind
	attrTarget          = attribute.Key("llmhttp.target")
	attrCheck           = attribute.Key("llmhttp.check")
	attrTokenKind       = attribute.Key("llmhttp.token.kind")
	attrReasoningEffort = attribute.Key("llmhttp.request.reasoning_effort")
	attrEstimated       = attribute.Key("llmhttp.usage.estimated")
	attrTruncated       = attribute.Key("llmhttp.content.truncated")
)

// Values of attributes.
const (
	operationChat       = "chat"
	operationCompletion = "text_completion"
	operationEmbeddings = "embeddings"
	operationGenerate   = "generate_content"
	tokenInput          = "input"
	tokenOutput         = "output"
	tokenCacheRead      = "cache_read"
	tokenCacheWrite     = "cache_write"
	tokenReasoning      = "reasoning"
	outputText          = "text"
	outputJSON          = "json"
	outputImage         = "image"
	outputSpeech        = "speech"
	otherName           = "_OTHER"
	finishError         = "error" // of a choice that did not end
)

// eventDetails is the name of the event that has the content of a chat.
const eventDetails = "gen_ai.client.inference.operation.details"

// Metrics of the conventions.
const (
	metricRequestDuration = "gen_ai.server.request.duration"
	metricFirstToken      = "gen_ai.server.time_to_first_token"
	metricPerToken        = "gen_ai.server.time_per_output_token"
	metricTokenUsage      = "gen_ai.client.token.usage"
)

// Metrics of llmhttp.
const (
	metricActive         = "llmhttp.requests.active"
	metricRefusals       = "llmhttp.refusals"
	metricTryDuration    = "llmhttp.try.duration"
	metricFallbacks      = "llmhttp.fallbacks"
	metricStreamsCut     = "llmhttp.streams.cut"
	metricTokenDetails   = "llmhttp.token.details"
	metricSpend          = "llmhttp.spend"
	metricUnpriced       = "llmhttp.usage.unpriced"
	metricRecordFailures = "llmhttp.usage.record_failures"
	metricNotStored      = "llmhttp.replies.not_stored"
	metricBufferWaiting  = "llmhttp.usage_buffer.waiting"
	metricReady          = "llmhttp.ready"
	metricCheckSuccess   = "llmhttp.check.success"
	metricBufferDropped  = "llmhttp.usage_buffer.dropped"
)

// The boundaries of the histograms, as the conventions give them. The defaults of
// the SDK are meant for milliseconds.
var (
	boundsDuration   = []float64{0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92}
	boundsFirstToken = []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10}
	boundsPerToken   = []float64{0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5}
	boundsTokens     = []float64{1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864}
)
