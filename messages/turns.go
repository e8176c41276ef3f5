// The turns of a conversation, and the messages that they become.

package messages

import (
	"strings"

	"github.com/llmhttp/llmhttp/internal/anthropic"
	"github.com/llmhttp/llmhttp/internal/promptcache"
	"github.com/llmhttp/llmhttp/llm"
)

// convertMessages converts the system prompt and the turns. Turns that follow each
// other with the same role become one.
func (p *params) convertMessages(req *llm.ChatRequest) error {
	if p.System != nil {
		prompt, err := systemContent(p.System)
		if err != nil {
			return prefixPath(err, "system")
		}
		appendSystem(req, prompt)
	}
	var current turnConverter
	for i := range p.Messages {
		t, kept := &p.Messages[i], p.kept.keptTurn(i)
		if t.Role != current.role {
			current.flush(req)
			current = turnConverter{role: t.Role}
		}
		current.kept.turn, current.kept.on = kept.turn, kept.on
		if err := current.add(t, req); err != nil {
			return prefixPath(err, "messages", i)
		}
	}
	current.flush(req)
	if len(req.Messages) == 0 {
		return fieldError("messages", "at least one message is required")
	}
	return nil
}

// attributionPrefix begins a block that Claude Code adds to its system prompt. The
// block is left out, because it differs in each request and so defeats prompt caches.
const attributionPrefix = "x-anthropic-billing-header:"

// systemContent returns a system prompt, or nil if it is empty: its paragraphs as one text or, if one of
// them is marked for the cache, as parts.
func systemContent(blocks content) (llm.Content, error) {
	var paragraphs llm.Content
	for i := range blocks {
		b := &blocks[i]
		if b.Type != "text" {
			return nil, prefixPath(fieldError("type", "Input should be 'text'"), i)
		}
		if b.Text == nil {
			return nil, prefixPath(missingField("text"), i)
		}
		if text := *b.Text; text != "" && !strings.HasPrefix(text, attributionPrefix) {
			paragraphs = append(paragraphs, llm.Part{Type: llm.PartText, Text: text})
		}
		if err := b.mark(lastExtra(paragraphs)); err != nil {
			return nil, prefixPath(err, i)
		}
	}
	return promptcache.Join(paragraphs), nil
}

func appendSystem(req *llm.ChatRequest, prompt llm.Content) {
	if prompt != nil {
		req.Messages = append(req.Messages, llm.Message{Role: llm.RoleSystem, Content: prompt})
	}
}

// A turnConverter converts the turns of one role that follow each other.
type turnConverter struct {
	role      string
	results   []llm.Message // results of tools, in turns of the user
	parts     llm.Content
	assistant llm.Message // the assistant's message without its content and reasoning
	reasoning []string    // of that message
	kept      keptBlocks
}

// add adds a turn. A system turn is appended to req at once.
func (c *turnConverter) add(t *turn, req *llm.ChatRequest) error {
	var convert func(b *block) error
	switch t.Role {
	case "user":
		convert = c.addUser
	case "assistant":
		convert = c.addAssistant
	case "system":
		if t.Content == nil {
			return missingField("content")
		}
		prompt, err := systemContent(t.Content)
		appendSystem(req, prompt)
		return prefixPath(err, "content")
	case "":
		return missingField("role")
	default:
		return fieldError("role", "Input should be 'user', 'assistant' or 'system'")
	}
	if t.Content == nil {
		return missingField("content")
	}
	for i := range t.Content {
		before := c.counts()
		if err := convert(&t.Content[i]); err != nil {
			return prefixPath(err, "content", i)
		}
		c.keepBlock(&t.Content[i], i, before)
	}
	return nil
}

func (c *turnConverter) addUser(b *block) error {
	if b.Type != "tool_result" {
		return c.addParts(b)
	}
	if b.ToolUseID == nil || *b.ToolUseID == "" {
		return missingField("tool_use_id")
	}
	m := llm.Message{Role: llm.RoleTool, ToolCallID: *b.ToolUseID, IsError: b.IsError}
	if b.Content != nil {
		parts, err := contentParts(b.Content, (*block).parts)
		if err != nil {
			return prefixPath(err, "content")
		}
		m.Content = parts
	}
	m.Content = orEmptyText(m.Content)
	c.results = append(c.results, m)
	return b.mark(lastExtra(m.Content))
}

// addParts adds a block that becomes parts of the content, or nothing.
func (c *turnConverter) addParts(b *block) error {
	parts, err := b.parts()
	if err != nil {
		return err
	}
	c.parts = append(c.parts, parts...)
	if len(parts) == 0 {
		if c.kept.on && anthropic.IsWhole(b.Type) {
			return nil // the block is kept with its mark
		}
		return b.mark(c.lastExtra())
	}
	return b.mark(lastExtra(c.parts))
}

func (c *turnConverter) addAssistant(b *block) error {
	m := &c.assistant
	switch b.Type {
	case "thinking":
		if b.Thinking == nil {
			return missingField("thinking")
		}
		c.reasoning = append(c.reasoning, *b.Thinking)
		switch b.Signature {
		case "":
		case aliasSignature:
			m.ReasoningAlias = true
		default:
			m.ReasoningDetails = append(m.ReasoningDetails, detailFromSignature(*b.Thinking, b.Signature))
		}
	case "redacted_thinking":
		m.ReasoningDetails = append(m.ReasoningDetails, detailFromData(stringValue(b.Data)))
	case "tool_use":
		call, err := b.toolCall()
		if err != nil {
			return err
		}
		m.ToolCalls = append(m.ToolCalls, call)
	default:
		return c.addParts(b)
	}
	return b.mark(c.lastExtra())
}

// flush appends the converted turns to req. The results of tools come first, so that
// they follow the calls directly.
func (c *turnConverter) flush(req *llm.ChatRequest) {
	switch c.role {
	case "user":
		req.Messages = append(req.Messages, c.results...)
		if len(c.parts) > 0 || len(c.results) == 0 {
			req.Messages = append(req.Messages, llm.Message{Role: llm.RoleUser, Content: orEmptyText(c.parts)})
		}
	case "assistant":
		m := c.assistant
		m.Role, m.Content, m.Reasoning = llm.RoleAssistant, c.parts, strings.Join(c.reasoning, "")
		if m.Content == nil && m.ToolCalls == nil {
			m.Content = llm.TextContent("")
		}
		c.kept.setMessage(&m)
		req.Messages = append(req.Messages, m)
	}
}

// orEmptyText returns parts, or an empty text if there are none.
func orEmptyText(parts llm.Content) llm.Content {
	if len(parts) == 0 {
		return llm.TextContent("")
	}
	return parts
}
