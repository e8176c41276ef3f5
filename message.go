package llmhttp

import (
	"strings"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// A Role tells whose turn a [Message] is.
type Role string

// The roles of the format. RoleFunction is the deprecated forerunner of RoleTool.
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
	Role       Role
	Content    Content
	Reasoning  string     // reasoning_content on the wire
	Name       string     // of the participant, if it has one
	ToolCalls  []ToolCall // with RoleAssistant
	ToolCallID string     // with RoleTool: the call whose result this is
	Extra      Extra
}

// MarshalJSON encodes m. Content is always present, as null if it is nil.
func (m Message) MarshalJSON() ([]byte, error) { return marshal(&m) }

// UnmarshalJSON decodes a message.
func (m *Message) UnmarshalJSON(data []byte) error { return unmarshal(data, m) }

var messageMembers = []string{"role", "content", "reasoning_content", "name", "tool_calls", "tool_call_id"}

func (m *Message) encode(e *jsonwire.Encoder) {
	e.Token('{')
	m.encodeMembers(e)
	e.Extra(m.Extra, messageMembers...)
	e.Token('}')
}

// encodeMembers writes the members but those in Extra.
func (m *Message) encodeMembers(e *jsonwire.Encoder) {
	e.Name("role")
	e.String(string(m.Role))
	e.Name("content")
	m.Content.encode(e)
	e.StringMember("reasoning_content", m.Reasoning)
	e.StringMember("name", m.Name)
	if len(m.ToolCalls) > 0 {
		e.Name("tool_calls")
		e.Token('[')
		for i := range m.ToolCalls {
			e.Element()
			m.ToolCalls[i].encode(e)
		}
		e.Token(']')
	}
	e.StringMember("tool_call_id", m.ToolCallID)
}

func (m *Message) decode(d *jsonwire.Decoder) { m.decodeWith(d, nil) }

// decodeWith decodes a message and may use text, if it is not nil, as its
// Content.
func (m *Message) decodeWith(d *jsonwire.Decoder, text []Part) {
	for o := d.Object(); o.Next(); {
		switch string(o.Name) {
		case "role":
			m.Role = decodeRole(d)
		case "content":
			if text != nil && d.Kind() == '"' {
				text[0] = Part{Type: PartText, Text: d.Text()}
				m.Content = text
				continue
			}
			m.Content.decode(d)
		case "reasoning_content":
			m.Reasoning = d.OptString()
		case "name":
			m.Name = d.OptString()
		case "tool_calls":
			if d.Null() {
				continue
			}
			for a := d.Array(); a.Next() && a.Max(maxToolCalls); {
				m.ToolCalls = append(m.ToolCalls, ToolCall{})
				m.ToolCalls[len(m.ToolCalls)-1].decode(d)
			}
		case "tool_call_id":
			m.ToolCallID = d.OptString()
		default:
			m.Extra.keep(d, o.Name)
		}
	}
}

// decodeRole allocates nothing for the roles of the format.
func decodeRole(d *jsonwire.Decoder) Role {
	if d.Null() {
		return ""
	}
	b := d.StringView()
	switch string(b) {
	case string(RoleUser):
		return RoleUser
	case string(RoleAssistant):
		return RoleAssistant
	case string(RoleSystem):
		return RoleSystem
	case string(RoleTool):
		return RoleTool
	case string(RoleDeveloper):
		return RoleDeveloper
	}
	return Role(d.Own(b))
}

// Content is what a message says. In JSON it is null when nil, a string when
// it is a single part of text without Extra, and otherwise an array of parts.
type Content []Part

// Text returns Content that is the text s.
func Text(s string) Content { return Content{{Type: PartText, Text: s}} }

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
func (c Content) MarshalJSON() ([]byte, error) { return marshal(&c) }

// UnmarshalJSON decodes a string, an array of parts, or null, which makes c nil.
func (c *Content) UnmarshalJSON(data []byte) error {
	*c = nil
	return unmarshal(data, c)
}

func (c *Content) encode(e *jsonwire.Encoder) {
	parts := *c
	switch {
	case parts == nil:
		e.Literal("null")
	case len(parts) == 1 && parts[0].Type == PartText && len(parts[0].Extra) == 0 && parts[0].ImageURL == nil:
		e.String(parts[0].Text)
	default:
		e.Token('[')
		for i := range parts {
			e.Element()
			parts[i].encode(e)
		}
		e.Token(']')
	}
}

func (c *Content) decode(d *jsonwire.Decoder) {
	switch d.Kind() {
	case '"':
		*c = Text(d.Text())
	case 'n':
		d.Null()
	case '[':
		*c = Content{}
		for a := d.Array(); a.Next() && a.Max(maxParts); {
			*c = append(*c, Part{})
			(*c)[len(*c)-1].decode(d)
		}
	default:
		d.Mismatch("one of a string or array of objects")
	}
}

// The types of a [Part] that this package knows. Only text and images have
// fields of their own; the rest of a part of audio or of a file is in its
// Extra, under its type's name.
const (
	PartText  = "text"
	PartImage = "image_url"
	PartAudio = "input_audio"
	PartFile  = "file"
)

// A Part is a piece of [Content]. Type says which of the other fields is set
// and encoded; what there is of other parts, whatever its name, is in Extra.
type Part struct {
	Type     string
	Text     string    // with PartText
	ImageURL *ImageURL // with PartImage
	Extra    Extra
}

// MarshalJSON encodes p.
func (p Part) MarshalJSON() ([]byte, error) { return marshal(&p) }

// UnmarshalJSON decodes a part.
func (p *Part) UnmarshalJSON(data []byte) error { return unmarshal(data, p) }

func (p *Part) encode(e *jsonwire.Encoder) {
	e.Token('{')
	e.StringMember("type", p.Type)
	if p.Type == PartText {
		e.Name("text")
		e.String(p.Text)
	}
	if p.Type == PartImage && p.ImageURL != nil {
		e.Name("image_url")
		p.ImageURL.encode(e)
	}
	switch p.Type {
	case PartText:
		e.Extra(p.Extra, "type", "text")
	case PartImage:
		e.Extra(p.Extra, "type", "image_url")
	default:
		e.Extra(p.Extra, "type")
	}
	e.Token('}')
}

func (p *Part) decode(d *jsonwire.Decoder) {
	start := d.Mark()
	typed, hasText := false, false
	for o := d.Object(); o.Next(); {
		name := string(o.Name)
		if !typed && (name == PartText || name == PartImage) {
			// Only the type tells what these are.
			if raw := d.Find(start, "type"); raw != nil {
				p.Type = decodePartType(jsonwire.NewDecoder(raw))
			}
			typed = true
		}
		switch {
		case name == "type":
			p.Type = decodePartType(d)
			typed = true
		case p.Type == "" && d.Null():
		case name == "text" && p.Type == PartText:
			p.Text, hasText = d.Text(), true
		case name == "image_url" && p.Type == PartImage:
			if !d.Null() {
				p.ImageURL = new(ImageURL)
				p.ImageURL.decode(d)
			}
		default:
			p.Extra.keep(d, o.Name)
		}
	}
	if p.Type == PartText && !hasText {
		d.Missing("text")
	}
}

// decodePartType allocates nothing for the common types.
func decodePartType(d *jsonwire.Decoder) string {
	if d.Null() {
		return ""
	}
	b := d.StringView()
	switch string(b) {
	case PartText:
		return PartText
	case PartImage:
		return PartImage
	}
	return d.Own(b)
}

// An ImageURL is where an image is: an address, or a data: URL that holds it.
type ImageURL struct {
	URL    string
	Detail string // auto, low, high or empty
	Extra  Extra
}

// MarshalJSON encodes u.
func (u ImageURL) MarshalJSON() ([]byte, error) { return marshal(&u) }

// UnmarshalJSON decodes an image's address.
func (u *ImageURL) UnmarshalJSON(data []byte) error { return unmarshal(data, u) }

func (u *ImageURL) encode(e *jsonwire.Encoder) {
	e.Token('{')
	e.Name("url")
	e.String(u.URL)
	e.StringMember("detail", u.Detail)
	e.Extra(u.Extra, "url", "detail")
	e.Token('}')
}

func (u *ImageURL) decode(d *jsonwire.Decoder) {
	for o := d.Object(); o.Next(); {
		switch string(o.Name) {
		case "url":
			if !d.Null() {
				u.URL = d.Text()
			}
		case "detail":
			u.Detail = d.OptString()
		default:
			u.Extra.keep(d, o.Name)
		}
	}
}
