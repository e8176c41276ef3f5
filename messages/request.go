// The parameters of a request, and what they become.

package messages

import (
	"context"
	"encoding/json"
	"math"
	"net/http"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/llm"
)

// params is the body of a request.
type params struct {
	Model         string   `json:"model"`
	Messages      []turn   `json:"messages"`
	System        content  `json:"system"` // text only
	MaxTokens     *int     `json:"max_tokens"`
	Stream        bool     `json:"stream"`
	StopSequences []string `json:"stop_sequences"`
	Temperature   *float64 `json:"temperature"`
	TopP          *float64 `json:"top_p"`
	TopK          *int     `json:"top_k"`
	toolParams
	outputParams
	Thinking    *thinkingConfig `json:"thinking"`
	Metadata    metadata        `json:"metadata"`
	ServiceTier string          `json:"service_tier"`
	Thread      *raw            `json:"thread"` // asks the server to keep the conversation
	cacheControl
	placeParams
	Others jsonwire.Others // of which passedOn are used

	kept *keptParams
}

// A turn is an element of messages.
type turn struct {
	Role    string  `json:"role"`
	Content content `json:"content"`
}

type thinkingConfig struct {
	Type         string `json:"type"`
	BudgetTokens *int   `json:"budget_tokens"`
}

type metadata struct {
	UserID string `json:"user_id"`
}

// codeNoThreads is the error code that means that a server does not support message
// threads. The tool runners of the SDKs of 2026-10-21 ask for a thread first. After
// this error they send the whole conversation with each request.
const codeNoThreads = "thread_unsupported_request"

var errNoThreads = &llm.Error{
	Status: http.StatusBadRequest, Code: codeNoThreads, Param: "thread",
	Message: "thread: Message threads are not supported; send the full conversation without `thread`",
}

// decodeRequest decodes a body and converts it. isChat is false for a request to count
// tokens, which needs no max_tokens.
func (p *protocol) decodeRequest(ctx context.Context, r *http.Request, body []byte, isChat bool) (*llm.ChatRequest, replyParams, error) {
	req, reply, err := p.convertBody(ctx, r, body, isChat)
	if e, ok := err.(*requestError); ok {
		return nil, reply, e.forClient()
	}
	return req, reply, err
}

func (p *protocol) convertBody(ctx context.Context, r *http.Request, body []byte, isChat bool) (*llm.ChatRequest, replyParams, error) {
	var in params
	if err := decodeBody(ctx, body, &in); err != nil {
		return nil, replyParams{}, err
	}
	if err := in.check(isChat); err != nil {
		return nil, replyParams{}, err
	}
	place, err := in.place(p.opts.InferenceGeos)
	if err != nil {
		return nil, replyParams{}, err
	}
	if in.kept, err = p.keep(r, body); err != nil {
		return nil, replyParams{}, err
	}
	req, err := in.convert(isChat)
	if err == nil && place != "" {
		setExtra(req, memberInferenceGeo, place)
	}
	return req, replyParams{isEmpty: in.fillsCache(), inferenceGeo: place}, err
}

// check returns an error for the first parameter that is missing or out of bounds that chat
// completions do not have.
func (p *params) check(isChat bool) error {
	switch {
	case p.Thread != nil:
		return errNoThreads
	case p.Model == "":
		return missingField("model")
	case p.Messages == nil:
		return missingField("messages")
	case len(p.Messages) == 0:
		return fieldError("messages", "at least one message is required").withCode("empty_array")
	case isChat && p.MaxTokens == nil:
		return missingField("max_tokens")
	case p.TopK != nil && *p.TopK < 0:
		return fieldError("top_k", "Input should be greater than or equal to 0")
	case p.Temperature != nil && *p.Temperature > 1: // chat completions allow 2
		return fieldError("temperature", "Input should be from 0 to 1").withCode("decimal_above_max_value")
	case p.fillsCache():
		return p.checkFillsCache()
	}
	return nil
}

// convert converts the parameters, which check has accepted. See decodeRequest for isChat.
func (p *params) convert(isChat bool) (*llm.ChatRequest, error) {
	req := &llm.ChatRequest{
		Model: p.Model, Stream: p.Stream, Temperature: p.Temperature, TopP: p.TopP, MaxTokens: p.tokenLimit(),
	}
	if err := p.convertMessages(req); err != nil {
		return nil, err
	}
	if err := p.convertTools(req, isChat && !p.kept.hasToolsWithoutSchema()); err != nil {
		return nil, err
	}
	if err := p.convertThinking(req); err != nil {
		return nil, err
	}
	if err := p.convertFormat(req); err != nil {
		return nil, err
	}
	p.setExtras(req)
	if err := p.mark(&req.Extra); err != nil {
		return nil, err
	}
	p.kept.setRequest(req)
	if err := req.Validate(); err != nil {
		return nil, chatError(err)
	}
	req.Stop = append(req.Stop, p.StopSequences...) // after Validate, because this API allows more of them
	return req, nil
}

// setExtras sets the members of req.Extra for parameters that have no field.
func (p *params) setExtras(req *llm.ChatRequest) {
	if p.TopK != nil {
		setExtra(req, "top_k", *p.TopK)
	}
	if p.Metadata.UserID != "" {
		setExtra(req, "user", p.Metadata.UserID)
	}
	switch p.ServiceTier {
	case "":
	case "standard_only":
		setExtra(req, "service_tier", "default")
	default:
		setExtra(req, "service_tier", p.ServiceTier)
	}
	p.passOn(req)
}

// setExtra sets a member of req.Extra. It panics if value cannot be encoded as JSON.
func setExtra(req *llm.ChatRequest, name string, value any) {
	if req.Extra == nil {
		req.Extra = make(llm.Extra)
	}
	req.Extra[name] = mustMarshal(value)
}

// mustMarshal encodes v as JSON. It panics if that fails.
func mustMarshal(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// convertThinking sets the reasoning effort. That of output_config takes precedence, unless
// thinking is disabled. A budget of tokens is converted to an approximate effort, and is also
// passed on in Extra.
func (p *params) convertThinking(req *llm.ChatRequest) error {
	if err := p.Thinking.convert(req); err != nil {
		return err
	}
	if effort := p.OutputConfig.Effort; effort != "" && (p.Thinking == nil || p.Thinking.Type != thinkingDisabled) {
		req.ReasoningEffort = effort
	}
	return nil
}

const thinkingDisabled = "disabled"

func (c *thinkingConfig) convert(req *llm.ChatRequest) error {
	if c == nil {
		return nil
	}
	switch c.Type {
	case thinkingDisabled:
		req.ReasoningEffort = "none"
	case "adaptive", "between_tools":
	case "enabled":
		if c.BudgetTokens == nil {
			return missingField("thinking.budget_tokens")
		}
		if *c.BudgetTokens < 1 || *c.BudgetTokens > math.MaxInt32 {
			return fieldError("thinking.budget_tokens", "Input should be greater than or equal to 1")
		}
		req.ReasoningEffort = effortForBudget(*c.BudgetTokens)
		setExtra(req, "thinking", map[string]any{"type": c.Type, "budget_tokens": *c.BudgetTokens})
	case "":
		return missingField("thinking.type")
	default:
		return fieldError("thinking.type", "Input should be 'enabled', 'adaptive', 'between_tools' or 'disabled'")
	}
	return nil
}

// effortForBudget returns the effort for a budget of thinking tokens.
func effortForBudget(budget int) string {
	switch {
	case budget < 4096:
		return "low"
	case budget < 16384:
		return "medium"
	}
	return "high"
}
