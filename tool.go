package llmhttp

import (
	"encoding/json"
)

// toolFunction is the Type of tools and calls that are functions.
const toolFunction = "function"

// isFunction reports whether a call of type typ is one of a function.
func isFunction(typ string) bool { return typ == "" || typ == toolFunction }

// A Tool is something the model may call. The description of a tool of another
// Type than "function" is in Extra.
type Tool struct {
	Type     string    `json:"type"`
	Function *Function `json:"function,omitzero"`
	Extra    Extra     `json:",embed"`
}

func (t *Tool) fields() any {
	type fields Tool
	return (*fields)(t)
}

// MarshalJSON encodes t.
func (t Tool) MarshalJSON() ([]byte, error) { return marshal(&t) }

// UnmarshalJSON decodes a tool.
func (t *Tool) UnmarshalJSON(data []byte) error { return unmarshalRequest(data, t) }

// A Function describes a function that the model may call.
type Function struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitzero"`
	Parameters  json.RawMessage `json:"parameters,omitzero"` // a JSON schema; nil if there are no parameters
	Strict      *bool           `json:"strict,omitzero"`     // whether calls must follow the schema; nil for the Backend's default
	Extra       Extra           `json:",embed"`
}

func (f *Function) fields() any {
	type fields Function
	return (*fields)(f)
}

func (f *Function) finish(*decoder) error {
	f.Parameters = optional(f.Parameters)
	return nil
}

// MarshalJSON encodes f.
func (f Function) MarshalJSON() ([]byte, error) { return marshal(&f) }

// UnmarshalJSON decodes a function.
func (f *Function) UnmarshalJSON(data []byte) error { return unmarshalRequest(data, f) }

// A ToolCall is a call the model asks for. The call of a tool of another Type
// than "function" is in Extra.
type ToolCall struct {
	ID       string       `json:"id,omitzero"`
	Type     string       `json:"type"` // "function" if empty
	Function FunctionCall `json:"function,omitzero"`
	Extra    Extra        `json:",embed"`
}

// A functionToolCall is a ToolCall that has a function, even if it is empty.
type functionToolCall struct {
	ID       string       `json:"id,omitzero"`
	Type     string       `json:"type"`
	Function FunctionCall `json:"function"`
	Extra    Extra        `json:",embed"`
}

func (c *ToolCall) fields() any {
	type fields ToolCall
	return (*fields)(c)
}

func (c *ToolCall) encoded() any {
	if !isFunction(c.Type) {
		return c.fields()
	}
	f := functionToolCall(*c)
	f.Type = toolFunction
	return &f
}

// MarshalJSON encodes c.
func (c ToolCall) MarshalJSON() ([]byte, error) { return marshal(&c) }

// UnmarshalJSON decodes a tool call.
func (c *ToolCall) UnmarshalJSON(data []byte) error { return unmarshalRequest(data, c) }

// A FunctionCall is the function a [ToolCall] calls. Arguments is JSON as the
// model wrote it, which may be invalid.
type FunctionCall struct {
	Name      string `json:"name,omitzero"`
	Arguments string `json:"arguments"`
	Extra     Extra  `json:",embed"`
}

func (f *FunctionCall) fields() any {
	type fields FunctionCall
	return (*fields)(f)
}

// MarshalJSON encodes f.
func (f FunctionCall) MarshalJSON() ([]byte, error) { return marshal(&f) }

// UnmarshalJSON decodes a function call.
func (f *FunctionCall) UnmarshalJSON(data []byte) error { return unmarshalRequest(data, f) }
