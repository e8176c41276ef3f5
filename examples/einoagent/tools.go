package main

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/components/tool/utils"
	"github.com/cloudwego/eino/schema"
	"github.com/eino-contrib/jsonschema"

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

// A clientTool is a tool of the client, which the model may call and nobody runs here.
type clientTool struct{ llm.Tool }

func (t clientTool) Info(context.Context) (*schema.ToolInfo, error) {
	if t.Function == nil {
		return nil, llm.Errorf(400, "unsupported_value", "There are no tools of the type %q.", t.Type).WithParam("tools")
	}
	info := &schema.ToolInfo{Name: t.Function.Name, Desc: t.Function.Description}
	if t.Function.Parameters != nil {
		parameters, err := agent.Convert[*jsonschema.Schema](t.Function.Parameters)
		if err != nil {
			return nil, err
		}
		info.ParamsOneOf = schema.NewParamsOneOfByJSONSchema(parameters)
	}
	return info, nil
}

func (t clientTool) InvokableRun(context.Context, string, ...tool.Option) (string, error) {
	return "", errors.New("a tool of the client")
}
