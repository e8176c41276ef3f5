package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/agent"
	"github.com/llmhttp/llmhttp/llm"
)

// newAgent returns an agent that has the tools of an MCP server. The methods of session may be
// called concurrently.
func newAgent(model llmhttp.Backend, session *mcp.ClientSession, opts agent.Options) *agent.Backend {
	opts.Progress = func(call llm.ToolCall) string {
		return fmt.Sprintf("Calling %s %s\n", call.Function.Name, call.Function.Arguments)
	}
	return agent.New(model, func(ctx context.Context) ([]agent.Tool, error) { return listTools(ctx, session) }, &opts)
}

// listTools returns the tools of the MCP server. A host whose server is far away keeps them until
// mcp.ClientOptions.ToolListChangedHandler is called.
func listTools(ctx context.Context, session *mcp.ClientSession) (tools []agent.Tool, err error) {
	for t, err := range session.Tools(ctx, nil) {
		if err != nil {
			return nil, err
		}
		schema, err := json.Marshal(t.InputSchema)
		if err != nil {
			return nil, err
		}
		tools = append(tools, agent.Tool{
			Function: llm.Function{Name: t.Name, Description: t.Description, Parameters: schema},
			Run: func(ctx context.Context, arguments string) (llm.Message, error) {
				return call(ctx, session, t.Name, arguments)
			},
		})
	}
	return tools, nil
}

// call calls a tool. An error of the protocol ends the request, and one of the tool is for the
// model. The session is that of all accounts, so a server that keeps state gets the account and the
// conversation with each call.
func call(ctx context.Context, session *mcp.ClientSession, name, arguments string) (llm.Message, error) {
	if !json.Valid([]byte(arguments)) {
		return agent.Failure("The arguments are not valid JSON."), nil
	}
	params := &mcp.CallToolParams{Name: name, Arguments: json.RawMessage(arguments)}
	if info := llmhttp.RequestInfoFrom(ctx); info != nil {
		params.Meta = mcp.Meta{"example.com/account": info.Account, "example.com/conversation": info.Conversation}
	}
	result, err := session.CallTool(ctx, params)
	if err != nil {
		return llm.Message{}, err
	}
	var text strings.Builder
	for _, c := range result.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			text.WriteString(t.Text)
		} else { // images and resources, which few models take as results
			fmt.Fprintf(&text, "(%T)", c)
		}
	}
	return llm.Message{Content: llm.TextContent(text.String()), IsError: result.IsError}, nil
}
