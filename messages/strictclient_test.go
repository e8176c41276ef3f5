package messages_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmhttptest"
)

// A message is a whole reply as a strict client reads it.
type message struct {
	ID           string  `json:"id"`
	Type         string  `json:"type"`
	Role         string  `json:"role"`
	Model        string  `json:"model"`
	Content      []block `json:"content"`
	StopReason   *string `json:"stop_reason"`
	StopSequence *string `json:"stop_sequence"`
	Usage        *usage  `json:"usage"`
	ending
	Diagnostics nullable `json:"diagnostics"`
}

// An ending has members that SDKs require of messages and of message_delta.
type ending struct {
	StopDetails nullable `json:"stop_details"`
	Container   nullable `json:"container"`
}

func (e *ending) check() error {
	if !e.StopDetails.isSet() || !e.Container.isSet() {
		return errors.New("stop_details or container is missing")
	}
	return nil
}

// nullable is a member that must be there, and may be null.
type nullable struct{ json.RawMessage }

func (n *nullable) isSet() bool { return len(n.RawMessage) > 0 }

// A block is a content block. Pointers are nil if the member is missing.
type block struct {
	Type      string          `json:"type"`
	Text      *string         `json:"text,omitempty"`
	Thinking  *string         `json:"thinking,omitempty"`
	Signature *string         `json:"signature,omitempty"`
	Data      *string         `json:"data,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	Caller    json.RawMessage `json:"caller,omitempty"`
	Citations []cited         `json:"citations,omitempty"`
}

// A cited is a citation of a web page.
type cited struct {
	Type           string  `json:"type"`
	CitedText      *string `json:"cited_text"`
	EncryptedIndex *string `json:"encrypted_index"`
	Title          *string `json:"title"`
	URL            string  `json:"url"`
}

func (c *cited) check() error {
	if c.Type != "web_search_result_location" || c.CitedText == nil || c.EncryptedIndex == nil || c.Title == nil || c.URL == "" {
		return fmt.Errorf("a citation %+v", *c)
	}
	return nil
}

type usage struct {
	InputTokens   *int           `json:"input_tokens"`
	CacheCreation *int           `json:"cache_creation_input_tokens"`
	CacheRead     *int           `json:"cache_read_input_tokens"`
	CacheWrites   map[string]int `json:"cache_creation"`
	OutputTokens  *int           `json:"output_tokens"`
	OutputDetails *struct {
		ThinkingTokens *int `json:"thinking_tokens"`
	} `json:"output_tokens_details"`
	ServerToolUse nullable `json:"server_tool_use"`
	ServiceTier   string   `json:"service_tier"`
	InferenceGeo  nullable `json:"inference_geo"`
	Speed         nullable `json:"speed"`
}

// check checks the usage of a message.
func (u *usage) check() error {
	if err := u.checkTokens(); err != nil {
		return err
	}
	if u.ServiceTier != "standard" || !u.InferenceGeo.isSet() || !u.Speed.isSet() {
		return errors.New("the usage is incomplete")
	}
	return nil
}

// checkTokens checks what the usage of a message and that of a message_delta have in common.
func (u *usage) checkTokens() error {
	if u == nil || u.InputTokens == nil || u.CacheCreation == nil || u.CacheRead == nil || u.OutputTokens == nil ||
		u.OutputDetails == nil || u.OutputDetails.ThinkingTokens == nil || !u.ServerToolUse.isSet() {
		return errors.New("the usage is incomplete")
	}
	for _, name := range []string{"ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens"} {
		if _, ok := u.CacheWrites[name]; !ok && (u.CacheWrites != nil || *u.CacheCreation == 0) {
			return errors.New("the usage has no " + name)
		}
	}
	return nil
}

var stopReasons = map[string]llm.FinishReason{
	"end_turn":      llm.FinishStop,
	"stop_sequence": llm.FinishStop,
	"max_tokens":    llm.FinishLength,
	"tool_use":      llm.FinishToolCalls,
	"refusal":       llm.FinishContentFilter,
}

// decodeStrict decodes JSON and refuses unknown members and trailing data.
func decodeStrict(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("%w: %s", err, data)
	}
	if d.More() {
		return fmt.Errorf("trailing data: %s", data)
	}
	return nil
}

// readMessage decodes a whole message. It refuses whatever any known client refuses.
func readMessage(body []byte) (*message, error) {
	m := new(message)
	if err := decodeStrict(body, m); err != nil {
		return nil, err
	}
	if m.StopReason == nil {
		return nil, errors.New("there is no stop_reason")
	}
	return m, m.check()
}

func (m *message) check() error {
	switch {
	case m.Type != "message", m.Role != "assistant", m.Model == "", m.Content == nil:
		return errors.New("not a message")
	case !m.Diagnostics.isSet():
		return errors.New("diagnostics are missing")
	case len(m.ID) < len("msg_")+1 || m.ID[:4] != "msg_":
		return fmt.Errorf("the ID is %q", m.ID)
	}
	if m.StopReason != nil {
		if _, ok := stopReasons[*m.StopReason]; !ok {
			return fmt.Errorf("the stop_reason is %q", *m.StopReason)
		}
		if (*m.StopReason == "stop_sequence") != (m.StopSequence != nil) {
			return fmt.Errorf("stop_reason %q and stop_sequence do not agree", *m.StopReason)
		}
	}
	for i := range m.Content {
		if err := m.Content[i].check(); err != nil {
			return fmt.Errorf("block %d: %w", i, err)
		}
	}
	calls := false
	for _, k := range m.Content {
		calls = calls || k.Type == "tool_use"
	}
	if m.StopReason != nil && *m.StopReason == "tool_use" && !calls {
		return errors.New("stop_reason is tool_use without a call")
	}
	if err := m.ending.check(); err != nil {
		return err
	}
	return m.Usage.check()
}

// check returns an error unless the block has exactly the members of its type.
func (k *block) check() error {
	has := map[string]bool{
		"text": k.Text != nil, "thinking": k.Thinking != nil, "signature": k.Signature != nil,
		"data": k.Data != nil, "id": k.ID != "", "name": k.Name != "", "input": k.Input != nil, "caller": string(k.Caller) == `{"type":"direct"}`,
	}
	members, ok := map[string][]string{
		"text": {"text"}, "thinking": {"thinking", "signature"}, "redacted_thinking": {"data"}, "tool_use": {"id", "name", "input", "caller"},
	}[k.Type]
	if !ok {
		return fmt.Errorf("the type is %q", k.Type)
	}
	for _, name := range members {
		if !has[name] {
			return fmt.Errorf("%s has no %s", k.Type, name)
		}
		delete(has, name)
	}
	for name, set := range has {
		if set {
			return fmt.Errorf("%s has %s", k.Type, name)
		}
	}
	if k.Citations != nil && (k.Type != "text" || len(k.Citations) == 0) {
		return fmt.Errorf("%s has citations %v", k.Type, k.Citations)
	}
	for i := range k.Citations {
		if err := k.Citations[i].check(); err != nil {
			return err
		}
	}
	if k.Type == "tool_use" && (!json.Valid(k.Input) || bytes.TrimSpace(k.Input)[0] != '{') {
		return fmt.Errorf("the input is %s", k.Input)
	}
	return nil
}

// A streamReader accumulates the events of a stream. It refuses whatever any known
// client refuses, and what the documentation of the API does not allow.
type streamReader struct {
	message *message
	open    bool   // the last block has not stopped
	input   []byte // the JSON of the open block's deltas
	signed  bool   // a signature_delta of the open block was read
	delta   bool   // a message_delta was read
	stopped bool   // message_stop was read
}

// An event has the members of all types of events.
type event struct {
	Type         string          `json:"type"`
	Message      json.RawMessage `json:"message"`
	Index        *int            `json:"index"`
	ContentBlock json.RawMessage `json:"content_block"`
	Delta        json.RawMessage `json:"delta"`
	Usage        *usage          `json:"usage"`
}

type delta struct {
	Type         string  `json:"type"`
	Text         *string `json:"text"`
	Thinking     *string `json:"thinking"`
	Signature    *string `json:"signature"`
	PartialJSON  *string `json:"partial_json"`
	Citation     *cited  `json:"citation"`
	StopReason   *string `json:"stop_reason"`
	StopSequence *string `json:"stop_sequence"`
	ending
}

// readStream accumulates the events of a complete stream.
func readStream(events []llmhttptest.Event) (*message, error) {
	r := new(streamReader)
	for i, e := range events {
		if err := r.read(e); err != nil {
			return nil, fmt.Errorf("event %d (%s): %w", i, e.Data, err)
		}
	}
	if !r.stopped {
		return nil, errors.New("there is no message_stop")
	}
	return r.message, r.message.check()
}

func (r *streamReader) read(raw llmhttptest.Event) error {
	var e event
	if err := decodeStrict([]byte(raw.Data), &e); err != nil {
		return err
	}
	if raw.Name != e.Type {
		return fmt.Errorf("the name of the event is %q", raw.Name)
	}
	if r.stopped {
		return errors.New("an event after message_stop")
	}
	if e.Type == "ping" {
		return nil
	}
	if (r.message == nil) != (e.Type == "message_start") {
		return errors.New("message_start is not the first event, or not the only one")
	}
	switch e.Type {
	case "message_start":
		return r.start(e.Message)
	case "content_block_start":
		return r.startBlock(&e)
	case "content_block_delta":
		return r.addDelta(&e)
	case "content_block_stop":
		return r.stopBlock(&e)
	case "message_delta":
		return r.endMessage(&e)
	case "message_stop":
		r.stopped = true
		if !r.delta {
			return errors.New("there was no message_delta")
		}
		return nil
	}
	return errors.New("unknown event")
}

func (r *streamReader) start(raw json.RawMessage) error {
	r.message = new(message)
	if err := decodeStrict(raw, r.message); err != nil {
		return err
	}
	if len(r.message.Content) > 0 || r.message.StopReason != nil || r.message.StopSequence != nil {
		return errors.New("the message is not empty when it starts")
	}
	return r.message.check()
}

func (r *streamReader) startBlock(e *event) error {
	if r.open || r.delta || e.Index == nil || *e.Index != len(r.message.Content) {
		return errors.New("a block starts out of order")
	}
	var k block
	if err := decodeStrict(e.ContentBlock, &k); err != nil {
		return err
	}
	for _, s := range []*string{k.Text, k.Thinking, k.Signature} {
		if s != nil && *s != "" {
			return errors.New("the block is not empty when it starts")
		}
	}
	if k.Input != nil && string(k.Input) != "{}" {
		return errors.New("the input is not empty when it starts")
	}
	r.message.Content = append(r.message.Content, k)
	r.open, r.input, r.signed = true, nil, false
	return k.check()
}

func (r *streamReader) addDelta(e *event) error {
	if !r.open || e.Index == nil || *e.Index != len(r.message.Content)-1 {
		return errors.New("a delta of a block that is not open")
	}
	var d delta
	if err := decodeStrict(e.Delta, &d); err != nil {
		return err
	}
	k := &r.message.Content[*e.Index]
	switch {
	case d.Type == "text_delta" && k.Type == "text" && d.Text != nil:
		*k.Text += *d.Text
	case d.Type == "citations_delta" && k.Type == "text" && d.Citation != nil:
		k.Citations = append(k.Citations, *d.Citation)
	case d.Type == "thinking_delta" && k.Type == "thinking" && d.Thinking != nil && !r.signed:
		*k.Thinking += *d.Thinking
	case d.Type == "signature_delta" && k.Type == "thinking" && d.Signature != nil && !r.signed:
		*k.Signature, r.signed = *d.Signature, true
	case d.Type == "input_json_delta" && k.Type == "tool_use" && d.PartialJSON != nil:
		r.input = append(r.input, *d.PartialJSON...)
	default:
		return errors.New("the delta does not fit the block")
	}
	return nil
}

func (r *streamReader) stopBlock(e *event) error {
	if !r.open || e.Index == nil || *e.Index != len(r.message.Content)-1 {
		return errors.New("a block stops that is not open")
	}
	k := &r.message.Content[*e.Index]
	if len(r.input) > 0 {
		k.Input = inputFromDeltas(r.input)
	}
	r.open = false
	return k.check()
}

// inputFromDeltas returns the input that the joined deltas of a call mean. One that is not a
// JSON object has the form that it has in a whole reply, so that the two can be compared.
func inputFromDeltas(joined []byte) json.RawMessage {
	if trimmed := bytes.TrimSpace(joined); json.Valid(trimmed) && trimmed[0] == '{' {
		return trimmed
	}
	input, _ := json.Marshal(map[string]string{invalidJSON: string(joined)})
	return input
}

// invalidJSON is the member of the input of a call whose arguments are not a JSON object.
const invalidJSON = "INVALID_JSON"

// argumentsOf returns the arguments of a call as the model wrote them.
func argumentsOf(input json.RawMessage) string {
	var members map[string]string
	if json.Unmarshal(input, &members) == nil && len(members) == 1 && members[invalidJSON] != "" {
		return members[invalidJSON]
	}
	return string(input)
}

func (r *streamReader) endMessage(e *event) error {
	if r.open || r.delta {
		return errors.New("message_delta out of order")
	}
	r.delta = true
	var d delta
	if err := decodeStrict(e.Delta, &d); err != nil {
		return err
	}
	if d.StopReason == nil {
		return errors.New("there is no stop_reason")
	}
	if e.Usage == nil || e.Usage.ServiceTier != "" {
		return errors.New("the usage of message_delta is missing, or has a service_tier")
	}
	if err := e.Usage.checkTokens(); err != nil {
		return err
	}
	if err := d.ending.check(); err != nil {
		return err
	}
	start := r.message.Usage
	e.Usage.ServiceTier, e.Usage.InferenceGeo, e.Usage.Speed = start.ServiceTier, start.InferenceGeo, start.Speed
	r.message.StopReason, r.message.StopSequence, r.message.Usage = d.StopReason, d.StopSequence, e.Usage
	return nil
}

// response returns the message in the form of chat completions.
func (m *message) response() *llm.ChatResponse {
	u := m.Usage
	c := llm.Choice{Message: llm.Message{Role: llm.RoleAssistant}, FinishReason: stopReasons[*m.StopReason]}
	text := ""
	for _, k := range m.Content {
		switch k.Type {
		case "text":
			text += *k.Text
		case "thinking":
			c.Message.Reasoning += *k.Thinking
		case "tool_use":
			call := llm.ToolCall{ID: k.ID, Function: llm.FunctionCall{Name: k.Name, Arguments: argumentsOf(k.Input)}}
			c.Message.ToolCalls = append(c.Message.ToolCalls, call)
		}
	}
	c.Message.Content = llm.TextContent(text)
	prompt := *u.InputTokens + *u.CacheCreation + *u.CacheRead
	return &llm.ChatResponse{
		ID: m.ID, Model: m.Model, Choices: []llm.Choice{c},
		Usage: &llm.Usage{PromptTokens: prompt, CompletionTokens: *u.OutputTokens},
	}
}

// readError decodes an error reply, or the data of an error event.
func readError(body []byte) (typ, text string, err error) {
	var e struct {
		Type  string `json:"type"`
		Error *struct {
			Type    string `json:"type"`
			Message string `json:"message"`
			Details *struct {
				ErrorCode string `json:"error_code"`
			} `json:"details"`
		} `json:"error"`
		RequestID string `json:"request_id"`
	}
	if err := decodeStrict(body, &e); err != nil {
		return "", "", err
	}
	if e.Type != "error" || e.Error == nil || e.Error.Type == "" || e.Error.Message == "" {
		return "", "", fmt.Errorf("not an error: %s", body)
	}
	return e.Error.Type, e.Error.Message, nil
}

// describe returns the blocks of a message and why it ended.
func (m *message) describe() string {
	var b strings.Builder
	for _, k := range m.Content {
		switch k.Type {
		case "text":
			fmt.Fprintf(&b, "text(%s", *k.Text)
			for _, c := range k.Citations {
				fmt.Fprintf(&b, "|%s %s %s", c.URL, *c.Title, *c.CitedText)
			}
			b.WriteString(") ")
		case "thinking":
			fmt.Fprintf(&b, "thinking(%s|%s) ", *k.Thinking, *k.Signature)
		case "redacted_thinking":
			fmt.Fprintf(&b, "redacted(%s) ", *k.Data)
		case "tool_use":
			fmt.Fprintf(&b, "%s:%s%s ", k.ID, k.Name, bytes.TrimSpace(k.Input))
		}
	}
	b.WriteString(*m.StopReason)
	if m.StopSequence != nil {
		b.WriteString(" " + *m.StopSequence)
	}
	return b.String()
}

// countBlocks returns how many blocks of a type a message has.
func countBlocks(m *message, typ string) (n int) {
	for _, k := range m.Content {
		if k.Type == typ {
			n++
		}
	}
	return n
}
