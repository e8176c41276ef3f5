// The choice of a tool.

package responses

import (
	"slices"

	"github.com/llmhttp/llmhttp/internal/invalid"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/param"
	"github.com/llmhttp/llmhttp/llm"
)

// A toolChoice is a tool_choice that is an object.
type toolChoice struct {
	Type      string           `json:"type"`
	Name      string           `json:"name"`
	Namespace string           `json:"namespace"`
	Mode      string           `json:"mode"`
	Tools     []jsonwire.Value `json:"tools"`
}

// setTools sets the tools of the chat request and the choice among them.
func (r *request) setTools() error {
	c := r.chat
	c.Tools = r.tools.functions
	choice, err := r.convertToolChoice()
	if err != nil || len(c.Tools) == 0 {
		return err // without tools, servers refuse the parameters of tools
	}
	if r.compacts { // the tools remain, so that the prompt begins as in other requests, which servers cache
		c.ToolChoice = &llm.ToolChoice{Mode: llm.ToolChoiceNone}
		return nil
	}
	c.ToolChoice, c.ParallelToolCalls = choice, r.body.ParallelToolCalls
	return nil
}

// convertToolChoice returns the tool_choice of chat completions. It may drop tools.
func (r *request) convertToolChoice() (*llm.ToolChoice, error) {
	raw := r.body.ToolChoice
	if raw.IsNull() {
		return nil, nil
	}
	if raw.Kind() == '"' {
		mode, err := decodeString(raw, "tool_choice")
		if err != nil {
			return nil, err
		}
		return r.checkToolMode(mode, "tool_choice")
	}
	var choice toolChoice
	if err := decode(raw, "tool_choice", &choice); err != nil {
		return nil, err
	}
	switch choice.Type {
	case "":
		return nil, invalid.Missing("tool_choice.type")
	case toolFunction, toolCustom:
		function := r.tools.findFunction(&choice)
		if function == "" {
			return nil, invalid.Param("invalid_value", "tool_choice", "Tool choice '%s' not found in 'tools' parameter.", clip(choice.Name))
		}
		return &llm.ToolChoice{Type: toolFunction, Function: &llm.NamedTool{Name: function}}, nil
	case "allowed_tools":
		return r.allowTools(&choice)
	}
	return nil, invalid.Param("invalid_value", "tool_choice", "Hosted tools such as '%s' are not supported.", clip(choice.Type))
}

// findFunction returns the name of the function for a chosen tool, or "" if the request
// has no such tool. A choice without a namespace matches tools of every namespace.
func (s *toolset) findFunction(c *toolChoice) string {
	if f := s.functionNames[toolName{c.Namespace, c.Name}]; f != "" {
		return f
	}
	for i := range s.functions {
		f := s.functions[i].Function.Name
		if n := s.toolNames[f]; n.name == c.Name && c.Namespace == "" || f == c.Name {
			return f
		}
	}
	return ""
}

// allowTools drops the tools that are not in the list of the choice. Like findFunction, it
// finds tools by their names in the request and by the names of their functions.
func (r *request) allowTools(choice *toolChoice) (*llm.ToolChoice, error) {
	functions := make(map[string]bool) // allowed, by their names
	tools := make(map[string]bool)     // allowed in every namespace, by their names
	for i, raw := range choice.Tools {
		var c toolChoice
		if err := decode(raw, param.Path("tool_choice.tools", i, ""), &c); err != nil {
			return nil, err
		}
		if f := r.tools.functionNames[toolName{c.Namespace, c.Name}]; f != "" {
			functions[f] = true
			continue
		}
		functions[c.Name] = true
		if c.Namespace == "" {
			tools[c.Name] = true
		}
	}
	r.chat.Tools = slices.DeleteFunc(slices.Clone(r.chat.Tools), func(t llm.Tool) bool {
		f := t.Function.Name
		return !functions[f] && !tools[r.tools.toolNames[f].name]
	})
	if choice.Mode == "" {
		choice.Mode = llm.ToolChoiceAuto
	}
	return r.checkToolMode(choice.Mode, "tool_choice.mode")
}

// checkToolMode returns the choice with a mode, or an error if the mode is not valid.
func (r *request) checkToolMode(mode, param string) (*llm.ToolChoice, error) {
	switch mode {
	case llm.ToolChoiceRequired:
		if len(r.chat.Tools) == 0 {
			return nil, invalid.Param(
				"invalid_value",
				param,
				"Invalid value for '%s': 'required' needs a function in 'tools'. Hosted tools are not supported.",
				param,
			)
		}
	case llm.ToolChoiceNone, llm.ToolChoiceAuto:
	default:
		return nil, invalid.Param(
			"invalid_value",
			param,
			"Invalid value for '%s'. Supported values are: 'none', 'auto' and 'required'.",
			param,
		)
	}
	return &llm.ToolChoice{Mode: mode}, nil
}
