package llmhttp

import "github.com/llmhttp/llmhttp/internal/jsonwire"

// A ChatChunk is a piece of a reply. A Backend sets Choices and, once, Usage.
// The Handler completes the rest: ID, Created and Model when empty, the chunk
// that announces the role, the one that ends the stream, and [DONE].
//
// ID, Created and Model are those of the whole reply: the first chunk's count.
// Usage is what the whole request used: if several chunks have one, the last
// counts.
type ChatChunk struct {
	ID      string
	Created int64 // Unix time in seconds
	Model   string
	Choices []ChunkChoice
	Usage   *Usage
	Extra   Extra
}

// A ChunkChoice is what a [ChatChunk] adds to one of the replies. Index is
// which: from 0 up to, not including, the number the client asked for. What is
// beyond that is dropped, and so is what follows a choice's FinishReason.
type ChunkChoice struct {
	Index        int
	Delta        Delta
	FinishReason FinishReason
	Extra        Extra
}

// A Delta is what is added to a reply's message. Texts are appended to what
// came before; they may be cut anywhere, even within a character.
type Delta struct {
	Role      Role // always sent as assistant; a Backend need not set it
	Content   string
	Reasoning string // reasoning_content on the wire
	ToolCalls []ToolCallDelta
	Extra     Extra
}

// A ToolCallDelta adds to a tool call. The first for a call has its ID, Type
// and the function's Name; Arguments are appended to what came before. One
// without an ID belongs to the last call with the same Index.
type ToolCallDelta struct {
	Index    int
	ID, Type string
	Function FunctionCall
	Extra    Extra
}

// MarshalJSON encodes c as it is, without what a Handler would complete.
func (c ChatChunk) MarshalJSON() ([]byte, error) { return marshal(&c) }

// UnmarshalJSON decodes a chunk.
func (c *ChatChunk) UnmarshalJSON(data []byte) error { return unmarshal(data, c) }

func (c *ChatChunk) encode(e *jsonwire.Encoder) {
	e.Token('{')
	encodeReplyHead(e, c.ID, objectChunk, c.Created, c.Model)
	e.Name("choices")
	e.Token('[')
	for i := range c.Choices {
		e.Element()
		c.Choices[i].encode(e)
	}
	e.Token(']')
	if c.Usage != nil {
		e.Name("usage")
		c.Usage.encode(e)
	}
	e.Extra(c.Extra, replyMembers...)
	e.Token('}')
}

func (c *ChatChunk) decode(d *jsonwire.Decoder) {
	for o := d.Object(); o.Next(); {
		switch string(o.Name) {
		case "id":
			c.ID = d.OptString()
		case "object":
			d.Skip()
		case "created":
			c.Created = decodeTime(d)
		case "model":
			c.Model = d.OptString()
		case "choices":
			if d.Null() {
				continue
			}
			for a := d.Array(); a.Next(); {
				c.Choices = append(c.Choices, ChunkChoice{})
				c.Choices[len(c.Choices)-1].decode(d)
			}
		case "usage":
			c.Usage = decodeUsage(d)
		default:
			c.Extra.keep(d, o.Name)
		}
	}
}

// MarshalJSON encodes c.
func (c ChunkChoice) MarshalJSON() ([]byte, error) { return marshal(&c) }

// UnmarshalJSON decodes a choice of a chunk.
func (c *ChunkChoice) UnmarshalJSON(data []byte) error { return unmarshal(data, c) }

var chunkChoiceMembers = []string{"index", "delta", "finish_reason"}

func (c *ChunkChoice) encode(e *jsonwire.Encoder) {
	e.Token('{')
	e.Name("index")
	e.Int(int64(c.Index))
	e.Name("delta")
	c.Delta.encode(e)
	encodeFinishReason(e, c.FinishReason)
	e.Extra(c.Extra, chunkChoiceMembers...)
	e.Token('}')
}

func (c *ChunkChoice) decode(d *jsonwire.Decoder) {
	for o := d.Object(); o.Next(); {
		switch string(o.Name) {
		case "index":
			c.Index = optInt(d)
		case "delta":
			if !d.Null() {
				c.Delta.decode(d)
			}
		case "finish_reason":
			c.FinishReason = decodeFinishReason(d)
		default:
			c.Extra.keep(d, o.Name)
		}
	}
}

// MarshalJSON encodes d.
func (d Delta) MarshalJSON() ([]byte, error) { return marshal(&d) }

// UnmarshalJSON decodes a delta.
func (d *Delta) UnmarshalJSON(data []byte) error { return unmarshal(data, d) }

var deltaMembers = []string{"role", "content", "reasoning_content", "tool_calls"}

func (d *Delta) encode(e *jsonwire.Encoder) {
	e.Token('{')
	e.StringMember("role", string(d.Role))
	e.StringMember("reasoning_content", d.Reasoning)
	e.StringMember("content", d.Content)
	if len(d.ToolCalls) > 0 {
		e.Name("tool_calls")
		e.Token('[')
		for i := range d.ToolCalls {
			e.Element()
			d.ToolCalls[i].encode(e)
		}
		e.Token(']')
	}
	e.Extra(d.Extra, deltaMembers...)
	e.Token('}')
}

func (d *Delta) decode(dec *jsonwire.Decoder) {
	for o := dec.Object(); o.Next(); {
		switch string(o.Name) {
		case "role":
			d.Role = decodeRole(dec)
		case "content":
			d.Content = dec.OptString()
		case "reasoning_content":
			d.Reasoning = dec.OptString()
		case "tool_calls":
			if dec.Null() {
				continue
			}
			for a := dec.Array(); a.Next(); {
				d.ToolCalls = append(d.ToolCalls, ToolCallDelta{})
				d.ToolCalls[len(d.ToolCalls)-1].decode(dec)
			}
		default:
			d.Extra.keep(dec, o.Name)
		}
	}
}

// MarshalJSON encodes t.
func (t ToolCallDelta) MarshalJSON() ([]byte, error) { return marshal(&t) }

// UnmarshalJSON decodes what is added to a tool call.
func (t *ToolCallDelta) UnmarshalJSON(data []byte) error { return unmarshal(data, t) }

var toolCallDeltaMembers = []string{"index", "id", "type", "function"}

func (t *ToolCallDelta) encode(e *jsonwire.Encoder) {
	e.Token('{')
	e.Name("index")
	e.Int(int64(t.Index))
	e.StringMember("id", t.ID)
	e.StringMember("type", t.Type)
	if t.Type == toolFunction || !t.Function.isZero() {
		e.Name("function")
		e.Token('{')
		e.StringMember("name", t.Function.Name)
		e.Name("arguments")
		e.String(t.Function.Arguments)
		e.Extra(t.Function.Extra, "name", "arguments")
		e.Token('}')
	}
	e.Extra(t.Extra, toolCallDeltaMembers...)
	e.Token('}')
}

func (t *ToolCallDelta) decode(d *jsonwire.Decoder) {
	for o := d.Object(); o.Next(); {
		switch string(o.Name) {
		case "index":
			t.Index = optInt(d)
		case "id":
			t.ID = d.OptString()
		case "type":
			t.Type = decodeToolType(d)
		case "function":
			t.Function.decode(d)
		default:
			t.Extra.keep(d, o.Name)
		}
	}
}
