// Package notes has the tools of the agents beside it: the weather, and facts that a conversation remembers.
package notes

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/llmhttp/llmhttp/agent"
	"github.com/llmhttp/llmhttp/llm"
)

// Tools are the tools as a model gets them.
var Tools = []llm.Tool{
	function("forecast", "The weather in a city", "city"),
	function("note", "Keeps a fact for later turns of the conversation", "fact"),
}

// function returns a tool whose arguments are one text.
func function(name, description, argument string) llm.Tool {
	schema := fmt.Appendf(nil, `{"type": "object", "properties": {%[1]q: {"type": "string"}}, "required": [%[1]q]}`, argument)
	return llm.Tool{Type: llm.ToolFunction, Function: &llm.Function{Name: name, Description: description, Parameters: schema}}
}

// Notes are the state of a conversation. Their methods may be called concurrently.
type Notes struct {
	mu    sync.Mutex // guards texts
	texts []string
}

// Call carries out a call of one of the tools, and shows it.
func (n *Notes) Call(ctx context.Context, call llm.ToolCall) (llm.Message, error) {
	if err := agent.Progress(ctx, fmt.Sprintf("Calling %s %s\n", call.Function.Name, call.Function.Arguments)); err != nil {
		return llm.Message{}, err
	}
	var in struct{ City, Fact string }
	if json.Unmarshal([]byte(call.Function.Arguments), &in) != nil {
		return agent.Failure("The arguments are not those of this tool."), nil
	}
	switch call.Function.Name {
	case "forecast":
		return agent.Result("It rains in " + in.City + "."), nil
	case "note":
		n.mu.Lock()
		defer n.mu.Unlock()
		n.texts = append(n.texts, in.Fact)
		return agent.Result("Noted."), nil
	}
	return agent.Failure("There is no tool with this name."), nil
}

// Messages returns the notes for the model.
func (n *Notes) Messages() []llm.Message {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.texts) == 0 {
		return nil
	}
	text := "Your notes of this conversation:\n- " + strings.Join(n.texts, "\n- ")
	return []llm.Message{{Role: llm.RoleSystem, Content: llm.TextContent(text)}}
}
