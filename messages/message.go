// The ID, the usage and the stop_reason of a message.

package messages

import (
	"cmp"
	"encoding/json"
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
	b = append(b, `,"type":"message","role":"assistant","diagnostics":null,"model":`...)
	b = jsonwire.AppendString(b, model)
	return append(b, `,"content":[`...)
}

// appendUsage appends the usage of a message. That of a message_delta has only the members of
// appendTokens. place is where the model ran, as far as the host promises it.
func appendUsage(b []byte, u *llm.Usage, place string) []byte {
	b = appendTokens(append(b, '{'), u)
	b = append(b, `,"service_tier":"standard","inference_geo":`...)
	b = appendReported(b, u.Extra[memberInferenceGeo], place)
	b = append(b, `,"speed":`...)
	b = appendReported(b, u.Extra[memberSpeed], "")
	return append(b, '}')
}

// appendTokens appends the members of a usage object with numbers. Its input_tokens do not include the
// tokens that were read from or written to the cache; PromptTokens does.
func appendTokens(b []byte, u *llm.Usage) []byte {
	cached, written := u.PromptTokensDetails.CachedTokens, u.PromptTokensDetails.CacheWriteTokens
	b = append(b, `"input_tokens":`...)
	b = strconv.AppendInt(b, int64(max(0, u.PromptTokens-cached-written)), 10)
	b = append(b, `,"cache_creation_input_tokens":`...)
	b = strconv.AppendInt(b, int64(written), 10)
	b = append(b, `,"cache_creation":`...)
	b = appendCacheCreation(b, written, u.PromptTokensDetails.CacheWrites)
	b = append(b, `,"cache_read_input_tokens":`...)
	b = strconv.AppendInt(b, int64(cached), 10)
	b = append(b, `,"output_tokens":`...)
	b = strconv.AppendInt(b, int64(u.CompletionTokens), 10)
	b = append(b, `,"output_tokens_details":{"thinking_tokens":`...)
	b = strconv.AppendInt(b, int64(u.CompletionTokensDetails.ReasoningTokens), 10)
	b = append(b, `},"server_tool_use":`...)
	return appendServerTools(b, u.Extra[memberServerToolUse])
}

// Members of a usage object that a Backend may yield in Usage.Extra. OpenRouter has the last one too.
const (
	memberInferenceGeo  = "inference_geo"
	memberSpeed         = "speed"
	memberServerToolUse = "server_tool_use"
)

// appendReported appends a text that the Backend has reported, or else otherwise, or null if that is empty.
func appendReported(b []byte, reported json.RawMessage, otherwise string) []byte {
	switch {
	case len(reported) > 0 && reported[0] == '"':
		return append(b, reported...)
	case otherwise != "":
		return jsonwire.AppendString(b, otherwise)
	}
	return append(b, "null"...)
}

// appendServerTools appends the numbers of requests of tools that the server has run, or null.
func appendServerTools(b []byte, reported json.RawMessage) []byte {
	var requests struct {
		WebSearch int `json:"web_search_requests"`
		WebFetch  int `json:"web_fetch_requests"`
	}
	if len(reported) == 0 || reported[0] != '{' || json.Unmarshal(reported, &requests) != nil {
		return append(b, "null"...)
	}
	b = append(b, `{"web_search_requests":`...)
	b = strconv.AppendInt(b, int64(requests.WebSearch), 10)
	b = append(b, `,"web_fetch_requests":`...)
	b = strconv.AppendInt(b, int64(requests.WebFetch), 10)
	return append(b, '}')
}

// appendCacheCreation appends cache writes by lifetime, or null if there are some and their lifetimes are not
// known. Clients expect the lifetimes that the API has in any case.
func appendCacheCreation(b []byte, written int, w llm.CacheWrites) []byte {
	if len(w) == 0 && written > 0 {
		return append(b, "null"...)
	}
	numbers := maps.Collect(w.All())
	for _, d := range []time.Duration{5 * time.Minute, time.Hour} {
		numbers[d] += 0
	}
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
	native   string // one of nativeReasons, or ""

	// What Anthropic's servers tell besides, as objects or nil.
	details, container, context json.RawMessage
}

// readExtra reads what a Backend such as upstream/anthropic tells at the end of a reply, in the members of a choice and
// its chunk.
func (r *stopReason) readExtra(choice, chunk llm.Extra) {
	r.details, r.container, r.context = object(choice["stop_details"]), object(chunk["container"]), object(chunk[memberContext])
}

const memberContext = "context_management"

// object returns v without spaces if it is a JSON object, and otherwise nil.
func object(v json.RawMessage) json.RawMessage {
	if len(v) == 0 || v[0] != '{' {
		return nil
	}
	compact, err := jsonwire.AppendRaw(nil, v)
	if err != nil {
		return nil
	}
	return compact
}

// appendMembers appends the members about the end of a message that a message and a message_delta have in
// common: stop_reason, stop_sequence, stop_details and container.
func (r *stopReason) appendMembers(b []byte) []byte {
	b = append(r.appendReason(b), `,"stop_details":`...)
	b = append(b, cmp.Or(string(r.details), "null")...)
	b = append(b, `,"container":`...)
	return append(b, cmp.Or(string(r.container), "null")...)
}

// appendContext appends the member context_management, which only replies to requests with that have.
func (r *stopReason) appendContext(b []byte) []byte {
	if r.context == nil {
		return b
	}
	b = append(b, `,"`+memberContext+`":`...)
	return append(b, r.context...)
}

// appendReason appends the members stop_reason and stop_sequence. stop_reason is tool_use
// only if the reply has calls, because clients that run tools fail without them.
func (r *stopReason) appendReason(b []byte) []byte {
	stop := "end_turn"
	switch {
	case r.native != "":
		stop = r.native
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
