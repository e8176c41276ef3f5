package main

import (
	"context"
	"strings"
	"sync"

	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/components/tool/utils"

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

func (n *notes) tools() ([]tool.BaseTool, error) {
	forecast, err := utils.InferTool("forecast", "The weather in a city", func(_ context.Context, in cityArguments) (string, error) {
		return "It rains in " + in.City + ".", nil
	})
	if err != nil {
		return nil, err
	}
	note, err := utils.InferTool("note", "Keeps a fact for later turns of the conversation", func(_ context.Context, in factArguments) (string, error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.texts = append(n.texts, in.Fact)
		return "Noted.", nil
	})
	return []tool.BaseTool{forecast, note}, err
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
