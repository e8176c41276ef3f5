// Tools, and what they become.

package responses

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/llmhttp/llmhttp/internal/invalid"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/param"
	"github.com/llmhttp/llmhttp/llm"
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
	functions     []llm.Tool
	functionNames map[toolName]string
	toolNames     map[string]toolName // by function name
	custom        map[string]bool     // names of the functions that stand for custom tools
}

func newToolset() *toolset {
	return &toolset{functionNames: make(map[toolName]string), toolNames: make(map[string]toolName), custom: make(map[string]bool)}
}

// A tool is an element of tools. A namespace contains other tools.
type tool struct {
	Type        string           `json:"type"`
	Name        string           `json:"name"`
	Description *string          `json:"description"`
	Parameters  jsonwire.Value   `json:"parameters"`
	Strict      *bool            `json:"strict"`
	Format      *toolFormat      `json:"format"`
	Tools       []jsonwire.Value `json:"tools"`
}

// A toolFormat is the format of the input of a custom tool.
type toolFormat struct {
	Type       string `json:"type"`
	Syntax     string `json:"syntax"`
	Definition string `json:"definition"`
}

// addAll adds the tools of a list.
func (s *toolset) addAll(tools []jsonwire.Value, path, namespace string) error {
	for i, raw := range tools {
		if err := s.addTool(raw, param.Path(path, i, ""), namespace); err != nil {
			return err
		}
	}
	return nil
}

func (s *toolset) addTool(raw jsonwire.Value, path, namespace string) error {
	var head struct {
		Type *string `json:"type"`
	}
	if err := decode(raw, path, &head); err != nil {
		return err
	}
	switch {
	case head.Type == nil:
		return invalid.Missing(memberPath(path, "type"))
	case *head.Type != toolFunction && *head.Type != toolCustom && (*head.Type != toolNamespace || namespace != ""):
		return nil // a hosted tool, whose other members may have other types
	}
	var t tool
	if err := decode(raw, path, &t); err != nil {
		return err
	}
	switch {
	case t.Name == "":
		return invalid.Missing(memberPath(path, "name"))
	case t.Type == toolNamespace:
		return s.addAll(t.Tools, memberPath(path, "tools"), t.Name)
	case !t.Parameters.IsNull() && t.Parameters.Kind() != '{':
		return invalidType(memberPath(path, "parameters"), "an object", t.Parameters)
	}
	return s.addFunction(&t, namespace)
}

// addFunction adds a function or a custom tool. A tool whose name is already in the set
// is dropped.
func (s *toolset) addFunction(t *tool, namespace string) error {
	name := toolName{namespace, t.Name}
	if s.functionNames[name] != "" {
		return nil
	}
	f := &llm.Function{Name: s.functionName(name), Strict: t.Strict}
	if s.toolNames[f.Name] != (toolName{}) {
		f.Name = shorten(f.Name, name)
	}
	s.toolNames[f.Name], s.functionNames[name], s.custom[f.Name] = name, f.Name, t.Type == toolCustom
	if t.Description != nil {
		f.Description = *t.Description
	}
	if !t.Parameters.IsNull() {
		f.Parameters = json.RawMessage(t.Parameters)
	}
	if t.Type == toolCustom {
		var err error
		if f.Parameters, err = t.Format.parameters(); err != nil {
			return err
		}
	}
	s.functions = append(s.functions, llm.Tool{Type: toolFunction, Function: f})
	return nil
}

// maxFunctionName is the length of the longest function name of OpenAI's API.
const maxFunctionName = 64

// functionName returns the name of the function for a tool. The tool need not be in the
// set, because only an earlier part of the conversation may use it.
func (s *toolset) functionName(n toolName) string {
	if f := s.functionNames[n]; f != "" {
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
	if n, ok := s.toolNames[function]; ok {
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
	if jsonwire.UnmarshalTags(arguments, &in, nil) != nil || in.Input == nil {
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
