package llmhttp

import (
	"encoding/json"
	"math"
	"net"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// How many of each a request may have. Bytes are bounded by Options.MaxBody;
// these keep a small body from becoming much memory.
const (
	maxMessages  = 16384
	maxParts     = 4096 // of a message
	maxTools     = 2048
	maxToolCalls = 1024 // of a message
	maxChoices   = 128
	maxStops     = 4
)

// A ChatRequest is the body of POST /v1/chat/completions. Those a Handler
// passes to a Backend are checked: there is a message, and what has bounds is
// within them.
//
// A nil pointer means the client left the choice to the Backend.
type ChatRequest struct {
	Model            string
	Messages         []Message
	Stream           bool // of no concern to a Backend: the Handler splits and joins
	StreamOptions    *StreamOptions
	Temperature      *float64 // 0 to 2; the format's default is 1
	TopP             *float64 // 0 to 1; the format's default is 1
	PresencePenalty  *float64 // -2 to 2; the format's default is 0
	FrequencyPenalty *float64 // -2 to 2; the format's default is 0

	// MaxTokens bounds the tokens of each choice. MaxCompletionTokens is its
	// successor, which also counts reasoning; where both are set, it counts.
	MaxTokens, MaxCompletionTokens *int

	N              *int       // how many choices, 1 to 128; the format's default is 1
	Stop           StringList // at most 4; an empty one stops nothing
	ResponseFormat *ResponseFormat
	Tools          []Tool
	ToolChoice     json.RawMessage // "none", "auto", "required" or an object, as JSON; nil for none
	Extra          Extra

	plain []string // long texts that need no escapes
}

// Choices returns how many choices the client asked for.
func (r *ChatRequest) Choices() int {
	if r.N == nil {
		return 1
	}
	return *r.N
}

// TokenLimit returns how many tokens a choice may have, and whether the client
// set a limit.
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
func (r ChatRequest) MarshalJSON() ([]byte, error) { return marshal(&r) }

// Buffers returns what MarshalJSON does, in pieces: an image, or another text
// that is much of a large request from a client, stays where it is, so that
// passing it on neither reads nor copies it. The pieces share that memory, and
// must not be changed.
func (r *ChatRequest) Buffers() (net.Buffers, error) {
	e := jsonwire.Encoder{Cut: true, Buf: make([]byte, 0, r.roughSize())}
	r.encode(&e)
	return append(e.Pieces, e.Buf), e.Err
}

// roughSize returns how large the JSON of r may be, but for long texts.
func (r *ChatRequest) roughSize() int {
	n := 256
	for i := range r.Messages {
		n += 64
		for j := range r.Messages[i].Content {
			n += 32
			if text := r.Messages[i].Content[j].Text; len(text) < stayingText {
				n += len(text)
			}
		}
	}
	return n
}

// UnmarshalJSON decodes a request without checking it.
func (r *ChatRequest) UnmarshalJSON(data []byte) error { return unmarshal(data, r) }

var chatRequestMembers = []string{"model", "messages", "stream", "stream_options", "temperature", "top_p",
	"presence_penalty", "frequency_penalty", "max_tokens", "max_completion_tokens", "n", "stop",
	"response_format", "tools", "tool_choice"}

func (r *ChatRequest) encode(e *jsonwire.Encoder) {
	e.Plain = r.plain
	e.Token('{')
	e.Name("model")
	e.String(r.Model)
	e.Name("messages")
	e.Token('[')
	for i := range r.Messages {
		e.Element()
		r.Messages[i].encode(e)
	}
	e.Token(']')
	if r.Stream {
		e.Name("stream")
		e.Bool(true)
	}
	if r.StreamOptions != nil {
		e.Name("stream_options")
		r.StreamOptions.encode(e)
	}
	e.FloatMember("temperature", r.Temperature)
	e.FloatMember("top_p", r.TopP)
	e.FloatMember("presence_penalty", r.PresencePenalty)
	e.FloatMember("frequency_penalty", r.FrequencyPenalty)
	e.IntMember("max_tokens", r.MaxTokens)
	e.IntMember("max_completion_tokens", r.MaxCompletionTokens)
	e.IntMember("n", r.N)
	if r.Stop != nil {
		e.Name("stop")
		r.Stop.encode(e)
	}
	if r.ResponseFormat != nil {
		e.Name("response_format")
		r.ResponseFormat.encode(e)
	}
	if len(r.Tools) > 0 {
		e.Name("tools")
		e.Token('[')
		for i := range r.Tools {
			e.Element()
			r.Tools[i].encode(e)
		}
		e.Token(']')
	}
	e.RawMember("tool_choice", r.ToolChoice)
	e.Extra(r.Extra, chatRequestMembers...)
	e.Token('}')
}

func (r *ChatRequest) decode(d *jsonwire.Decoder) {
	var numbers *jsonwire.Numbers
	for o := d.Object(); o.Next(); {
		switch string(o.Name) {
		case "model":
			if !d.Null() {
				r.Model = string(d.StringView()) // on its own, as it outlives the rest
			}
		case "messages":
			if d.Null() {
				continue
			}
			space := new(messageSpace)
			r.Messages = space.messages[:0]
			texts := space.texts[:]
			for a := d.Array(); a.Next() && a.Max(maxMessages); {
				n := len(r.Messages)
				if len(texts) == 0 {
					texts = make([]Part, min(n, 64))
				}
				r.Messages = append(r.Messages, Message{})
				r.Messages[n].decodeWith(d, texts[:1:1])
				texts = texts[1:]
			}
		case "stream":
			r.Stream = d.Bool()
		case "stream_options":
			if !d.Null() {
				r.StreamOptions = new(StreamOptions)
				r.StreamOptions.decode(d)
			}
		case "temperature":
			r.Temperature = d.FloatPtr(&numbers)
		case "top_p":
			r.TopP = d.FloatPtr(&numbers)
		case "presence_penalty":
			r.PresencePenalty = d.FloatPtr(&numbers)
		case "frequency_penalty":
			r.FrequencyPenalty = d.FloatPtr(&numbers)
		case "max_tokens":
			r.MaxTokens = d.IntPtr(&numbers)
		case "max_completion_tokens":
			r.MaxCompletionTokens = d.IntPtr(&numbers)
		case "n":
			r.N = d.IntPtr(&numbers)
		case "stop":
			r.Stop.decode(d)
		case "response_format":
			if !d.Null() {
				r.ResponseFormat = new(ResponseFormat)
				r.ResponseFormat.decode(d)
			}
		case "tools":
			if d.Null() {
				continue
			}
			for a := d.Array(); a.Next() && a.Max(maxTools); {
				r.Tools = append(r.Tools, Tool{})
				r.Tools[len(r.Tools)-1].decode(d)
			}
		case "tool_choice":
			r.ToolChoice = decodeRaw(d)
		default:
			r.Extra.keep(d, o.Name)
		}
	}
	r.plain = d.Shared
}

// A messageSpace is memory for the first messages of a request, whose content
// most often is one text.
type messageSpace struct {
	messages [4]Message
	texts    [4]Part
}

// check returns an *Error that names the first parameter that is not as the
// format has it.
func (r *ChatRequest) check() error {
	if r.Model == "" {
		return missing("model")
	}
	if r.Messages == nil {
		return missing("messages")
	}
	if len(r.Messages) == 0 {
		return emptyArray("messages")
	}
	for i := range r.Messages {
		if err := r.Messages[i].check(i); err != nil {
			return err
		}
	}
	if err := firstError(
		checkFloat("temperature", r.Temperature, 0, 2),
		checkFloat("top_p", r.TopP, 0, 1),
		checkFloat("presence_penalty", r.PresencePenalty, -2, 2),
		checkFloat("frequency_penalty", r.FrequencyPenalty, -2, 2),
		checkInt("max_tokens", r.MaxTokens, 1, math.MaxInt),
		checkInt("max_completion_tokens", r.MaxCompletionTokens, 1, math.MaxInt),
		checkInt("n", r.N, 1, maxChoices),
	); err != nil {
		return err
	}
	if len(r.Stop) > maxStops {
		return longArray("stop", maxStops, len(r.Stop))
	}
	if r.ResponseFormat != nil {
		if err := r.ResponseFormat.check(); err != nil {
			return err
		}
	}
	for i := range r.Tools {
		if err := r.Tools[i].check(i); err != nil {
			return err
		}
	}
	return r.checkToolChoice()
}

func (m *Message) check(i int) error {
	switch m.Role {
	case "":
		return missing(path("messages", i, "role"))
	case RoleAssistant, RoleFunction:
	case RoleSystem, RoleDeveloper, RoleUser, RoleTool:
		if m.Content == nil {
			return invalidType(path("messages", i, "content"), "one of a string or array of objects", "null")
		}
	default:
		return invalidValue(path("messages", i, "role"), string(m.Role), "system", "assistant", "user", "function", "tool", "developer")
	}
	if m.Content != nil && len(m.Content) == 0 {
		return emptyArray(path("messages", i, "content"))
	}
	for j := range m.Content {
		p := &m.Content[j]
		at := func(member string) string { return path(path("messages", i, "content"), j, member) }
		switch {
		case p.Type == "":
			return missing(at("type"))
		case p.Type == PartImage && p.ImageURL == nil:
			return missing(at("image_url"))
		case p.Type == PartImage && p.ImageURL.URL == "":
			return missing(at("image_url.url"))
		case p.Type == PartAudio && p.Extra[PartAudio] == nil:
			return missing(at(PartAudio))
		case p.Type == PartFile && p.Extra[PartFile] == nil:
			return missing(at(PartFile))
		}
	}
	if m.Role == RoleTool && m.ToolCallID == "" {
		return missing(path("messages", i, "tool_call_id"))
	}
	for j := range m.ToolCalls {
		c := &m.ToolCalls[j]
		at := func(member string) string { return path(path("messages", i, "tool_calls"), j, member) }
		switch {
		case c.ID == "":
			return missing(at("id"))
		case isFunction(c.Type) && c.Function.Name == "":
			return missing(at("function.name"))
		}
	}
	return nil
}

func (t *Tool) check(i int) error {
	switch {
	case t.Type == "":
		return missing(path("tools", i, "type"))
	case t.Type != toolFunction:
	case t.Function == nil:
		return missing(path("tools", i, "function"))
	case t.Function.Name == "":
		return missing(path("tools", i, "function.name"))
	case t.Function.Parameters != nil && t.Function.Parameters[0] != '{':
		return badRequest("invalid_type", path("tools", i, "function.parameters"),
			"Invalid type for '%s': expected an object.", path("tools", i, "function.parameters"))
	}
	return nil
}

func (r *ChatRequest) checkToolChoice() error {
	if r.ToolChoice == nil {
		return nil
	}
	var choice toolChoice
	if err := decodePart(r.ToolChoice, "tool_choice", &choice); err != nil {
		return err
	}
	switch {
	case !choice.object && choice.Type == "required" && len(r.Tools) == 0:
		return badRequest("invalid_value", "tool_choice", "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.")
	case !choice.object && choice.Type != "none" && choice.Type != "auto" && choice.Type != "required":
		return invalidValue("tool_choice", choice.Type, "none", "auto", "required")
	case choice.Type == "":
		return missing("tool_choice.type")
	case !choice.object || choice.Type != toolFunction:
		return nil
	case choice.Function == nil || choice.Function.Name == "":
		return missing("tool_choice.function.name")
	}
	for i := range r.Tools {
		if f := r.Tools[i].Function; f != nil && f.Name == choice.Function.Name {
			return nil
		}
	}
	return badRequest("invalid_value", "tool_choice", "Tool choice 'function' not found in 'tools' parameter: '%s'.", echo(choice.Function.Name))
}

// A toolChoice is a word, or an object that is much like a Tool.
type toolChoice struct {
	Tool
	object bool
}

func (c *toolChoice) decode(d *jsonwire.Decoder) {
	switch d.Kind() {
	case '"':
		c.Type = d.String()
	case '{':
		c.object = true
		c.Tool.decode(d)
	default:
		d.Mismatch("one of a string or object")
	}
}

// StreamOptions are how a client wants its stream.
type StreamOptions struct {
	IncludeUsage bool // end with a chunk that has the usage; the Handler sees to it
	Extra        Extra
}

// MarshalJSON encodes o.
func (o StreamOptions) MarshalJSON() ([]byte, error) { return marshal(&o) }

// UnmarshalJSON decodes stream options.
func (o *StreamOptions) UnmarshalJSON(data []byte) error { return unmarshal(data, o) }

func (o *StreamOptions) encode(e *jsonwire.Encoder) {
	e.Token('{')
	e.Name("include_usage")
	e.Bool(o.IncludeUsage)
	e.Extra(o.Extra, "include_usage")
	e.Token('}')
}

func (o *StreamOptions) decode(d *jsonwire.Decoder) {
	for m := d.Object(); m.Next(); {
		switch string(m.Name) {
		case "include_usage":
			o.IncludeUsage = d.Bool()
		default:
			o.Extra.keep(d, m.Name)
		}
	}
}

// A ResponseFormat is the form a client wants the reply in: the Type is text,
// json_object or json_schema. A schema is in Extra, as "json_schema".
type ResponseFormat struct {
	Type  string
	Extra Extra
}

// MarshalJSON encodes f.
func (f ResponseFormat) MarshalJSON() ([]byte, error) { return marshal(&f) }

// UnmarshalJSON decodes a response format.
func (f *ResponseFormat) UnmarshalJSON(data []byte) error { return unmarshal(data, f) }

func (f *ResponseFormat) encode(e *jsonwire.Encoder) {
	e.Token('{')
	e.Name("type")
	e.String(f.Type)
	e.Extra(f.Extra, "type")
	e.Token('}')
}

func (f *ResponseFormat) decode(d *jsonwire.Decoder) {
	for o := d.Object(); o.Next(); {
		switch string(o.Name) {
		case "type":
			f.Type = d.OptString()
		default:
			f.Extra.keep(d, o.Name)
		}
	}
}

func (f *ResponseFormat) check() error {
	switch f.Type {
	case "":
		return missing("response_format.type")
	case "text", "json_object":
	case "json_schema":
		if schema := f.Extra["json_schema"]; schema == nil || string(schema) == "null" {
			return missing("response_format.json_schema")
		} else if schema[0] != '{' {
			return badRequest("invalid_type", "response_format.json_schema", "Invalid type for 'response_format.json_schema': expected an object.")
		}
	default:
		return invalidValue("response_format.type", f.Type, "json_object", "json_schema", "text")
	}
	return nil
}

// A StringList is one string or several. In JSON it is a string if it has one
// element, and null if it is nil.
type StringList []string

// MarshalJSON encodes l.
func (l StringList) MarshalJSON() ([]byte, error) { return marshal(&l) }

// UnmarshalJSON decodes a string, an array of strings, or null.
func (l *StringList) UnmarshalJSON(data []byte) error {
	*l = nil
	return unmarshal(data, l)
}

func (l *StringList) encode(e *jsonwire.Encoder) {
	switch list := *l; {
	case list == nil:
		e.Literal("null")
	case len(list) == 1:
		e.String(list[0])
	default:
		e.Token('[')
		for _, s := range list {
			e.Element()
			e.String(s)
		}
		e.Token(']')
	}
}

func (l *StringList) decode(d *jsonwire.Decoder) {
	switch d.Kind() {
	case 'n':
		d.Null()
	case '"':
		*l = StringList{d.String()}
	case '[':
		*l = StringList{}
		for a := d.Array(); a.Next(); {
			*l = append(*l, d.String())
		}
	default:
		d.Mismatch("one of a string or array of strings")
	}
}
