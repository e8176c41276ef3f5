package llmhttp

import (
	"encoding/json"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// A Tool is something the model may call. Tools of another Type than
// "function" are whole in Extra.
type Tool struct {
	Type     string
	Function *Function
	Extra    Extra
}

// MarshalJSON encodes t.
func (t Tool) MarshalJSON() ([]byte, error) { return marshal(&t) }

// UnmarshalJSON decodes a tool.
func (t *Tool) UnmarshalJSON(data []byte) error { return unmarshal(data, t) }

func (t *Tool) encode(e *jsonwire.Encoder) {
	e.Token('{')
	e.Name("type")
	e.String(t.Type)
	if t.Function != nil {
		e.Name("function")
		t.Function.encode(e)
	}
	e.Extra(t.Extra, "type", "function")
	e.Token('}')
}

func (t *Tool) decode(d *jsonwire.Decoder) {
	for o := d.Object(); o.Next(); {
		switch string(o.Name) {
		case "type":
			t.Type = decodeToolType(d)
		case "function":
			if !d.Null() {
				t.Function = new(Function)
				t.Function.decode(d)
			}
		default:
			t.Extra.keep(d, o.Name)
		}
	}
}

const toolFunction = "function"

func decodeToolType(d *jsonwire.Decoder) string {
	if d.Null() {
		return ""
	}
	b := d.StringView()
	if string(b) == toolFunction {
		return toolFunction
	}
	return string(b)
}

// A Function describes a function that the model may call.
type Function struct {
	Name, Description string
	Parameters        json.RawMessage // a JSON schema; nil for none
	Extra             Extra
}

// MarshalJSON encodes f.
func (f Function) MarshalJSON() ([]byte, error) { return marshal(&f) }

// UnmarshalJSON decodes a function.
func (f *Function) UnmarshalJSON(data []byte) error { return unmarshal(data, f) }

func (f *Function) encode(e *jsonwire.Encoder) {
	e.Token('{')
	e.Name("name")
	e.String(f.Name)
	e.StringMember("description", f.Description)
	e.RawMember("parameters", f.Parameters)
	e.Extra(f.Extra, "name", "description", "parameters")
	e.Token('}')
}

func (f *Function) decode(d *jsonwire.Decoder) {
	for o := d.Object(); o.Next(); {
		switch string(o.Name) {
		case "name":
			f.Name = d.OptString()
		case "description":
			f.Description = d.OptString()
		case "parameters":
			f.Parameters = decodeRaw(d)
		default:
			f.Extra.keep(d, o.Name)
		}
	}
}

// decodeRaw reads a value as it is, or null, which is nil.
func decodeRaw(d *jsonwire.Decoder) json.RawMessage {
	if d.Null() {
		return nil
	}
	return d.Raw()
}

// A ToolCall is a call the model asks for. Calls of another Type than
// "function" are whole in Extra.
type ToolCall struct {
	ID       string
	Type     string // "function"; if empty, that is meant
	Function FunctionCall
	Extra    Extra
}

// A FunctionCall is the function a [ToolCall] calls. Arguments is JSON as the
// model wrote it: nothing ensures that it is valid.
type FunctionCall struct {
	Name, Arguments string
	Extra           Extra
}

// MarshalJSON encodes c.
func (c ToolCall) MarshalJSON() ([]byte, error) { return marshal(&c) }

// UnmarshalJSON decodes a tool call.
func (c *ToolCall) UnmarshalJSON(data []byte) error { return unmarshal(data, c) }

// isFunction reports whether a call of type typ is one of a function.
func isFunction(typ string) bool { return typ == "" || typ == toolFunction }

func (c *ToolCall) encode(e *jsonwire.Encoder) {
	e.Token('{')
	e.StringMember("id", c.ID)
	e.Name("type")
	typ := c.Type
	if typ == "" {
		typ = toolFunction
	}
	e.String(typ)
	if typ == toolFunction || !c.Function.isZero() {
		e.Name("function")
		c.Function.encode(e)
	}
	e.Extra(c.Extra, "id", "type", "function")
	e.Token('}')
}

func (c *ToolCall) decode(d *jsonwire.Decoder) {
	for o := d.Object(); o.Next(); {
		switch string(o.Name) {
		case "id":
			c.ID = d.OptString()
		case "type":
			c.Type = decodeToolType(d)
		case "function":
			c.Function.decode(d)
		default:
			c.Extra.keep(d, o.Name)
		}
	}
}

func (f *FunctionCall) isZero() bool {
	return f.Name == "" && f.Arguments == "" && len(f.Extra) == 0
}

func (f *FunctionCall) encode(e *jsonwire.Encoder) {
	e.Token('{')
	e.Name("name")
	e.String(f.Name)
	e.Name("arguments")
	e.String(f.Arguments)
	e.Extra(f.Extra, "name", "arguments")
	e.Token('}')
}

func (f *FunctionCall) decode(d *jsonwire.Decoder) {
	if d.Null() {
		return
	}
	for o := d.Object(); o.Next(); {
		switch string(o.Name) {
		case "name":
			f.Name = d.OptString()
		case "arguments":
			f.Arguments = d.OptString()
		default:
			f.Extra.keep(d, o.Name)
		}
	}
}

// MarshalJSON encodes f.
func (f FunctionCall) MarshalJSON() ([]byte, error) { return marshal(&f) }

// UnmarshalJSON decodes a function call.
func (f *FunctionCall) UnmarshalJSON(data []byte) error { return unmarshal(data, f) }
