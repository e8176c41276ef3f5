package llmhttp

import (
	"unicode/utf8"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// A Delta is what a chunk adds to the message of a choice. Texts are appended to
// those of earlier chunks. They may be split anywhere, even within a character.
type Delta struct {
	Role             Role              `json:"role,omitzero"` // always sent as assistant; a Backend need not set it
	Reasoning        string            `json:"reasoning_content,omitzero"`
	ReasoningDetails []ReasoningDetail `json:"reasoning_details,omitempty"` // see [Message]; appended to those before
	Content          string            `json:"content,omitzero"`
	Refusal          string            `json:"refusal,omitzero"`
	ToolCalls        []ToolCallDelta   `json:"tool_calls,omitempty"`
	Extra            Extra             `json:"-"`
}

var deltaJSON = jsonwire.NewObject(
	jsonwire.String("role", func(d *Delta) *Role { return &d.Role }),
	jsonwire.String("reasoning_content", func(d *Delta) *string { return &d.Reasoning }),
	jsonwire.List("reasoning_details", func(d *Delta) *[]ReasoningDetail { return &d.ReasoningDetails }, reasoningDetailJSON, maxParts),
	jsonwire.String("content", func(d *Delta) *string { return &d.Content }).DecodeWith((*Delta).decodeContent),
	jsonwire.String("refusal", func(d *Delta) *string { return &d.Refusal }),
	jsonwire.List("tool_calls", func(d *Delta) *[]ToolCallDelta { return &d.ToolCalls }, toolCallDeltaJSON, 0),
	jsonwire.Extra(func(d *Delta) *Extra { return &d.Extra }),
)

// memberParts is the member of Extra for parts of content that are not texts.
const memberParts = "content_parts"

// decodeContent decodes content that may be an array of parts.
func (d *Delta) decodeContent(dec *jsonwire.Decoder) {
	if dec.Kind() != '[' {
		d.Content = dec.String()
		return
	}
	var others []byte
	dec.Array(0, func(int) {
		var p Part
		raw := dec.Raw()
		switch err := jsonwire.UnmarshalLenient(raw, partJSON, &p); {
		case dec.Failed() || string(raw) == "null":
		case err == nil && p.Type == PartText && p.Extra == nil:
			d.Content += p.Text
		default:
			others = append(append(others, ','), raw...)
		}
	})
	if others != nil {
		others[0] = '['
		d.Extra = mergeExtra(d.Extra, Extra{memberParts: append(others, ']')})
	}
}

// MarshalJSON encodes d.
func (d Delta) MarshalJSON() ([]byte, error) { return marshal(deltaJSON, &d) }

// UnmarshalJSON decodes a delta leniently.
func (d *Delta) UnmarshalJSON(data []byte) error { return unmarshalReply(data, deltaJSON, d) }

// A ToolCallDelta adds to a tool call. The first for a call has its ID, Type
// and the function's Name; Arguments are appended to what came before. One
// without an ID belongs to the last call with the same Index.
type ToolCallDelta struct {
	Index    int          `json:"index"`
	ID       string       `json:"id,omitzero"`
	Type     string       `json:"type,omitzero"`
	Function FunctionCall `json:"function,omitzero"`
	Extra    Extra        `json:"-"`
}

var toolCallDeltaJSON = jsonwire.NewObject(
	jsonwire.Int("index", func(t *ToolCallDelta) *int { return &t.Index }).Always(),
	jsonwire.String("id", func(t *ToolCallDelta) *string { return &t.ID }),
	jsonwire.String("type", func(t *ToolCallDelta) *string { return &t.Type }),
	jsonwire.Struct("function", func(t *ToolCallDelta) *FunctionCall { return &t.Function }, functionCallJSON).
		KeptIf(func(t *ToolCallDelta) bool { return t.Type == toolFunction }),
	jsonwire.Extra(func(t *ToolCallDelta) *Extra { return &t.Extra }),
).Place(func(t *ToolCallDelta, i int) { t.Index = i })

// MarshalJSON encodes t.
func (t ToolCallDelta) MarshalJSON() ([]byte, error) { return marshal(toolCallDeltaJSON, &t) }

// UnmarshalJSON decodes a part of a tool call leniently.
func (t *ToolCallDelta) UnmarshalJSON(data []byte) error {
	return unmarshalReply(data, toolCallDeltaJSON, t)
}

func isEmptyDelta(d *Delta) bool {
	return d.Content == "" && d.Reasoning == "" && d.Refusal == "" && len(d.ToolCalls) == 0 &&
		len(d.ReasoningDetails) == 0 && !hasValue(d.Extra)
}

// deltaLen returns the number of bytes of text in d.
func deltaLen(d *Delta) int {
	n := len(d.Reasoning) + len(d.Content) + len(d.Refusal)
	for i := range d.ToolCalls {
		n += len(d.ToolCalls[i].Function.Arguments)
	}
	return n
}

// splitDelta shortens d to room bytes of text and returns the rest.
func splitDelta(d *Delta, room int) (rest Delta) {
	d.Reasoning, rest.Reasoning = splitText(d.Reasoning, &room)
	d.Content, rest.Content = splitText(d.Content, &room)
	d.Refusal, rest.Refusal = splitText(d.Refusal, &room)
	for i := range d.ToolCalls {
		t := &d.ToolCalls[i]
		more := ToolCallDelta{Index: t.Index}
		t.Function.Arguments, more.Function.Arguments = splitText(t.Function.Arguments, &room)
		if more.Function.Arguments != "" {
			rest.ToolCalls = append(rest.ToolCalls, more)
		}
	}
	return rest
}

// splitText splits s after the last character that fits in room bytes, and
// takes what it used from room.
func splitText(s string, room *int) (head, rest string) {
	if len(s) <= *room {
		*room -= len(s)
		return s, ""
	}
	n := *room
	*room = 0
	n -= incompleteSuffix(s[:n])
	return s[:n], s[n:]
}

// incompleteSuffix returns how many bytes at the end of s begin a character
// that is not complete.
func incompleteSuffix(s string) int {
	for i := 1; i < utf8.UTFMax && i <= len(s); i++ {
		c := s[len(s)-i]
		if !utf8.RuneStart(c) {
			continue
		}
		if c >= utf8.RuneSelf && !utf8.FullRuneInString(s[len(s)-i:]) {
			return i
		}
		return 0
	}
	return 0
}
