// The request to the server: its parameters.

package anthropic

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"

	own "github.com/llmhttp/llmhttp/internal/anthropic"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/llm"
)

// An encoder encodes a request for the server. It does not change the request.
type encoder struct {
	opts   *Options
	req    *llm.ChatRequest
	own    own.Request
	counts bool // the request is for a number of tokens

	b    []byte
	role string // of the turn that is open, or "" if none is
}

func newEncoder(opts *Options, req *llm.ChatRequest) *encoder {
	e := &encoder{opts: opts, req: req}
	if raw := req.Extra[own.Member]; raw != nil && json.Unmarshal(raw, &e.own) != nil {
		e.own = own.Request{} // of another program
	}
	return e
}

// encode appends the body of the request to buf.
func (e *encoder) encode(buf []byte, model string) ([]byte, error) {
	e.b = append(buf, `{"model":`...)
	e.b = jsonwire.AppendString(e.b, model)
	limit := e.maxTokens()
	if !e.counts {
		if limit >= 0 {
			e.member("max_tokens")
			e.b = strconv.AppendInt(e.b, int64(limit), 10)
		}
		if e.req.Stream {
			e.b = append(e.b, `,"stream":true`...)
		}
	}
	if err := e.appendMessages(); err != nil {
		return nil, err
	}
	if err := e.appendTools(); err != nil {
		return nil, err
	}
	if !e.counts {
		e.appendSampling()
	}
	params := e.params(limit)
	for _, name := range slices.Sorted(maps.Keys(params)) {
		e.member(name)
		var err error
		if e.b, err = jsonwire.AppendRaw(e.b, params[name]); err != nil {
			return nil, invalidParam(name, "the parameter is not valid JSON")
		}
	}
	return append(e.b, '}'), nil
}

// member appends a comma and the name of a member.
func (e *encoder) member(name string) {
	e.b = append(jsonwire.AppendString(append(e.b, ','), name), ':')
}

// maxTokens returns the max_tokens of the request, or -1 if it has none.
func (e *encoder) maxTokens() int {
	if n, ok := e.req.TokenLimit(); ok {
		return n
	}
	return max(e.opts.MaxTokens, -1)
}

// appendSampling appends the parameters of the reply that have the same meaning in chat completions. A temperature above 1 is
// 1, as in Anthropic's own API of chat completions (https://platform.claude.com/docs/en/api/openai-sdk).
func (e *encoder) appendSampling() {
	r := e.req
	if stops := slices.DeleteFunc(slices.Clone(r.Stop), func(s string) bool { return s == "" }); len(stops) > 0 {
		e.member("stop_sequences")
		e.b = append(e.b, '[')
		for i, s := range stops {
			if i > 0 {
				e.b = append(e.b, ',')
			}
			e.b = jsonwire.AppendString(e.b, s)
		}
		e.b = append(e.b, ']')
	}
	for _, p := range []struct {
		name  string
		value *float64
	}{{"temperature", r.Temperature}, {"top_p", r.TopP}} {
		if p.value != nil {
			e.member(p.name)
			e.b = strconv.AppendFloat(e.b, min(*p.value, 1), 'g', -1, 64)
		}
	}
	if user := r.EndUser(); user != "" {
		e.member("metadata")
		e.b = append(jsonwire.AppendString(append(e.b, `{"user_id":`...), user), '}')
	}
	switch tier := jsonwire.Text(r.Extra["service_tier"]); tier {
	case "default":
		e.b = append(e.b, `,"service_tier":"standard_only"`...)
	case "auto", "standard_only":
		e.member("service_tier")
		e.b = jsonwire.AppendString(e.b, tier)
	}
}

// passedOn are the members of Extra, besides own.Parameters, that the API knows by the same name. Others, such as seed and
// logprobs, are not sent: the server would refuse them.
var passedOn = []string{"top_k", "cache_control", "inference_geo"}

// counted are the parameters of a request for a number of tokens.
var counted = []string{"thinking", "output_config", "context_management", "mcp_servers", "cache_control", "speed"}

// params returns the parameters that are passed on, and those that are made of others. limit is the result of maxTokens.
func (e *encoder) params(limit int) map[string]json.RawMessage {
	params := make(map[string]json.RawMessage)
	for _, name := range slices.Concat(own.Parameters, passedOn) {
		value := e.req.Extra[name]
		if raw := e.own.Members[name]; raw != nil {
			value = raw
		}
		if len(value) > 0 && string(value) != "null" {
			params[name] = value
		}
	}
	delete(params, "tool_choice") // see appendTools
	if e.opts.OmitCacheControl {
		delete(params, "cache_control")
	}
	e.addThinking(params, limit)
	e.addFormat(params)
	if e.counts {
		maps.DeleteFunc(params, func(name string, _ json.RawMessage) bool { return !slices.Contains(counted, name) })
	}
	return params
}

// noEffort is the reasoning effort that means no reasoning.
const noEffort = "none"

// addThinking adds the thinking and the effort for the reasoning effort, unless the client has sent them in the form of the
// API.
func (e *encoder) addThinking(params map[string]json.RawMessage, limit int) {
	effort, thinking := e.req.ReasoningEffort, params["thinking"]
	_, isSaid := e.own.Members["thinking"] // may be null: the client asks for an effort without thinking
	isOpen := thinking == nil && !isSaid && effort != "" && effort != noEffort
	switch typ := own.TypeOf(thinking); {
	case e.opts.ThinkingBudgets:
		if isOpen || typ == "adaptive" {
			setBudget(params, thinkingBudget(cmp.Or(effort, "high"), limit))
		} else if thinking == nil && effort == noEffort {
			params["thinking"] = json.RawMessage(`{"type":"disabled"}`)
		}
		return
	case effort == "":
		return
	case effort == noEffort:
		if thinking == nil {
			params["thinking"] = json.RawMessage(`{"type":"disabled"}`)
		}
		return
	case typ == "enabled" && !e.own.Effort: // the effort was made of its budget
		return
	case isOpen:
		params["thinking"] = json.RawMessage(`{"type":"adaptive"}`)
	}
	if effort == "minimal" {
		effort = "low"
	}
	if config := params["output_config"]; own.Get(config, "effort") == nil {
		params["output_config"] = withMember(config, "effort", jsonwire.AppendString(nil, effort))
	}
}

// setBudget sets the thinking to a budget of tokens, or to none if that is zero.
func setBudget(params map[string]json.RawMessage, budget int) {
	if delete(params, "thinking"); budget > 0 {
		params["thinking"] = json.RawMessage(`{"type":"enabled","budget_tokens":` + strconv.Itoa(budget) + `}`)
	}
}

// minBudget is the smallest budget of thinking tokens that the API takes.
const minBudget = 1024

// thinkingBudget returns the budget of thinking tokens for an effort, of a reply of at most limit tokens; -1 is no limit.
// Zero means that there is no room for thinking.
func thinkingBudget(effort string, limit int) int {
	budget := 32768
	switch effort {
	case "minimal":
		budget = minBudget
	case "low":
		budget = 2048
	case "medium":
		budget = 8192
	case "high":
		budget = 16384
	}
	if limit >= 0 {
		budget = min(budget, limit-1)
	}
	if budget < minBudget {
		return 0
	}
	return budget
}

// addFormat adds the schema of the reply. A response format json_object has no form in the API: its prompt asks for JSON.
func (e *encoder) addFormat(params map[string]json.RawMessage) {
	f := e.req.ResponseFormat
	if f == nil || f.JSONSchema == nil || f.JSONSchema.Schema == nil || own.Get(params["output_config"], "format") != nil {
		return
	}
	format := withMember(json.RawMessage(`{"type":"json_schema"}`), "schema", f.JSONSchema.Schema)
	params["output_config"] = withMember(params["output_config"], "format", format)
}

// withMember returns object, which may be nil, with a member more.
func withMember(object json.RawMessage, name string, value json.RawMessage) json.RawMessage {
	if object == nil {
		object = json.RawMessage("{}")
	}
	return own.Set(object, name, value)
}

// invalidParam returns the error for a parameter that the API has no form for.
func invalidParam(param, format string, args ...any) error {
	err := llm.Errorf(http.StatusBadRequest, "unsupported_value", format, args...)
	err.Param = param
	return err
}
