package llm

import (
	"bytes"
	"encoding/json"

	"github.com/llmhttp/llmhttp/internal/bounds"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/param"
)

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

// A Function describes a function that the model may call.
type Function struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitzero"`
	Parameters  json.RawMessage `json:"parameters,omitzero"` // an object that should be a JSON schema, which is not checked; nil if there are no parameters
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

// checkObject returns an error if raw is neither an object nor nil.
func checkObject(path string, raw json.RawMessage) error {
	if raw == nil || bytes.HasPrefix(bytes.TrimLeft(raw, " \t\r\n"), []byte("{")) {
		return nil
	}
	return param.Invalid("invalid_type", path, "Invalid type for '%s': expected an object.", path)
}

// The values of [ToolChoice.Mode] and [AllowedTools.Mode].
const (
	ToolChoiceNone     = "none"     // the model calls no tool
	ToolChoiceAuto     = "auto"     // the model decides whether it calls tools; the format's default if there are tools
	ToolChoiceRequired = "required" // the model calls at least one tool
)

// A ToolChoice says which tools the model may or must call. In JSON it is a string if Mode
// is set, and otherwise an object with the other fields.
type ToolChoice struct {
	// Mode is ToolChoiceNone, ToolChoiceAuto or ToolChoiceRequired. If it is not empty, the
	// other fields are not used.
	Mode string `json:"-"`

	// Type says which of the following fields is used: "function" and "custom" require a call
	// of one tool, and "allowed_tools" restricts the choice to some of them. Choices of other
	// types, which vendors add, are in Extra.
	Type         string        `json:"type"`
	Function     *NamedTool    `json:"function,omitzero"`      // with Type "function"
	Custom       *NamedTool    `json:"custom,omitzero"`        // with Type "custom"
	AllowedTools *AllowedTools `json:"allowed_tools,omitzero"` // with Type "allowed_tools"
	Extra        Extra         `json:"-"`
}

// The types of tools and choices that have a field.
const (
	ToolFunction = "function"
	ToolCustom   = "custom"
	toolsAllowed = "allowed_tools"
)

// toolChoiceObject has the members of a ToolChoice that is an object.
var toolChoiceObject = jsonwire.NewObject(
	jsonwire.String("type", func(c *ToolChoice) *string { return &c.Type }).Always(),
	jsonwire.Pointer("function", func(c *ToolChoice) **NamedTool { return &c.Function }, namedToolJSON).
		When(func(c *ToolChoice) bool { return c.Type == ToolFunction }),
	jsonwire.Pointer("custom", func(c *ToolChoice) **NamedTool { return &c.Custom }, namedToolJSON).
		When(func(c *ToolChoice) bool { return c.Type == ToolCustom }),
	jsonwire.Pointer("allowed_tools", func(c *ToolChoice) **AllowedTools { return &c.AllowedTools }, allowedToolsJSON).
		When(func(c *ToolChoice) bool { return c.Type == toolsAllowed }),
	jsonwire.Extra(func(c *ToolChoice) *Extra { return &c.Extra }),
).Discriminator("type", func(c *ToolChoice) *string { return &c.Type })

var toolChoiceJSON jsonwire.Type[ToolChoice] = toolChoiceType{}

type toolChoiceType struct{}

func (toolChoiceType) Decode(d *jsonwire.Decoder, c *ToolChoice) {
	switch d.Kind() {
	case '"':
		if c.Mode = d.String(); c.Mode == "" { // cannot be told from an object
			d.Fail(errToolMode("tool_choice", ""))
		}
	case '{':
		toolChoiceObject.Decode(d, c)
	default:
		d.Mismatch("one of a string or object")
	}
}

func (toolChoiceType) Append(b []byte, c *ToolChoice) ([]byte, error) {
	if c.Mode != "" {
		return jsonwire.AppendString(b, c.Mode), nil
	}
	return toolChoiceObject.Append(b, c)
}

func (toolChoiceType) IsZero(c *ToolChoice) bool { return c.Mode == "" && toolChoiceObject.IsZero(c) }

// MarshalJSON encodes c.
func (c ToolChoice) MarshalJSON() ([]byte, error) { return jsonwire.MarshalValue(toolChoiceJSON, &c) }

// UnmarshalJSON decodes a string or an object.
func (c *ToolChoice) UnmarshalJSON(data []byte) error {
	return param.UnmarshalRequest(data, toolChoiceJSON, c)
}

// check returns an *Error if the format does not allow c in a request with the given tools.
func (c *ToolChoice) check(tools []Tool) error {
	const path = "tool_choice"
	if c.Mode != "" {
		return checkToolMode(path, c.Mode, tools)
	}
	switch c.Type {
	case ToolFunction:
		if err := c.Function.check(path + ".function"); err != nil {
			return err
		}
		if !hasFunction(tools, c.Function.Name) {
			return param.Invalid(
				"invalid_value",
				path,
				"Tool choice 'function' not found in 'tools' parameter: '%s'.",
				param.Echo(c.Function.Name),
			)
		}
	case toolsAllowed:
		return c.AllowedTools.check(path+".allowed_tools", tools)
	}
	return checkToolType(path, c.Type, c.Custom)
}

func hasFunction(tools []Tool, name string) bool {
	for i := range tools {
		if f := tools[i].Function; f != nil && f.Name == name {
			return true
		}
	}
	return false
}

func errToolMode(path, mode string) *param.Error {
	return param.Value(path, mode, ToolChoiceNone, ToolChoiceAuto, ToolChoiceRequired)
}

func checkToolMode(path, mode string, tools []Tool) error {
	switch mode {
	case ToolChoiceNone, ToolChoiceAuto:
		return nil
	case ToolChoiceRequired:
		if len(tools) == 0 {
			return param.Invalid(
				"invalid_value",
				path,
				"Invalid value for '%s': 'tool_choice' is only allowed when 'tools' are specified.",
				path,
			)
		}
		return nil
	}
	return errToolMode(path, mode)
}

// checkToolType checks the type of a choice or of an allowed tool, and its name if it is a
// custom tool.
func checkToolType(path, typ string, custom *NamedTool) error {
	switch typ {
	case "":
		return param.Missing(path + ".type")
	case ToolCustom:
		return custom.check(path + ".custom")
	}
	return nil
}

// A NamedTool names one of the tools of a request.
type NamedTool struct {
	Name  string `json:"name"`
	Extra Extra  `json:"-"`
}

var namedToolJSON = jsonwire.NewObject(
	jsonwire.String("name", func(n *NamedTool) *string { return &n.Name }).Always(),
	jsonwire.Extra(func(n *NamedTool) *Extra { return &n.Extra }),
)

// MarshalJSON encodes n.
func (n NamedTool) MarshalJSON() ([]byte, error) { return jsonwire.MarshalValue(namedToolJSON, &n) }

// UnmarshalJSON decodes the name of a tool.
func (n *NamedTool) UnmarshalJSON(data []byte) error {
	return param.UnmarshalRequest(data, namedToolJSON, n)
}

func (n *NamedTool) check(path string) error {
	if n == nil || n.Name == "" {
		return param.Missing(path + ".name")
	}
	return nil
}

// AllowedTools are those tools of a request that the model may call.
type AllowedTools struct {
	Mode  string        `json:"mode,omitzero"` // as ToolChoice.Mode; ToolChoiceAuto if empty
	Tools []AllowedTool `json:"tools"`         // if it is empty, the model may call no tool
	Extra Extra         `json:"-"`
}

var allowedToolsJSON = jsonwire.NewObject(
	jsonwire.String("mode", func(a *AllowedTools) *string { return &a.Mode }),
	jsonwire.List("tools", func(a *AllowedTools) *[]AllowedTool { return &a.Tools }, allowedToolJSON, bounds.Tools).Always(),
	jsonwire.Extra(func(a *AllowedTools) *Extra { return &a.Extra }),
)

// MarshalJSON encodes a.
func (a AllowedTools) MarshalJSON() ([]byte, error) {
	return jsonwire.MarshalValue(allowedToolsJSON, &a)
}

// UnmarshalJSON decodes allowed tools.
func (a *AllowedTools) UnmarshalJSON(data []byte) error {
	return param.UnmarshalRequest(data, allowedToolsJSON, a)
}

func (a *AllowedTools) check(path string, tools []Tool) error {
	if a == nil {
		return param.Missing(path)
	}
	if a.Mode != "" {
		if err := checkToolMode(path+".mode", a.Mode, tools); err != nil {
			return err
		}
	}
	if len(a.Tools) > bounds.Tools {
		return param.LongArray(path+".tools", bounds.Tools, len(a.Tools))
	}
	for i := range a.Tools {
		if err := a.Tools[i].check(param.Path(path+".tools", i, "")); err != nil {
			return err
		}
	}
	return nil
}

// An AllowedTool is one of [AllowedTools]. Tools of other types than "function" and "custom"
// are described by Extra.
type AllowedTool struct {
	Type     string     `json:"type"`
	Function *NamedTool `json:"function,omitzero"` // with Type "function"
	Custom   *NamedTool `json:"custom,omitzero"`   // with Type "custom"
	Extra    Extra      `json:"-"`
}

var allowedToolJSON = jsonwire.NewObject(
	jsonwire.String("type", func(t *AllowedTool) *string { return &t.Type }).Always(),
	jsonwire.Pointer("function", func(t *AllowedTool) **NamedTool { return &t.Function }, namedToolJSON).
		When(func(t *AllowedTool) bool { return t.Type == ToolFunction }),
	jsonwire.Pointer("custom", func(t *AllowedTool) **NamedTool { return &t.Custom }, namedToolJSON).
		When(func(t *AllowedTool) bool { return t.Type == ToolCustom }),
	jsonwire.Extra(func(t *AllowedTool) *Extra { return &t.Extra }),
).Discriminator("type", func(t *AllowedTool) *string { return &t.Type })

// MarshalJSON encodes t.
func (t AllowedTool) MarshalJSON() ([]byte, error) { return jsonwire.MarshalValue(allowedToolJSON, &t) }

// UnmarshalJSON decodes an allowed tool.
func (t *AllowedTool) UnmarshalJSON(data []byte) error {
	return param.UnmarshalRequest(data, allowedToolJSON, t)
}

func (t *AllowedTool) check(path string) error {
	if t.Type == ToolFunction {
		return t.Function.check(path + ".function")
	}
	return checkToolType(path, t.Type, t.Custom)
}
