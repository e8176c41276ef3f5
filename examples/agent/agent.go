package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/agent"
	"github.com/llmhttp/llmhttp/llm"
)

// conversationHeader is how clients of chat completions and of the Messages API name the
// conversation of a request. The Responses API has previous_response_id.
const conversationHeader = "X-Conversation-Id"

// newAgent returns an agent that knows the weather, and remembers what the model notes in a
// conversation.
func newAgent(model llmhttp.Backend, opts agent.Options) llmhttp.Backend {
	states := new(agent.Sessions[notes])
	tools := func(ctx context.Context) ([]agent.Tool, error) {
		return []agent.Tool{forecast(), states.Get(ctx).tool()}, nil
	}
	opts.Progress = func(call llm.ToolCall) string {
		return fmt.Sprintf("Calling %s %s\n", call.Function.Name, call.Function.Arguments)
	}
	return remembering{agent.New(model, tools, &opts), states}
}

// remembering is an agent that gets the notes of a conversation in front of the messages of a
// request.
type remembering struct {
	*agent.Backend
	states *agent.Sessions[notes]
}

func (r remembering) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	req.Messages = slices.Concat(r.states.Get(ctx).messages(), req.Messages)
	return r.Backend.Chat(ctx, req)
}

func forecast() agent.Tool {
	type arguments struct{ City string }
	f := llm.Function{Name: "forecast", Description: "The weather in a city", Parameters: object("city")}
	return agent.NewTool(f, func(_ context.Context, a arguments) (llm.Message, error) {
		if a.City == "" {
			return agent.Failure("Which city?"), nil
		}
		return agent.Result("It rains in " + a.City + "."), nil
	})
}

// notes are the state of a conversation.
type notes struct {
	mu    sync.Mutex // guards texts: tools run in parallel, and so do requests
	texts []string   // at most maxNotes
}

const maxNotes = 20

func (n *notes) tool() agent.Tool {
	type arguments struct{ Fact string }
	f := llm.Function{Name: "note", Description: "Keeps a fact for later turns of the conversation", Parameters: object("fact")}
	return agent.NewTool(f, func(_ context.Context, a arguments) (llm.Message, error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.texts = append(n.texts[max(0, len(n.texts)-maxNotes+1):], a.Fact)
		return agent.Result("Noted."), nil
	})
}

// messages returns the notes for the model.
func (n *notes) messages() []llm.Message {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.texts) == 0 {
		return nil
	}
	text := "Your notes of this conversation:\n- " + strings.Join(n.texts, "\n- ")
	return []llm.Message{{Role: llm.RoleSystem, Content: llm.TextContent(text)}}
}

// object returns the JSON schema of an object with one text.
func object(member string) []byte {
	return fmt.Appendf(nil, `{"type": "object", "properties": {%[1]q: {"type": "string"}}, "required": [%[1]q]}`, member)
}
