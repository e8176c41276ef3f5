// The members of a response that repeat parameters.

package responses

import (
	"cmp"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/param"
)

// echoedParams has the members of a response that repeat parameters of the request, or
// their default values. Each of them is required by some client. Numbers and lists must
// not be null.
type echoedParams struct {
	Instructions       *string          `json:"instructions"`
	PreviousResponseID *string          `json:"previous_response_id"`
	Tools              []jsonwire.Value `json:"tools"`
	ToolChoice         jsonwire.Value   `json:"tool_choice"`
	Text               textParams       `json:"text"`
	Reasoning          reasoningParams  `json:"reasoning"`
	Metadata           jsonwire.Value   `json:"metadata"`
	Store              bool             `json:"store"`
	Background         bool             `json:"background"`

	PromptCacheOptions *echoedCacheOptions `json:"prompt_cache_options,omitzero"`
	missingFeatures
	echoedNumbers
	identifiers
}

// missingFeatures has members of features that are not supported. They are null.
type missingFeatures struct {
	AccessPrograms *struct{} `json:"access_programs"`
	Conversation   *struct{} `json:"conversation"`
	Prompt         *struct{} `json:"prompt"`
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

// encodeEcho returns the JSON members of echoedParams, without braces.
func encodeEcho(r *request, stored bool) ([]byte, error) {
	b := r.body
	e := &echoedParams{
		Instructions: b.Instructions, PreviousResponseID: b.PreviousResponseID,
		ToolChoice: rawOr(b.ToolChoice, `"auto"`), Metadata: rawOr(b.Metadata, "{}"), Store: stored,
		echoedNumbers: echoedNumbers{
			Temperature: valueOr(b.Temperature, 1), TopP: valueOr(b.TopP, 1),
			PresencePenalty: valueOr(b.PresencePenalty, 0), FrequencyPenalty: valueOr(b.FrequencyPenalty, 0),
			TopLogprobs: valueOr(b.TopLogprobs, 0), MaxOutputTokens: b.MaxOutputTokens, MaxToolCalls: b.MaxToolCalls,
			ParallelToolCalls: valueOr(b.ParallelToolCalls, true), Truncation: valueOr(b.Truncation, "disabled"),
		},
		identifiers: b.identifiers, PromptCacheOptions: r.cacheOptions.echo(),
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

// echoTools returns the tools for the response. Optional members of functions that the
// request does not have are null.
func echoTools(tools []jsonwire.Value) ([]jsonwire.Value, error) {
	echoed := make([]jsonwire.Value, len(tools))
	for i, raw := range tools {
		var t map[string]jsonwire.Value
		if err := decode(raw, param.Path("tools", i, ""), &t); err != nil {
			return nil, err
		}
		if string(t["type"]) == `"function"` {
			for _, name := range []string{"description", "parameters", "strict"} {
				t[name] = cmp.Or(t[name], "null")
			}
		}
		b, err := marshal(t)
		if err != nil {
			return nil, err
		}
		echoed[i] = jsonwire.Value(b)
	}
	return echoed, nil
}

// valueOr returns *p, or otherwise if p is nil.
func valueOr[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

// rawOr returns raw, or otherwise if raw is missing or null.
func rawOr(raw jsonwire.Value, otherwise string) jsonwire.Value {
	if raw.IsNull() {
		return jsonwire.Value(otherwise)
	}
	return raw
}
