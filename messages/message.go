// The ID, the usage and the stop_reason of a message.

package messages

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/lifetime"
	"github.com/llmhttp/llmhttp/internal/randomid"
	"github.com/llmhttp/llmhttp/llm"
)

// messageID returns the ID of a message: the Backend's in the form of this API, or
// a random one.
func messageID(id string) string {
	const prefix = "msg_"
	switch {
	case strings.HasPrefix(id, prefix):
		return id
	case id != "":
		return prefix + strings.TrimPrefix(id, "chatcmpl-")
	}
	return randomid.New(prefix)
}

// appendMessageHead appends a message up to its content.
func appendMessageHead(b []byte, id, model string) []byte {
	b = append(b, `{"id":`...)
	b = jsonwire.AppendString(b, messageID(id))
	b = append(b, `,"type":"message","role":"assistant","model":`...)
	b = jsonwire.AppendString(b, model)
	return append(b, `,"content":[`...)
}

// appendUsage appends the usage of a message. That of a message_delta is the same without
// the service_tier.
func appendUsage(b []byte, u *llm.Usage) []byte {
	b = appendTokens(append(b, '{'), u)
	return append(b, `,"service_tier":"standard"}`...)
}

// appendTokens appends the members of a usage object with numbers of tokens. Its input_tokens
// do not include the tokens that were read from or written to the cache; PromptTokens does.
func appendTokens(b []byte, u *llm.Usage) []byte {
	cached, written := u.PromptTokensDetails.CachedTokens, u.PromptTokensDetails.CacheWriteTokens
	b = append(b, `"input_tokens":`...)
	b = strconv.AppendInt(b, int64(max(0, u.PromptTokens-cached-written)), 10)
	b = append(b, `,"cache_creation_input_tokens":`...)
	b = strconv.AppendInt(b, int64(written), 10)
	b = appendCacheCreation(b, u.PromptTokensDetails.CacheWrites)
	b = append(b, `,"cache_read_input_tokens":`...)
	b = strconv.AppendInt(b, int64(cached), 10)
	b = append(b, `,"output_tokens":`...)
	b = strconv.AppendInt(b, int64(u.CompletionTokens), 10)
	b = append(b, `,"output_tokens_details":{"thinking_tokens":`...)
	b = strconv.AppendInt(b, int64(u.CompletionTokensDetails.ReasoningTokens), 10)
	return append(b, '}')
}

// appendCacheCreation appends the member with cache writes by lifetime, unless w is empty. Clients expect the
// lifetimes that the API has in any case.
func appendCacheCreation(b []byte, w llm.CacheWrites) []byte {
	if len(w) == 0 {
		return b
	}
	numbers := maps.Collect(w.All())
	for _, d := range []time.Duration{5 * time.Minute, time.Hour} {
		numbers[d] += 0
	}
	b = append(b, `,"cache_creation":`...)
	separator := byte('{')
	for _, d := range slices.Sorted(maps.Keys(numbers)) {
		b = jsonwire.AppendString(append(b, separator), lifetime.TokensName(d))
		b = strconv.AppendInt(append(b, ':'), numbers[d], 10)
		separator = ','
	}
	return append(b, '}')
}

// A stopReason has what determines the stop_reason of a reply.
type stopReason struct {
	finish   llm.FinishReason
	sequence string // the stop sequence, if one ended the reply
	hasCalls bool   // the reply has tool calls
	refused  bool   // the reply has a refusal
}

// appendMembers appends the members stop_reason and stop_sequence. stop_reason is tool_use
// only if the reply has calls, because clients that run tools fail without them.
func (r *stopReason) appendMembers(b []byte) []byte {
	stop := "end_turn"
	switch {
	case r.finish == llm.FinishLength:
		stop = "max_tokens"
	case r.finish == llm.FinishContentFilter, r.refused:
		stop = "refusal"
	case r.hasCalls:
		stop = "tool_use"
	case r.sequence != "":
		stop = "stop_sequence"
	}
	b = append(b, `"stop_reason":"`...)
	b = append(b, stop...)
	b = append(b, `","stop_sequence":`...)
	if stop != "stop_sequence" {
		return append(b, "null"...)
	}
	return jsonwire.AppendString(b, r.sequence)
}

// isCut reports whether the reply ended before the model was done.
func (r *stopReason) isCut() bool {
	return r.finish == llm.FinishLength || r.finish == llm.FinishContentFilter
}
