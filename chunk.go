package llmhttp

import (
	"bytes"
	"encoding/json"
	"slices"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A ChatChunk is a piece of a reply. A Backend sets Choices and, once, Usage.
// The Handler completes the rest: ID, Created and Model when empty, the chunk
// that announces the role, the one that ends the stream, and [DONE].
//
// The ID, Created and Model of the first chunk apply to the whole reply. Usage is
// the usage of the whole request; if several chunks have one, the last is used.
//
// ChatChunk and the other types of replies are decoded leniently, because the
// replies of other servers differ in details:
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
//   - A choice or a tool call without an index has that of its position.
//   - A choice may have a "message" instead of a "delta", so that a whole reply
//     can be decoded as a chunk. Its tool calls have the indices of their positions.
//   - A usage without a number above zero is nil.
//   - If the member "object" is "error", as in vLLM's errors, the members without a
//     field are in Extra["error"] as one object.
type ChatChunk struct {
	ID string `json:"id"`
	chunkHead
	Created int64         `json:"created"` // Unix time in seconds
	Model   string        `json:"model"`
	Choices []ChunkChoice `json:"choices"`
	Usage   *Usage        `json:"usage,omitzero"`
	Extra   Extra         `json:",embed"`
}

const (
	objectChunk      = "chat.completion.chunk"
	objectCompletion = "chat.completion"
	objectModel      = "model"
	objectError      = "error"
)

var (
	tokenChunk      = jsontext.String(objectChunk)
	tokenCompletion = jsontext.String(objectCompletion)
	tokenModel      = jsontext.String(objectModel)
)

// The member "object" stands behind the ID. Its value depends on the type alone,
// so these take no memory.
type (
	chunkHead struct {
		Object chunkObject `json:"object"`
	}
	completionHead struct {
		Object completionObject `json:"object"`
	}
	modelHead struct {
		Object modelObject `json:"object"`
	}

	chunkObject      struct{}
	completionObject struct{}
	modelObject      struct{}
)

// objectHook returns a hook that decodes the member "object", which may say that
// the object is an error.
func objectHook[T any](d *decoder) func(dec *jsontext.Decoder, _ *T) error {
	return func(dec *jsontext.Decoder, _ *T) error {
		value, err := dec.ReadValue()
		d.isError = string(value) == `"error"`
		return err
	}
}

func (c *ChatChunk) fields() any {
	type fields ChatChunk
	return (*fields)(c)
}

func (c *ChatChunk) finish(d *decoder) error {
	c.Usage = reported(c.Usage)
	return d.finishReply(&c.Extra)
}

// finishReply moves the members of a reply that is an error to Extra["error"].
func (d *decoder) finishReply(extra *Extra) error {
	if !d.isError {
		return nil
	}
	d.isError = false
	b, err := jsonv2.Marshal(map[string]json.RawMessage(*extra), jsonv2.Deterministic(true))
	if err != nil {
		return err
	}
	*extra = Extra{objectError: b}
	return nil
}

// reported returns u, or nil if no number in it is above zero. Some servers
// report that if they do not count tokens.
func reported(u *Usage) *Usage {
	if u == nil || u.PromptTokens <= 0 && u.CompletionTokens <= 0 && u.TotalTokens <= 0 {
		return nil
	}
	return u
}

// MarshalJSON encodes c as it is, without what a Handler would complete.
func (c ChatChunk) MarshalJSON() ([]byte, error) { return marshal(&c) }

// UnmarshalJSON decodes a chunk leniently, or a whole reply as a chunk.
func (c *ChatChunk) UnmarshalJSON(data []byte) error {
	var scanned ChatChunk
	if scanChunk(data, &scanned) {
		*c = scanned
		return nil
	}
	return unmarshalReply(data, c)
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

	Extra Extra `json:",embed"` // "logprobs" among others
}

type chunkChoiceFields ChunkChoice

func (c *ChunkChoice) fields() any { return (*chunkChoiceFields)(c) }

func (c *ChunkChoice) place(i int) { c.Index = i }

// forgive ignores a stop_reason that is not a string.
func (c *ChunkChoice) forgive(d *decoder, dec *jsontext.Decoder) error {
	view := struct {
		Choice       *chunkChoiceFields `json:",embed"`
		StopSequence json.RawMessage    `json:"stop_reason"`
	}{Choice: (*chunkChoiceFields)(c)}
	err := jsonv2.UnmarshalDecode(dec, &view)
	c.StopSequence = textOf(view.StopSequence)
	return err
}

// finish decodes the message of a whole reply as a Delta.
func (c *ChunkChoice) finish(d *decoder) error {
	dropNull(&c.Extra, "logprobs")
	raw := c.Extra["message"]
	if raw == nil {
		return nil
	}
	c.Extra.drop("message")
	if raw[0] != '{' {
		return nil
	}
	if err := jsonv2.Unmarshal(raw, &c.Delta, d.dec.Options()); err != nil {
		return err
	}
	for i := range c.Delta.ToolCalls {
		c.Delta.ToolCalls[i].Index = i
	}
	return nil
}

// dropNull drops a member that is null.
func dropNull(e *Extra, name string) {
	if string((*e)[name]) == "null" {
		e.drop(name)
	}
}

// drop removes a member. An Extra without members becomes nil.
func (e *Extra) drop(name string) {
	if delete(*e, name); len(*e) == 0 {
		*e = nil
	}
}

// MarshalJSON encodes c.
func (c ChunkChoice) MarshalJSON() ([]byte, error) { return marshal(&c) }

// UnmarshalJSON decodes a choice of a chunk leniently.
func (c *ChunkChoice) UnmarshalJSON(data []byte) error { return unmarshalReply(data, c) }

// A Delta is what a chunk adds to the message of a choice. Texts are appended to
// those of earlier chunks. They may be split anywhere, even within a character.
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

// forgive decodes a Delta whose content may be an array of parts.
func (d *Delta) forgive(dc *decoder, dec *jsontext.Decoder) error {
	view := struct {
		Delta   *deltaFields  `json:",embed"`
		Content *deltaContent `json:"content"`
	}{(*deltaFields)(d), &deltaContent{d}}
	return jsonv2.UnmarshalDecode(dec, &view)
}

// A deltaContent is the content of a Delta, which may be an array of parts.
type deltaContent struct{ delta *Delta }

// memberParts is the member of Extra for parts of content that are not texts.
const memberParts = "content_parts"

func (d *decoder) deltaContent(dec *jsontext.Decoder, c *deltaContent) error {
	if dec.PeekKind() != '[' {
		return jsonv2.UnmarshalDecode(dec, &c.delta.Content)
	}
	var parts []json.RawMessage
	if err := jsonv2.UnmarshalDecode(dec, &parts); err != nil {
		return err
	}
	var others [][]byte
	for _, raw := range parts {
		var p struct {
			Type string         `json:"type"`
			Text string         `json:"text"`
			More jsontext.Value `json:",embed"`
		}
		switch err := jsonv2.Unmarshal(raw, &p); {
		case string(raw) == "null":
		case err == nil && p.Type == PartText && p.More == nil:
			c.delta.Content += p.Text
		default:
			others = append(others, raw)
		}
	}
	if others != nil {
		array := slices.Concat([]byte{'['}, bytes.Join(others, []byte{','}), []byte{']'})
		c.delta.Extra = mergeExtra(c.delta.Extra, Extra{memberParts: array})
	}
	return nil
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

func (t *ToolCallDelta) place(i int) { t.Index = i }

// MarshalJSON encodes t.
func (t ToolCallDelta) MarshalJSON() ([]byte, error) { return marshal(&t) }

// UnmarshalJSON decodes a part of a tool call leniently.
func (t *ToolCallDelta) UnmarshalJSON(data []byte) error { return unmarshalReply(data, t) }

// A ChatResponse is a whole reply. It is decoded leniently: see [ChatChunk].
type ChatResponse struct {
	ID string `json:"id"`
	completionHead
	Created int64    `json:"created"` // Unix time in seconds
	Model   string   `json:"model"`
	Choices []Choice `json:"choices"`
	Usage   *Usage   `json:"usage,omitzero"` // nil if it is not known
	Extra   Extra    `json:",embed"`
}

func (r *ChatResponse) fields() any {
	type fields ChatResponse
	return (*fields)(r)
}

func (r *ChatResponse) finish(d *decoder) error {
	r.Usage = reported(r.Usage)
	return d.finishReply(&r.Extra)
}

// MarshalJSON encodes r.
func (r ChatResponse) MarshalJSON() ([]byte, error) { return marshal(&r) }

// UnmarshalJSON decodes a reply leniently.
func (r *ChatResponse) UnmarshalJSON(data []byte) error { return unmarshalReply(data, r) }

// A Choice is one of the choices of a [ChatResponse].
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
	Index        int           `json:"index"`
	Message      *replyMessage `json:"message"`
	Logprobs     *struct{}     `json:"-"` // in Extra
	FinishReason FinishReason  `json:"finish_reason"`
	StopSequence string        `json:"stop_reason,omitzero"`
	Extra        Extra         `json:",embed"`
}

// A replyChoiceWithoutLogprobs is a replyChoice whose logprobs are null.
type replyChoiceWithoutLogprobs struct {
	Index        int           `json:"index"`
	Message      *replyMessage `json:"message"`
	Logprobs     *struct{}     `json:"logprobs"`
	FinishReason FinishReason  `json:"finish_reason"`
	StopSequence string        `json:"stop_reason,omitzero"`
	Extra        Extra         `json:",embed"`
}

func (c *Choice) fields() any { return (*choiceFields)(c) }

func (c *Choice) encoded() any {
	view := &replyChoice{c.Index, (*replyMessage)(&c.Message), nil, c.FinishReason, c.StopSequence, c.Extra}
	if _, ok := c.Extra["logprobs"]; ok {
		return view
	}
	return (*replyChoiceWithoutLogprobs)(view)
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

func (c *Choice) place(i int) { c.Index = i }

// forgive ignores a stop_reason that is not a string.
func (c *Choice) forgive(d *decoder, dec *jsontext.Decoder) error {
	view := struct {
		Choice       *choiceFields   `json:",embed"`
		StopSequence json.RawMessage `json:"stop_reason"`
	}{Choice: (*choiceFields)(c)}
	err := jsonv2.UnmarshalDecode(dec, &view)
	c.StopSequence = textOf(view.StopSequence)
	return err
}

func (c *Choice) finish(d *decoder) error {
	dropNull(&c.Extra, "logprobs")
	return nil
}

// MarshalJSON encodes c.
func (c Choice) MarshalJSON() ([]byte, error) { return marshal(&c) }

// UnmarshalJSON decodes a choice leniently.
func (c *Choice) UnmarshalJSON(data []byte) error { return unmarshalReply(data, c) }

// A FinishReason says why a choice ended. It is empty until then.
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

// Usage is the number of tokens that a request used. It is decoded leniently: see
// [ChatChunk].
type Usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"` // if zero, the sum of the other two is encoded

	PromptTokensDetails     PromptTokensDetails     `json:"prompt_tokens_details,omitzero"`
	CompletionTokensDetails CompletionTokensDetails `json:"completion_tokens_details,omitzero"`
	Extra                   Extra                   `json:",embed"`
}

// PromptTokensDetails counts some of the PromptTokens of a [Usage] by their kind.
// The name of CacheWriteTokens is OpenRouter's
// (https://openrouter.ai/docs/use-cases/usage-accounting).
type PromptTokensDetails struct {
	CachedTokens     int   `json:"cached_tokens,omitzero"`      // read from the prompt cache
	CacheWriteTokens int   `json:"cache_write_tokens,omitzero"` // written to the prompt cache
	AudioTokens      int   `json:"audio_tokens,omitzero"`
	Extra            Extra `json:",embed"`
}

// CompletionTokensDetails counts some of the CompletionTokens of a [Usage] by
// their kind.
type CompletionTokensDetails struct {
	ReasoningTokens int   `json:"reasoning_tokens,omitzero"`
	AudioTokens     int   `json:"audio_tokens,omitzero"`
	Extra           Extra `json:",embed"`
}

type usageFields Usage

func (u *Usage) fields() any { return (*usageFields)(u) }

func (u *Usage) encoded() any {
	if u.TotalTokens == u.total() {
		return (*usageFields)(u)
	}
	c := *u
	c.TotalTokens = u.total()
	return (*usageFields)(&c)
}

// total returns TotalTokens, or the sum of the other two if that is zero.
func (u *Usage) total() int {
	if u.TotalTokens != 0 {
		return u.TotalTokens
	}
	return u.PromptTokens + u.CompletionTokens
}

// MarshalJSON encodes u.
func (u Usage) MarshalJSON() ([]byte, error) { return marshal(&u) }

// UnmarshalJSON decodes a usage leniently.
func (u *Usage) UnmarshalJSON(data []byte) error { return unmarshalReply(data, u) }

func (p *PromptTokensDetails) fields() any {
	type fields PromptTokensDetails
	return (*fields)(p)
}

// MarshalJSON encodes p.
func (p PromptTokensDetails) MarshalJSON() ([]byte, error) { return marshal(&p) }

// UnmarshalJSON decodes details leniently.
func (p *PromptTokensDetails) UnmarshalJSON(data []byte) error { return unmarshalReply(data, p) }

func (c *CompletionTokensDetails) fields() any {
	type fields CompletionTokensDetails
	return (*fields)(c)
}

// MarshalJSON encodes c.
func (c CompletionTokensDetails) MarshalJSON() ([]byte, error) { return marshal(&c) }

// UnmarshalJSON decodes details leniently.
func (c *CompletionTokensDetails) UnmarshalJSON(data []byte) error { return unmarshalReply(data, c) }
