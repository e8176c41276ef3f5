package llm

import (
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp/internal/bounds"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/membername"
	"github.com/llmhttp/llmhttp/internal/param"
)

// A Role says who speaks in a [Message].
type Role string

// The roles of the format. RoleFunction is the deprecated predecessor of RoleTool.
const (
	RoleSystem    Role = "system"
	RoleDeveloper Role = "developer"
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
	RoleFunction  Role = "function"
)

// A Message is one turn of a conversation.
type Message struct {
	Role      Role    `json:"role"`
	Content   Content `json:"content"` // always encoded, as null if it is nil
	Reasoning string  `json:"reasoning_content,omitzero"`

	// ReasoningAlias reports that the member of Reasoning is "reasoning" in place of
	// "reasoning_content". vLLM, Ollama and OpenRouter use that name
	// (https://docs.vllm.ai/en/latest/features/reasoning_outputs/). If a message has both
	// members, "reasoning" is in Extra.
	ReasoningAlias bool `json:"-"`

	// ReasoningDetails is the reasoning in the form that the model accepts in the
	// next request: with signatures, or encrypted.
	ReasoningDetails []ReasoningDetail `json:"reasoning_details,omitempty"`

	Name       string     `json:"name,omitzero"`         // of the participant, if it has one
	ToolCalls  []ToolCall `json:"tool_calls,omitempty"`  // with RoleAssistant
	ToolCallID string     `json:"tool_call_id,omitzero"` // with RoleTool: the call that the message answers
	IsError    bool       `json:"is_error,omitzero"`     // with RoleTool: the call failed; the name is that of Anthropic's tool results
	Refusal    string     `json:"refusal,omitzero"`      // with RoleAssistant: the model's words of refusal; in whole replies null if empty
	Extra      Extra      `json:"-"`
}

var messageJSON = jsonwire.NewObject(append(slices.Clip(messageFields),
	jsonwire.String("refusal", func(m *Message) *string { return &m.Refusal }))...).AfterDecode((*Message).takeReasoning)

var messageReasoning = reasoningFields(
	func(m *Message) *string { return &m.Reasoning },
	func(m *Message) *bool { return &m.ReasoningAlias },
)

// messageFields are the fields of a Message, except for the refusal.
var messageFields = []jsonwire.Field[Message]{
	jsonwire.String("role", func(m *Message) *Role { return &m.Role }).Always(),
	jsonwire.Member("content", func(m *Message) *Content { return &m.Content }, contentJSON).Always(),
	messageReasoning[0], messageReasoning[1],
	jsonwire.List("reasoning_details", func(m *Message) *[]ReasoningDetail { return &m.ReasoningDetails }, reasoningDetailJSON, bounds.Parts),
	jsonwire.String("name", func(m *Message) *string { return &m.Name }),
	jsonwire.List("tool_calls", func(m *Message) *[]ToolCall { return &m.ToolCalls }, toolCallJSON, bounds.ToolCalls),
	jsonwire.String("tool_call_id", func(m *Message) *string { return &m.ToolCallID }),
	jsonwire.Bool("is_error", func(m *Message) *bool { return &m.IsError }),
	jsonwire.Extra(func(m *Message) *Extra { return &m.Extra }),
}

// reasoningFields returns the members that are Reasoning: reasoning_content and
// membername.ReasoningAlias.
func reasoningFields[T any](text func(*T) *string, alias func(*T) *bool) [2]jsonwire.Field[T] {
	isAlias := func(v *T) bool { return *alias(v) }
	return [2]jsonwire.Field[T]{
		jsonwire.String("reasoning_content", text).When(func(v *T) bool { return !isAlias(v) }),
		jsonwire.String(membername.ReasoningAlias, text).When(isAlias), // in Extra until it is decoded
	}
}

// takeReasoning moves the member membername.ReasoningAlias of extra to text, if it is a text and there
// is no other. If there is, the member gets the form that it has in a stream, where
// order.moveReasoning encodes it.
func takeReasoning(text *string, alias *bool, extra *Extra) {
	raw := (*extra)[membername.ReasoningAlias]
	if len(raw) == 0 || raw[0] != '"' {
		return
	}
	s := jsonwire.Text(raw)
	switch {
	case *text != "":
		(*extra)[membername.ReasoningAlias] = jsonwire.AppendString(nil, s)
		return
	case s == "":
		return
	}
	*text, *alias = s, true
	if delete(*extra, membername.ReasoningAlias); len(*extra) == 0 {
		*extra = nil
	}
}

func (m *Message) takeReasoning() { takeReasoning(&m.Reasoning, &m.ReasoningAlias, &m.Extra) }

// MarshalJSON encodes m.
func (m Message) MarshalJSON() ([]byte, error) { return jsonwire.MarshalValue(messageJSON, &m) }

// UnmarshalJSON decodes a message.
func (m *Message) UnmarshalJSON(data []byte) error {
	return param.UnmarshalRequest(data, messageJSON, m)
}

// check returns an *Error for the first parameter that the format does not allow. i is the
// index of m in messages.
func (m *Message) check(i int) error {
	switch m.Role {
	case "":
		return param.Missing(param.Path("messages", i, "role"))
	case RoleAssistant, RoleFunction:
	case RoleSystem, RoleDeveloper, RoleUser, RoleTool:
		if m.Content == nil {
			return param.WrongType(param.Path("messages", i, "content"), "one of a string or array of objects", "null")
		}
	default:
		return param.Value(
			param.Path("messages", i, "role"),
			string(m.Role),
			"system",
			"assistant",
			"user",
			"function",
			"tool",
			"developer",
		)
	}
	if m.Content != nil && len(m.Content) == 0 {
		return param.EmptyArray(param.Path("messages", i, "content"))
	}
	if err := checkParts(m.Content, func() string { return param.Path("messages", i, "content") }); err != nil {
		return err
	}
	if len(m.ReasoningDetails) > bounds.Parts {
		return param.LongArray(param.Path("messages", i, "reasoning_details"), bounds.Parts, len(m.ReasoningDetails))
	}
	if m.Role == RoleTool && m.ToolCallID == "" {
		return param.Missing(param.Path("messages", i, "tool_call_id"))
	}
	return m.checkToolCalls(i)
}

// checkParts checks parts. path returns the parameter that they are, which only errors need (budget:
// allocations of a whole request).
func checkParts(parts []Part, path func() string) error {
	if len(parts) > bounds.Parts {
		return param.LongArray(path(), bounds.Parts, len(parts))
	}
	for i := range parts {
		p := &parts[i]
		at := func(member string) string { return param.Path(path(), i, member) }
		switch {
		case p.Type == "":
			return param.Missing(at("type"))
		case p.Type == PartImage && p.ImageURL == nil:
			return param.Missing(at("image_url"))
		case p.Type == PartImage && p.ImageURL.URL == "":
			return param.Missing(at("image_url.url"))
		case p.Type == PartAudio && p.Extra[PartAudio] == nil:
			return param.Missing(at(PartAudio))
		case p.Type == PartFile && p.Extra[PartFile] == nil:
			return param.Missing(at(PartFile))
		}
	}
	return nil
}

// checkToolCalls checks the tool calls. i is the index of m in messages.
func (m *Message) checkToolCalls(i int) error {
	if len(m.ToolCalls) > bounds.ToolCalls {
		return param.LongArray(param.Path("messages", i, "tool_calls"), bounds.ToolCalls, len(m.ToolCalls))
	}
	for j := range m.ToolCalls {
		c := &m.ToolCalls[j]
		at := func(member string) string { return param.Path(param.Path("messages", i, "tool_calls"), j, member) }
		switch {
		case c.ID == "":
			return param.Missing(at("id"))
		case isFunction(c.Type) && c.Function.Name == "":
			return param.Missing(at("function.name"))
		}
	}
	return nil
}

// A ToolCall is a call the model asks for. The call of a tool of another Type
// than "function" is in Extra.
type ToolCall struct {
	ID       string       `json:"id,omitzero"`
	Type     string       `json:"type"` // "function" if empty
	Function FunctionCall `json:"function,omitzero"`
	Extra    Extra        `json:"-"`
}

var toolCallJSON = jsonwire.NewObject(
	jsonwire.String("id", func(c *ToolCall) *string { return &c.ID }),
	jsonwire.StringOr("type", func(c *ToolCall) *string { return &c.Type }, `"function"`),
	jsonwire.Struct("function", func(c *ToolCall) *FunctionCall { return &c.Function }, wholeCallJSON).
		AlwaysIf(func(c *ToolCall) bool { return isFunction(c.Type) }),
	jsonwire.Extra(func(c *ToolCall) *Extra { return &c.Extra }),
)

// MarshalJSON encodes c.
func (c ToolCall) MarshalJSON() ([]byte, error) { return jsonwire.MarshalValue(toolCallJSON, &c) }

// UnmarshalJSON decodes a tool call.
func (c *ToolCall) UnmarshalJSON(data []byte) error {
	return param.UnmarshalRequest(data, toolCallJSON, c)
}

// A FunctionCall is the function a [ToolCall] calls. Arguments is JSON as the
// model wrote it, which may be invalid. The empty Arguments of a ToolCall are encoded as {}.
type FunctionCall struct {
	Name      string `json:"name,omitzero"`
	Arguments string `json:"arguments"`
	Extra     Extra  `json:"-"`
}

// functionCallJSON is the form of a piece of a call, and wholeCallJSON that of a whole one. Readers of
// whole calls parse the arguments, so these are an object if the model wrote none, as OpenAI's are.
var (
	functionCallJSON = newFunctionCallJSON(`""`)
	wholeCallJSON    = newFunctionCallJSON(`"{}"`)
)

func newFunctionCallJSON(noArguments string) *jsonwire.Object[FunctionCall] {
	return jsonwire.NewObject(
		jsonwire.String("name", func(f *FunctionCall) *string { return &f.Name }),
		jsonwire.StringOr("arguments", func(f *FunctionCall) *string { return &f.Arguments }, noArguments),
		jsonwire.Extra(func(f *FunctionCall) *Extra { return &f.Extra }),
	)
}

// MarshalJSON encodes f.
func (f FunctionCall) MarshalJSON() ([]byte, error) {
	return jsonwire.MarshalValue(functionCallJSON, &f)
}

// UnmarshalJSON decodes a function call.
func (f *FunctionCall) UnmarshalJSON(data []byte) error {
	return param.UnmarshalRequest(data, functionCallJSON, f)
}

// isFunction reports whether a call of type typ is one of a function.
func isFunction(typ string) bool { return typ == "" || typ == ToolFunction }

// The types of a [ReasoningDetail].
const (
	ReasoningText      = "reasoning.text"      // has Text and perhaps a Signature
	ReasoningSummary   = "reasoning.summary"   // has Summary
	ReasoningEncrypted = "reasoning.encrypted" // has Data, which is encrypted or redacted
)

// A ReasoningDetail is a piece of a model's reasoning. Clients send the details of
// a reply back unchanged. The members are OpenRouter's
// (https://openrouter.ai/docs/use-cases/reasoning-tokens).
type ReasoningDetail struct {
	Type      string `json:"type"`
	Text      string `json:"text,omitzero"`
	Summary   string `json:"summary,omitzero"`
	Signature string `json:"signature,omitzero"`
	Data      string `json:"data,omitzero"`
	Extra     Extra  `json:"-"` // id, format and index among others
}

var reasoningDetailJSON = jsonwire.NewObject(
	jsonwire.String("type", func(r *ReasoningDetail) *string { return &r.Type }).Always(),
	jsonwire.String("text", func(r *ReasoningDetail) *string { return &r.Text }),
	jsonwire.String("summary", func(r *ReasoningDetail) *string { return &r.Summary }),
	jsonwire.String("signature", func(r *ReasoningDetail) *string { return &r.Signature }),
	jsonwire.String("data", func(r *ReasoningDetail) *string { return &r.Data }),
	jsonwire.Extra(func(r *ReasoningDetail) *Extra { return &r.Extra }),
)

// MarshalJSON encodes r.
func (r ReasoningDetail) MarshalJSON() ([]byte, error) {
	return jsonwire.MarshalValue(reasoningDetailJSON, &r)
}

// UnmarshalJSON decodes a detail.
func (r *ReasoningDetail) UnmarshalJSON(data []byte) error {
	return param.UnmarshalRequest(data, reasoningDetailJSON, r)
}

// Content is the content of a message. In JSON it is null when nil, a string when
// it is a single part of text without Extra, and otherwise an array of parts.
type Content []Part

// TextContent returns Content that is the text s.
func TextContent(s string) Content { return Content{{Type: PartText, Text: s}} }

// Text returns the text parts of c, joined without anything between them.
func (c Content) Text() string {
	if len(c) == 1 && c[0].Type == PartText {
		return c[0].Text
	}
	var b strings.Builder
	for i := range c {
		if c[i].Type == PartText {
			b.WriteString(c[i].Text)
		}
	}
	return b.String()
}

// MarshalJSON encodes c.
func (c Content) MarshalJSON() ([]byte, error) { return jsonwire.MarshalValue(contentJSON, &c) }

// UnmarshalJSON decodes a string, an array of parts, or null, which makes c nil.
func (c *Content) UnmarshalJSON(data []byte) error {
	*c = nil
	return param.UnmarshalRequest(data, contentJSON, c)
}

// Validate returns an *Error for the first part of c that the format does not allow. path is the name
// of the parameter that c is, such as "input".
func (c Content) Validate(path string) error {
	return asError(checkParts(c, func() string { return path }))
}

// IsText reports whether c is encoded as a string: it is one text without Extra.
func (c Content) IsText() bool {
	return len(c) == 1 && c[0].Type == PartText && len(c[0].Extra) == 0 && c[0].ImageURL == nil
}

// contentJSON is the JSON of Content. A lenient decoder takes other values for their
// JSON text.
var contentJSON jsonwire.Type[Content] = contentType{}

type contentType struct{}

// partsJSON is the JSON of Content that is an array.
var partsJSON = jsonwire.ListOf(partJSON, bounds.Parts)

func (contentType) Decode(d *jsonwire.Decoder, c *Content) {
	switch kind := d.Kind(); {
	case kind == '[':
		partsJSON.Decode(d, (*[]Part)(c))
	case kind == '"', d.Lenient():
		*c = TextContent(d.String())
	default:
		d.Mismatch("one of a string or array of objects")
	}
}

func (contentType) Append(b []byte, c *Content) ([]byte, error) {
	switch {
	case *c == nil:
		return append(b, "null"...), nil
	case c.IsText():
		return jsonwire.AppendString(b, (*c)[0].Text), nil
	}
	return partsJSON.Append(b, (*[]Part)(c))
}

func (contentType) IsZero(c *Content) bool { return *c == nil }

// The types of a [Part] that this package knows. Only text and images have fields of their own; the
// rest of a part of audio or of a file is in its Extra, under its type's name.
const (
	PartText  = "text"
	PartImage = "image_url"
	PartAudio = "input_audio"
	PartFile  = "file"
)

// A Part is a piece of [Content]. Text is used only with PartText, and ImageURL only
// with PartImage. All other members are in Extra, also a "text" or "image_url" of a
// part of another type.
type Part struct {
	Type     string    `json:"type,omitzero"`
	Text     string    `json:"text,omitzero"`      // with PartText, and then always encoded
	ImageURL *ImageURL `json:"image_url,omitzero"` // with PartImage
	Extra    Extra     `json:"-"`
}

// Which members a Part has depends on its type, which need not be the first member.
var partJSON = jsonwire.NewObject(
	jsonwire.String("type", func(p *Part) *string { return &p.Type }),
	jsonwire.String("text", func(p *Part) *string { return &p.Text }).Always().Required().
		When(func(p *Part) bool { return p.Type == PartText }),
	jsonwire.Pointer("image_url", func(p *Part) **ImageURL { return &p.ImageURL }, imageURLJSON).
		When(func(p *Part) bool { return p.Type == PartImage }),
	jsonwire.Extra(func(p *Part) *Extra { return &p.Extra }),
).Discriminator("type", func(p *Part) *string { return &p.Type }).Known(PartAudio, PartFile)

// MarshalJSON encodes p.
func (p Part) MarshalJSON() ([]byte, error) { return jsonwire.MarshalValue(partJSON, &p) }

// UnmarshalJSON decodes a part.
func (p *Part) UnmarshalJSON(data []byte) error { return param.UnmarshalRequest(data, partJSON, p) }

// An ImageURL is the address of an image, or a data: URL that contains it.
type ImageURL struct {
	URL    string `json:"url"`
	Detail string `json:"detail,omitzero"` // auto, low, high or empty
	Extra  Extra  `json:"-"`
}

var imageURLJSON = jsonwire.NewObject(
	jsonwire.String("url", func(u *ImageURL) *string { return &u.URL }).Always(),
	jsonwire.String("detail", func(u *ImageURL) *string { return &u.Detail }),
	jsonwire.Extra(func(u *ImageURL) *Extra { return &u.Extra }),
)

// MarshalJSON encodes u.
func (u ImageURL) MarshalJSON() ([]byte, error) { return jsonwire.MarshalValue(imageURLJSON, &u) }

// UnmarshalJSON decodes an image's address.
func (u *ImageURL) UnmarshalJSON(data []byte) error {
	return param.UnmarshalRequest(data, imageURLJSON, u)
}
