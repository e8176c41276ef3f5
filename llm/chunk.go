package llm

import (
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp/internal/bounds"
	"github.com/llmhttp/llmhttp/internal/deepcopy"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/membername"
	"github.com/llmhttp/llmhttp/internal/param"
)

// A ChatChunk is a piece of a reply. A Backend sets Choices, and Usage in the last
// chunk or in another. The rest is completed: ID, Created and Model when empty, the
// chunk that announces the role, the one that ends the stream, and [DONE].
//
// The ID, Created and Model of the first chunk apply to the whole reply. Usage is
// the usage of the whole request; if several chunks have one, the last is used.
//
// ChatChunk and the other types of replies are decoded leniently, because the
// replies of models differ in details:
//
//   - Duplicate names are allowed.
//   - Bytes that are not UTF-8, and halves of surrogate pairs, become U+FFFD.
//   - A null or missing member has the zero value.
//   - An integer may have a fraction or be in a string. Other numbers and
//     strings count as 0.
//   - Where a string is expected, another value counts as its JSON text, so that
//     the arguments of a call may be an object.
//   - Where an object or an array is expected, another value is skipped.
//   - The content of a Delta may be an array of parts. Its texts are joined; the
//     other parts are in Extra as "content_parts".
//   - Reasoning may have the name "reasoning": see Message.ReasoningAlias.
//   - A choice or a tool call without an index has that of its position.
//   - A choice may have a "message" instead of a "delta", so that a whole reply
//     can be decoded as a chunk. Its tool calls have the indices of their positions.
//   - A usage without a number above zero is nil.
//   - If the member "object" is "error", as in vLLM's errors, the members without a
//     field are in Extra["error"] as one object.
type ChatChunk struct {
	ID      string        `json:"id"`
	Created int64         `json:"created"` // Unix time in seconds
	Model   string        `json:"model"`
	Choices []ChunkChoice `json:"choices"`
	Usage   *Usage        `json:"usage,omitzero"`
	Extra   Extra         `json:"-"`
}

var chatChunkJSON = jsonwire.NewObject(
	jsonwire.String("id", func(c *ChatChunk) *string { return &c.ID }).Always(),
	objectField(membername.ObjectChunk, func(c *ChatChunk) *Extra { return &c.Extra }),
	jsonwire.Int("created", func(c *ChatChunk) *int64 { return &c.Created }).Always(),
	jsonwire.String("model", func(c *ChatChunk) *string { return &c.Model }).Always(),
	jsonwire.List("choices", func(c *ChatChunk) *[]ChunkChoice { return &c.Choices }, chunkChoiceJSON, 0).Always(),
	jsonwire.Pointer("usage", func(c *ChatChunk) **Usage { return &c.Usage }, usageJSON),
	jsonwire.Extra(func(c *ChatChunk) *Extra { return &c.Extra }),
).Reserve(membername.ObjectError).AfterDecode(func(c *ChatChunk) {
	c.Usage = nilIfZero(c.Usage)
	wrapErrorMembers(&c.Extra)
})

// Clone returns a copy of c that shares nothing with it that can change. Who receives a chunk
// may change it, so a Backend that keeps chunks or yields one again yields a Clone. The Clone
// of nil is nil.
func (c *ChatChunk) Clone() *ChatChunk { return deepcopy.Of(c) }

// MarshalJSON encodes c as it is, without what is completed for clients.
func (c ChatChunk) MarshalJSON() ([]byte, error) { return jsonwire.MarshalValue(chatChunkJSON, &c) }

// UnmarshalJSON decodes a chunk leniently, or a whole reply as a chunk.
func (c *ChatChunk) UnmarshalJSON(data []byte) error {
	return param.UnmarshalReply(data, chatChunkJSON, c)
}

// HasContent reports whether c has more than the announcement of roles: something that a
// model generated, a FinishReason, a Usage, or a member of the Extra of a choice or a Delta
// that is not null. A Backend that falls back to another one, as a route.Router does, can do
// so until it has passed on a chunk with content.
func (c *ChatChunk) HasContent() bool {
	if c.Usage != nil {
		return true
	}
	for i := range c.Choices {
		choice := &c.Choices[i]
		if choice.FinishReason != "" || !choice.Delta.IsEmpty() || jsonwire.HasValue(choice.Extra) {
			return true
		}
	}
	return false
}

// A ChunkChoice is what a [ChatChunk] adds to one choice. Index is the index of the
// choice, less than the number of choices that the client asked for; other
// indices are dropped. So is everything after the FinishReason of a choice.
type ChunkChoice struct {
	Index        int          `json:"index"`
	Delta        Delta        `json:"delta"`
	FinishReason FinishReason `json:"finish_reason"` // null if empty

	// StopSequence is the stop sequence that ended the choice, if one did. Its name
	// is vLLM's (https://github.com/vllm-project/vllm/pull/2976), where it may also
	// be the number of a token, which is ignored.
	StopSequence string `json:"stop_reason,omitzero"`

	Extra Extra `json:"-"` // "logprobs" among others
}

var chunkChoiceJSON = jsonwire.NewObject(
	jsonwire.Int("index", func(c *ChunkChoice) *int { return &c.Index }).Always(),
	jsonwire.Struct("delta", func(c *ChunkChoice) *Delta { return &c.Delta }, deltaJSON).Always(),
	jsonwire.StringOr("finish_reason", func(c *ChunkChoice) *FinishReason { return &c.FinishReason }, "null"),
	jsonwire.PlainString("stop_reason", func(c *ChunkChoice) *string { return &c.StopSequence }),
	jsonwire.Func("logprobs", func(c *ChunkChoice, d *jsonwire.Decoder) { decodeLogprobs(d, &c.Extra) }, nil),
	jsonwire.Func("message", (*ChunkChoice).decodeMessage, nil),
	jsonwire.Extra(func(c *ChunkChoice) *Extra { return &c.Extra }),
).InitElement(func(c *ChunkChoice, i int) { c.Index = i })

// decodeLogprobs decodes the log probabilities of a choice. They are in its Extra
// unless they are null.
func decodeLogprobs(d *jsonwire.Decoder, extra *Extra) {
	*extra = jsonwire.MergeExtra(*extra, Extra{membername.Logprobs: d.Raw()})
}

// decodeMessage decodes the message of a whole reply as a Delta.
func (c *ChunkChoice) decodeMessage(d *jsonwire.Decoder) {
	deltaJSON.Decode(d, &c.Delta)
	for i := range c.Delta.ToolCalls {
		c.Delta.ToolCalls[i].Index = i
	}
}

// MarshalJSON encodes c.
func (c ChunkChoice) MarshalJSON() ([]byte, error) { return jsonwire.MarshalValue(chunkChoiceJSON, &c) }

// UnmarshalJSON decodes a choice of a chunk leniently.
func (c *ChunkChoice) UnmarshalJSON(data []byte) error {
	return param.UnmarshalReply(data, chunkChoiceJSON, c)
}

// A ChatResponse is a whole reply. It is decoded leniently: see [ChatChunk].
type ChatResponse struct {
	ID      string   `json:"id"`
	Created int64    `json:"created"` // Unix time in seconds
	Model   string   `json:"model"`
	Choices []Choice `json:"choices"`
	Usage   *Usage   `json:"usage,omitzero"` // nil if it is not known
	Extra   Extra    `json:"-"`
}

var chatResponseJSON = jsonwire.NewObject(
	jsonwire.String("id", func(r *ChatResponse) *string { return &r.ID }).Always(),
	objectField(membername.ObjectCompletion, func(r *ChatResponse) *Extra { return &r.Extra }),
	jsonwire.Int("created", func(r *ChatResponse) *int64 { return &r.Created }).Always(),
	jsonwire.String("model", func(r *ChatResponse) *string { return &r.Model }).Always(),
	jsonwire.List("choices", func(r *ChatResponse) *[]Choice { return &r.Choices }, choiceJSON, 0).Always(),
	jsonwire.Pointer("usage", func(r *ChatResponse) **Usage { return &r.Usage }, usageJSON),
	jsonwire.Extra(func(r *ChatResponse) *Extra { return &r.Extra }),
).Reserve(membername.ObjectError).AfterDecode(func(r *ChatResponse) {
	r.Usage = nilIfZero(r.Usage)
	wrapErrorMembers(&r.Extra)
})

// MarshalJSON encodes r.
func (r ChatResponse) MarshalJSON() ([]byte, error) {
	return jsonwire.MarshalValue(chatResponseJSON, &r)
}

// UnmarshalJSON decodes a reply leniently.
func (r *ChatResponse) UnmarshalJSON(data []byte) error {
	return param.UnmarshalReply(data, chatResponseJSON, r)
}

// A Choice is one of the choices of a [ChatResponse].
type Choice struct {
	Index        int          `json:"index"`
	Message      Message      `json:"message"`
	FinishReason FinishReason `json:"finish_reason"`        // null if empty
	StopSequence string       `json:"stop_reason,omitzero"` // see [ChunkChoice]
	Extra        Extra        `json:"-"`                    // "logprobs" among others, which is encoded as null if it is missing
}

// The schema of the format demands some members even if they are null: logprobs, and
// the refusal of the message.
var choiceJSON = jsonwire.NewObject(
	jsonwire.Int("index", func(c *Choice) *int { return &c.Index }).Always(),
	jsonwire.Struct("message", func(c *Choice) *Message { return &c.Message }, replyMessageJSON).Always(),
	jsonwire.Func(membername.Logprobs, func(c *Choice, d *jsonwire.Decoder) { decodeLogprobs(d, &c.Extra) },
		func(_ *Choice, b []byte) ([]byte, error) { return append(b, "null"...), nil }).
		When(func(c *Choice) bool { return c.Extra[membername.Logprobs] == nil }),
	jsonwire.StringOr("finish_reason", func(c *Choice) *FinishReason { return &c.FinishReason }, "null"),
	jsonwire.PlainString("stop_reason", func(c *Choice) *string { return &c.StopSequence }),
	jsonwire.Extra(func(c *Choice) *Extra { return &c.Extra }),
).InitElement(func(c *Choice, i int) { c.Index = i })

// replyMessageJSON is the JSON of the message of a whole reply.
var replyMessageJSON = jsonwire.NewObject(append(slices.Clip(messageFields),
	jsonwire.StringOr("refusal", func(m *Message) *string { return &m.Refusal }, "null"))...).AfterDecode((*Message).takeReasoning)

// MarshalJSON encodes c.
func (c Choice) MarshalJSON() ([]byte, error) { return jsonwire.MarshalValue(choiceJSON, &c) }

// UnmarshalJSON decodes a choice leniently.
func (c *Choice) UnmarshalJSON(data []byte) error { return param.UnmarshalReply(data, choiceJSON, c) }

// A FinishReason says why a choice ended. It is empty until then.
type FinishReason string

// The finish reasons of the format.
const (
	FinishStop          FinishReason = "stop"           // a normal end
	FinishLength        FinishReason = "length"         // max_tokens was reached
	FinishContentFilter FinishReason = "content_filter" // a safety filter blocked it
	FinishToolCalls     FinishReason = "tool_calls"     // the model calls tools
)

// A Delta is what a chunk adds to the message of a choice. Texts are appended to
// those of earlier chunks. They may be split anywhere, even within a character.
type Delta struct {
	Role             Role              `json:"role,omitzero"` // always sent as assistant; a Backend need not set it
	Reasoning        string            `json:"reasoning_content,omitzero"`
	ReasoningAlias   bool              `json:"-"`                           // see [Message]; false in a chunk that follows one with Reasoning where it was false
	Progress         bool              `json:"-"`                           // Reasoning is what an agent tells of its work: it is in no detail, and not in a block that the model has signed
	ReasoningDetails []ReasoningDetail `json:"reasoning_details,omitempty"` // see [Message]; appended to those before
	Content          string            `json:"content,omitzero"`
	Refusal          string            `json:"refusal,omitzero"`
	ToolCalls        []ToolCallDelta   `json:"tool_calls,omitempty"`
	Extra            Extra             `json:"-"`
}

var deltaJSON = jsonwire.NewObject(
	jsonwire.String("role", func(d *Delta) *Role { return &d.Role }),
	deltaReasoning[0], deltaReasoning[1],
	jsonwire.List("reasoning_details", func(d *Delta) *[]ReasoningDetail { return &d.ReasoningDetails }, reasoningDetailJSON, bounds.Parts),
	jsonwire.String("content", func(d *Delta) *string { return &d.Content }).DecodeWith((*Delta).decodeContent),
	jsonwire.String("refusal", func(d *Delta) *string { return &d.Refusal }),
	jsonwire.List("tool_calls", func(d *Delta) *[]ToolCallDelta { return &d.ToolCalls }, toolCallDeltaJSON, 0),
	jsonwire.Extra(func(d *Delta) *Extra { return &d.Extra }),
).AfterDecode(func(d *Delta) { takeReasoning(&d.Reasoning, &d.ReasoningAlias, &d.Extra) })

var deltaReasoning = reasoningFields(func(d *Delta) *string { return &d.Reasoning }, func(d *Delta) *bool { return &d.ReasoningAlias })

// decodeContent decodes content that may be an array of parts.
func (d *Delta) decodeContent(dec *jsonwire.Decoder) {
	if dec.Kind() != '[' {
		d.Content = dec.String()
		return
	}
	var texts strings.Builder
	var others []byte
	dec.Array(0, func(int) {
		var p Part
		raw := dec.Raw()
		switch err := jsonwire.UnmarshalLenient(raw, partJSON, &p); {
		case dec.Failed() || string(raw) == "null":
		case err == nil && p.Type == PartText && p.Extra == nil:
			texts.WriteString(p.Text)
		default:
			others = append(append(others, ','), raw...)
		}
	})
	d.Content = texts.String()
	if others != nil {
		others[0] = '['
		d.Extra = jsonwire.MergeExtra(d.Extra, Extra{membername.ContentParts: append(others, ']')})
	}
}

// MarshalJSON encodes d.
func (d Delta) MarshalJSON() ([]byte, error) { return jsonwire.MarshalValue(deltaJSON, &d) }

// UnmarshalJSON decodes a delta leniently.
func (d *Delta) UnmarshalJSON(data []byte) error { return param.UnmarshalReply(data, deltaJSON, d) }

// IsEmpty reports whether d adds nothing to a message: no text, no tool call, no reasoning, and no
// member of Extra that is not null. The Role does not count.
func (d *Delta) IsEmpty() bool {
	return d.Reasoning == "" && d.Content == "" && d.Refusal == "" && len(d.ReasoningDetails) == 0 && len(d.ToolCalls) == 0 &&
		!jsonwire.HasValue(d.Extra)
}

// A ToolCallDelta adds to a tool call. The first for a call has its ID, Type and the function's
// Name; Arguments are appended to what came before. One without an ID belongs to the last call with
// the same Index.
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
		AlwaysIf(func(t *ToolCallDelta) bool { return t.Type == ToolFunction }),
	jsonwire.Extra(func(t *ToolCallDelta) *Extra { return &t.Extra }),
).InitElement(func(t *ToolCallDelta, i int) { t.Index = i })

// MarshalJSON encodes t.
func (t ToolCallDelta) MarshalJSON() ([]byte, error) {
	return jsonwire.MarshalValue(toolCallDeltaJSON, &t)
}

// UnmarshalJSON decodes a part of a tool call leniently.
func (t *ToolCallDelta) UnmarshalJSON(data []byte) error {
	return param.UnmarshalReply(data, toolCallDeltaJSON, t)
}
