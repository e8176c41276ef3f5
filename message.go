package llmhttp

import (
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
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

	// ReasoningDetails is the reasoning in the form that the model accepts in the
	// next request: with signatures, or encrypted.
	ReasoningDetails []ReasoningDetail `json:"reasoning_details,omitempty"`

	Name       string     `json:"name,omitzero"`         // of the participant, if it has one
	ToolCalls  []ToolCall `json:"tool_calls,omitempty"`  // with RoleAssistant
	ToolCallID string     `json:"tool_call_id,omitzero"` // with RoleTool: the call that the message answers
	IsError    bool       `json:"is_error,omitzero"`     // with RoleTool: the call failed; the name is that of Anthropic's tool results
	Refusal    string     `json:"refusal,omitzero"`      // with RoleAssistant: the model's words of refusal; in whole replies null if empty
	Extra      Extra      `json:",embed"`
}

func (m *Message) fields() any {
	type fields Message
	return (*fields)(m)
}

// MarshalJSON encodes m.
func (m Message) MarshalJSON() ([]byte, error) { return marshal(&m) }

// UnmarshalJSON decodes a message.
func (m *Message) UnmarshalJSON(data []byte) error { return unmarshalRequest(data, m) }

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
	Extra     Extra  `json:",embed"` // id, format and index among others
}

func (r *ReasoningDetail) fields() any {
	type fields ReasoningDetail
	return (*fields)(r)
}

// MarshalJSON encodes r.
func (r ReasoningDetail) MarshalJSON() ([]byte, error) { return marshal(&r) }

// UnmarshalJSON decodes a detail.
func (r *ReasoningDetail) UnmarshalJSON(data []byte) error { return unmarshalRequest(data, r) }

// Content is the content of a message. In JSON it is null when nil, a string when
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
	return unmarshalRequest(data, c)
}

// isText reports whether c is encoded as a string.
func (c Content) isText() bool {
	return len(c) == 1 && c[0].Type == PartText && len(c[0].Extra) == 0 && c[0].ImageURL == nil
}

func encodeContent(enc *jsontext.Encoder, c *Content) error {
	parts := *c
	switch {
	case parts == nil:
		return enc.WriteToken(jsontext.Null)
	case c.isText():
		return enc.WriteToken(jsontext.String(parts[0].Text))
	}
	return jsonv2.MarshalEncode(enc, (*[]Part)(c))
}

// content decodes Content. For a lenient decoder, other values count as their JSON
// text.
func (d *decoder) content(dec *jsontext.Decoder, c *Content) error {
	switch kind := dec.PeekKind(); {
	case kind == 'n':
		return dec.SkipValue()
	case kind == '[':
		return decodeArray(d, dec, (*[]Part)(c), maxParts)
	case kind == '"':
		text, err := dec.ReadToken()
		if err == nil {
			*c = Text(text.String())
		}
		return err
	case !d.strict:
		*c = Content{{Type: PartText}}
		return jsonv2.UnmarshalDecode(dec, &(*c)[0].Text)
	}
	return mismatch(dec, "one of a string or array of objects")
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

// A Part is a piece of [Content]. Type decides which of the other fields is set
// and encoded. In parts of other types, members named "text" or "image_url" are in
// Extra.
type Part struct {
	Type     string    `json:"type,omitzero"`
	Text     string    `json:"text"`               // with PartText
	ImageURL *ImageURL `json:"image_url,omitzero"` // with PartImage
	Extra    Extra     `json:",embed"`
}

// The members of a Part depend on its type.
type (
	textPart struct {
		Type     string    `json:"type"`
		Text     string    `json:"text"`
		ImageURL *ImageURL `json:"-"`
		Extra    Extra     `json:",embed"`
	}
	imagePart struct {
		Type     string    `json:"type"`
		Text     string    `json:"-"`
		ImageURL *ImageURL `json:"image_url,omitzero"`
		Extra    Extra     `json:",embed"`
	}
	otherPart struct {
		Type     string    `json:"type,omitzero"`
		Text     string    `json:"-"`
		ImageURL *ImageURL `json:"-"`
		Extra    Extra     `json:",embed"`
	}
)

func (p *Part) fields() any {
	switch p.Type {
	case PartText:
		return (*textPart)(p)
	case PartImage:
		return (*imagePart)(p)
	}
	return (*otherPart)(p)
}

// MarshalJSON encodes p.
func (p Part) MarshalJSON() ([]byte, error) { return marshal(&p) }

// UnmarshalJSON decodes a part.
func (p *Part) UnmarshalJSON(data []byte) error { return unmarshalRequest(data, p) }

// noText is the Text of a part before it is decoded. It is not UTF-8, so no
// document can set it.
const noText = "\xff"

// decode finds the type of the part, and then decodes its members.
func (p *Part) decode(d *decoder, dec *jsontext.Decoder) error {
	p.Type = d.typeOf(dec)
	if p.Type != PartText || !d.strict {
		return jsonv2.UnmarshalDecode(dec, p.fields())
	}
	p.Text = noText
	view := struct {
		Part *textPart `json:",embed"`
		Text *string   `json:"text"` // becomes nil if it is null
	}{(*textPart)(p), &p.Text}
	if err := jsonv2.UnmarshalDecode(dec, &view); err != nil {
		return err
	}
	switch {
	case view.Text == nil:
		return newFault(dec, func(param string) *Error { return invalidType(param+".text", "a string", "null") })
	case p.Text == noText:
		return newFault(dec, func(param string) *Error { return missing(param + ".text") })
	}
	return nil
}

// An ImageURL is the address of an image, or a data: URL that contains it.
type ImageURL struct {
	URL    string `json:"url"`
	Detail string `json:"detail,omitzero"` // auto, low, high or empty
	Extra  Extra  `json:",embed"`
}

func (u *ImageURL) fields() any {
	type fields ImageURL
	return (*fields)(u)
}

// MarshalJSON encodes u.
func (u ImageURL) MarshalJSON() ([]byte, error) { return marshal(&u) }

// UnmarshalJSON decodes an image's address.
func (u *ImageURL) UnmarshalJSON(data []byte) error { return unmarshalRequest(data, u) }
