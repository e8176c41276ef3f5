package responses

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// An echo has the members of a response that repeat the request, or the default
// of what the request left out. All of them are required by one client or another:
// a number or a list must not be null.
type echo struct {
	Instructions       *string          `json:"instructions"`
	PreviousResponseID *string          `json:"previous_response_id"`
	Tools              []jsontext.Value `json:"tools"`
	ToolChoice         jsontext.Value   `json:"tool_choice"`
	Text               textParams       `json:"text"`
	Reasoning          reasoning        `json:"reasoning"`
	Metadata           jsontext.Value   `json:"metadata"`
	Store              bool             `json:"store"`
	Background         bool             `json:"background"`
	echoedNumbers
	echoedNames
}

type echoedNumbers struct {
	Temperature       float64 `json:"temperature"`
	TopP              float64 `json:"top_p"`
	PresencePenalty   float64 `json:"presence_penalty"`
	FrequencyPenalty  float64 `json:"frequency_penalty"`
	TopLogprobs       int     `json:"top_logprobs"`
	MaxOutputTokens   *int    `json:"max_output_tokens"`
	MaxToolCalls      *int    `json:"max_tool_calls"`
	ParallelToolCalls bool    `json:"parallel_tool_calls"`
	Truncation        string  `json:"truncation"`
}

type echoedNames struct {
	User                 *string `json:"user"`
	SafetyIdentifier     *string `json:"safety_identifier"`
	PromptCacheKey       *string `json:"prompt_cache_key"`
	PromptCacheRetention *string `json:"prompt_cache_retention"`
}

// newEcho returns the members of an echo, without braces.
func newEcho(r *request, stored bool) ([]byte, error) {
	b := r.body
	e := &echo{
		Instructions: b.Instructions, PreviousResponseID: b.PreviousResponseID,
		ToolChoice: or(b.ToolChoice, `"auto"`), Metadata: or(b.Metadata, "{}"), Store: stored,
		echoedNumbers: echoedNumbers{
			Temperature: value(b.Temperature, 1), TopP: value(b.TopP, 1),
			PresencePenalty: value(b.PresencePenalty, 0), FrequencyPenalty: value(b.FrequencyPenalty, 0),
			TopLogprobs: value(b.TopLogprobs, 0), MaxOutputTokens: b.MaxOutputTokens, MaxToolCalls: b.MaxToolCalls,
			ParallelToolCalls: value(b.ParallelToolCalls, true), Truncation: value(b.Truncation, "disabled"),
		},
		echoedNames: echoedNames{b.User, b.SafetyIdentifier, b.PromptCacheKey, b.PromptCacheRetention},
	}
	if b.Reasoning != nil {
		e.Reasoning = *b.Reasoning
	}
	if b.Text != nil {
		e.Text = *b.Text
	}
	if e.Text.Format == nil || e.Text.Format.Type == "" {
		e.Text.Format = &textFormat{Type: "text"}
	}
	if e.Text.Verbosity == nil {
		medium := "medium"
		e.Text.Verbosity = &medium
	}
	var err error
	if e.Tools, err = echoTools(b.Tools); err != nil {
		return nil, err
	}
	object, err := marshal(e)
	if err != nil {
		return nil, err
	}
	return object[1 : len(object)-1], nil
}

// echoTools returns tools as the response has them. A function has all of its
// members, even if the request left them out.
func echoTools(tools list) ([]jsontext.Value, error) {
	echoed := make([]jsontext.Value, len(tools))
	for i, raw := range tools {
		var t map[string]jsontext.Value
		if err := decode(raw, index("tools", i), &t); err != nil {
			return nil, err
		}
		if string(t["type"]) == `"function"` {
			for _, name := range []string{"description", "parameters", "strict"} {
				if t[name] == nil {
					t[name] = jsontext.Value("null")
				}
			}
		}
		var err error
		if echoed[i], err = marshal(t); err != nil {
			return nil, err
		}
	}
	return echoed, nil
}

func value[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

func or(raw jsontext.Value, otherwise string) jsontext.Value {
	if isNull(raw) {
		return jsontext.Value(otherwise)
	}
	return raw
}

// appendResponse appends the response as it is.
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

// appendServiceTier appends the tier that the Backend used, or that was asked for.
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
