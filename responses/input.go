package responses

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/llmhttp/llmhttp"
)

// The types of items that are translated. Of others only the text is used.
const (
	itemMessage         = "message"
	itemReasoning       = "reasoning"
	itemCall            = "function_call"
	itemCallOutput      = "function_call_output"
	itemCustom          = "custom_tool_call"
	itemCustomOutput    = "custom_tool_call_output"
	itemReference       = "item_reference"
	itemAdditionalTools = "additional_tools"
)

// An inputItem is an item of the input, as far as all items are alike.
type inputItem struct {
	Type string `json:"type"`
	ID   string `json:"id"`
	Role string `json:"role"`

	path string
	raw  jsontext.Value
}

// readInput sets the messages of the chat request: the instructions, the
// conversation that is continued, and the input.
func (p *protocol) readInput(ctx context.Context, r *request) error {
	c := &conversation{tools: r.tools, sealer: p.sealer, account: r.account}
	if text := r.body.Instructions; text != nil && *text != "" {
		c.add(llmhttp.Message{Role: llmhttp.RoleSystem, Content: llmhttp.Text(*text)})
	}
	if id := r.body.PreviousResponseID; id != nil {
		if err := p.addHistory(ctx, c, *id); err != nil {
			return err
		}
	}
	items, err := r.inputItems()
	if err != nil {
		return err
	}
	if err := p.resolve(ctx, r.account, items); err != nil {
		return err
	}
	for i := range items {
		if err := c.addItem(&items[i]); err != nil {
			return err
		}
	}
	r.chat.Messages = c.end()
	if p.stores(r) {
		r.items, err = storedInput(items)
	}
	return err
}

// inputItems returns the items of the input. A string is a message of the user.
func (r *request) inputItems() ([]inputItem, error) {
	raw := r.body.Input
	if isNull(raw) {
		return nil, nil
	}
	if raw.Kind() == '"' {
		message := append(append([]byte(`{"type":"message","role":"user","content":`), raw...), '}')
		return []inputItem{{Type: itemMessage, Role: "user", path: "input", raw: message}}, nil
	}
	if raw.Kind() != '[' {
		return nil, invalidType("input", "a string or an array of items")
	}
	values, err := elements(raw, "input")
	if err != nil {
		return nil, err
	}
	items := make([]inputItem, len(values))
	for i, v := range values {
		if items[i], err = newInputItem(v, index("input", i)); err != nil {
			return nil, err
		}
	}
	return items, nil
}

func newInputItem(raw jsontext.Value, path string) (inputItem, error) {
	item := inputItem{path: path, raw: raw}
	if err := decode(raw, path, &item); err != nil {
		return item, err
	}
	switch {
	case item.Type != "":
	case item.Role != "":
		item.Type = itemMessage
	case item.ID != "":
		item.Type = itemReference
	default:
		return item, missing(at(path, "type"))
	}
	return item, nil
}

// A conversation joins items to messages. Consecutive texts, calls and reasoning of
// the assistant become one message, because chat completions want all calls of a
// turn in one message, before the results.
type conversation struct {
	messages []llmhttp.Message
	open     bool // the last message is the assistant's and can be added to
	tools    *toolset
	sealer   *sealer
	account  string
}

// add appends a message that is not the assistant's.
func (c *conversation) add(m llmhttp.Message) {
	c.close()
	c.messages = append(c.messages, m)
}

// assistant returns the message of the assistant that is being joined.
func (c *conversation) assistant() *llmhttp.Message {
	if !c.open {
		c.open = true
		c.messages = append(c.messages, llmhttp.Message{Role: llmhttp.RoleAssistant})
	}
	return &c.messages[len(c.messages)-1]
}

// close ends the message of the assistant. One that has nothing but reasoning is
// dropped, because servers refuse it.
func (c *conversation) close() {
	if !c.open {
		return
	}
	c.open = false
	last := len(c.messages) - 1
	if m := &c.messages[last]; len(m.Content) == 0 && len(m.ToolCalls) == 0 && m.Refusal == "" {
		c.messages = c.messages[:last]
	}
}

func (c *conversation) end() []llmhttp.Message {
	c.close()
	return c.messages
}

func (c *conversation) addItem(item *inputItem) error {
	switch item.Type {
	case itemMessage:
		return c.addMessage(item)
	case itemReasoning:
		return c.addReasoning(item)
	case itemCall, itemCustom:
		return c.addCall(item)
	case itemCallOutput, itemCustomOutput:
		return c.addOutput(item)
	case itemAdditionalTools:
		var v struct {
			Tools list `json:"tools"`
		}
		if err := decode(item.raw, item.path, &v); err != nil {
			return err
		}
		return c.tools.addAll(v.Tools, at(item.path, "tools"), "")
	}
	return c.addUnknown(item)
}

func (c *conversation) addMessage(item *inputItem) error {
	var v struct {
		Content jsontext.Value `json:"content"`
	}
	if err := decode(item.raw, item.path, &v); err != nil {
		return err
	}
	role := llmhttp.Role(item.Role)
	switch role {
	case llmhttp.RoleUser, llmhttp.RoleSystem, llmhttp.RoleDeveloper, llmhttp.RoleAssistant:
	case "":
		return missing(at(item.path, "role"))
	default:
		return badRequest("invalid_value", at(item.path, "role"),
			"Invalid value for '%s'. Supported values are: 'user', 'assistant', 'system' and 'developer'.", at(item.path, "role"))
	}
	if isNull(v.Content) {
		return missing(at(item.path, "content"))
	}
	content, refusal, err := readContent(v.Content, at(item.path, "content"))
	if err != nil {
		return err
	}
	c.addContent(role, content, refusal)
	return nil
}

func (c *conversation) addContent(role llmhttp.Role, content llmhttp.Content, refusal string) {
	switch {
	case role == llmhttp.RoleAssistant:
		m := c.assistant()
		m.Content = append(m.Content, content...)
		m.Refusal += refusal
	case len(content) > 0:
		c.add(llmhttp.Message{Role: role, Content: content})
	}
}

// addUnknown adds the text of an item of another type, as messages between agents
// have it. An item without text is skipped.
func (c *conversation) addUnknown(item *inputItem) error {
	var v struct {
		Content jsontext.Value `json:"content"`
	}
	if decode(item.raw, item.path, &v) != nil || isNull(v.Content) {
		return nil
	}
	content, _, err := readContent(v.Content, at(item.path, "content"))
	content = slices.DeleteFunc(content, func(p llmhttp.Part) bool { return p.Type != llmhttp.PartText || p.Text == "" })
	if err != nil || len(content) == 0 {
		return nil
	}
	role := llmhttp.RoleUser
	if item.Role == string(llmhttp.RoleAssistant) {
		role = llmhttp.RoleAssistant
	}
	c.addContent(role, content, "")
	return nil
}

// addReasoning adds reasoning to the assistant's message that follows, or to the
// one that it belongs to.
func (c *conversation) addReasoning(item *inputItem) error {
	var v struct {
		Summary   list    `json:"summary"`
		Content   list    `json:"content"`
		Encrypted *string `json:"encrypted_content"`
	}
	if err := decode(item.raw, item.path, &v); err != nil {
		return err
	}
	r := new(sealedReasoning)
	if v.Encrypted != nil {
		if sealed, ok := c.sealer.open(c.account, *v.Encrypted); ok {
			r = sealed
		}
	}
	if r.Text == "" && r.Details == nil {
		parts, name := v.Summary, "summary"
		if len(parts) == 0 {
			parts, name = v.Content, "content"
		}
		var err error
		if r.Text, err = joinTexts(parts, at(item.path, name)); err != nil {
			return err
		}
	}
	if r.Text == "" && r.Details == nil {
		return nil
	}
	m := c.assistant()
	m.Reasoning = joinParagraphs(m.Reasoning, r.Text)
	m.ReasoningDetails = append(m.ReasoningDetails, r.Details...)
	return nil
}

// joinTexts returns the texts of parts as paragraphs.
func joinTexts(parts list, path string) (string, error) {
	var all string
	for i, raw := range parts {
		var part struct {
			Text string `json:"text"`
		}
		if err := decode(raw, index(path, i), &part); err != nil {
			return "", err
		}
		all = joinParagraphs(all, part.Text)
	}
	return all, nil
}

func joinParagraphs(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "\n\n" + b
}

func (c *conversation) addCall(item *inputItem) error {
	var v struct {
		CallID    string  `json:"call_id"`
		Name      string  `json:"name"`
		Namespace string  `json:"namespace"`
		Arguments *string `json:"arguments"`
		Input     *string `json:"input"`
	}
	if err := decode(item.raw, item.path, &v); err != nil {
		return err
	}
	call := llmhttp.ToolCall{ID: v.CallID, Type: toolFunction}
	call.Function.Name = c.tools.function(toolName{v.Namespace, v.Name})
	switch {
	case v.CallID == "":
		return missing(at(item.path, "call_id"))
	case v.Name == "":
		return missing(at(item.path, "name"))
	case item.Type == itemCall && v.Arguments == nil:
		return missing(at(item.path, "arguments"))
	case item.Type == itemCustom && v.Input == nil:
		return missing(at(item.path, "input"))
	case item.Type == itemCustom:
		call.Function.Arguments = wrapInput(*v.Input)
	default:
		call.Function.Arguments = *v.Arguments
	}
	m := c.assistant()
	m.ToolCalls = append(m.ToolCalls, call)
	return nil
}

func (c *conversation) addOutput(item *inputItem) error {
	var v struct {
		CallID string         `json:"call_id"`
		Output jsontext.Value `json:"output"`
	}
	if err := decode(item.raw, item.path, &v); err != nil {
		return err
	}
	switch {
	case v.CallID == "":
		return missing(at(item.path, "call_id"))
	case isNull(v.Output):
		return missing(at(item.path, "output"))
	}
	content, _, err := readContent(v.Output, at(item.path, "output"))
	if err != nil {
		return err
	}
	if len(content) == 0 {
		content = llmhttp.Text("")
	}
	c.add(llmhttp.Message{Role: llmhttp.RoleTool, ToolCallID: v.CallID, Content: content})
	return nil
}

// readContent returns content that is a string or an array of parts, and the
// refusals in it.
func readContent(raw jsontext.Value, path string) (content llmhttp.Content, refusal string, err error) {
	switch raw.Kind() {
	case '"':
		text, err := textOf(raw, path)
		return llmhttp.Text(text), "", err
	case '[':
	default:
		return nil, "", invalidType(path, "a string or an array of parts")
	}
	parts, err := elements(raw, path)
	if err != nil {
		return nil, "", err
	}
	for i, raw := range parts {
		part, text, err := readPart(raw, index(path, i))
		if err != nil {
			return nil, "", err
		}
		refusal += text
		if part != nil {
			content = append(content, *part)
		}
	}
	return content, refusal, nil
}

// A contentPart is a part of content.
type contentPart struct {
	Type     string         `json:"type"`
	Text     *string        `json:"text"`
	Refusal  *string        `json:"refusal"`
	ImageURL *string        `json:"image_url"`
	Detail   string         `json:"detail"`
	FileID   *string        `json:"file_id"`
	FileURL  *string        `json:"file_url"`
	FileData *string        `json:"file_data"`
	Filename *string        `json:"filename"`
	Audio    jsontext.Value `json:"input_audio"`
}

// readPart returns a part, or nil if it has another type and no text.
func readPart(raw jsontext.Value, path string) (part *llmhttp.Part, refusal string, err error) {
	var p contentPart
	if err := decode(raw, path, &p); err != nil {
		return nil, "", err
	}
	switch p.Type {
	case "":
		return nil, "", missing(at(path, "type"))
	case "refusal":
		if p.Refusal == nil {
			return nil, "", missing(at(path, "refusal"))
		}
		return nil, *p.Refusal, nil
	case "input_image":
		part, err = p.image(path)
		return part, "", err
	case "input_file":
		part, err = p.file(path)
		return part, "", err
	case "input_audio":
		if isNull(p.Audio) {
			return nil, "", missing(at(path, "input_audio"))
		}
		return &llmhttp.Part{Type: llmhttp.PartAudio, Extra: llmhttp.Extra{llmhttp.PartAudio: json.RawMessage(p.Audio)}}, "", nil
	case "input_text", "output_text", "text":
		if p.Text == nil {
			return nil, "", missing(at(path, "text"))
		}
	}
	if p.Text == nil {
		return nil, "", nil
	}
	return &llmhttp.Part{Type: llmhttp.PartText, Text: *p.Text}, "", nil
}

func (p *contentPart) image(path string) (*llmhttp.Part, error) {
	switch {
	case p.ImageURL != nil && *p.ImageURL != "":
		return &llmhttp.Part{Type: llmhttp.PartImage, ImageURL: &llmhttp.ImageURL{URL: *p.ImageURL, Detail: p.Detail}}, nil
	case p.FileID != nil:
		return nil, unsupported(at(path, "file_id"), "Files are not stored. Send the image as '%s', which can be a data: URL.", at(path, "image_url"))
	}
	return nil, missing(at(path, "image_url"))
}

// file returns a file. The Backend gets its members as they are.
func (p *contentPart) file(path string) (*llmhttp.Part, error) {
	if p.FileID == nil && p.FileURL == nil && p.FileData == nil {
		return nil, missing(at(path, "file_data"))
	}
	file, err := marshal(&struct {
		Filename *string `json:"filename,omitzero"`
		FileData *string `json:"file_data,omitzero"`
		FileID   *string `json:"file_id,omitzero"`
		FileURL  *string `json:"file_url,omitzero"`
	}{p.Filename, p.FileData, p.FileID, p.FileURL})
	if err != nil {
		return nil, err
	}
	return &llmhttp.Part{Type: llmhttp.PartFile, Extra: llmhttp.Extra{llmhttp.PartFile: file}}, nil
}
