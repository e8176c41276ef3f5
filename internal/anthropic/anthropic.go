// Package anthropic has what packages messages and upstream/anthropic share, of which one speaks Anthropic's API to
// clients and the other to servers: how what chat completions have no form for travels between the two in the member
// "anthropic" of an Extra, and what other Backends do with it.
//
//   - That of a request is a Request.
//   - That of a message of the assistant is a list of the content blocks of the turn, in their order. The types text,
//     thinking, redacted_thinking and tool_use stand for the next part of the content, the next of the ReasoningDetails
//     and the next of the ToolCalls, so that what changes these changes the turn. Their other members are citations and
//     caller. All other blocks are as the server or the client sent them, but a compaction without content has that of
//     the next part.
//   - That of a Part is a Source, and that of a ToolCall or its delta a Call.
//   - That of a Delta is a list of blocks, as the server sent them, which follow what came before the Delta and precede
//     what comes after it, or of Citations.
package anthropic

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// Member is the name of the member.
const Member = "anthropic"

// A Request has the parameters of a request that chat completions have no form for.
type Request struct {
	// Tools are the tools in their order, if there are others than functions. Those without a type are the functions with
	// their names, and have the members that functions lack. The others are as the client sent them.
	Tools []json.RawMessage `json:"tools,omitempty"`

	Betas  []string `json:"betas,omitempty"`  // of the header Anthropic-Beta
	Effort bool     `json:"effort,omitempty"` // the client sent the ReasoningEffort as such, and it was not made of a budget

	// Members are parameters as the client sent them. The member "thinking" is null if the client sent none, but an effort.
	Members map[string]json.RawMessage `json:"members,omitempty"`
}

// Parameters lists the names of Request.Members. Left out are those that name another model or another account, which
// the rights of a key would not hold for, or that ask the server to keep the conversation.
var Parameters = []string{
	"tool_choice", "thinking", "output_config", "context_management", "container", "mcp_servers", "speed", "diagnostics", "compaction",
}

// A Source is at the first of the parts that are a document or a search result.
type Source struct {
	Block json.RawMessage `json:"block"`           // without what the parts have
	Parts int             `json:"parts"`           // how many there are, with the first
	Title bool            `json:"title,omitempty"` // the first is the title and no content
	Text  bool            `json:"text,omitempty"`  // the content is that of a source of the type text
}

// The types of blocks that stand for what a message has.
const (
	BlockText     = "text"
	BlockThinking = "thinking"
	BlockRedacted = "redacted_thinking"
	BlockCall     = "tool_use"
)

// BlockCompaction is the type of a block with the summary of what came before it.
const BlockCompaction = "compaction"

// BlockCitation is the type of an element that is a Citation and no block.
const BlockCitation = "citations_delta"

// A Call has what a ToolCall has no room for.
type Call struct {
	Caller json.RawMessage `json:"caller,omitempty"` // code that Anthropic runs
}

// CallerOf returns the caller in the member of the Extra of a ToolCall or its delta, or nil if the model itself has called.
func CallerOf(member json.RawMessage) json.RawMessage {
	if len(member) == 0 {
		return nil
	}
	var c Call
	_ = json.Unmarshal(member, &c) // another value has none
	return IndirectCaller(c.Caller)
}

// IndirectCaller returns caller, or nil if that says that the model itself has called, or nothing.
func IndirectCaller(caller json.RawMessage) json.RawMessage {
	if typ := TypeOf(caller); typ == "" || typ == "direct" {
		return nil
	}
	return caller
}

// A Citation is a citation of the text that came before it, as the server sent it. Its form is that of the delta in
// Anthropic's streams.
type Citation struct {
	Type     string          `json:"type"` // BlockCitation
	Citation json.RawMessage `json:"citation"`
}

// IsServerBlock reports whether blocks of a type belong to tools that Anthropic runs, or describe events of Anthropic's
// service.
func IsServerBlock(typ string) bool {
	switch typ {
	case "server_tool_use", "mcp_tool_use", "container_upload", "fallback", "tool_addition", "tool_removal", "mcp_tool_listing":
		return true
	}
	return strings.HasSuffix(typ, "_tool_result")
}

// IsWhole reports whether blocks of a type travel as they are in the member of a message or a Delta.
func IsWhole(typ string) bool { return IsServerBlock(typ) || typ == BlockCompaction }

// IsServerTool reports whether typ is the type of a tool that Anthropic runs or defines: a name and a date, such as
// web_search_20250305.
func IsServerTool(typ string) bool {
	const date = len("_20250305")
	n := len(typ) - date
	return n > 0 && typ[n] == '_' && strings.Trim(typ[n+1:], "0123456789") == ""
}

// TypeOf returns the member "type" of an object, or "" if it has none.
func TypeOf(object json.RawMessage) string {
	var v struct{ Type string }
	_ = json.Unmarshal(object, &v) // what is no object has no type
	return v.Type
}

const space = " \t\r\n"

// Input returns the input of a call with the given arguments. Arguments that are not a JSON object become the member
// INVALID_JSON of one, as Anthropic's page on fine-grained tool streaming suggests, and ok is false. They are never
// completed, because agents would run a command that was cut.
func Input(arguments []byte) (input []byte, ok bool) {
	trimmed := bytes.Trim(arguments, space)
	switch {
	case len(trimmed) == 0, string(trimmed) == "null":
		return []byte("{}"), true
	case trimmed[0] == '{' && json.Valid(trimmed):
		return trimmed, true
	}
	input = jsonwire.AppendString([]byte(`{"INVALID_JSON":`), string(arguments))
	return append(input, '}'), false
}

// Set returns object, a JSON object, with a member of another value, or with a member more at its end. The other members
// are as they were, in their order. What is no object is returned as it is.
func Set(object json.RawMessage, name string, value json.RawMessage) json.RawMessage {
	members, ok := Members(object)
	if !ok {
		return object
	}
	b, found := []byte{'{'}, false
	for i, m := range members {
		if m.Name == name {
			m.Value, found = value, true
		}
		if m.Value == nil {
			continue
		}
		if i > 0 && len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(jsonwire.AppendString(b, m.Name), ':'), m.Value...)
	}
	if !found && value != nil {
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(jsonwire.AppendString(b, name), ':'), value...)
	}
	return append(b, '}')
}

// Get returns the value of a member of object, or nil if there is none.
func Get(object json.RawMessage, name string) json.RawMessage {
	members, _ := Members(object)
	for _, m := range members {
		if m.Name == name {
			return m.Value
		}
	}
	return nil
}

// A NamedValue is a member of an object.
type NamedValue struct {
	Name  string
	Value json.RawMessage
}

// Members returns the members of a JSON object in their order. It reports false if the value is not an object.
func Members(object json.RawMessage) (list []NamedValue, ok bool) {
	d := json.NewDecoder(bytes.NewReader(object))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, false
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, false
		}
		var m NamedValue
		m.Name, _ = name.(string)
		if d.Decode(&m.Value) != nil {
			return nil, false
		}
		list = append(list, m)
	}
	_, err := d.Token()
	return list, err == nil
}
