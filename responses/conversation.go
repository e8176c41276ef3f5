// Items become messages.

package responses

import (
	"cmp"
	"strings"

	"github.com/llmhttp/llmhttp/internal/invalid"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/param"
	"github.com/llmhttp/llmhttp/llm"
)

// A conversation converts items to messages. Consecutive texts, calls and reasoning of
// the assistant become one message, because chat completions require all calls of a
// turn in one message, before the results.
type conversation struct {
	messages []llm.Message
	tools    *toolset
	sealer   *sealer
	account  string
	calls    map[string]string // the IDs of the calls so far, by the IDs with which outputs name them
	dropped  map[string]bool   // the call IDs of items that a summary replaces
	partial  bool              // not all items are known, so outputs need no call

	open      bool     // the last message is the assistant's, and items are added to it
	reasoning []string // of that message, in paragraphs
	refusals  []string // of that message
}

// appendMessage appends a message that is not the assistant's.
func (c *conversation) appendMessage(m llm.Message) {
	c.closeAssistant()
	c.messages = append(c.messages, m)
}

// assistantMessage returns the open message of the assistant. It appends one if none
// is open.
func (c *conversation) assistantMessage() *llm.Message {
	if !c.open {
		c.open = true
		c.messages = append(c.messages, llm.Message{Role: llm.RoleAssistant})
	}
	return &c.messages[len(c.messages)-1]
}

// closeAssistant closes the message of the assistant, if it is open. A message with
// only reasoning is dropped, because servers refuse it.
func (c *conversation) closeAssistant() {
	if !c.open {
		return
	}
	last := len(c.messages) - 1
	m := &c.messages[last]
	m.Reasoning, m.Refusal = strings.Join(c.reasoning, "\n\n"), strings.Join(c.refusals, "")
	c.open, c.reasoning, c.refusals = false, nil, nil
	if len(m.Content) == 0 && len(m.ToolCalls) == 0 && m.Refusal == "" {
		c.messages = c.messages[:last]
	}
}

// finish returns all messages.
func (c *conversation) finish() []llm.Message {
	c.closeAssistant()
	return c.messages
}

func (c *conversation) addItem(item *inputItem) error {
	switch item.Type {
	case itemMessage:
		return c.addMessageItem(item)
	case itemReasoning:
		return c.addReasoning(item)
	case itemCall, itemCustom:
		return c.addCall(item)
	case itemCallOutput, itemCustomOutput:
		return c.addOutput(item)
	case itemAdditionalTools:
		var v struct {
			Tools []jsonwire.Value `json:"tools"`
		}
		if err := item.decode(&v); err != nil {
			return err
		}
		return c.tools.addAll(v.Tools, item.memberPath("tools"), "")
	case itemReference: // is not loaded yet
		return nil
	}
	if item.isCompaction() {
		return c.addCompaction(item)
	}
	return c.addOther(item)
}

func (c *conversation) addMessageItem(item *inputItem) error {
	role := llm.Role(item.Role)
	switch role {
	case llm.RoleUser, llm.RoleSystem, llm.RoleDeveloper, llm.RoleAssistant:
	case "":
		return invalid.Missing(item.memberPath("role"))
	default:
		return invalid.Param("invalid_value", item.memberPath("role"),
			"Invalid value for '%s'. Supported values are: 'user', 'assistant', 'system' and 'developer'.", item.memberPath("role"))
	}
	if item.Content.IsNull() {
		return invalid.Missing(item.memberPath("content"))
	}
	content, refusal, err := readContent(item.Content, item.memberPath("content"))
	if err != nil {
		return err
	}
	c.addContent(role, content, refusal)
	return nil
}

func (c *conversation) addContent(role llm.Role, content llm.Content, refusal string) {
	switch {
	case role == llm.RoleAssistant:
		m := c.assistantMessage()
		m.Content = append(m.Content, content...)
		if refusal != "" {
			c.refusals = append(c.refusals, refusal)
		}
	case len(content) > 0:
		c.appendMessage(llm.Message{Role: role, Content: content})
	}
}

// addReasoning adds reasoning to the open message of the assistant, or to a new one.
func (c *conversation) addReasoning(item *inputItem) error {
	var v struct {
		Summary   []jsonwire.Value `json:"summary"`
		Content   []jsonwire.Value `json:"content"`
		Encrypted string           `json:"encrypted_content"`
	}
	if err := item.decode(&v); err != nil {
		return err
	}
	r := c.sealer.open(c.account, v.Encrypted)
	if r.Text == "" && r.Details == nil {
		parts, name := v.Summary, "summary"
		if len(parts) == 0 {
			parts, name = v.Content, "content"
		}
		var err error
		if r.Text, err = joinTexts(parts, item.memberPath(name)); err != nil {
			return err
		}
	}
	if r.Text == "" && r.Details == nil {
		return nil
	}
	m := c.assistantMessage()
	if r.Text != "" {
		c.reasoning = append(c.reasoning, r.Text)
		m.ReasoningAlias = m.ReasoningAlias || r.Alias
	}
	m.ReasoningDetails = append(m.ReasoningDetails, r.Details...)
	return nil
}

// joinTexts returns the texts of parts as paragraphs.
func joinTexts(parts []jsonwire.Value, path string) (string, error) {
	var texts []string
	for i, raw := range parts {
		var part struct {
			Text string `json:"text"`
		}
		if err := decode(raw, param.Path(path, i, ""), &part); err != nil {
			return "", err
		}
		if part.Text != "" {
			texts = append(texts, part.Text)
		}
	}
	return strings.Join(texts, "\n\n"), nil
}

func (c *conversation) addCall(item *inputItem) error {
	var v struct {
		CallID    string  `json:"call_id"`
		Name      string  `json:"name"`
		Namespace string  `json:"namespace"`
		Arguments *string `json:"arguments"`
		Input     *string `json:"input"`
	}
	if err := item.decode(&v); err != nil {
		return err
	}
	call := llm.ToolCall{ID: v.CallID, Type: toolFunction}
	call.Function.Name = c.tools.functionName(toolName{v.Namespace, v.Name})
	switch {
	case v.CallID == "":
		return invalid.Missing(item.memberPath("call_id"))
	case v.Name == "":
		return invalid.Missing(item.memberPath("name"))
	case item.Type == itemCall && v.Arguments == nil:
		return invalid.Missing(item.memberPath("arguments"))
	case item.Type == itemCustom && v.Input == nil:
		return invalid.Missing(item.memberPath("input"))
	case item.Type == itemCustom:
		call.Function.Arguments = wrapInput(*v.Input)
	default:
		call.Function.Arguments = *v.Arguments
	}
	m := c.assistantMessage()
	m.ToolCalls = append(m.ToolCalls, call)
	c.calls[v.CallID] = v.CallID
	return nil
}

// addOutput adds the output of a call. Codex also sends outputs that no call asked for,
// without a call_id. They become messages of the user, because a tool message needs an ID,
// and servers refuse instructions in mid-conversation. So do outputs of calls that a summary replaces.
func (c *conversation) addOutput(item *inputItem) error {
	id, err := item.callID()
	if err != nil {
		return err
	}
	if item.Output.IsNull() {
		return invalid.Missing(item.memberPath("output"))
	}
	content, _, err := readContent(item.Output, item.memberPath("output"))
	if err != nil {
		return err
	}
	return c.appendOutput(item, id, content)
}

// appendOutput appends the output of the call that the ID names. Some Backends use IDs again, so that it may also
// be that of a call that was dropped.
func (c *conversation) appendOutput(item *inputItem, id string, content llm.Content) error {
	call, ok := c.calls[id]
	if id == "" || !ok && c.dropped[id] {
		c.addContent(llm.RoleUser, content, "")
		return nil
	}
	if !ok && !c.partial && item.path != historyPath {
		return invalid.Param("", item.memberPath("call_id"), "No tool call found for function call output with call_id %s.", clip(id))
	}
	if len(content) == 0 {
		content = llm.TextContent("")
	}
	c.appendMessage(llm.Message{Role: llm.RoleTool, ToolCallID: cmp.Or(call, id), Content: content})
	return nil
}

// callID returns the call_id of an output, or "" if it has none.
func (item *inputItem) callID() (string, error) {
	if item.CallID.IsNull() {
		return "", nil
	}
	id, err := decodeString(item.CallID, item.memberPath("call_id"))
	if err == nil && id == "" {
		err = invalid.Missing(item.memberPath("call_id"))
	}
	return id, err
}
