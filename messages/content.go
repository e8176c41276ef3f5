package messages

import (
	"encoding/json"
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// A block is an element of content. Type decides which of the other fields is
// used; those whose JSON type depends on it are not decoded.
type block struct {
	Type string

	Text      string // of text
	Thinking  string // of thinking
	Signature string // of thinking

	ID    string // of tool_use
	Name  string // of tool_use
	Input raw    // of tool_use

	ToolUseID string // of tool_result
	IsError   bool   // of tool_result

	Title    raw // of document and search_result: a string
	Data     raw // of redacted_thinking: a string
	Source   raw // of image and document: an object; of search_result: a string
	Content  raw // of tool_result, search_result and compaction: a string or blocks
	ToolName raw // of tool_reference: a string
}

// A source is where the data of an image or document is.
type source struct {
	Type      string // base64, url, text, content or file
	MediaType string
	Data      string
	URL       string
	Content   raw // a string or blocks
}

// stringOf returns the text of a JSON string, or "" if v is another value.
func stringOf(v raw) (s string) {
	if v == nil || json.Unmarshal(v, &s) != nil {
		return ""
	}
	return s
}

// convertMessages converts the system prompt and the turns. Turns that follow each
// other with the same role become one.
func (p *params) convertMessages(req *llmhttp.ChatRequest) error {
	if p.System != nil {
		text, err := systemText(p.System)
		if err != nil {
			return within(err, "system")
		}
		appendSystem(req, text)
	}
	var current turnConverter
	for i := range p.Messages {
		t := &p.Messages[i]
		if t.Role != current.role {
			current.flush(req)
			current = turnConverter{role: t.Role}
		}
		if err := current.add(t, req); err != nil {
			return within(err, "messages", i)
		}
	}
	current.flush(req)
	if len(req.Messages) == 0 {
		return fieldError("messages", "at least one message is required")
	}
	return nil
}

// attribution begins a block that Claude Code puts into its system prompt. It
// changes with each request, so that no prompt cache would match.
const attribution = "x-anthropic-billing-header:"

// systemText returns the text of a system prompt.
func systemText(blocks content) (string, error) {
	var texts []string
	for i := range blocks {
		if blocks[i].Type != "text" {
			return "", within(fieldError("type", "Input should be 'text'"), i)
		}
		if text := blocks[i].Text; text != "" && !strings.HasPrefix(text, attribution) {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, "\n\n"), nil
}

func appendSystem(req *llmhttp.ChatRequest, text string) {
	if text != "" {
		req.Messages = append(req.Messages, llmhttp.Message{Role: llmhttp.RoleSystem, Content: llmhttp.Text(text)})
	}
}

// A turnConverter converts the turns of one role that follow each other.
type turnConverter struct {
	role      string
	results   []llmhttp.Message // of tools
	parts     llmhttp.Content
	assistant llmhttp.Message // all but its content
}

// add adds a turn. A system turn is appended to req at once.
func (c *turnConverter) add(t *turn, req *llmhttp.ChatRequest) error {
	var convert func(b *block) error
	switch t.Role {
	case "user":
		convert = c.addUser
	case "assistant":
		convert = c.addAssistant
	case "system":
		if t.Content == nil {
			return missing("content")
		}
		text, err := systemText(t.Content)
		appendSystem(req, text)
		return within(err, "content")
	case "":
		return missing("role")
	default:
		return fieldError("role", "Input should be 'user', 'assistant' or 'system'")
	}
	if t.Content == nil {
		return missing("content")
	}
	for i := range t.Content {
		if err := convert(&t.Content[i]); err != nil {
			return within(err, "content", i)
		}
	}
	return nil
}

// flush appends what was converted to req. The results of tools come first, right
// behind the calls.
func (c *turnConverter) flush(req *llmhttp.ChatRequest) {
	switch c.role {
	case "user":
		req.Messages = append(req.Messages, c.results...)
		if len(c.parts) > 0 || len(c.results) == 0 {
			req.Messages = append(req.Messages, llmhttp.Message{Role: llmhttp.RoleUser, Content: orEmptyText(c.parts)})
		}
	case "assistant":
		m := c.assistant
		m.Role, m.Content = llmhttp.RoleAssistant, c.parts
		if m.Content == nil && m.ToolCalls == nil {
			m.Content = llmhttp.Text("")
		}
		req.Messages = append(req.Messages, m)
	}
}

// orEmptyText returns parts, or an empty text if there are none.
func orEmptyText(parts llmhttp.Content) llmhttp.Content {
	if len(parts) == 0 {
		return llmhttp.Text("")
	}
	return parts
}

func (c *turnConverter) addUser(b *block) error {
	if b.Type != "tool_result" {
		parts, err := b.parts()
		c.parts = append(c.parts, parts...)
		return err
	}
	if b.ToolUseID == "" {
		return missing("tool_use_id")
	}
	m := llmhttp.Message{Role: llmhttp.RoleTool, ToolCallID: b.ToolUseID, IsError: b.IsError}
	if b.Content != nil {
		parts, err := contentParts(b.Content)
		if err != nil {
			return within(err, "content")
		}
		m.Content = parts
	}
	m.Content = orEmptyText(m.Content)
	c.results = append(c.results, m)
	return nil
}

func (c *turnConverter) addAssistant(b *block) error {
	m := &c.assistant
	switch b.Type {
	case "thinking":
		m.Reasoning += b.Thinking
		if b.Signature != "" {
			m.ReasoningDetails = append(m.ReasoningDetails, openSignature(b.Thinking, b.Signature))
		}
	case "redacted_thinking":
		m.ReasoningDetails = append(m.ReasoningDetails, openData(stringOf(b.Data)))
	case "tool_use":
		call, err := b.call()
		if err != nil {
			return err
		}
		m.ToolCalls = append(m.ToolCalls, call)
	default:
		parts, err := b.parts()
		c.parts = append(c.parts, parts...)
		return err
	}
	return nil
}

// call returns the call of a tool_use block.
func (b *block) call() (llmhttp.ToolCall, error) {
	call := llmhttp.ToolCall{ID: b.ID, Type: "function", Function: llmhttp.FunctionCall{Name: b.Name, Arguments: "{}"}}
	switch {
	case b.ID == "":
		return call, missing("id")
	case b.Name == "":
		return call, missing("name")
	case b.Input == nil:
		return call, nil
	case b.Input[0] != '{':
		return call, fieldError("input", "Input should be an object")
	}
	compact, err := jsonwire.AppendRaw(nil, b.Input)
	call.Function.Arguments = string(compact)
	return call, err
}

// contentParts converts content that has no blocks of tools.
func contentParts(content raw) (llmhttp.Content, error) {
	if content == nil {
		return nil, missing("")
	}
	blocks, err := decodeContent(content)
	if err != nil {
		return nil, err
	}
	var all llmhttp.Content
	for i := range blocks {
		parts, err := blocks[i].parts()
		if err != nil {
			return nil, within(err, i)
		}
		all = append(all, parts...)
	}
	return all, nil
}

// parts returns the parts that a block becomes. Empty texts and the blocks of tools
// that Anthropic runs become none.
func (b *block) parts() (llmhttp.Content, error) {
	switch b.Type {
	case "text":
		return textPart(b.Text), nil
	case "image":
		return b.imageParts()
	case "document":
		return b.documentParts()
	case "search_result":
		return b.searchResultParts()
	case "tool_reference":
		return textPart("Tool: " + stringOf(b.ToolName)), nil
	case "compaction":
		return textPart(stringOf(b.Content)), nil
	case "":
		return nil, missing("type")
	}
	if isServerBlock(b.Type) {
		return nil, nil
	}
	return nil, fieldError("type", "Input tag '%s' does not match any of the expected tags", clip(b.Type))
}

// isServerBlock reports whether blocks of a type belong to tools that Anthropic runs, or
// tell about the service.
func isServerBlock(typ string) bool {
	switch typ {
	case "server_tool_use", "mcp_tool_use", "container_upload", "fallback", "tool_addition", "tool_removal", "mcp_tool_listing":
		return true
	}
	return strings.HasSuffix(typ, "_tool_result")
}

func textPart(text string) llmhttp.Content {
	if text == "" {
		return nil
	}
	return llmhttp.Text(text)
}

func (b *block) decodeSource() (*source, error) {
	if b.Source == nil {
		return nil, missing("source")
	}
	s := new(source)
	if err := decode(b.Source, sourceObject, s); err != nil {
		return nil, within(err, "source")
	}
	switch {
	case s.Type == "":
		return nil, missing("source.type")
	case s.Type == "file":
		return nil, fieldError("source.type", "Uploaded files are not supported")
	case s.Type == "base64" && s.MediaType == "":
		return nil, missing("source.media_type")
	case (s.Type == "base64" || s.Type == "text") && s.Data == "":
		return nil, missing("source.data")
	case s.Type == "url" && s.URL == "":
		return nil, missing("source.url")
	}
	return s, nil
}

func (s *source) dataURL() string { return "data:" + s.MediaType + ";base64," + s.Data }

func (b *block) imageParts() (llmhttp.Content, error) {
	s, err := b.decodeSource()
	if err != nil {
		return nil, err
	}
	url := s.URL
	switch s.Type {
	case "base64":
		url = s.dataURL()
	case "url":
	default:
		return nil, fieldError("source.type", "Input should be 'base64', 'url' or 'file'")
	}
	return llmhttp.Content{{Type: llmhttp.PartImage, ImageURL: &llmhttp.ImageURL{URL: url}}}, nil
}

func (b *block) documentParts() (llmhttp.Content, error) {
	s, err := b.decodeSource()
	if err != nil {
		return nil, err
	}
	switch s.Type {
	case "text":
		return textPart(withTitle(stringOf(b.Title), s.Data)), nil
	case "content":
		parts, err := contentParts(s.Content)
		return parts, within(err, "source.content")
	case "base64":
		return b.filePart(s.dataURL()), nil
	case "url":
		return b.filePart(s.URL), nil
	}
	return nil, fieldError("source.type", "Input should be 'base64', 'text', 'content', 'url' or 'file'")
}

// filePart returns a part with a file, which is given by a URL.
func (b *block) filePart(url string) llmhttp.Content {
	name := stringOf(b.Title)
	if name == "" {
		name = "document.pdf"
	}
	file := mustMarshal(map[string]string{"filename": name, "file_data": url})
	return llmhttp.Content{{Type: llmhttp.PartFile, Extra: llmhttp.Extra{llmhttp.PartFile: file}}}
}

func withTitle(title, text string) string {
	if title == "" {
		return text
	}
	return title + "\n\n" + text
}

func (b *block) searchResultParts() (llmhttp.Content, error) {
	parts, err := contentParts(b.Content)
	if err != nil {
		return nil, within(err, "content")
	}
	title := strings.TrimSpace(stringOf(b.Title) + " " + stringOf(b.Source))
	return textPart(withTitle(title, parts.Text())), nil
}
