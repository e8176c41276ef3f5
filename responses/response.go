// Encodes a response in its current state.

package responses

import (
	"cmp"
	"net/http"
	"strconv"

	"github.com/llmhttp/llmhttp/llm"
)

// appendResponse appends the response in its current state. The output is empty while
// the response is in progress.
func (e *encoder) appendResponse(b []byte) []byte {
	b = e.appendHead(b)
	b = append(b, `,"output":[`...)
	if e.outcome.status != statusInProgress {
		for i, it := range e.output.items {
			if i > 0 {
				b = append(b, ',')
			}
			b = it.appendJSON(b, e.req.wantsEncrypted)
		}
	}
	return append(b, "]}"...)
}

// appendHead appends the response without its output and without the last brace.
func (e *encoder) appendHead(b []byte) []byte {
	o := &e.outcome
	b = append(b, `{"id":"`...)
	b = append(b, e.id...)
	b = append(b, `","object":"response","created_at":`...)
	b = strconv.AppendInt(b, e.start.Created, 10)
	b = append(b, `,"status":"`...)
	b = append(b, o.status...)
	b = append(b, `","completed_at":`...)
	if o.completedAt == 0 {
		b = append(b, "null"...)
	} else {
		b = strconv.AppendInt(b, o.completedAt, 10)
	}
	b = append(b, `,"model":`...)
	b = appendString(b, e.start.Model)
	b = append(b, `,"error":`...)
	b = appendError(b, o.err)
	b = append(b, `,"incomplete_details":`...)
	if o.reason == "" {
		b = append(b, "null"...)
	} else {
		b = append(b, `{"reason":"`...)
		b = append(append(b, o.reason...), `"}`...)
	}
	b = append(b, `,"service_tier":`...)
	b = o.appendServiceTier(b, e.req.body.ServiceTier)
	b = append(b, `,"moderation":`...)
	b = append(b, cmp.Or(string(o.moderation), "null")...)
	b = append(b, ',')
	b = append(b, e.echo...)
	b = append(b, `,"usage":`...)
	return o.appendUsage(b)
}

func appendError(b []byte, e *llm.Error) []byte {
	if e == nil {
		return append(b, "null"...)
	}
	b = append(b, `{"code":`...)
	b = appendString(b, errorCode(e))
	b = append(b, `,"message":`...)
	return append(appendString(b, e.Message), '}')
}

// errorCode returns the code of the error in a response that failed. SDKs list
// the codes of the original service; Codex also acts on some that a Backend may
// set, such as context_length_exceeded.
func errorCode(e *llm.Error) string {
	switch {
	case e.Code != "":
		return e.Code
	case e.Status == http.StatusTooManyRequests:
		return "rate_limit_exceeded"
	case e.Status >= 500:
		return "server_error"
	}
	return "invalid_prompt"
}

// appendServiceTier appends the tier that the Backend reported, or else the requested
// tier.
func (o *outcome) appendServiceTier(b []byte, asked *string) []byte {
	switch {
	case o.serviceTier != nil:
		return append(b, o.serviceTier...)
	case asked == nil, *asked == "auto":
		return append(b, `"default"`...)
	}
	return appendString(b, *asked)
}

func (o *outcome) appendUsage(b []byte) []byte {
	u := o.usage
	if u == nil {
		return append(b, "null"...)
	}
	b = append(b, `{"input_tokens":`...)
	b = strconv.AppendInt(b, int64(u.PromptTokens), 10)
	b = append(b, `,"input_tokens_details":{"cached_tokens":`...)
	b = strconv.AppendInt(b, int64(u.PromptTokensDetails.CachedTokens), 10)
	b = append(b, `,"cache_write_tokens":`...)
	b = strconv.AppendInt(b, int64(u.PromptTokensDetails.CacheWriteTokens), 10)
	b = append(b, `},"output_tokens":`...)
	b = strconv.AppendInt(b, int64(u.CompletionTokens), 10)
	b = append(b, `,"output_tokens_details":{"reasoning_tokens":`...)
	b = strconv.AppendInt(b, int64(u.CompletionTokensDetails.ReasoningTokens), 10)
	b = append(b, `},"total_tokens":`...)
	b = strconv.AppendInt(b, int64(u.TotalTokens), 10)
	return append(b, '}')
}
