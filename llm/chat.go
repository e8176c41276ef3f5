// Requests for chats. To add a parameter, such as seed, which is in Extra until then:
//
//  1. Search all packages for the name. One that sets it in Extra must set the field instead, because
//     a member that has a field is not encoded from Extra. A test that uses it as an unknown member
//     needs another.
//  2. Add a field to ChatRequest, with a tag. Clone copies it by reflection. It is a pointer if zero and
//     absent differ, and a null in a request leaves it nil:
//     Seed *int `json:"seed,omitzero"` // makes replies repeatable; nil leaves it to the Backend
//  3. Add a line to chatRequestJSON, which decodes, encodes and checks the bounds of numbers. Members are
//     encoded in the order of the table. Larger integers than jsonwire.MaxInteger, which is the largest
//     that JavaScript has, are refused in any case:
//     jsonwire.OptionalInt("seed", func(r *ChatRequest) **int { return &r.Seed }).Between(-jsonwire.MaxInteger, jsonwire.MaxInteger),
//  4. Other checks are in validate, which every Protocol calls: param.Value lists the values of a text.
//     Errors about a parameter that package responses calls by another name need a pair in paramNames
//     (responses/errors.go).
//  5. A text counts as tokens: Prompt of package tokens adds it. A parameter that RequestParams has is set
//     by generation.describe.
//  6. Add cases to TestChat_Params, TestChat_ParamsReachTheBackend and TestJSON_ExplicitNulls. TestJSON fails
//     if the tag and the table differ, and TestTokens_EveryTextCounts if a text is not counted. This finds
//     most mistakes in seconds: go test -run 'JSON|Doc|Tokens|Scopes|Members' .
//
// Values that were in Extra and are out of bounds are refused from then on, which breaks clients.

package llm

import (
	"encoding/json"

	"github.com/llmhttp/llmhttp/internal/bounds"
	"github.com/llmhttp/llmhttp/internal/deepcopy"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/param"
)

// A ChatRequest is the body of POST /v1/chat/completions, to which other protocols convert
// their requests. A Backend gets only requests that [ChatRequest.Validate] accepts: there is
// at least one message, and parameters are within their bounds. The exception is Stop, of
// which other protocols may have more.
//
// A nil pointer means that the client left the choice to the Backend.
type ChatRequest struct {
	Model            string         `json:"model"`
	Messages         []Message      `json:"messages"`
	Stream           bool           `json:"stream,omitzero"` // a Backend may ignore it: a reply is split or joined as the client asks
	StreamOptions    *StreamOptions `json:"stream_options,omitzero"`
	Temperature      *float64       `json:"temperature,omitzero"`       // 0 to 2; the format's default is 1
	TopP             *float64       `json:"top_p,omitzero"`             // 0 to 1; the format's default is 1
	PresencePenalty  *float64       `json:"presence_penalty,omitzero"`  // -2 to 2; the format's default is 0
	FrequencyPenalty *float64       `json:"frequency_penalty,omitzero"` // -2 to 2; the format's default is 0

	// MaxTokens bounds the tokens of each choice. MaxCompletionTokens, its
	// successor, also counts reasoning and takes precedence if both are set.
	MaxTokens           *int `json:"max_tokens,omitzero"`
	MaxCompletionTokens *int `json:"max_completion_tokens,omitzero"`

	// ReasoningEffort says how much to reason before the answer: low, medium, high
	// and others, which differ by model and are not checked.
	ReasoningEffort string `json:"reasoning_effort,omitzero"`

	N                 *int            `json:"n,omitzero"`    // number of choices, 1 to 128; the format's default is 1
	Stop              StringList      `json:"stop,omitzero"` // sequences that end a choice, at most 4 in chat completions; an empty string ends none
	ResponseFormat    *ResponseFormat `json:"response_format,omitzero"`
	Tools             []Tool          `json:"tools,omitempty"`
	ToolChoice        *ToolChoice     `json:"tool_choice,omitzero"`
	ParallelToolCalls *bool           `json:"parallel_tool_calls,omitzero"` // whether a reply may call several tools; the format's default is true
	Extra             Extra           `json:"-"`
}

var chatRequestJSON = jsonwire.NewObject(
	jsonwire.String("model", func(r *ChatRequest) *string { return &r.Model }).Always(),
	jsonwire.List("messages", func(r *ChatRequest) *[]Message { return &r.Messages }, messageJSON, bounds.Messages).Always(),
	jsonwire.Bool("stream", func(r *ChatRequest) *bool { return &r.Stream }),
	jsonwire.Pointer("stream_options", func(r *ChatRequest) **StreamOptions { return &r.StreamOptions }, streamOptionsJSON),
	jsonwire.OptionalFloat("temperature", func(r *ChatRequest) **float64 { return &r.Temperature }).Between(0, 2),
	jsonwire.OptionalFloat("top_p", func(r *ChatRequest) **float64 { return &r.TopP }).Between(0, 1),
	jsonwire.OptionalFloat("presence_penalty", func(r *ChatRequest) **float64 { return &r.PresencePenalty }).Between(-2, 2),
	jsonwire.OptionalFloat("frequency_penalty", func(r *ChatRequest) **float64 { return &r.FrequencyPenalty }).Between(-2, 2),
	jsonwire.OptionalInt("max_tokens", func(r *ChatRequest) **int { return &r.MaxTokens }).Between(1, jsonwire.MaxInteger),
	jsonwire.OptionalInt("max_completion_tokens", func(r *ChatRequest) **int { return &r.MaxCompletionTokens }).
		Between(1, jsonwire.MaxInteger),
	jsonwire.String("reasoning_effort", func(r *ChatRequest) *string { return &r.ReasoningEffort }),
	jsonwire.OptionalInt("n", func(r *ChatRequest) **int { return &r.N }).Between(1, bounds.Choices),
	jsonwire.Member("stop", func(r *ChatRequest) *StringList { return &r.Stop }, stringListJSON),
	jsonwire.Pointer("response_format", func(r *ChatRequest) **ResponseFormat { return &r.ResponseFormat }, responseFormatJSON),
	jsonwire.List("tools", func(r *ChatRequest) *[]Tool { return &r.Tools }, toolJSON, bounds.Tools),
	jsonwire.Pointer("tool_choice", func(r *ChatRequest) **ToolChoice { return &r.ToolChoice }, toolChoiceJSON),
	jsonwire.OptionalBool("parallel_tool_calls", func(r *ChatRequest) **bool { return &r.ParallelToolCalls }),
	jsonwire.Extra(func(r *ChatRequest) *Extra { return &r.Extra }),
)

// Clone returns a copy of r that shares nothing with it that can change: no list, no pointer,
// no Extra and no raw JSON. A Backend may change the request that it gets; one that passes it
// on more than once passes a Clone each time. The Clone of nil is nil.
func (r *ChatRequest) Clone() *ChatRequest { return deepcopy.Of(r) }

// Choices returns the number of choices that the client asked for. The function Choices makes them of a
// Backend that makes one.
func (r *ChatRequest) Choices() int {
	if r.N == nil {
		return 1
	}
	return *r.N
}

// TokenLimit returns the number of tokens that a choice may have, and whether the
// client set a limit.
func (r *ChatRequest) TokenLimit() (n int, ok bool) {
	switch {
	case r.MaxCompletionTokens != nil:
		return *r.MaxCompletionTokens, true
	case r.MaxTokens != nil:
		return *r.MaxTokens, true
	}
	return 0, false
}

// MarshalJSON encodes r. What is nil or empty is left out.
func (r ChatRequest) MarshalJSON() ([]byte, error) { return r.AppendJSON(nil) }

// AppendJSON appends to b what MarshalJSON returns. If there is an error, it returns nil.
func (r *ChatRequest) AppendJSON(b []byte) ([]byte, error) {
	return jsonwire.AppendValue(b, chatRequestJSON, r)
}

// UnmarshalJSON decodes a request without checking it.
func (r *ChatRequest) UnmarshalJSON(data []byte) error {
	return param.UnmarshalRequest(data, chatRequestJSON, r)
}

// Validate returns an *Error for the first parameter that is missing, has a value that the
// format does not have, or is out of its bounds. Its Param is the path of the parameter in
// chat completions, such as "messages[1].role". It returns nil if there is none. Parameters
// in Extra are not checked, and neither is whether the model exists. The bounds on messages, parts,
// tools and array lengths are constants, and hold in every wire format, for the messages to which its
// turns or items were converted.
//
// Requests of clients are checked before a Backend gets them. Programs that build requests
// themselves, such as agents, can call Validate to get the error before they send one. It does not
// change r.
func (r *ChatRequest) Validate() error { return asError(r.validate()) }

func (r *ChatRequest) validate() error {
	if r.Model == "" {
		return param.Missing("model")
	}
	if err := r.checkMessages(); err != nil {
		return err
	}
	if err := chatRequestJSON.Check(r); err != nil {
		return param.FromJSON(err)
	}
	if len(r.Stop) > bounds.Stops {
		return param.LongArray("stop", bounds.Stops, len(r.Stop))
	}
	if r.ResponseFormat != nil {
		if err := r.ResponseFormat.check(); err != nil {
			return err
		}
	}
	if len(r.Tools) > bounds.Tools {
		return param.LongArray("tools", bounds.Tools, len(r.Tools))
	}
	for i := range r.Tools {
		if err := r.Tools[i].check(i); err != nil {
			return err
		}
	}
	if r.ToolChoice != nil {
		return r.ToolChoice.check(r.Tools)
	}
	return nil
}

func (r *ChatRequest) checkMessages() error {
	switch {
	case r.Messages == nil:
		return param.Missing("messages")
	case len(r.Messages) == 0:
		return param.EmptyArray("messages")
	case len(r.Messages) > bounds.Messages:
		return param.LongArray("messages", bounds.Messages, len(r.Messages))
	}
	for i := range r.Messages {
		if err := r.Messages[i].check(i); err != nil {
			return err
		}
	}
	return nil
}

// StreamOptions are a client's options for a stream.
type StreamOptions struct {
	IncludeUsage bool  `json:"include_usage"` // end with a chunk that has the usage, which is added
	Extra        Extra `json:"-"`
}

var streamOptionsJSON = jsonwire.NewObject(
	jsonwire.Bool("include_usage", func(o *StreamOptions) *bool { return &o.IncludeUsage }).Always(),
	jsonwire.Extra(func(o *StreamOptions) *Extra { return &o.Extra }),
)

// MarshalJSON encodes o.
func (o StreamOptions) MarshalJSON() ([]byte, error) {
	return jsonwire.MarshalValue(streamOptionsJSON, &o)
}

// UnmarshalJSON decodes stream options.
func (o *StreamOptions) UnmarshalJSON(data []byte) error {
	return param.UnmarshalRequest(data, streamOptionsJSON, o)
}

// A ResponseFormat is the form that a client wants the reply to have. Type is
// text, json_object or json_schema.
type ResponseFormat struct {
	Type       string      `json:"type"`
	JSONSchema *JSONSchema `json:"json_schema,omitzero"` // set if Type is json_schema
	Extra      Extra       `json:"-"`
}

var responseFormatJSON = jsonwire.NewObject(
	jsonwire.String("type", func(f *ResponseFormat) *string { return &f.Type }).Always(),
	jsonwire.Pointer("json_schema", func(f *ResponseFormat) **JSONSchema { return &f.JSONSchema }, jsonSchemaJSON),
	jsonwire.Extra(func(f *ResponseFormat) *Extra { return &f.Extra }),
)

// MarshalJSON encodes f.
func (f ResponseFormat) MarshalJSON() ([]byte, error) {
	return jsonwire.MarshalValue(responseFormatJSON, &f)
}

// UnmarshalJSON decodes a response format.
func (f *ResponseFormat) UnmarshalJSON(data []byte) error {
	return param.UnmarshalRequest(data, responseFormatJSON, f)
}

func (f *ResponseFormat) check() error {
	switch f.Type {
	case "":
		return param.Missing("response_format.type")
	case "text", "json_object":
	case "json_schema":
		if f.JSONSchema == nil {
			return param.Missing("response_format.json_schema")
		}
		return checkObject("response_format.json_schema.schema", f.JSONSchema.Schema)
	default:
		return param.Value("response_format.type", f.Type, "json_object", "json_schema", "text")
	}
	return nil
}

// A JSONSchema describes a reply in JSON.
type JSONSchema struct {
	Name        string          `json:"name,omitzero"` // for the model; empty if the client sent none
	Description string          `json:"description,omitzero"`
	Schema      json.RawMessage `json:"schema,omitzero"` // an object that should be a JSON schema, which is not checked; nil if the client sent none
	Strict      *bool           `json:"strict,omitzero"` // whether the reply must follow the schema; nil for the Backend's default
	Extra       Extra           `json:"-"`
}

var jsonSchemaJSON = jsonwire.NewObject(
	jsonwire.String("name", func(s *JSONSchema) *string { return &s.Name }),
	jsonwire.String("description", func(s *JSONSchema) *string { return &s.Description }),
	jsonwire.Raw("schema", func(s *JSONSchema) *json.RawMessage { return &s.Schema }),
	jsonwire.OptionalBool("strict", func(s *JSONSchema) **bool { return &s.Strict }),
	jsonwire.Extra(func(s *JSONSchema) *Extra { return &s.Extra }),
)

// MarshalJSON encodes s.
func (s JSONSchema) MarshalJSON() ([]byte, error) { return jsonwire.MarshalValue(jsonSchemaJSON, &s) }

// UnmarshalJSON decodes the description of a reply.
func (s *JSONSchema) UnmarshalJSON(data []byte) error {
	return param.UnmarshalRequest(data, jsonSchemaJSON, s)
}

// MarshalJSON encodes t.
func (t Tool) MarshalJSON() ([]byte, error) { return jsonwire.MarshalValue(toolJSON, &t) }

// UnmarshalJSON decodes a tool.
func (t *Tool) UnmarshalJSON(data []byte) error { return param.UnmarshalRequest(data, toolJSON, t) }

// MarshalJSON encodes f.
func (f Function) MarshalJSON() ([]byte, error) { return jsonwire.MarshalValue(functionJSON, &f) }

// UnmarshalJSON decodes a function.
func (f *Function) UnmarshalJSON(data []byte) error {
	return param.UnmarshalRequest(data, functionJSON, f)
}

func (t *Tool) check(i int) error {
	switch {
	case t.Type == "":
		return param.Missing(param.Path("tools", i, "type"))
	case t.Type != ToolFunction:
	case t.Function == nil:
		return param.Missing(param.Path("tools", i, "function"))
	case t.Function.Name == "":
		return param.Missing(param.Path("tools", i, "function.name"))
	case t.Function.Parameters != nil:
		return checkObject(param.Path("tools", i, "function.parameters"), t.Function.Parameters)
	}
	return nil
}

// A StringList is one string or several. In JSON it is a string if it has one
// element, and null if it is nil.
type StringList []string

// MarshalJSON encodes l.
func (l StringList) MarshalJSON() ([]byte, error) { return jsonwire.MarshalValue(stringListJSON, &l) }

// UnmarshalJSON decodes a string, an array of strings, or null.
func (l *StringList) UnmarshalJSON(data []byte) error {
	*l = nil
	return param.UnmarshalRequest(data, stringListJSON, l)
}

var stringListJSON jsonwire.Type[StringList] = stringListType{}

type stringListType struct{}

func (stringListType) Decode(d *jsonwire.Decoder, l *StringList) {
	switch d.Kind() {
	case '"':
		*l = StringList{d.String()}
	case '[':
		*l = StringList{}
		d.Array(0, func(int) { *l = append(*l, d.String()) })
	default:
		d.Mismatch("one of a string or array of strings")
	}
}

func (stringListType) Append(b []byte, l *StringList) ([]byte, error) {
	switch {
	case *l == nil:
		return append(b, "null"...), nil
	case len(*l) == 1:
		return jsonwire.AppendString(b, (*l)[0]), nil
	}
	return jsonwire.AppendStrings(b, *l)
}

func (stringListType) IsZero(l *StringList) bool { return *l == nil }

// EndUser returns the end user whom the client names: the member safety_identifier of Extra, or
// else user, if that is a string. It returns "" if the client names none. Every format sets
// these members; Anthropic's metadata.user_id is user.
func (r *ChatRequest) EndUser() string { return param.EndUser(r.Extra) }
