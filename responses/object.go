package responses

import (
	"strconv"
)

// appendResponse appends the response in its current state. The output is empty while
// the response is in progress.
func (r *reply) appendResponse(b []byte) []byte {
	b = r.appendHead(b)
	b = append(b, `,"output":[`...)
	if r.outcome.status != statusInProgress {
		for i, it := range r.output.items {
			if i > 0 {
				b = append(b, ',')
			}
			b = it.append(b, r.req.sealed)
		}
	}
	return append(b, "]}"...)
}

// appendHead appends the response without its output and without the last brace.
func (r *reply) appendHead(b []byte) []byte {
	o := &r.outcome
	b = append(b, `{"id":"`...)
	b = append(b, r.id...)
	b = append(b, `","object":"response","created_at":`...)
	b = strconv.AppendInt(b, r.start.Created, 10)
	b = append(b, `,"status":"`...)
	b = append(b, o.status...)
	b = append(b, `","completed_at":`...)
	if o.completedAt == 0 {
		b = append(b, "null"...)
	} else {
		b = strconv.AppendInt(b, o.completedAt, 10)
	}
	b = append(b, `,"model":`...)
	b = appendString(b, r.start.Model)
	b = append(b, `,"error":`...)
	if e := o.err; e == nil {
		b = append(b, "null"...)
	} else {
		b = append(b, `{"code":`...)
		b = appendString(b, errorCode(e))
		b = append(b, `,"message":`...)
		b = append(appendString(b, e.Message), '}')
	}
	b = append(b, `,"incomplete_details":`...)
	if o.reason == "" {
		b = append(b, "null"...)
	} else {
		b = append(b, `{"reason":"`...)
		b = append(append(b, o.reason...), `"}`...)
	}
	b = append(b, `,"service_tier":`...)
	b = o.appendServiceTier(b, r.req.body.ServiceTier)
	b = append(b, ',')
	b = append(b, r.echo...)
	b = append(b, `,"usage":`...)
	return o.appendUsage(b)
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
	b = append(b, `},"output_tokens":`...)
	b = strconv.AppendInt(b, int64(u.CompletionTokens), 10)
	b = append(b, `,"output_tokens_details":{"reasoning_tokens":`...)
	b = strconv.AppendInt(b, int64(u.CompletionTokensDetails.ReasoningTokens), 10)
	b = append(b, `},"total_tokens":`...)
	b = strconv.AppendInt(b, int64(u.TotalTokens), 10)
	return append(b, '}')
}
