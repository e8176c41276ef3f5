package llmhttp

import "github.com/llmhttp/llmhttp/internal/jsonwire"

// A ChatResponse is a whole reply.
type ChatResponse struct {
	ID      string
	Created int64 // Unix time in seconds
	Model   string
	Choices []Choice
	Usage   *Usage // nil if it is not known
	Extra   Extra
}

// A Choice is one of the replies the client asked for.
type Choice struct {
	Index        int
	Message      Message
	FinishReason FinishReason
	Extra        Extra // "logprobs" among them
}

// MarshalJSON encodes r.
func (r ChatResponse) MarshalJSON() ([]byte, error) { return marshal(&r) }

// UnmarshalJSON decodes a reply.
func (r *ChatResponse) UnmarshalJSON(data []byte) error { return unmarshal(data, r) }

func (r *ChatResponse) encode(e *jsonwire.Encoder) {
	e.Token('{')
	encodeReplyHead(e, r.ID, objectCompletion, r.Created, r.Model)
	e.Name("choices")
	e.Token('[')
	for i := range r.Choices {
		e.Element()
		r.Choices[i].encode(e)
	}
	e.Token(']')
	if r.Usage != nil {
		e.Name("usage")
		r.Usage.encode(e)
	}
	e.Extra(r.Extra, replyMembers...)
	e.Token('}')
}

func (r *ChatResponse) decode(d *jsonwire.Decoder) {
	for o := d.Object(); o.Next(); {
		switch string(o.Name) {
		case "id":
			r.ID = d.OptString()
		case "object":
			d.Skip()
		case "created":
			r.Created = decodeTime(d)
		case "model":
			r.Model = d.OptString()
		case "choices":
			if d.Null() {
				continue
			}
			for a := d.Array(); a.Next(); {
				r.Choices = append(r.Choices, Choice{})
				r.Choices[len(r.Choices)-1].decode(d)
			}
		case "usage":
			r.Usage = decodeUsage(d)
		default:
			r.Extra.keep(d, o.Name)
		}
	}
}

// MarshalJSON encodes c.
func (c Choice) MarshalJSON() ([]byte, error) { return marshal(&c) }

// UnmarshalJSON decodes a choice.
func (c *Choice) UnmarshalJSON(data []byte) error { return unmarshal(data, c) }

// encode writes refusal and logprobs even where there are none: the schema of
// the format requires them.
func (c *Choice) encode(e *jsonwire.Encoder) {
	e.Token('{')
	e.Name("index")
	e.Int(int64(c.Index))
	e.Name("message")
	e.Token('{')
	c.Message.encodeMembers(e)
	if _, ok := c.Message.Extra["refusal"]; !ok {
		e.Literal(`,"refusal":null`)
	}
	e.Extra(c.Message.Extra, messageMembers...)
	e.Token('}')
	if _, ok := c.Extra["logprobs"]; !ok {
		e.Literal(`,"logprobs":null`)
	}
	encodeFinishReason(e, c.FinishReason)
	e.Extra(c.Extra, "index", "message", "finish_reason")
	e.Token('}')
}

// dropNoRefusal forgets what encode writes where there is no refusal.
func (m *Message) dropNoRefusal() {
	if string(m.Extra["refusal"]) == "null" {
		if delete(m.Extra, "refusal"); len(m.Extra) == 0 {
			m.Extra = nil
		}
	}
}

func (c *Choice) decode(d *jsonwire.Decoder) {
	for o := d.Object(); o.Next(); {
		switch string(o.Name) {
		case "index":
			c.Index = optInt(d)
		case "message":
			if !d.Null() {
				c.Message.decode(d)
				c.Message.dropNoRefusal()
			}
		case "finish_reason":
			c.FinishReason = decodeFinishReason(d)
		case "logprobs":
			if d.Null() {
				continue // what encode writes where there is none
			}
			c.Extra.keep(d, o.Name)
		default:
			c.Extra.keep(d, o.Name)
		}
	}
}

const (
	objectChunk      = "chat.completion.chunk"
	objectCompletion = "chat.completion"
)

var replyMembers = []string{"id", "object", "created", "model", "choices", "usage", "error"}

// encodeReplyHead writes the members that replies and their chunks begin with.
func encodeReplyHead(e *jsonwire.Encoder, id, object string, created int64, model string) {
	e.Name("id")
	e.String(id)
	e.Name("object")
	e.String(object)
	e.Name("created")
	e.Int(created)
	e.Name("model")
	e.String(model)
}

// decodeTime reads a Unix time, which some servers send with a fraction.
func decodeTime(d *jsonwire.Decoder) int64 {
	if d.Null() {
		return 0
	}
	return int64(d.Float())
}

// optInt reads an integer or null, which is 0.
func optInt(d *jsonwire.Decoder) int {
	if d.Null() {
		return 0
	}
	return d.Int()
}

// A FinishReason tells why a reply ended. It is empty until it did.
type FinishReason string

// The finish reasons of the format.
const (
	FinishStop          FinishReason = "stop"           // a normal end
	FinishLength        FinishReason = "length"         // max_tokens was reached
	FinishContentFilter FinishReason = "content_filter" // a safety filter blocked it
	FinishToolCalls     FinishReason = "tool_calls"     // the model calls tools
)

func encodeFinishReason(e *jsonwire.Encoder, r FinishReason) {
	e.Name("finish_reason")
	if r == "" {
		e.Literal("null")
	} else {
		e.String(string(r))
	}
}

func decodeFinishReason(d *jsonwire.Decoder) FinishReason {
	if d.Null() {
		return ""
	}
	b := d.StringView()
	if string(b) == string(FinishStop) {
		return FinishStop
	}
	return FinishReason(b)
}

// Usage is how many tokens a request used. TotalTokens is their sum, which the
// Handler fills in if it is zero.
type Usage struct {
	PromptTokens, CompletionTokens, TotalTokens int
	Extra                                       Extra
}

// total returns TotalTokens, or the sum if that is not set.
func (u *Usage) total() int {
	if u.TotalTokens != 0 {
		return u.TotalTokens
	}
	return u.PromptTokens + u.CompletionTokens
}

// MarshalJSON encodes u.
func (u Usage) MarshalJSON() ([]byte, error) { return marshal(&u) }

// UnmarshalJSON decodes a usage.
func (u *Usage) UnmarshalJSON(data []byte) error { return unmarshal(data, u) }

var usageMembers = []string{"prompt_tokens", "completion_tokens", "total_tokens"}

func (u *Usage) encode(e *jsonwire.Encoder) {
	e.Token('{')
	e.Name("prompt_tokens")
	e.Int(int64(u.PromptTokens))
	e.Name("completion_tokens")
	e.Int(int64(u.CompletionTokens))
	e.Name("total_tokens")
	e.Int(int64(u.total()))
	e.Extra(u.Extra, usageMembers...)
	e.Token('}')
}

func (u *Usage) decode(d *jsonwire.Decoder) {
	for o := d.Object(); o.Next(); {
		switch string(o.Name) {
		case "prompt_tokens":
			u.PromptTokens = optInt(d)
		case "completion_tokens":
			u.CompletionTokens = optInt(d)
		case "total_tokens":
			u.TotalTokens = optInt(d)
		default:
			u.Extra.keep(d, o.Name)
		}
	}
}

func decodeUsage(d *jsonwire.Decoder) *Usage {
	if d.Null() {
		return nil
	}
	u := new(Usage)
	u.decode(d)
	return u
}
