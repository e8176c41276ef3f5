// The turns of a conversation: messages of chat completions become turns of the user and the assistant.

package anthropic

import (
	"encoding/json"
	"strings"

	own "github.com/llmhttp/llmhttp/internal/anthropic"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/llm"
)

const (
	roleUser      = "user"
	roleAssistant = "assistant"
	roleSystem    = "system"
)

// appendMessages appends the system prompt and the turns. Messages that follow each other and belong to one role are one
// turn: the results of tools, and what the user says after them.
//
// Before the version 2026-10-21 the API has no messages of the role system, so all of them are in the system prompt, as in
// Anthropic's own API of chat completions (https://platform.claude.com/docs/en/api/openai-sdk).
func (e *encoder) appendMessages() error {
	messages := e.req.Messages
	inPlace := e.opts.Version >= versionSystemInPlace
	var system llm.Content
	began, turns := false, 0
	for i := range messages {
		m := &messages[i]
		switch {
		case !isSystem(m):
			began = true
			turns++
		case !began || !inPlace:
			system = append(system, m.Content...)
		}
	}
	if turns == 0 { // the API requires a turn
		inPlace, system = false, nil
	}
	if err := e.appendSystem(system); err != nil {
		return err
	}
	e.b = append(e.b, `,"messages":[`...)
	began = false
	for i := range messages {
		m := &messages[i]
		var err error
		switch {
		case !isSystem(m):
			began = true
			err = e.appendMessage(i, i == len(messages)-1)
		case turns == 0:
			err = e.appendContent(roleUser, i, m.Content)
		case began && inPlace:
			err = e.appendContent(roleSystem, i, m.Content)
		}
		if err != nil {
			return err
		}
	}
	e.closeTurn()
	e.b = append(e.b, ']')
	return nil
}

func isSystem(m *llm.Message) bool { return m.Role == llm.RoleSystem || m.Role == llm.RoleDeveloper }

// appendSystem appends the system prompt, which has texts only.
func (e *encoder) appendSystem(system llm.Content) error {
	if system.Text() == "" {
		return nil
	}
	e.member("system")
	if system.IsText() {
		e.b = jsonwire.AppendString(e.b, system.Text())
		return nil
	}
	e.b = append(e.b, '[')
	first := true
	for i := range system {
		p := &system[i]
		switch {
		case p.Type != llm.PartText:
			return invalidParam("messages", "The system prompt must be text, and not of the type '%s'.", jsonwire.Clip(p.Type, 64))
		case p.Text == "":
			continue
		case !first:
			e.b = append(e.b, ',')
		}
		first = false
		e.b = jsonwire.AppendString(append(e.b, `{"type":"text","text":`...), p.Text)
		e.appendCache(p.Extra)
		e.b = append(e.b, '}')
	}
	e.b = append(e.b, ']')
	return nil
}

// beginBlock begins a block of a turn, and the turn unless one of the role is open.
func (e *encoder) beginBlock(role string) {
	switch e.role {
	case role:
		e.b = append(e.b, ',')
		return
	case "":
	default:
		e.closeTurn()
		e.b = append(e.b, ',')
	}
	e.role = role
	e.b = jsonwire.AppendString(append(e.b, `{"role":`...), role)
	e.b = append(e.b, `,"content":[`...)
}

// closeTurn ends the turn that is open, if one is.
func (e *encoder) closeTurn() {
	if e.role != "" {
		e.b = append(e.b, "]}"...)
		e.role = ""
	}
}

// appendMessage appends message i. last says that it is the last one.
func (e *encoder) appendMessage(i int, last bool) error {
	m := &e.req.Messages[i]
	switch m.Role {
	case llm.RoleAssistant:
		return e.appendAssistant(m, last)
	case llm.RoleTool:
		return e.appendResult(i)
	case llm.RoleUser:
		return e.appendContent(roleUser, i, m.Content)
	}
	return invalidParam(messagePath(i, "role"), "Messages of the role '%s' are not supported by this model.", jsonwire.Clip(string(m.Role), 64))
}

// appendResult appends the result of a tool, message i.
func (e *encoder) appendResult(i int) error {
	m := &e.req.Messages[i]
	e.beginBlock(roleUser)
	e.b = jsonwire.AppendString(append(e.b, `{"type":"tool_result","tool_use_id":`...), toolID(m.ToolCallID))
	if m.IsError {
		e.b = append(e.b, `,"is_error":true`...)
	}
	content := m.Content
	var cache llm.Extra // the mark of the last part is that of the block: what is within it cannot be marked
	if n := len(content); n > 0 {
		cache = content[n-1].Extra
	}
	switch {
	case len(content) == 1 && content[0].Type == llm.PartText:
		if text := content[0].Text; text != "" {
			e.member("content")
			e.b = jsonwire.AppendString(e.b, text)
		}
	case len(content) > 0:
		e.member("content")
		if err := e.appendList(content, messagePath(i, "content")); err != nil {
			return err
		}
	}
	e.appendCache(cache)
	e.b = append(e.b, '}')
	return nil
}

// toolID returns an ID of a tool call as the API takes it: of letters, digits, underscores and hyphens. Other servers have
// IDs such as functions.f:0.
func toolID(id string) string {
	valid := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-'
	}
	return strings.Map(func(r rune) rune {
		if valid(r) {
			return r
		}
		return '_'
	}, id)
}

// An assistantTurn has what is left of a message of the assistant.
type assistantTurn struct {
	parts   llm.Content
	details []llm.ReasoningDetail
	calls   []llm.ToolCall
	trim    bool // no text follows, so the last one must not end in space
}

// appendAssistant appends a message of the assistant. Its blocks are in the order that the message has in Extra, if it came
// through package messages or from this package, and otherwise thinking, texts and calls. last says that it begins the reply.
func (e *encoder) appendAssistant(m *llm.Message, last bool) error {
	t := &assistantTurn{parts: m.Content, details: e.signed(m), calls: m.ToolCalls, trim: last && len(m.ToolCalls) == 0}
	var layout []json.RawMessage
	if raw := m.Extra[own.Member]; raw != nil {
		_ = json.Unmarshal(raw, &layout) // of another program
	}
	for _, raw := range layout {
		switch typ := own.TypeOf(raw); typ {
		case own.BlockText:
			e.appendTexts(t, 1, own.Get(raw, "citations"))
		case own.BlockThinking, own.BlockRedacted:
			e.appendThinking(t, 1)
		case own.BlockCall:
			e.appendCalls(t, 1, raw)
		case own.BlockCitation:
		default:
			if own.IsWhole(typ) {
				if typ == own.BlockCompaction {
					raw = t.withSummary(raw)
				}
				if e.opts.OmitCacheControl {
					raw = own.Set(raw, memberCache, nil)
				}
				e.beginBlock(roleAssistant)
				e.b = append(e.b, raw...)
			}
		}
	}
	e.appendThinking(t, len(t.details))
	e.appendTexts(t, len(t.parts), nil)
	if m.Refusal != "" {
		e.appendTexts(&assistantTurn{parts: llm.TextContent(m.Refusal)}, 1, nil)
	}
	e.appendCalls(t, len(t.calls), nil)
	return nil
}

// withSummary returns a compaction with its content, which is in the next part if the block has none.
func (t *assistantTurn) withSummary(block json.RawMessage) json.RawMessage {
	if own.Get(block, "content") != nil || len(t.parts) == 0 || t.parts[0].Type != llm.PartText {
		return block
	}
	text := t.parts[0].Text
	t.parts = t.parts[1:]
	return own.Set(block, "content", jsonwire.AppendString(nil, text))
}

// claudeFormat is the format of OpenRouter's details with signatures that the API takes.
const claudeFormat = "anthropic-claude-v1"

// signed returns the reasoning of a message that the server accepts: that with a signature and that which is encrypted, but not
// of other vendors, and with Options.UnsignedThinking that without a signature.
func (e *encoder) signed(m *llm.Message) []llm.ReasoningDetail {
	var list []llm.ReasoningDetail
	for _, d := range m.ReasoningDetails {
		if format := jsonwire.Text(d.Extra["format"]); format != "" && format != claudeFormat {
			continue
		}
		switch d.Type {
		case llm.ReasoningEncrypted:
			if d.Data != "" {
				list = append(list, d)
			}
		case llm.ReasoningText:
			if d.Signature != "" || e.opts.UnsignedThinking && d.Text != "" {
				list = append(list, d)
			}
		}
	}
	if list == nil && e.opts.UnsignedThinking && m.Reasoning != "" {
		list = []llm.ReasoningDetail{{Type: llm.ReasoningText, Text: m.Reasoning}}
	}
	return list
}

// appendThinking appends the next n pieces of reasoning.
func (e *encoder) appendThinking(t *assistantTurn, n int) {
	for ; n > 0 && len(t.details) > 0; n-- {
		d := &t.details[0]
		t.details = t.details[1:]
		e.beginBlock(roleAssistant)
		if d.Type == llm.ReasoningEncrypted {
			e.b = jsonwire.AppendString(append(e.b, `{"type":"redacted_thinking","data":`...), d.Data)
		} else {
			e.b = jsonwire.AppendString(append(e.b, `{"type":"thinking","thinking":`...), d.Text)
			if d.Signature != "" {
				e.member("signature")
				e.b = jsonwire.AppendString(e.b, d.Signature)
			}
		}
		e.b = append(e.b, '}')
	}
}

// appendTexts appends the next n parts. What is no text is left out: only servers of other formats send it. The
// API refuses empty texts, and one that ends in space where the reply goes on.
func (e *encoder) appendTexts(t *assistantTurn, n int, citations json.RawMessage) {
	for ; n > 0 && len(t.parts) > 0; n-- {
		p := &t.parts[0]
		t.parts = t.parts[1:]
		text := p.Text
		if p.Type == "refusal" {
			text = jsonwire.Text(p.Extra["refusal"])
		}
		if t.trim && len(t.parts) == 0 {
			text = strings.TrimRight(text, " \t\r\n")
		}
		if text == "" {
			continue
		}
		e.beginBlock(roleAssistant)
		e.b = jsonwire.AppendString(append(e.b, `{"type":"text","text":`...), text)
		if len(citations) > 0 {
			e.member("citations")
			e.b = append(e.b, citations...)
		}
		e.appendCache(p.Extra)
		e.b = append(e.b, '}')
	}
}

// appendCalls appends the next n calls of tools. Those of tools that are not functions are left out. block may have members that
// an llm.ToolCall has no room for; it may be nil.
func (e *encoder) appendCalls(t *assistantTurn, n int, block json.RawMessage) {
	for ; n > 0 && len(t.calls) > 0; n-- {
		c := &t.calls[0]
		t.calls = t.calls[1:]
		if c.Type != "" && c.Type != llm.ToolFunction {
			continue
		}
		e.beginBlock(roleAssistant)
		e.b = jsonwire.AppendString(append(e.b, `{"type":"tool_use","id":`...), toolID(c.ID))
		e.member("name")
		e.b = jsonwire.AppendString(e.b, c.Function.Name)
		e.member("input")
		input, _ := own.Input([]byte(c.Function.Arguments))
		e.b = append(e.b, input...)
		caller := own.CallerOf(c.Extra[own.Member])
		if raw := own.Get(block, "caller"); raw != nil {
			caller = raw
		}
		if caller != nil {
			e.member("caller")
			e.b = append(e.b, caller...)
		}
		e.appendCache(c.Extra)
		e.b = append(e.b, '}')
	}
}
