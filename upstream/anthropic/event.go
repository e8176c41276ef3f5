// The events of a stream, and the whole message.

package anthropic

import (
	"encoding/json"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/param"
)

// The types of events.
const (
	eventMessageStart = "message_start"
	eventBlockStart   = "content_block_start"
	eventBlockDelta   = "content_block_delta"
	eventBlockStop    = "content_block_stop"
	eventMessageDelta = "message_delta"
	eventMessageStop  = "message_stop"
	eventPing         = "ping"
	eventError        = "error"
)

// An event is an event of a stream. Type decides which other fields are used. It is decoded leniently, as llm.ChatChunk is.
type event struct {
	Type    string
	Index   int
	Message message         // message_start
	Block   json.RawMessage // content_block_start
	Delta   delta           // content_block_delta, message_delta
	Usage   json.RawMessage // message_delta
	Error   json.RawMessage // error, and whatever a server sends in its place
}

var eventJSON = jsonwire.NewObject(
	jsonwire.String("type", func(e *event) *string { return &e.Type }),
	jsonwire.Int("index", func(e *event) *int { return &e.Index }),
	jsonwire.Struct("message", func(e *event) *message { return &e.Message }, messageJSON),
	jsonwire.Raw("content_block", func(e *event) *json.RawMessage { return &e.Block }),
	jsonwire.Struct("delta", func(e *event) *delta { return &e.Delta }, deltaJSON),
	jsonwire.Raw("usage", func(e *event) *json.RawMessage { return &e.Usage }),
	jsonwire.Raw("error", func(e *event) *json.RawMessage { return &e.Error }),
)

// UnmarshalJSON decodes an event leniently.
func (e *event) UnmarshalJSON(data []byte) error { return param.UnmarshalReply(data, eventJSON, e) }

// A delta adds to a block, or ends a message.
type delta struct {
	Type        string
	Text        string
	Thinking    string
	Signature   string
	PartialJSON string
	Citation    json.RawMessage
	Content     json.RawMessage // of a compaction
	Encrypted   json.RawMessage // of a compaction
	end
}

var deltaJSON = jsonwire.NewObject(append(endFields(func(d *delta) *end { return &d.end }),
	jsonwire.String("type", func(d *delta) *string { return &d.Type }),
	jsonwire.String("text", func(d *delta) *string { return &d.Text }),
	jsonwire.String("thinking", func(d *delta) *string { return &d.Thinking }),
	jsonwire.String("signature", func(d *delta) *string { return &d.Signature }),
	jsonwire.String("partial_json", func(d *delta) *string { return &d.PartialJSON }),
	jsonwire.Raw("citation", func(d *delta) *json.RawMessage { return &d.Citation }),
	jsonwire.Raw("content", func(d *delta) *json.RawMessage { return &d.Content }),
	jsonwire.Raw("encrypted_content", func(d *delta) *json.RawMessage { return &d.Encrypted }),
)...)

// A message is a whole message, or what begins a stream.
type message struct {
	ID      string
	Type    string
	Model   string
	Content []json.RawMessage
	Usage   json.RawMessage
	Error   json.RawMessage
	end
}

var messageJSON = jsonwire.NewObject(append(endFields(func(m *message) *end { return &m.end }),
	jsonwire.String("id", func(m *message) *string { return &m.ID }),
	jsonwire.String("type", func(m *message) *string { return &m.Type }),
	jsonwire.String("model", func(m *message) *string { return &m.Model }),
	jsonwire.Func("content", func(m *message, d *jsonwire.Decoder) {
		_ = json.Unmarshal(d.Raw(), &m.Content) // another value has no blocks
	}, nil),
	jsonwire.Raw("usage", func(m *message) *json.RawMessage { return &m.Usage }),
	jsonwire.Raw("error", func(m *message) *json.RawMessage { return &m.Error }),
)...)

// UnmarshalJSON decodes a message leniently.
func (m *message) UnmarshalJSON(data []byte) error {
	return param.UnmarshalReply(data, messageJSON, m)
}

// An end has what the end of a message tells.
type end struct {
	StopReason   string
	StopSequence string
	StopDetails  json.RawMessage
	Container    json.RawMessage
	Context      json.RawMessage // what context_management has done
}

func endFields[T any](at func(*T) *end) []jsonwire.Field[T] {
	return []jsonwire.Field[T]{
		jsonwire.String("stop_reason", func(v *T) *string { return &at(v).StopReason }),
		jsonwire.String("stop_sequence", func(v *T) *string { return &at(v).StopSequence }),
		jsonwire.Raw("stop_details", func(v *T) *json.RawMessage { return &at(v).StopDetails }),
		jsonwire.Raw("container", func(v *T) *json.RawMessage { return &at(v).Container }),
		jsonwire.Raw("context_management", func(v *T) *json.RawMessage { return &at(v).Context }),
	}
}

// add sets what e tells and what did not come before.
func (e *end) add(later *end) {
	if later.StopReason != "" {
		e.StopReason, e.StopSequence = later.StopReason, later.StopSequence
	}
	for _, p := range []struct{ to, from *json.RawMessage }{
		{&e.StopDetails, &later.StopDetails}, {&e.Container, &later.Container}, {&e.Context, &later.Context},
	} {
		if hasValue(*p.from) {
			*p.to = *p.from
		}
	}
}

// hasValue reports whether raw is neither missing nor null.
func hasValue(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }
