package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/llmhttp/llmhttp"
)

// An agent is a Backend. It lets a model call the tools of an MCP server until the model has an
// answer.
type agent struct {
	model    llmhttp.Backend
	session  *mcp.ClientSession // its methods may be called concurrently
	maxTurns int                // calls of the model for a request
}

// Chat implements [llmhttp.Backend].
func (a *agent) Chat(ctx context.Context, req *llmhttp.ChatRequest) llmhttp.ChatStream {
	if req.Choices() > 1 {
		return llmhttp.Fail(llmhttp.Errorf(http.StatusBadRequest, "unsupported_value", "There is one answer.").WithParam("n"))
	}
	return llmhttp.NewStream(func(send func(*llmhttp.ChatChunk) error) error { return a.run(ctx, req, send) })
}

// ListModels implements [llmhttp.ModelLister].
func (a *agent) ListModels(ctx context.Context) ([]llmhttp.Model, error) {
	return llmhttp.Forwarder{Backend: a.model}.ListModels(ctx)
}

// run calls the model until it has an answer or calls a tool of the client.
func (a *agent) run(ctx context.Context, req *llmhttp.ChatRequest, send func(*llmhttp.ChatChunk) error) error {
	tools, err := a.listTools(ctx)
	if err != nil {
		return err
	}
	for _, t := range req.Tools {
		if t.Function != nil && has(tools, t.Function.Name) {
			return llmhttp.Errorf(http.StatusBadRequest, "invalid_value", "The server has a tool with the name %q.", t.Function.Name).
				WithParam("tools")
		}
	}
	var used llmhttp.Usage
	clientTools := req.Tools
	for turn := 1; ; turn++ {
		req.Tools = slices.Concat(clientTools, tools)
		if turn >= a.maxTurns {
			req.Tools = clientTools // the model answers with what it knows by now
		}
		reply, err := llmhttp.Relay(a.model.Chat(llmhttp.WithUsage(ctx, used), req.Clone()), send)
		used.Add(reply.Usage)
		if reply.Usage != nil { // otherwise the Handler estimates it
			llmhttp.ReportUsage(ctx, used) // a client that leaves has paid for it
		}
		if err != nil {
			return err
		}
		choice := &reply.Choices[0]
		var own, client []llmhttp.ToolCall
		for _, call := range choice.Message.ToolCalls {
			if has(tools, call.Function.Name) {
				own = append(own, call)
			} else {
				client = append(client, call)
			}
		}
		if len(own) == 0 || len(client) > 0 || turn >= a.maxTurns {
			return send(last(client, choice, used))
		}
		for _, call := range own {
			progress := llmhttp.Delta{Reasoning: fmt.Sprintf("Calling %s %s\n", call.Function.Name, call.Function.Arguments)}
			if err := send(&llmhttp.ChatChunk{Choices: []llmhttp.ChunkChoice{{Delta: progress}}}); err != nil {
				return err
			}
		}
		results, err := llmhttp.CallTools(ctx, own, a.call)
		if err != nil {
			return err
		}
		req.Messages = append(append(req.Messages, choice.Message), results...)
	}
}

// listTools returns the tools of the MCP server as the model gets them. A host whose server is far
// away keeps them until mcp.ClientOptions.ToolListChangedHandler is called.
func (a *agent) listTools(ctx context.Context) (tools []llmhttp.Tool, err error) {
	for t, err := range a.session.Tools(ctx, nil) {
		if err != nil {
			return nil, err
		}
		schema, err := json.Marshal(t.InputSchema)
		if err != nil {
			return nil, err
		}
		tools = append(
			tools,
			llmhttp.Tool{Type: "function", Function: &llmhttp.Function{Name: t.Name, Description: t.Description, Parameters: schema}},
		)
	}
	return tools, nil
}

// call calls a tool. An error of the protocol ends the request, and one of the tool is for the model.
func (a *agent) call(ctx context.Context, call llmhttp.ToolCall) (llmhttp.Message, error) {
	if !json.Valid([]byte(call.Function.Arguments)) {
		return llmhttp.Message{Content: llmhttp.Text("The arguments are not valid JSON."), IsError: true}, nil
	}
	result, err := a.session.CallTool(
		ctx,
		&mcp.CallToolParams{Name: call.Function.Name, Arguments: json.RawMessage(call.Function.Arguments)},
	)
	if err != nil {
		return llmhttp.Message{}, err
	}
	var text strings.Builder
	for _, c := range result.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			text.WriteString(t.Text)
		} else { // images and resources, which few models take as results
			fmt.Fprintf(&text, "(%T)", c)
		}
	}
	return llmhttp.Message{Content: llmhttp.Text(text.String()), IsError: result.IsError}, nil
}

// has reports whether tools has a function with that name.
func has(tools []llmhttp.Tool, name string) bool {
	return slices.ContainsFunc(tools, func(t llmhttp.Tool) bool { return t.Function.Name == name })
}

// last returns the last chunk of a reply: the calls for the client, why it ends, and the usage of
// the whole request.
func last(calls []llmhttp.ToolCall, choice *llmhttp.Choice, used llmhttp.Usage) *llmhttp.ChatChunk {
	c := llmhttp.ChunkChoice{FinishReason: choice.FinishReason, StopSequence: choice.StopSequence}
	if len(calls) == 0 && len(choice.Message.ToolCalls) > 0 { // of tools that were not offered any more
		c.FinishReason = llmhttp.FinishLength
	}
	for i, call := range calls {
		c.Delta.ToolCalls = append(
			c.Delta.ToolCalls,
			llmhttp.ToolCallDelta{Index: i, ID: call.ID, Type: call.Type, Function: call.Function, Extra: call.Extra},
		)
	}
	chunk := &llmhttp.ChatChunk{Choices: []llmhttp.ChunkChoice{c}}
	if used.Units().Tokens() > 0 {
		chunk.Usage = &used
	}
	return chunk
}
