package responses

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/llmhttp/llmhttp"
)

// The types of tools that are passed to the Backend. All others are hosted tools, which
// OpenAI's service runs itself.
const (
	toolFunction  = "function"
	toolCustom    = "custom"
	toolNamespace = "namespace"
)

// A toolName is the name by which the client knows a tool.
type toolName struct{ namespace, name string }

// A toolset translates between the tools of the client and functions.
type toolset struct {
	functions []llmhttp.Tool
	names     map[string]toolName // function name to tool name
	custom    map[string]bool     // names of the functions that stand for custom tools
	byName    map[toolName]string // tool name to function name
}

func newToolset() *toolset {
	return &toolset{names: make(map[string]toolName), custom: make(map[string]bool), byName: make(map[toolName]string)}
}

// A tool is a tool of a request.
type tool struct {
	Type        string         `json:"type"`
	Name        string         `json:"name"`
	Description *string        `json:"description"`
	Parameters  jsontext.Value `json:"parameters"`
	Strict      *bool          `json:"strict"`
	Format      *toolFormat    `json:"format"`
	Tools       rawList        `json:"tools"`
}

// A toolFormat is the format of the input of a custom tool.
type toolFormat struct {
	Type       string `json:"type"`
	Syntax     string `json:"syntax"`
	Definition string `json:"definition"`
}

// addAll adds the tools of a list.
func (s *toolset) addAll(tools rawList, path, namespace string) error {
	for i, raw := range tools {
		if err := s.addTool(raw, elementPath(path, i), namespace); err != nil {
			return err
		}
	}
	return nil
}

func (s *toolset) addTool(raw jsontext.Value, path, namespace string) error {
	var head struct {
		Type *string `json:"type"`
	}
	if err := decode(raw, path, &head); err != nil {
		return err
	}
	switch {
	case head.Type == nil:
		return missingParam(memberPath(path, "type"))
	case *head.Type != toolFunction && *head.Type != toolCustom && (*head.Type != toolNamespace || namespace != ""):
		return nil // hosted
	}
	var t tool
	if err := decode(raw, path, &t); err != nil {
		return err
	}
	switch {
	case t.Name == "":
		return missingParam(memberPath(path, "name"))
	case t.Type == toolNamespace:
		return s.addAll(t.Tools, memberPath(path, "tools"), t.Name)
	case !isNull(t.Parameters) && t.Parameters.Kind() != '{':
		return invalidType(memberPath(path, "parameters"), "an object")
	}
	return s.addFunction(&t, namespace)
}

// addFunction adds a function or a custom tool. A tool whose name is already in the set
// is dropped.
func (s *toolset) addFunction(t *tool, namespace string) error {
	name := toolName{namespace, t.Name}
	if s.byName[name] != "" {
		return nil
	}
	f := &llmhttp.Function{Name: s.functionName(name), Strict: t.Strict}
	if s.names[f.Name] != (toolName{}) {
		f.Name = shorten(f.Name, name)
	}
	s.names[f.Name], s.byName[name], s.custom[f.Name] = name, f.Name, t.Type == toolCustom
	if t.Description != nil {
		f.Description = *t.Description
	}
	if !isNull(t.Parameters) {
		f.Parameters = json.RawMessage(t.Parameters)
	}
	if t.Type == toolCustom {
		var err error
		if f.Parameters, err = t.Format.parameters(); err != nil {
			return err
		}
	}
	s.functions = append(s.functions, llmhttp.Tool{Type: toolFunction, Function: f})
	return nil
}

// maxFunctionName is the length of the longest function name of OpenAI's API.
const maxFunctionName = 64

// functionName returns the name of the function for a tool. The tool need not be in the
// set, because only an earlier part of the conversation may use it.
func (s *toolset) functionName(n toolName) string {
	if f := s.byName[n]; f != "" {
		return f
	}
	if n.namespace == "" {
		return n.name
	}
	name := n.namespace + "__" + n.name
	if len(name) > maxFunctionName {
		return shorten(name, n)
	}
	return name
}

// shorten cuts the name of a function and appends a hash of the tool's name, which makes
// it unique.
func shorten(function string, n toolName) string {
	sum := sha256.Sum256([]byte(n.namespace + "\x00" + n.name))
	hash := "_" + hex.EncodeToString(sum[:4])
	return function[:min(len(function), maxFunctionName-len(hash))] + hash
}

// toolOf returns the tool that a function stands for.
func (s *toolset) toolOf(function string) (name toolName, custom bool) {
	if n, ok := s.names[function]; ok {
		return n, s.custom[function]
	}
	return toolName{name: function}, false
}

// A customInput has the arguments of a function that stands for a custom tool.
type customInput struct {
	Input *string `json:"input"`
}

// wrapInput returns arguments for a custom tool.
func wrapInput(input string) string {
	return string(append(appendString([]byte(`{"input":`), input), '}'))
}

// unwrapInput returns the input in the arguments of a custom tool. If the arguments do
// not match the schema of toolFormat.parameters, it returns them unchanged.
func unwrapInput(arguments string) string {
	var in customInput
	if jsonv2.Unmarshal([]byte(arguments), &in) != nil || in.Input == nil {
		return arguments
	}
	return *in.Input
}

// parameters returns the schema of the function that stands for a custom tool.
func (f *toolFormat) parameters() (json.RawMessage, error) {
	description := "The input of the tool as plain text."
	if f != nil && f.Definition != "" {
		description += " It must match this " + strings.TrimSpace(f.Syntax+" grammar") + ":\n" + f.Definition
	}
	return marshal(map[string]any{
		"type":                 "object",
		"properties":           map[string]any{"input": map[string]string{"type": "string", "description": description}},
		"required":             []string{"input"},
		"additionalProperties": false,
	})
}

// A toolChoice is a tool_choice that is an object.
type toolChoice struct {
	Type      string  `json:"type"`
	Name      string  `json:"name"`
	Namespace string  `json:"namespace"`
	Mode      string  `json:"mode"`
	Tools     rawList `json:"tools"`
}

// setTools sets the tools of the chat request and the choice among them.
func (r *request) setTools() error {
	c := r.chat
	c.Tools = r.tools.functions
	choice, err := r.convertToolChoice()
	if err != nil || len(c.Tools) == 0 {
		return err // without tools, servers refuse the parameters of tools
	}
	c.ToolChoice, c.ParallelToolCalls = choice, r.body.ParallelToolCalls
	return nil
}

// convertToolChoice returns the tool_choice of chat completions. It may drop tools.
func (r *request) convertToolChoice() (json.RawMessage, error) {
	raw := r.body.ToolChoice
	if isNull(raw) {
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
		return nil, missingParam("tool_choice.type")
	case toolFunction, toolCustom:
		function := r.tools.findFunction(&choice)
		if function == "" {
			return nil, badRequest("invalid_value", "tool_choice", "Tool choice '%s' not found in 'tools' parameter.", clip(choice.Name))
		}
		return marshal(map[string]any{"type": toolFunction, "function": map[string]string{"name": function}})
	case "allowed_tools":
		return r.allowTools(&choice)
	}
	return nil, badRequest("invalid_value", "tool_choice", "Hosted tools such as '%s' are not supported.", clip(choice.Type))
}

// findFunction returns the name of the function for a chosen tool, or "" if the request
// has no such tool. A choice without a namespace matches tools of every namespace.
func (s *toolset) findFunction(c *toolChoice) string {
	if f := s.byName[toolName{c.Namespace, c.Name}]; f != "" {
		return f
	}
	for i := range s.functions {
		f := s.functions[i].Function.Name
		if n := s.names[f]; n.name == c.Name && c.Namespace == "" || f == c.Name {
			return f
		}
	}
	return ""
}

// allowTools drops the tools that are not in the list of the choice.
func (r *request) allowTools(choice *toolChoice) (json.RawMessage, error) {
	allowed := make(map[string]bool)
	for i, raw := range choice.Tools {
		var c toolChoice
		if err := decode(raw, elementPath("tool_choice.tools", i), &c); err != nil {
			return nil, err
		}
		allowed[r.tools.findFunction(&c)] = true
	}
	r.chat.Tools = slices.DeleteFunc(slices.Clone(r.chat.Tools), func(t llmhttp.Tool) bool { return !allowed[t.Function.Name] })
	if choice.Mode == "" {
		choice.Mode = "auto"
	}
	return r.checkToolMode(choice.Mode, "tool_choice.mode")
}

// checkToolMode returns mode as JSON, or an error if it is not valid.
func (r *request) checkToolMode(mode, param string) (json.RawMessage, error) {
	switch mode {
	case "required":
		if len(r.chat.Tools) == 0 {
			return nil, badRequest("invalid_value", param, "Invalid value for '%s': 'required' needs a function in 'tools'. Hosted tools are not supported.", param)
		}
	case "none", "auto":
	default:
		return nil, badRequest("invalid_value", param, "Invalid value for '%s'. Supported values are: 'none', 'auto' and 'required'.", param)
	}
	return appendString(nil, mode), nil
}
