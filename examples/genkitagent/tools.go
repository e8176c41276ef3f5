package main

import (
	"fmt"
	"strings"
	"sync"

	"github.com/firebase/genkit/go/ai"

	"github.com/llmhttp/llmhttp/agent"
	"github.com/llmhttp/llmhttp/llm"
)

// notes are the state of a conversation.
type notes struct {
	mu    sync.Mutex // guards texts: tools run in parallel, and so do requests
	texts []string
}

type (
	cityArguments struct {
		City string `json:"city"`
	}
	factArguments struct {
		Fact string `json:"fact"`
	}
)

// tools returns the tools of the agent. Genkit tells nobody that a tool begins, so they show it themselves.
func (n *notes) tools() []ai.ToolRef {
	return []ai.ToolRef{
		ai.NewTool("forecast", "The weather in a city", func(ctx *ai.ToolContext, in cityArguments) (string, error) {
			return "It rains in " + in.City + ".", agent.Progress(ctx, fmt.Sprintf("Calling forecast for %s\n", in.City))
		}),
		ai.NewTool("note", "Keeps a fact for later turns of the conversation", func(ctx *ai.ToolContext, in factArguments) (string, error) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.texts = append(n.texts, in.Fact)
			return "Noted.", agent.Progress(ctx, "Keeping a note\n")
		}),
	}
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
