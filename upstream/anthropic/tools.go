// Tools and the choice of one.

package anthropic

import (
	"encoding/json"
	"slices"

	own "github.com/llmhttp/llmhttp/internal/anthropic"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/llm"
)

// appendTools appends the tools and the choice among them. A chat that would lose all of its tools is refused, because
// the model would answer without what the client relies on.
func (e *encoder) appendTools() error {
	start := len(e.b)
	e.b = append(e.b, `,"tools":[`...)
	empty := len(e.b)
	sent := make(map[string]bool) // the functions that were appended
	for _, raw := range e.own.Tools {
		if own.TypeOf(raw) != "" {
			e.appendServerTool(empty, raw)
			continue
		}
		name := jsonwire.Text(own.Get(raw, "name"))
		if i := slices.IndexFunc(e.req.Tools, func(t llm.Tool) bool { return t.Function != nil && t.Function.Name == name }); i >= 0 && !sent[name] {
			sent[name] = true
			e.appendFunction(empty, &e.req.Tools[i], raw)
		}
	}
	for i := range e.req.Tools {
		t := &e.req.Tools[i]
		switch {
		case t.Type == llm.ToolFunction && t.Function != nil:
			if !sent[t.Function.Name] {
				e.appendFunction(empty, t, nil)
			}
		case own.IsServerTool(t.Type):
			raw, err := t.MarshalJSON()
			if err != nil {
				return err
			}
			e.appendServerTool(empty, raw)
		}
	}
	if len(e.b) == empty {
		e.b = e.b[:start]
		if c := e.req.ToolChoice; len(e.req.Tools) > 0 && (c == nil || c.Mode != llm.ToolChoiceNone) {
			return invalidParam("tools", "This model supports only functions, and not tools of the type '%s'.", jsonwire.Clip(e.req.Tools[0].Type, 64))
		}
		return nil
	}
	e.b = append(e.b, ']')
	e.appendToolChoice()
	return nil
}

// beginTool appends a comma unless a list that is empty at a length of e.b is that.
func (e *encoder) beginTool(empty int) {
	if len(e.b) > empty {
		e.b = append(e.b, ',')
	}
}

// appendServerTool appends a tool that Anthropic runs or defines.
func (e *encoder) appendServerTool(empty int, raw json.RawMessage) {
	if e.opts.OmitCacheControl {
		raw = own.Set(raw, "cache_control", nil)
	}
	e.beginTool(empty)
	e.b = append(e.b, raw...)
}

// appendFunction appends a function. entry has the members that an llm.Tool has no room for; it may be nil.
func (e *encoder) appendFunction(empty int, t *llm.Tool, entry json.RawMessage) {
	if !e.isAllowed(t.Function.Name) {
		return
	}
	f := t.Function
	e.beginTool(empty)
	e.b = jsonwire.AppendString(append(e.b, `{"name":`...), f.Name)
	if f.Description != "" {
		e.member("description")
		e.b = jsonwire.AppendString(e.b, f.Description)
	}
	e.member("input_schema")
	e.b = append(e.b, inputSchema(f.Parameters)...)
	if f.Strict != nil && *f.Strict {
		e.b = append(e.b, `,"strict":true`...)
	}
	members, _ := own.Members(entry)
	for _, m := range members {
		if m.Name != "name" && m.Name != memberCache {
			e.member(m.Name)
			e.b = append(e.b, m.Value...)
		}
	}
	e.appendCache(t.Extra)
	e.b = append(e.b, '}')
}

// inputSchema returns the schema of the arguments of a function. The API requires its type.
func inputSchema(parameters json.RawMessage) json.RawMessage {
	switch {
	case len(parameters) == 0 || string(parameters) == "null":
		return json.RawMessage(`{"type":"object","properties":{}}`)
	case own.Get(parameters, "type") == nil:
		return own.Set(parameters, "type", json.RawMessage(`"object"`))
	}
	return parameters
}

// isAllowed reports whether the tool choice allows a function. The API has no list of those that are allowed, so the others
// are not sent.
func (e *encoder) isAllowed(name string) bool {
	c := e.req.ToolChoice
	if c == nil || c.Mode != "" || c.AllowedTools == nil {
		return true
	}
	return slices.ContainsFunc(c.AllowedTools.Tools, func(t llm.AllowedTool) bool { return t.Function != nil && t.Function.Name == name })
}

// appendToolChoice appends the tool choice. The request has tools.
func (e *encoder) appendToolChoice() {
	if raw := e.own.Members["tool_choice"]; raw != nil {
		e.member("tool_choice")
		e.b = append(e.b, raw...)
		return
	}
	mode, name := "", ""
	if c := e.req.ToolChoice; c != nil {
		switch {
		case c.Mode != "":
			mode = c.Mode
		case c.AllowedTools != nil:
			mode = c.AllowedTools.Mode
		case c.Function != nil:
			mode, name = "tool", c.Function.Name
		}
	}
	single := e.req.ParallelToolCalls != nil && !*e.req.ParallelToolCalls
	switch {
	case mode == llm.ToolChoiceRequired:
		mode = "any"
	case mode == "" && single:
		mode = llm.ToolChoiceAuto
	case mode == "":
		return
	}
	e.member("tool_choice")
	e.b = jsonwire.AppendString(append(e.b, `{"type":`...), mode)
	if name != "" {
		e.member("name")
		e.b = jsonwire.AppendString(e.b, name)
	}
	if single && mode != llm.ToolChoiceNone {
		e.b = append(e.b, `,"disable_parallel_tool_use":true`...)
	}
	e.b = append(e.b, '}')
}
