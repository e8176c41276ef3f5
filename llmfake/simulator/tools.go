// Tool calls.

package simulator

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmfake/simulator/internal/instance"
)

// allowedTools are the functions that a request allows, and whether they must be called.
type allowedTools struct {
	mode      string // see llm.ToolChoice
	functions []function
}

// A function is one of the tools of a request.
type function struct {
	name   string
	param  string // path of the schema in the request
	schema json.RawMessage
}

// toolsOf returns the functions that the tool_choice of req allows.
func toolsOf(req *llm.ChatRequest) allowedTools {
	t := allowedTools{mode: llm.ToolChoiceAuto}
	for i, tool := range req.Tools {
		if f := tool.Function; f != nil && f.Name != "" && tool.Type == "function" {
			t.functions = append(t.functions, function{f.Name, fmt.Sprintf("tools[%d].function.parameters", i), f.Parameters})
		}
	}
	if c := req.ToolChoice; c != nil {
		t.choose(c)
	}
	return t
}

// choose applies the tool_choice of a request.
func (t *allowedTools) choose(c *llm.ToolChoice) {
	if c.Mode != "" {
		t.mode = c.Mode
		return
	}
	var names []string
	switch {
	case c.Function != nil:
		t.mode, names = llm.ToolChoiceRequired, []string{c.Function.Name}
	case c.AllowedTools != nil:
		t.mode = cmp.Or(c.AllowedTools.Mode, llm.ToolChoiceAuto)
		for _, tool := range c.AllowedTools.Tools {
			if tool.Function != nil {
				names = append(names, tool.Function.Name)
			}
		}
	}
	t.functions = slices.DeleteFunc(t.functions, func(f function) bool { return !slices.Contains(names, f.name) })
}

// functionsToCall returns the functions that the reply calls: none, the first one, or
// all if the client asks for parallel calls.
func (t *allowedTools) functionsToCall(req *llm.ChatRequest) []function {
	if len(t.functions) == 0 || !t.mustCall(req.Messages) {
		return nil
	}
	if p := req.ParallelToolCalls; p != nil && *p {
		return t.functions
	}
	return t.functions[:1]
}

// mustCall reports whether the reply to messages is a call.
func (t *allowedTools) mustCall(messages []llm.Message) bool {
	switch {
	case t.mode == llm.ToolChoiceRequired:
		return true
	case t.mode == llm.ToolChoiceNone, len(messages) == 0:
		return false
	}
	return messages[len(messages)-1].Role == llm.RoleUser && toolResults(messages) == nil
}

// replyText returns the text of a reply to messages: the results of tools, or else
// the text of the user.
func (t *allowedTools) replyText(messages []llm.Message) string {
	if t.mode != llm.ToolChoiceNone && len(t.functions) > 0 {
		if results := toolResults(messages); results != nil {
			return "The tools say: " + strings.Join(results, "\n")
		}
	}
	return userText(messages)
}

// arguments returns arguments for a call of f that satisfy its schema.
func (f *function) arguments(text string) (string, error) {
	if f.schema == nil {
		return "{}", nil
	}
	object, err := instance.Make(f.schema, text, true)
	if err != nil {
		return "", invalidSchema("invalid_function_parameters", f.param, fmt.Sprintf("function '%.64s'", f.name), err)
	}
	return string(object), nil
}

// toolResults returns the texts of the results of tools since the last message of
// the assistant. Clients may send other messages after the results.
func toolResults(messages []llm.Message) []string {
	var results []string
	for i := range messages {
		switch m := &messages[i]; m.Role {
		case llm.RoleAssistant:
			results = nil
		case llm.RoleTool, llm.RoleFunction:
			results = append(results, m.Content.Text())
		}
	}
	return results
}

// callID returns the ID of a tool call of a choice. It is derived from the
// request ID, so that a test can make it predictable. Without a request ID it is
// random.
func callID(ctx context.Context, choice, call int) string {
	id := cmp.Or(llmhttp.RequestIDFrom(ctx), rand.Text())
	if call > 0 {
		id = fmt.Sprintf("%d %s", call, id)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", choice, id))
	return "call_" + hex.EncodeToString(sum[:12])
}
