package llmhttp

import (
	"bytes"
	stdjson "encoding/json"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A ChatChunk is a piece of a reply. A Backend sets Choices and, once, Usage.
// The Handler completes the rest: ID, Created and Model when empty, the chunk
// that announces the role, the one that ends the stream, and [DONE].
//
// ID, Created and Model are those of the first chunk of a reply. Usage is that
// of the whole request: if several chunks have one, the last counts.
//
// ChatChunk and the other types of replies are decoded leniently, because the
// replies of other servers differ in details:
//
//   - A duplicate name is allowed; the last value counts.
//   - Bytes that are not UTF-8, and halves of characters, become U+FFFD.
//   - A null or missing value is the zero value, or null in Extra.
//   - An integer may have a fraction or be in a string. What is no integer is 0.
//   - Where a string belongs, another value counts as its JSON text: the
//     arguments of a call may be an object.
//   - Where an object or an array belongs, another value is skipped.
//   - Content may be an array of parts. The texts are joined, and the
//     other parts are in Extra as "content_parts".
//   - A choice or a call without an index has that of its position.
//   - A choice may have a "message" instead of a "delta", as in a whole reply.
//   - A usage in which all is zero is nil.
//   - An object whose "object" is "error" is in Extra as "error".
type ChatChunk struct {
	ID      string        `json:"id"`
	Created int64         `json:"created"` // Unix time in seconds
	Model   string        `json:"model"`
	Choices []ChunkChoice `json:"choices"`
	Usage   *Usage        `json:"usage,omitzero"`
	Extra   Extra         `json:",embed"`
}

const (
	objectChunk      = "chat.completion.chunk"
	objectCompletion = "chat.completion"
	objectError      = "error"
)

type chunkFields ChatChunk

func (c *ChatChunk) fields() any {
	return &replyObject[chunkFields]{ID: c.ID, Object: objectChunk, Reply: (*chunkFields)(c)}
}

func (c *ChatChunk) extra() Extra { return c.Extra }

// A replyObject is the JSON of a reply. On the wire the type of the object
// comes behind the ID.
type replyObject[T any] struct {
	ID     string             `json:"id"` // in place of that of Reply
	Object string             `json:"object"`
	Reply  *T                 `json:",embed"`
	Error  stdjson.RawMessage `json:"error,omitzero"` // never encoded, so that a reply is not taken for an error
}

func (c *ChatChunk) decode(d *decoder, dec *jsontext.Decoder) error {
	err := decodeReply(dec, &c.ID, (*chunkFields)(c), &c.Extra)
	c.Usage = reported(c.Usage)
	return err
}

// decodeReply decodes a reply, whose "object" it checks and forgets.
func decodeReply[T any](dec *jsontext.Decoder, id *string, reply *T, extra *Extra) error {
	view := struct {
		ID     *string `json:"id"`
		Object string  `json:"object"`
		Reply  *T      `json:",embed"`
	}{ID: id, Reply: reply}
	if err := json.UnmarshalDecode(dec, &view); err != nil {
		return err
	}
	if view.Object == objectError {
		b, err := json.Marshal(*extra, encodeOptions)
		if err != nil {
			return err
		}
		*extra = Extra{objectError: b}
	}
	return nil
}

// reported returns u, or nil if there is nothing above zero in it, which is how
// some servers say that they do not know.
func reported(u *Usage) *Usage {
	if u == nil || u.PromptTokens <= 0 && u.CompletionTokens <= 0 && u.TotalTokens <= 0 {
		return nil
	}
	return u
}

// MarshalJSON encodes c as it is, without what a Handler would complete.
func (c ChatChunk) MarshalJSON() ([]byte, error) { return marshal(&c) }

// UnmarshalJSON decodes a chunk leniently, or a whole reply as a chunk.
func (c *ChatChunk) UnmarshalJSON(data []byte) error { return unmarshalReply(data, c) }

// A ChunkChoice is what a [ChatChunk] adds to one of the replies. Index says to
// which: it is less than the number of choices that the client asked for.
// Choices beyond that are dropped, and so is what follows a choice's FinishReason.
type ChunkChoice struct {
	Index        int          `json:"index"`
	Delta        Delta        `json:"delta"`
	FinishReason FinishReason `json:"finish_reason"` // null if empty

	// StopSequence is the one that ended the choice, as vLLM has it
	// (https://docs.vllm.ai/en/stable/api/vllm/entrypoints/openai/protocol.html).
	StopSequence string `json:"stop_reason,omitzero"`

	Extra Extra `json:",embed"` // "logprobs" among others
}

type chunkChoiceFields ChunkChoice

func (c *ChunkChoice) fields() any { return (*chunkChoiceFields)(c) }

func (c *ChunkChoice) extra() Extra { return c.Extra }

func (c *ChunkChoice) place(i int) { c.Index = i }

func (c *ChunkChoice) decode(d *decoder, dec *jsontext.Decoder) error {
	view := struct {
		Choice       *chunkChoiceFields `json:",embed"`
		Message      *wholeDelta        `json:"message"`
		StopSequence stdjson.RawMessage `json:"stop_reason"`
		Logprobs     stdjson.RawMessage `json:"logprobs"`
	}{Choice: (*chunkChoiceFields)(c), Message: (*wholeDelta)(&c.Delta)}
	if err := json.UnmarshalDecode(dec, &view); err != nil {
		return err
	}
	c.StopSequence = textOf(view.StopSequence)
	c.Extra.keep("logprobs", view.Logprobs)
	return nil
}

// keep adds a member unless it is null.
func (e *Extra) keep(name string, raw stdjson.RawMessage) {
	if optional(raw) == nil {
		return
	}
	if *e == nil {
		*e = make(Extra)
	}
	(*e)[name] = raw
}

// textOf returns the text of a JSON string, or "" if raw is another value.
func textOf(raw stdjson.RawMessage) string {
	b, err := jsontext.AppendUnquote(nil, raw)
	if err != nil {
		return ""
	}
	return string(b)
}

// MarshalJSON encodes c.
func (c ChunkChoice) MarshalJSON() ([]byte, error) { return marshal(&c) }

// UnmarshalJSON decodes a choice of a chunk leniently.
func (c *ChunkChoice) UnmarshalJSON(data []byte) error { return unmarshalReply(data, c) }

// A Delta is what is added to a reply's message. Texts are appended to what
// came before; they may be cut anywhere, even within a character.
type Delta struct {
	Role             Role              `json:"role,omitzero"` // always sent as assistant; a Backend need not set it
	Reasoning        string            `json:"reasoning_content,omitzero"`
	ReasoningDetails []ReasoningDetail `json:"reasoning_details,omitempty"` // see [Message]; appended to those before
	Content          string            `json:"content,omitzero"`
	Refusal          string            `json:"refusal,omitzero"`
	ToolCalls        []ToolCallDelta   `json:"tool_calls,omitempty"`
	Extra            Extra             `json:",embed"`
}

type deltaFields Delta

func (d *Delta) fields() any { return (*deltaFields)(d) }

func (d *Delta) extra() Extra { return d.Extra }

func (d *Delta) decode(dc *decoder, dec *jsontext.Decoder) error {
	view := struct {
		Delta   *deltaFields  `json:",embed"`
		Content *deltaContent `json:"content"`
	}{(*deltaFields)(d), &deltaContent{d}}
	return json.UnmarshalDecode(dec, &view)
}

// A deltaContent is the content of a Delta, which may be an array of parts.
type deltaContent struct{ delta *Delta }

// memberParts is the member for parts of content that are not texts: a reply has
// no other place for them.
const memberParts = "content_parts"

func (d *decoder) deltaContent(dec *jsontext.Decoder, c *deltaContent) error {
	if dec.PeekKind() != '[' {
		return json.UnmarshalDecode(dec, &c.delta.Content)
	}
	var parts []stdjson.RawMessage
	if err := json.UnmarshalDecode(dec, &parts); err != nil {
		return err
	}
	var others [][]byte
	for _, raw := range parts {
		var p struct {
			Type string         `json:"type"`
			Text string         `json:"text"`
			More jsontext.Value `json:",embed"`
		}
		switch err := json.Unmarshal(raw, &p); {
		case string(raw) == "null":
		case err == nil && p.Type == PartText && p.More == nil:
			c.delta.Content += p.Text
		default:
			others = append(others, raw)
		}
	}
	if others != nil {
		c.delta.Extra.keep(memberParts, append(append([]byte{'['}, bytes.Join(others, []byte{','})...), ']'))
	}
	return nil
}

// A wholeDelta is the message of a whole reply, as a Delta. Its calls are in
// their places, whatever index they have.
type wholeDelta Delta

func (w *wholeDelta) fields() any  { return (*Delta)(w).fields() }
func (w *wholeDelta) extra() Extra { return w.Extra }

func (w *wholeDelta) decode(d *decoder, dec *jsontext.Decoder) error {
	err := (*Delta)(w).decode(d, dec)
	for i := range w.ToolCalls {
		w.ToolCalls[i].Index = i
	}
	return err
}

// MarshalJSON encodes d.
func (d Delta) MarshalJSON() ([]byte, error) { return marshal(&d) }

// UnmarshalJSON decodes a delta leniently.
func (d *Delta) UnmarshalJSON(data []byte) error { return unmarshalReply(data, d) }

// A ToolCallDelta adds to a tool call. The first for a call has its ID, Type
// and the function's Name; Arguments are appended to what came before. One
// without an ID belongs to the last call with the same Index.
type ToolCallDelta struct {
	Index    int          `json:"index"`
	ID       string       `json:"id,omitzero"`
	Type     string       `json:"type,omitzero"`
	Function FunctionCall `json:"function,omitzero"`
	Extra    Extra        `json:",embed"`
}

// A functionToolCallDelta is a ToolCallDelta that has a function, even if it is
// empty.
type functionToolCallDelta struct {
	Index    int          `json:"index"`
	ID       string       `json:"id,omitzero"`
	Type     string       `json:"type,omitzero"`
	Function FunctionCall `json:"function"`
	Extra    Extra        `json:",embed"`
}

func (t *ToolCallDelta) fields() any {
	if t.Type == toolFunction {
		return (*functionToolCallDelta)(t)
	}
	type fields ToolCallDelta
	return (*fields)(t)
}

func (t *ToolCallDelta) extra() Extra { return t.Extra }

func (t *ToolCallDelta) place(i int) { t.Index = i }

// MarshalJSON encodes t.
func (t ToolCallDelta) MarshalJSON() ([]byte, error) { return marshal(&t) }

// UnmarshalJSON decodes a part of a tool call leniently.
func (t *ToolCallDelta) UnmarshalJSON(data []byte) error { return unmarshalReply(data, t) }

// A ChatResponse is a whole reply. It is decoded leniently: see [ChatChunk].
type ChatResponse struct {
	ID      string   `json:"id"`
	Created int64    `json:"created"` // Unix time in seconds
	Model   string   `json:"model"`
	Choices []Choice `json:"choices"`
	Usage   *Usage   `json:"usage,omitzero"` // nil if it is not known
	Extra   Extra    `json:",embed"`
}

type responseFields ChatResponse

func (r *ChatResponse) fields() any {
	return &replyObject[responseFields]{ID: r.ID, Object: objectCompletion, Reply: (*responseFields)(r)}
}

func (r *ChatResponse) extra() Extra { return r.Extra }

func (r *ChatResponse) decode(d *decoder, dec *jsontext.Decoder) error {
	err := decodeReply(dec, &r.ID, (*responseFields)(r), &r.Extra)
	r.Usage = reported(r.Usage)
	return err
}

// MarshalJSON encodes r.
func (r ChatResponse) MarshalJSON() ([]byte, error) { return marshal(&r) }

// UnmarshalJSON decodes a reply leniently.
func (r *ChatResponse) UnmarshalJSON(data []byte) error { return unmarshalReply(data, r) }

// A Choice is one of the replies the client asked for.
type Choice struct {
	Index        int          `json:"index"`
	Message      Message      `json:"message"`
	FinishReason FinishReason `json:"finish_reason"`        // null if empty
	StopSequence string       `json:"stop_reason,omitzero"` // see [ChunkChoice]
	Extra        Extra        `json:",embed"`               // "logprobs" among others; null if there are none
}

type choiceFields Choice

// A replyChoice is a Choice with the members that the schema of the format
// demands even if they are null: logprobs, and the refusal of the message.
type replyChoice struct {
	Index        int                `json:"index"`
	Message      *replyMessage      `json:"message"`
	Logprobs     stdjson.RawMessage `json:"-"` // in Extra
	FinishReason FinishReason       `json:"finish_reason"`
	StopSequence string             `json:"stop_reason,omitzero"`
	Extra        Extra              `json:",embed"`
}

// A replyChoiceWithoutLogprobs is a replyChoice whose logprobs are null.
type replyChoiceWithoutLogprobs struct {
	Index        int                `json:"index"`
	Message      *replyMessage      `json:"message"`
	Logprobs     stdjson.RawMessage `json:"logprobs"`
	FinishReason FinishReason       `json:"finish_reason"`
	StopSequence string             `json:"stop_reason,omitzero"`
	Extra        Extra              `json:",embed"`
}

func (c *Choice) fields() any {
	view := replyChoice{c.Index, (*replyMessage)(&c.Message), stdjson.RawMessage("null"), c.FinishReason, c.StopSequence, c.Extra}
	if _, ok := c.Extra["logprobs"]; ok {
		return &view
	}
	without := replyChoiceWithoutLogprobs(view)
	return &without
}

// A replyMessage is the message of a whole reply.
type replyMessage Message

func (m *replyMessage) fields() any {
	type messageFields Message
	view := &struct {
		Message *messageFields `json:",embed"`
		Refusal *string        `json:"refusal"` // null if empty
	}{Message: (*messageFields)(m)}
	if m.Refusal != "" {
		view.Refusal = &m.Refusal
	}
	return view
}

func (m *replyMessage) extra() Extra { return m.Extra }

func (c *Choice) extra() Extra { return c.Extra }

func (c *Choice) place(i int) { c.Index = i }

func (c *Choice) decode(d *decoder, dec *jsontext.Decoder) error {
	view := struct {
		Choice       *choiceFields      `json:",embed"`
		StopSequence stdjson.RawMessage `json:"stop_reason"`
		Logprobs     stdjson.RawMessage `json:"logprobs"`
	}{Choice: (*choiceFields)(c)}
	if err := json.UnmarshalDecode(dec, &view); err != nil {
		return err
	}
	c.StopSequence = textOf(view.StopSequence)
	c.Extra.keep("logprobs", view.Logprobs)
	return nil
}

// MarshalJSON encodes c.
func (c Choice) MarshalJSON() ([]byte, error) { return marshal(&c) }

// UnmarshalJSON decodes a choice leniently.
func (c *Choice) UnmarshalJSON(data []byte) error { return unmarshalReply(data, c) }

// A FinishReason tells why a reply ended. It is empty until it did.
type FinishReason string

// The finish reasons of the format.
const (
	FinishStop          FinishReason = "stop"           // a normal end
	FinishLength        FinishReason = "length"         // max_tokens was reached
	FinishContentFilter FinishReason = "content_filter" // a safety filter blocked it
	FinishToolCalls     FinishReason = "tool_calls"     // the model calls tools
)

func encodeFinishReason(enc *jsontext.Encoder, r FinishReason) error {
	if r == "" {
		return enc.WriteToken(jsontext.Null)
	}
	return enc.WriteToken(jsontext.String(string(r)))
}

// Usage is how many tokens a request used. It is decoded leniently: see
// [ChatChunk].
type Usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"` // if zero, the sum of both is encoded

	PromptTokensDetails     PromptTokensDetails     `json:"prompt_tokens_details,omitzero"`
	CompletionTokensDetails CompletionTokensDetails `json:"completion_tokens_details,omitzero"`
	Extra                   Extra                   `json:",embed"`
}

// PromptTokensDetails says which of the PromptTokens are of a special kind.
type PromptTokensDetails struct {
	CachedTokens     int   `json:"cached_tokens,omitzero"`      // read from a cache
	CacheWriteTokens int   `json:"cache_write_tokens,omitzero"` // written to a cache
	AudioTokens      int   `json:"audio_tokens,omitzero"`
	Extra            Extra `json:",embed"`
}

// CompletionTokensDetails says which of the CompletionTokens are of a special
// kind.
type CompletionTokensDetails struct {
	ReasoningTokens int   `json:"reasoning_tokens,omitzero"`
	AudioTokens     int   `json:"audio_tokens,omitzero"`
	Extra           Extra `json:",embed"`
}

type usageFields Usage

func (u *Usage) fields() any { return (*usageFields)(u) }

func (u *Usage) encoded() any {
	c := *u
	c.TotalTokens = u.total()
	return (*usageFields)(&c)
}

func (u *Usage) extra() Extra { return u.Extra }

// total returns TotalTokens, or the sum if that is not set.
func (u *Usage) total() int {
	if u.TotalTokens != 0 {
		return u.TotalTokens
	}
	return u.PromptTokens + u.CompletionTokens
}

// lenientUsage decodes a usage, or nil if it is not an object.
func (d *decoder) lenientUsage(dec *jsontext.Decoder, u **Usage) error {
	if dec.PeekKind() != '{' {
		return dec.SkipValue()
	}
	*u = new(Usage)
	return json.UnmarshalDecode(dec, (*u).fields())
}

// MarshalJSON encodes u.
func (u Usage) MarshalJSON() ([]byte, error) { return marshal(&u) }

// UnmarshalJSON decodes a usage leniently.
func (u *Usage) UnmarshalJSON(data []byte) error { return unmarshalReply(data, u) }

func (p *PromptTokensDetails) fields() any {
	type fields PromptTokensDetails
	return (*fields)(p)
}

func (p *PromptTokensDetails) extra() Extra { return p.Extra }

// MarshalJSON encodes p.
func (p PromptTokensDetails) MarshalJSON() ([]byte, error) { return marshal(&p) }

// UnmarshalJSON decodes details leniently.
func (p *PromptTokensDetails) UnmarshalJSON(data []byte) error { return unmarshalReply(data, p) }

func (c *CompletionTokensDetails) fields() any {
	type fields CompletionTokensDetails
	return (*fields)(c)
}

func (c *CompletionTokensDetails) extra() Extra { return c.Extra }

// MarshalJSON encodes c.
func (c CompletionTokensDetails) MarshalJSON() ([]byte, error) { return marshal(&c) }

// UnmarshalJSON decodes details leniently.
func (c *CompletionTokensDetails) UnmarshalJSON(data []byte) error { return unmarshalReply(data, c) }
