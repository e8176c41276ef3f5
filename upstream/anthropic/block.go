// The blocks of a reply, and the deltas that they become.

package anthropic

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	own "github.com/llmhttp/llmhttp/internal/anthropic"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/llm"
)

// A block is a block of a reply that has begun.
type block struct {
	typ       string
	text      []byte          // of thinking; of a block that is passed on as it is, its input
	signature []byte          // of thinking
	input     json.RawMessage // of a call, where it began
	call      int             // the index of a call
	hasInput  bool            // a piece of the arguments of a call was yielded
	raw       json.RawMessage // a block that is passed on as it is
	citations []json.RawMessage
	kept      int // the size of all that, in bytes
	start     int // where the text begins in that of the message, in characters
}

// A textState tells where the text of a message is.
type textState struct {
	chars int  // so far
	ended bool // the block before is a text: see own.BlockText
}

// A startedBlock has the members of a block that has begun, of any type.
type startedBlock struct {
	Type      string
	Text      string
	Thinking  string
	Signature string
	Data      string
	ID        string
	Name      string
	Input     json.RawMessage
	Caller    json.RawMessage
	Citations json.RawMessage
}

var startedBlockJSON = jsonwire.NewObject(
	jsonwire.String("type", func(b *startedBlock) *string { return &b.Type }),
	jsonwire.String("text", func(b *startedBlock) *string { return &b.Text }),
	jsonwire.String("thinking", func(b *startedBlock) *string { return &b.Thinking }),
	jsonwire.String("signature", func(b *startedBlock) *string { return &b.Signature }),
	jsonwire.String("data", func(b *startedBlock) *string { return &b.Data }),
	jsonwire.String("id", func(b *startedBlock) *string { return &b.ID }),
	jsonwire.String("name", func(b *startedBlock) *string { return &b.Name }),
	jsonwire.Raw("input", func(b *startedBlock) *json.RawMessage { return &b.Input }),
	jsonwire.Raw("caller", func(b *startedBlock) *json.RawMessage { return &b.Caller }),
	jsonwire.Raw("citations", func(b *startedBlock) *json.RawMessage { return &b.Citations }),
)

// maxBlocks bounds the blocks of a reply that are open at the same time.
const maxBlocks = 4096

// startBlock begins a block. It returns false if nothing more is to be read.
func (r *chatReply) startBlock(index int, raw json.RawMessage) (more bool, err error) {
	if r.blocks[index] != nil { // without its end
		if more, err = r.stopBlock(index); err != nil || !more {
			return more, err
		}
	}
	var s startedBlock
	if err := jsonwire.UnmarshalLenient(raw, startedBlockJSON, &s); err != nil {
		return false, r.Invalid("a content block is not valid")
	}
	switch {
	case len(r.blocks) == maxBlocks:
		return false, r.Invalid("the reply has too many content blocks")
	case r.kept > 0 && r.kept+len(raw) > r.max: // one alone was in an event or in a whole reply
		return false, r.errTooLarge()
	}
	b := &block{typ: s.Type, kept: len(raw)}
	r.blocks[index] = b
	r.kept += b.kept
	isText := s.Type == own.BlockText
	if isText && r.text.ended { // tells the blocks apart
		more = r.sendOwn(json.RawMessage(`{"type":"text"}`))
	} else {
		more = true
	}
	r.text.ended = isText
	if !more {
		return false, nil
	}
	switch s.Type {
	case own.BlockText:
		b.start = r.text.chars
		_ = json.Unmarshal(s.Citations, &b.citations) // another value has none
		return r.addText(s.Text), nil
	case own.BlockThinking:
		b.signature = []byte(s.Signature)
		return r.addThinking(b, s.Thinking)
	case own.BlockRedacted:
		return r.send(llm.Delta{ReasoningDetails: []llm.ReasoningDetail{{Type: llm.ReasoningEncrypted, Data: s.Data}}}), nil
	case own.BlockCall:
		return r.startCall(b, &s), nil
	}
	b.raw = raw
	return true, nil
}

func (r *chatReply) startCall(b *block, s *startedBlock) (more bool) {
	b.call, b.input = r.calls, s.Input
	r.calls++
	call := llm.ToolCallDelta{Index: b.call, ID: s.ID, Type: llm.ToolFunction, Function: llm.FunctionCall{Name: s.Name}}
	if caller := own.IndirectCaller(s.Caller); caller != nil {
		call.Extra = llm.Extra{own.Member: own.Set(json.RawMessage("{}"), "caller", caller)}
	}
	return r.send(llm.Delta{ToolCalls: []llm.ToolCallDelta{call}})
}

func (r *chatReply) addText(text string) (more bool) {
	if text == "" {
		return true
	}
	r.text.chars += utf8.RuneCountInString(text)
	return r.send(llm.Delta{Content: text})
}

func (r *chatReply) addThinking(b *block, text string) (more bool, err error) {
	if text == "" {
		return true, nil
	}
	if err := r.keepText(b, text); err != nil {
		return false, err
	}
	return r.send(llm.Delta{Reasoning: text}), nil
}

// keep accounts for n bytes more that are kept until the end of a block.
func (r *chatReply) keep(b *block, n int) error {
	if r.kept+n > r.max {
		return r.errTooLarge()
	}
	b.kept += n
	r.kept += n
	return nil
}

func (r *chatReply) errTooLarge() error {
	return r.Invalid("a content block is too large, or those that are open together")
}

// keepText adds to the text of a block that is kept until its end.
func (r *chatReply) keepText(b *block, text string) error {
	if err := r.keep(b, len(text)); err != nil {
		return err
	}
	b.text = append(b.text, text...)
	return nil
}

// deltaTypes are the types of blocks by the types of the deltas that they have.
var deltaTypes = map[string]string{"text_delta": own.BlockText, "thinking_delta": own.BlockThinking, "signature_delta": own.BlockThinking}

// addDelta adds to a block. It returns false if nothing more is to be read.
func (r *chatReply) addDelta(index int, d *delta) (more bool, err error) {
	b := r.blocks[index]
	if b == nil {
		typ := deltaTypes[d.Type]
		if typ == "" {
			return true, nil // of a block that has not begun, and which it does not tell
		}
		if more, err = r.startBlock(index, json.RawMessage(`{"type":"`+typ+`"}`)); err != nil || !more {
			return more, err
		}
		b = r.blocks[index]
	}
	switch d.Type {
	case "text_delta":
		return r.addText(d.Text), nil
	case "thinking_delta":
		return r.addThinking(b, d.Thinking)
	case "signature_delta":
		if err := r.keep(b, len(d.Signature)); err != nil {
			return false, err
		}
		b.signature = append(b.signature, d.Signature...)
	case "citations_delta":
		if err := r.keep(b, len(d.Citation)); err != nil {
			return false, err
		}
		b.citations = append(b.citations, d.Citation)
	case "input_json_delta":
		switch {
		case d.PartialJSON == "":
		case b.typ == own.BlockCall:
			b.hasInput = true
			return r.addArguments(b, d.PartialJSON), nil
		default:
			return true, r.keepText(b, d.PartialJSON)
		}
	case "compaction_delta":
		if err := r.keep(b, len(d.Content)+len(d.Encrypted)); err != nil {
			return false, err
		}
		b.addCompaction(d)
	}
	return true, nil
}

// addCompaction sets what a delta has of a compaction.
func (b *block) addCompaction(d *delta) {
	for name, value := range map[string]json.RawMessage{"content": d.Content, "encrypted_content": d.Encrypted} {
		if b.raw != nil && hasValue(value) {
			b.raw = own.Set(b.raw, name, value)
		}
	}
}

func (r *chatReply) addArguments(b *block, arguments string) (more bool) {
	return r.send(llm.Delta{ToolCalls: []llm.ToolCallDelta{{Index: b.call, Function: llm.FunctionCall{Arguments: arguments}}}})
}

// stopBlock ends a block. It returns false if nothing more is to be read.
func (r *chatReply) stopBlock(index int) (more bool, err error) {
	b := r.blocks[index]
	if b == nil {
		return true, nil
	}
	delete(r.blocks, index)
	r.kept -= b.kept
	switch {
	case b.raw != nil:
		if len(b.text) > 0 && json.Valid(b.text) {
			b.raw = own.Set(b.raw, "input", b.text)
		}
		return r.sendOwn(b.raw), nil
	case b.typ == own.BlockText:
		return r.sendCitations(b), nil
	case b.typ == own.BlockThinking && len(b.signature) > 0:
		return r.send(llm.Delta{ReasoningDetails: []llm.ReasoningDetail{
			{Type: llm.ReasoningText, Text: string(b.text), Signature: string(b.signature)},
		}}), nil
	case b.typ == own.BlockCall && !b.hasInput:
		input := "{}"
		if hasValue(b.input) {
			input = string(b.input)
		}
		return r.addArguments(b, input), nil
	}
	return true, nil
}

// sendOwn yields what only package messages and this package know.
func (r *chatReply) sendOwn(elements ...json.RawMessage) (more bool) {
	return r.send(llm.Delta{Extra: llm.Extra{own.Member: rawMessages(elements...)}})
}

// sendCitations yields the citations of a text: those of web pages also as annotations, for clients of chat completions.
func (r *chatReply) sendCitations(b *block) (more bool) {
	if len(b.citations) == 0 {
		return true
	}
	var elements, annotations []json.RawMessage
	for _, raw := range b.citations {
		if !hasValue(raw) {
			continue
		}
		element, err := json.Marshal(own.Citation{Type: own.BlockCitation, Citation: raw})
		if err != nil {
			continue // a valid value has no error
		}
		elements = append(elements, element)
		var page struct {
			URL   string `json:"url"`
			Title string `json:"title"`
			Cited string `json:"cited_text"`
		}
		_ = json.Unmarshal(raw, &page) // another value is no page
		if strings.HasPrefix(page.URL, "http") {
			annotations = append(annotations, annotation(page.URL, page.Title, page.Cited, b.start, r.text.chars))
		}
	}
	extra := llm.Extra{own.Member: rawMessages(elements...)}
	if annotations != nil {
		extra["annotations"] = rawMessages(annotations...)
	}
	return r.send(llm.Delta{Extra: extra})
}

// annotation returns the annotation of chat completions for a citation of a web page.
func annotation(url, title, cited string, start, end int) json.RawMessage {
	raw, err := json.Marshal(map[string]any{"type": "url_citation", "url_citation": map[string]any{
		"url": url, "title": title, "content": cited, "start_index": start, "end_index": end,
	}})
	if err != nil {
		return json.RawMessage("null") // texts and numbers have no error
	}
	return raw
}
