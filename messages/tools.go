// Tools and the choice of one.

package messages

import (
	"encoding/json"
	"slices"

	"github.com/llmhttp/llmhttp/llm"
)

// toolParams are the parameters about tools.
type toolParams struct {
	Tools      []tool      `json:"tools"`
	ToolChoice *toolChoice `json:"tool_choice"`
}

type tool struct {
	Type        string `json:"type"` // empty or "custom" for a tool with a schema
	Name        string `json:"name"`
	Description string `json:"description"`
	InputSchema *raw   `json:"input_schema"`
	Strict      *bool  `json:"strict"`
	cacheControl
}

type toolChoice struct {
	Type            string `json:"type"`
	Name            string `json:"name"`
	DisableParallel *bool  `json:"disable_parallel_tool_use"`
}

// convertTools sets the tools and the choice among them. A chat that would lose all of its
// tools is refused, because the model would answer without what the client relies on. isChat is false if they are kept.
func (p *toolParams) convertTools(req *llm.ChatRequest, isChat bool) error {
	if err := p.setTools(req); err != nil {
		return err
	}
	isUnused := p.ToolChoice != nil && p.ToolChoice.Type == "none"
	if isChat && len(p.Tools) > 0 && len(req.Tools) == 0 && !isUnused {
		return fieldError(
			"tools",
			"This server supports only tools with an input_schema, and not those of the type '%s'",
			clip(p.Tools[0].Type),
		)
	}
	return p.setToolChoice(req)
}

// setTools sets the tools that have a schema. The others are tools that Anthropic runs
// or defines.
func (p *toolParams) setTools(req *llm.ChatRequest) error {
	for i := range p.Tools {
		t := &p.Tools[i]
		var err error
		if t.Type == "" || t.Type == "custom" {
			err = t.addTo(req)
		}
		if err == nil {
			err = t.mark(lastToolExtra(req))
		}
		if err != nil {
			return prefixPath(err, "tools", i)
		}
	}
	return nil
}

// addTo adds a tool that has a schema.
func (t *tool) addTo(req *llm.ChatRequest) error {
	switch {
	case t.Name == "":
		return missingField("name")
	case t.InputSchema == nil:
		return missingField("input_schema")
	case t.InputSchema.Kind() != '{':
		return fieldError("input_schema", "Input should be an object")
	}
	req.Tools = append(req.Tools, llm.Tool{Type: "function", Function: &llm.Function{
		Name: t.Name, Description: t.Description, Parameters: json.RawMessage(*t.InputSchema), Strict: t.Strict,
	}})
	return nil
}

// setToolChoice sets the tool choice. It reads the tools that setTools has set.
func (p *toolParams) setToolChoice(req *llm.ChatRequest) error {
	c := p.ToolChoice
	if c == nil {
		return nil
	}
	if c.Type != "none" && c.Type != "auto" && len(p.Tools) == 0 {
		return fieldError("tool_choice", "may only be specified while providing tools")
	}
	var choice llm.ToolChoice
	switch c.Type {
	case "auto":
		choice.Mode = llm.ToolChoiceAuto
	case "none":
		choice.Mode = llm.ToolChoiceNone
	case "any":
		choice.Mode = llm.ToolChoiceRequired
	case "tool":
		if !slices.ContainsFunc(p.Tools, func(t tool) bool { return t.Name == c.Name }) {
			return fieldError("tool_choice.name", "Tool '%s' not found in provided tools", clip(c.Name))
		}
		choice.Type, choice.Function = "function", &llm.NamedTool{Name: c.Name}
	case "":
		return missingField("tool_choice.type")
	default:
		return fieldError("tool_choice.type", "Input should be 'auto', 'any', 'tool' or 'none'")
	}
	isPassedOn := func(t llm.Tool) bool { return t.Function.Name == c.Name }
	if len(req.Tools) == 0 || c.Type == "tool" && !slices.ContainsFunc(req.Tools, isPassedOn) {
		return nil // the choice is about tools that are not passed on
	}
	req.ToolChoice = &choice
	if c.DisableParallel != nil {
		parallel := !*c.DisableParallel
		req.ParallelToolCalls = &parallel
	}
	return nil
}
