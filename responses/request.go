// The parameters of a request.

package responses

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/invalid"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/param"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/responsestore"
)

// A createBody is the body of POST /v1/responses.
type createBody struct {
	Model        string           `json:"model"`
	Input        jsonwire.Value   `json:"input"`
	Instructions *string          `json:"instructions"`
	Stream       bool             `json:"stream"`
	Include      []jsonwire.Value `json:"include"`
	Tools        []jsonwire.Value `json:"tools"`
	ToolChoice   jsonwire.Value   `json:"tool_choice"`
	Text         *textParams      `json:"text"`
	Reasoning    *reasoningParams `json:"reasoning"`
	samplingParams
	passedParams
	stateParams
	Others jsonwire.Others // see passMembers
}

// samplingParams has the parameters of the model's output.
type samplingParams struct {
	Temperature       *float64 `json:"temperature"`
	TopP              *float64 `json:"top_p"`
	PresencePenalty   *float64 `json:"presence_penalty"`
	FrequencyPenalty  *float64 `json:"frequency_penalty"`
	TopLogprobs       *int     `json:"top_logprobs"`
	MaxOutputTokens   *int     `json:"max_output_tokens"`
	MaxToolCalls      *int     `json:"max_tool_calls"`
	ParallelToolCalls *bool    `json:"parallel_tool_calls"`
	Truncation        *string  `json:"truncation"`
}

// passedParams has the parameters that are passed on under the same names and repeated in responses. Those
// that are only passed on need no field.
type passedParams struct {
	Metadata    jsonwire.Value `json:"metadata"`
	ServiceTier *string        `json:"service_tier"`

	PromptCacheOptions jsonwire.Value `json:"prompt_cache_options"`
	identifiers
}

// identifiers has the parameters that identify the user or a cache.
type identifiers struct {
	User                 *string `json:"user"`
	SafetyIdentifier     *string `json:"safety_identifier"`
	PromptCacheKey       *string `json:"prompt_cache_key"`
	PromptCacheRetention *string `json:"prompt_cache_retention"`
}

// stateParams has the parameters about stored responses and conversations.
type stateParams struct {
	Store              *bool          `json:"store"`
	PreviousResponseID *string        `json:"previous_response_id"`
	Background         *bool          `json:"background"`
	Conversation       jsonwire.Value `json:"conversation"`
	Prompt             jsonwire.Value `json:"prompt"`
}

type textParams struct {
	Format    *textFormat `json:"format"`
	Verbosity *string     `json:"verbosity"`
}

// A textFormat is the format of the output text. The members of jsonSchema are set
// only if the type is json_schema.
type textFormat struct {
	Type string `json:"type"`
	jsonSchema
}

type jsonSchema struct {
	Name        string         `json:"name,omitzero"`
	Description *string        `json:"description,omitzero"`
	Schema      jsonwire.Value `json:"schema,omitzero"`
	Strict      *bool          `json:"strict,omitzero"`
}

type reasoningParams struct {
	Effort  *string `json:"effort"`
	Summary *string `json:"summary"`
}

// A request is a decoded createBody.
type request struct {
	body           *createBody
	account        string
	chat           *llm.ChatRequest
	tools          *toolset
	cacheOptions   *promptCacheOptions // nil if there are none
	wantsLogprobs  bool
	wantsEncrypted bool                 // the client wants encrypted_content
	history        []inputItem          // the conversation that previous_response_id continues
	conversation   string               // its ID; "" for a new conversation
	items          []inputItem          // the input
	stored         []responsestore.Item // the input, to be stored; nil if it is not
	compacts       bool                 // the reply is a summary of the conversation
	standalone     bool                 // the same, by POST /v1/responses/compact
	retained       []responsestore.Item // what the reply to that repeats
}

// The values of include that are supported.
const (
	includeLogprobs  = "message.output_text.logprobs"
	includeEncrypted = "reasoning.encrypted_content"
)

// includes has all values of include. Those that are not supported are about hosted tools
// and files, and are ignored.
var includes = []string{
	includeLogprobs, includeEncrypted, "code_interpreter_call.outputs", "computer_call_output.output.image_url", "file_search_call.results",
	"message.input_image.image_url", "web_search_call.action.sources", "web_search_call.results",
}

// decodeRequest decodes the body of a request and converts it. It calls reserve with
// what is known of the chat request before it loads anything from the store. standalone is for
// POST /v1/responses/compact.
func (p *protocol) decodeRequest(ctx context.Context, raw []byte, standalone bool, reserve func(*llm.ChatRequest) error) (*request, error) {
	r, err := p.readRequest(ctx, raw, standalone)
	if err != nil {
		return nil, err
	}
	if r.loadsItems() {
		if err := p.convert(ctx, r, false); err != nil {
			return nil, err
		}
		if err := reserve(r.chat); err != nil {
			return nil, err
		}
		if err := p.loadInput(ctx, r); err != nil {
			return nil, err
		}
	}
	if err := p.convert(ctx, r, true); err != nil {
		return nil, err
	}
	switch {
	case standalone:
		r.retained, err = r.retainedOutput()
	case p.stores(r):
		r.stored, err = storedInput(r.items)
	}
	r.history, r.items, r.body.Input = nil, nil, "" // so that they are not in memory until the reply has ended
	return r, err
}

// readRequest decodes the body of a request.
func (p *protocol) readRequest(ctx context.Context, raw []byte, standalone bool) (*request, error) {
	body, err := decodeBody(ctx, raw)
	if err != nil {
		return nil, err
	}
	if standalone {
		body.Stream, body.Store = false, new(false)
	}
	r := &request{compacts: standalone, standalone: standalone, body: body, account: accountOf(ctx), chat: &llm.ChatRequest{Model: body.Model, Stream: body.Stream}}
	if err := r.checkState(p.opts.Store != nil); err != nil {
		return nil, err
	}
	if err := r.readIncludes(); err != nil {
		return nil, err
	}
	if err := r.setParams(); err != nil {
		return nil, err
	}
	return r, p.readInput(r)
}

// accountOf returns the account of the request with the given context, or "" if it has no
// key.
func accountOf(ctx context.Context) string {
	if key := llmhttp.KeyFrom(ctx); key != nil {
		return key.Account
	}
	return ""
}

// decodeBody decodes the body of a request. It refuses members that
// Options.Accept.UnknownMembers of the Handler refuses.
func decodeBody(ctx context.Context, raw []byte) (*createBody, error) {
	var body createBody
	if err := llmhttp.DecodeJSON(ctx, raw, &body); err != nil {
		return nil, err
	}
	if id := body.PreviousResponseID; id != nil && *id == "" {
		body.PreviousResponseID = nil // as sent by clients that do not omit empty members
	}
	return &body, nil
}

// checkState refuses the parameters of features that are not supported. stored tells
// whether there is a store of responses.
func (r *request) checkState(stored bool) error {
	b := r.body
	switch {
	case b.Background != nil && *b.Background:
		return unsupportedParam("background", "Responses in the background are not supported. Use 'background': false.")
	case !b.Conversation.IsNull():
		return unsupportedParam("conversation", "Conversations are not supported. Send the whole conversation as 'input'.")
	case !b.Prompt.IsNull():
		return unsupportedParam("prompt", "Stored prompts are not supported. Use 'instructions' and 'input'.")
	case b.PreviousResponseID != nil && !stored:
		return invalid.Param("previous_response_not_found", "previous_response_id",
			"Responses are not stored. Use 'store': false and send the whole conversation as 'input'.")
	}
	return nil
}

func (r *request) readIncludes() error {
	for i, raw := range r.body.Include {
		value, err := decodeString(raw, param.Path("include", i, ""))
		if err != nil {
			return err
		}
		if err := checkValue(param.Path("include", i, ""), value, includes); err != nil {
			return err
		}
		switch value {
		case includeLogprobs:
			r.wantsLogprobs = true
		case includeEncrypted:
			r.wantsEncrypted = true
		}
	}
	return nil
}

// setParams sets the parameters of the chat request.
func (r *request) setParams() error {
	b, c := r.body, r.chat
	if err := b.samplingParams.check(); err != nil {
		return err
	}
	if !b.Metadata.IsNull() && b.Metadata.Kind() != '{' {
		return invalidType("metadata", "an object", b.Metadata)
	}
	c.Temperature, c.TopP = b.Temperature, b.TopP
	c.PresencePenalty, c.FrequencyPenalty = b.PresencePenalty, b.FrequencyPenalty
	if n := b.MaxOutputTokens; n != nil {
		c.MaxCompletionTokens = new(int(*n)) // the Handler may lower it, and the response repeats the parameter
	}
	if b.Reasoning != nil && b.Reasoning.Effort != nil {
		c.ReasoningEffort = *b.Reasoning.Effort
		if err := checkValue("reasoning.effort", c.ReasoningEffort, efforts); err != nil {
			return err
		}
	}
	c.Extra = make(llm.Extra)
	r.passMembers()
	if !b.Metadata.IsNull() {
		c.Extra["metadata"] = json.RawMessage(b.Metadata)
	}
	setExtra(c.Extra, "service_tier", b.ServiceTier)
	setExtra(c.Extra, "user", b.User)
	setExtra(c.Extra, "safety_identifier", b.SafetyIdentifier)
	setExtra(c.Extra, "prompt_cache_key", b.PromptCacheKey)
	setExtra(c.Extra, "prompt_cache_retention", b.PromptCacheRetention)
	r.setLogprobs()
	if err := r.setPromptCacheOptions(); err != nil {
		return err
	}
	return r.setText()
}

// setLogprobs asks for logprobs if the request includes them or has top_logprobs.
func (r *request) setLogprobs() {
	top := r.body.TopLogprobs
	r.wantsLogprobs = r.wantsLogprobs || top != nil && *top > 0
	if !r.wantsLogprobs {
		return
	}
	r.chat.Extra["logprobs"] = json.RawMessage("true")
	if top != nil {
		r.chat.Extra["top_logprobs"] = strconv.AppendInt(nil, int64(*top), 10)
	}
}

func setExtra(e llm.Extra, name string, value *string) {
	if value != nil {
		e[name] = appendString(nil, *value)
	}
}

// setText sets the format and the verbosity of texts.
func (r *request) setText() error {
	t := r.body.Text
	if t == nil {
		return nil
	}
	setExtra(r.chat.Extra, "verbosity", t.Verbosity)
	f := t.Format
	if f == nil {
		return nil
	}
	switch f.Type {
	case "", "text":
	case "json_schema":
		if err := f.jsonSchema.check(); err != nil {
			return err
		}
		r.chat.ResponseFormat = &llm.ResponseFormat{Type: f.Type, JSONSchema: f.jsonSchema.convert()}
	default:
		r.chat.ResponseFormat = &llm.ResponseFormat{Type: f.Type}
	}
	return nil
}

// checkParams checks the parameters of the chat request besides the model and the messages. A
// request to count tokens need not have these, and others may get messages from the store.
func (r *request) checkParams() error {
	c := *r.chat
	c.Model = cmp.Or(c.Model, "any")
	if len(c.Messages) == 0 {
		c.Messages = []llm.Message{{Role: llm.RoleUser, Content: llm.TextContent("")}}
	}
	return chatError(c.Validate())
}

// check returns an error if a member is missing that chat completions do not require.
func (f *jsonSchema) check() error {
	switch {
	case f.Name == "":
		return invalid.Missing("text.format.name")
	case f.Schema.IsNull():
		return invalid.Missing("text.format.schema")
	}
	return nil
}

func (f *jsonSchema) convert() *llm.JSONSchema {
	s := &llm.JSONSchema{Name: f.Name, Schema: json.RawMessage(f.Schema), Strict: f.Strict}
	if f.Description != nil {
		s.Description = *f.Description
	}
	return s
}

// The values of reasoning.effort and of truncation. The last two efforts are Codex's.
var (
	efforts     = []string{"none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra"}
	truncations = []string{"auto", "disabled"}
)

// checkValue returns an error if value is not in list.
func checkValue(param, value string, list []string) error {
	if slices.Contains(list, value) {
		return nil
	}
	return invalid.Param("invalid_value", param, "%s", jsonwire.ValueText(clip(value), list))
}

// check checks truncation, and the numbers that a chat request has no fields for.
func (s *samplingParams) check() error {
	if s.Truncation != nil {
		if err := checkValue("truncation", *s.Truncation, truncations); err != nil {
			return err
		}
	}
	if err := checkInteger("top_logprobs", s.TopLogprobs, 0, 20); err != nil {
		return err
	}
	return checkInteger("max_tool_calls", s.MaxToolCalls, 1, jsonwire.MaxInteger)
}

// checkInteger returns an error if *n is out of its bounds. A nil n is not checked.
func checkInteger(param string, n *int, least, most int) error {
	if n == nil || *n >= least && *n <= most {
		return nil
	}
	e := &jsonwire.Error{
		Kind:    jsonwire.OutOfRange,
		Path:    param,
		Integer: true,
		Above:   *n > most,
		Limit:   float64(least),
		Got:     strconv.Itoa(int(*n)),
	}
	if e.Above {
		e.Limit = float64(most)
	}
	return decodeError("", e)
}
