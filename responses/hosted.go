// Items of the types for which there is no tool and no message in chat completions. None that tells a part
// of the conversation is ignored: the model would answer wrongly without anybody seeing why.

package responses

import (
	"cmp"
	"slices"

	"github.com/llmhttp/llmhttp/internal/invalid"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/llm"
)

// A hostedCall tells how the call of a hosted tool becomes the call of a function. Only conversations that
// were begun elsewhere have such calls.
type hostedCall struct {
	function  string   // its name; if empty, the item has it
	arguments string   // the member with the arguments
	output    []string // the first of these members that is not null is the output; nil if another item has it
}

// hostedCalls has the calls by the types of their items.
var hostedCalls = map[string]hostedCall{
	"mcp_call":              {"", "arguments", []string{"output", "error", "status"}},
	"file_search_call":      {"file_search", "queries", []string{"results", "status"}},
	"code_interpreter_call": {"code_interpreter", "code", []string{"outputs", "status"}},
	"image_generation_call": {"image_generation", "revised_prompt", []string{"status"}}, // an assistant's message has no image
	"local_shell_call":      {"local_shell", "action", nil},
	"shell_call":            {"shell", "action", nil},
	"apply_patch_call":      {"apply_patch", "operation", nil},
	"program":               {"program", "code", nil},
}

// hostedOutputs has, for the types of items with outputs of these calls, the members as in hostedCall.
var hostedOutputs = map[string][]string{
	"local_shell_call_output": {"output", "status"},
	"shell_call_output":       {"output", "status"},
	"apply_patch_call_output": {"output", "status"},
	"program_output":          {"result", "status"},
}

// withoutHistory has the types of items that tell nothing of the conversation that the model needs.
var withoutHistory = map[string]bool{
	"web_search_call":      true, // what was found is in the text that follows
	"tool_search_call":     true, // hosted tools are ignored, and so is what they do with tools
	"tool_search_output":   true,
	"mcp_list_tools":       true,
	"configuration_update": true, // of parameters
	"ghost_snapshot":       true, // of files, for Codex itself
}

// addOther adds an item whose type has no conversion of its own. Of an unknown type it takes the content,
// which a message between agents has.
func (c *conversation) addOther(item *inputItem) error {
	if call, ok := hostedCalls[item.Type]; ok {
		return c.addHostedCall(item, &call)
	}
	if members, ok := hostedOutputs[item.Type]; ok {
		return c.addHostedOutput(item, members)
	}
	if withoutHistory[item.Type] {
		id, err := item.callID()
		c.dropped[id] = true
		return err
	}
	if item.Content.IsNull() {
		return invalid.Param(
			"invalid_value",
			item.memberPath("type"),
			"The item '%s' has the type '%s', which is not supported, and no 'content' that could be used instead.",
			item.path,
			clip(item.Type),
		)
	}
	content, refusal, err := readContent(item.Content, item.memberPath("content"))
	if err != nil {
		return err
	}
	content = slices.DeleteFunc(content, func(p llm.Part) bool { return p.Type == llm.PartText && p.Text == "" })
	role := llm.RoleUser
	if item.Role == string(llm.RoleAssistant) {
		role = llm.RoleAssistant
	} else if refusal != "" {
		content = append(content, llm.Part{Type: llm.PartText, Text: refusal})
	}
	c.addContent(role, content, refusal)
	return nil
}

// addHostedCall adds the call of a hosted tool, and its output if the item has that.
func (c *conversation) addHostedCall(item *inputItem, h *hostedCall) error {
	id, members, err := item.hosted()
	if err != nil {
		return err
	}
	call := llm.ToolCall{ID: id, Type: toolFunction}
	call.Function.Name = h.function
	if h.function == "" {
		if members["name"].IsNull() {
			return invalid.Missing(item.memberPath("name"))
		}
		if call.Function.Name, err = decodeString(members["name"], item.memberPath("name")); err != nil {
			return err
		}
	}
	switch raw := members[h.arguments]; {
	case raw.IsNull():
		call.Function.Arguments = "{}"
	case raw.Kind() == '{':
		call.Function.Arguments = string(raw)
	case raw.Kind() == '"' && h.function == "": // is JSON already
		if call.Function.Arguments, err = decodeString(raw, item.memberPath(h.arguments)); err != nil {
			return err
		}
	default:
		call.Function.Arguments = `{"` + h.arguments + `":` + string(raw) + `}`
	}
	m := c.assistantMessage()
	m.ToolCalls = append(m.ToolCalls, call)
	c.calls[id] = id
	if item.ID != "" {
		c.calls[item.ID] = id
	}
	if h.output == nil {
		return nil
	}
	return c.appendHostedOutput(item, id, members, h.output)
}

// addHostedOutput adds the output of a call that another item has.
func (c *conversation) addHostedOutput(item *inputItem, names []string) error {
	id, members, err := item.hosted()
	if err != nil {
		return err
	}
	return c.appendHostedOutput(item, id, members, names)
}

// appendHostedOutput appends the first of the members names that is not null as the output of the call id.
func (c *conversation) appendHostedOutput(item *inputItem, id string, members map[string]jsonwire.Value, names []string) error {
	text := ""
	for _, name := range names {
		raw := members[name]
		if raw.IsNull() {
			continue
		}
		if text = string(raw); raw.Kind() == '"' {
			var err error
			if text, err = decodeString(raw, item.memberPath(name)); err != nil {
				return err
			}
		}
		break
	}
	return c.appendOutput(item, id, llm.TextContent(text))
}

// hosted returns the members of an item about a call, and the ID of the call. Items whose type has no
// call_id have an ID, and old ones neither.
func (item *inputItem) hosted() (id string, members map[string]jsonwire.Value, err error) {
	if err := item.decode(&members); err != nil {
		return "", nil, err
	}
	if id, err = item.callID(); err != nil {
		return "", nil, err
	}
	return cmp.Or(id, item.ID, item.path), members, nil
}
