// The types of messages and replies that are captured.

package otelllm

import (
	"encoding/json"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// Content has the messages and the tools of a chat. Its JSON follows the schemas of
// the conventions.
type Content struct {
	System    []Part    // the system instructions, if the protocol separates them from the messages
	Input     []Message // the messages of the request
	Output    []Message // a message for each choice of the reply
	Tools     []Tool    // that the model could call
	Truncated bool      // texts are missing, because Options.ContentLimit was reached
}

// A Message is an element of gen_ai.input.messages or gen_ai.output.messages.
type Message struct {
	Role         string `json:"role"`
	Name         string `json:"name,omitempty"`
	Parts        []Part `json:"parts"`
	FinishReason string `json:"finish_reason,omitempty"` // of a message of the reply
}

// A Part is a part of a message. The fields that are set depend on Type: "text",
// "reasoning", "tool_call", "tool_call_response", or "image", "audio" and "file",
// whose data is left out.
type Part struct {
	Type      string          `json:"type"`
	Content   string          `json:"content,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"` // a JSON string if the model did not write JSON
	Response  string          `json:"response,omitempty"`
}

// A Tool is an element of gen_ai.tool.definitions.
type Tool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name,omitempty"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
}

func newContent(t *llmhttp.Transcript, protocol string) *Content {
	c := &Content{Truncated: t.Truncated}
	messages := t.Messages
	// In chat completions, instructions are messages like others.
	for protocol != "chat" && len(messages) > 0 && isSystem(messages[0].Role) {
		c.System = append(c.System, parts(&messages[0])...)
		messages = messages[1:]
	}
	for i := range messages {
		c.Input = append(c.Input, newMessage(&messages[i]))
	}
	for i := range t.Choices {
		m := newMessage(&t.Choices[i].Message)
		m.FinishReason = finishReason(t.Choices[i].FinishReason)
		c.Output = append(c.Output, m)
	}
	for i := range t.Tools {
		from := &t.Tools[i]
		tool := Tool{Type: from.Type}
		if f := from.Function; f != nil {
			tool.Name, tool.Description, tool.Parameters = f.Name, f.Description, rawJSON(string(f.Parameters))
		}
		c.Tools = append(c.Tools, tool)
	}
	return c
}

func isSystem(role llm.Role) bool {
	return role == llm.RoleSystem || role == llm.RoleDeveloper
}

func newMessage(m *llm.Message) Message {
	role := string(m.Role)
	switch m.Role {
	case llm.RoleDeveloper:
		role = string(llm.RoleSystem)
	case llm.RoleFunction:
		role = string(llm.RoleTool)
	}
	return Message{Role: role, Name: m.Name, Parts: parts(m)}
}

// parts returns the parts of m. The result is not nil, because the schema requires
// an array.
func parts(m *llm.Message) []Part {
	if m.Role == llm.RoleTool || m.Role == llm.RoleFunction {
		return []Part{{Type: "tool_call_response", ID: m.ToolCallID, Response: m.Content.Text()}}
	}
	list := []Part{}
	if m.Reasoning != "" {
		list = append(list, Part{Type: "reasoning", Content: m.Reasoning})
	}
	for i := range m.Content {
		switch p := &m.Content[i]; p.Type {
		case llm.PartText:
			if p.Text != "" {
				list = append(list, Part{Type: "text", Content: p.Text})
			}
		case llm.PartImage:
			list = append(list, Part{Type: "image"})
		case llm.PartAudio:
			list = append(list, Part{Type: "audio"})
		default:
			list = append(list, Part{Type: p.Type})
		}
	}
	if m.Refusal != "" {
		list = append(list, Part{Type: "text", Content: m.Refusal})
	}
	for i := range m.ToolCalls {
		call := &m.ToolCalls[i]
		list = append(list, Part{Type: "tool_call", ID: call.ID, Name: call.Function.Name, Arguments: rawJSON(call.Function.Arguments)})
	}
	return list
}

// rawJSON returns text as JSON, or as a JSON string if it is something else.
func rawJSON(text string) json.RawMessage {
	switch {
	case text == "":
		return nil
	case json.Valid([]byte(text)):
		return json.RawMessage(text)
	}
	b, err := json.Marshal(text)
	if err != nil {
		return nil
	}
	return b
}

// finishReason returns the name that the conventions have for reason.
func finishReason(reason llm.FinishReason) string {
	switch reason {
	case llm.FinishToolCalls:
		return "tool_call"
	case "":
		return finishError
	}
	return string(reason)
}
