package llmhttp

import (
	"encoding/json"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
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
	Extra    Extra     `json:"-"`
}

var toolJSON = jsonwire.NewObject(
	jsonwire.String("type", func(t *Tool) *string { return &t.Type }).Always(),
	jsonwire.Pointer("function", func(t *Tool) **Function { return &t.Function }, functionJSON),
	jsonwire.Extra(func(t *Tool) *Extra { return &t.Extra }),
)

// MarshalJSON encodes t.
func (t Tool) MarshalJSON() ([]byte, error) { return marshal(toolJSON, &t) }

// UnmarshalJSON decodes a tool.
func (t *Tool) UnmarshalJSON(data []byte) error { return unmarshalRequest(data, toolJSON, t) }

// A Function describes a function that the model may call.
type Function struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitzero"`
	Parameters  json.RawMessage `json:"parameters,omitzero"` // a JSON schema; nil if there are no parameters
	Strict      *bool           `json:"strict,omitzero"`     // whether calls must follow the schema; nil for the Backend's default
	Extra       Extra           `json:"-"`
}

var functionJSON = jsonwire.NewObject(
	jsonwire.String("name", func(f *Function) *string { return &f.Name }).Always(),
	jsonwire.String("description", func(f *Function) *string { return &f.Description }),
	jsonwire.Raw("parameters", func(f *Function) *json.RawMessage { return &f.Parameters }),
	jsonwire.OptionalBool("strict", func(f *Function) **bool { return &f.Strict }),
	jsonwire.Extra(func(f *Function) *Extra { return &f.Extra }),
)

// MarshalJSON encodes f.
func (f Function) MarshalJSON() ([]byte, error) { return marshal(functionJSON, &f) }

// UnmarshalJSON decodes a function.
func (f *Function) UnmarshalJSON(data []byte) error { return unmarshalRequest(data, functionJSON, f) }

// A ToolCall is a call the model asks for. The call of a tool of another Type
// than "function" is in Extra.
type ToolCall struct {
	ID       string       `json:"id,omitzero"`
	Type     string       `json:"type"` // "function" if empty
	Function FunctionCall `json:"function,omitzero"`
	Extra    Extra        `json:"-"`
}

var toolCallJSON = jsonwire.NewObject(
	jsonwire.String("id", func(c *ToolCall) *string { return &c.ID }),
	jsonwire.StringOr("type", func(c *ToolCall) *string { return &c.Type }, `"function"`),
	jsonwire.Struct("function", func(c *ToolCall) *FunctionCall { return &c.Function }, functionCallJSON).
		AlwaysIf(func(c *ToolCall) bool { return isFunction(c.Type) }),
	jsonwire.Extra(func(c *ToolCall) *Extra { return &c.Extra }),
)

// MarshalJSON encodes c.
func (c ToolCall) MarshalJSON() ([]byte, error) { return marshal(toolCallJSON, &c) }

// UnmarshalJSON decodes a tool call.
func (c *ToolCall) UnmarshalJSON(data []byte) error { return unmarshalRequest(data, toolCallJSON, c) }

// A FunctionCall is the function a [ToolCall] calls. Arguments is JSON as the
// model wrote it, which may be invalid.
type FunctionCall struct {
	Name      string `json:"name,omitzero"`
	Arguments string `json:"arguments"`
	Extra     Extra  `json:"-"`
}

var functionCallJSON = jsonwire.NewObject(
	jsonwire.String("name", func(f *FunctionCall) *string { return &f.Name }),
	jsonwire.String("arguments", func(f *FunctionCall) *string { return &f.Arguments }).Always(),
	jsonwire.Extra(func(f *FunctionCall) *Extra { return &f.Extra }),
)

// MarshalJSON encodes f.
func (f FunctionCall) MarshalJSON() ([]byte, error) { return marshal(functionCallJSON, &f) }

// UnmarshalJSON decodes a function call.
func (f *FunctionCall) UnmarshalJSON(data []byte) error {
	return unmarshalRequest(data, functionCallJSON, f)
}

func (t *Tool) check(i int) error {
	switch {
	case t.Type == "":
		return errMissing(elementPath("tools", i, "type"))
	case t.Type != toolFunction:
	case t.Function == nil:
		return errMissing(elementPath("tools", i, "function"))
	case t.Function.Name == "":
		return errMissing(elementPath("tools", i, "function.name"))
	case t.Function.Parameters != nil && t.Function.Parameters[0] != '{':
		return errBadRequest("invalid_type", elementPath("tools", i, "function.parameters"),
			"Invalid type for '%s': expected an object.", elementPath("tools", i, "function.parameters"))
	}
	return nil
}
