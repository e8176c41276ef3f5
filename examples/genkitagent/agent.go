package main

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/firebase/genkit/go/ai"
	"github.com/firebase/genkit/go/genkit"

	"github.com/llmhttp/llmhttp/agent"
	"github.com/llmhttp/llmhttp/llm"
)

// An assistant is an agent of Genkit. Its model is not that of the request: each name that Genkit is asked
// for stays in its registry.
type assistant struct {
	genkit *genkit.Genkit
	model  string // with the name of the plugin before it
	states agent.Sessions[notes]
}

func (a *assistant) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	return agent.Stream(ctx, nil, func(ctx context.Context, w *agent.Writer) error {
		state := a.states.Get(ctx)
		client, err := agent.ClientTools(req, "forecast", "note")
		if err != nil {
			return err
		}
		tools := state.tools()
		for _, t := range client {
			own, err := clientTool(t)
			if err != nil {
				return err
			}
			tools = append(tools, own)
		}
		messages, err := convert(slices.Concat(state.messages(), req.Messages))
		if err != nil {
			return err
		}
		config := map[string]any{"stream_options": map[string]any{"include_usage": true}}
		if limit, ok := req.TokenLimit(); ok {
			config["max_completion_tokens"] = limit
		}
		if req.Temperature != nil {
			config["temperature"] = *req.Temperature
		}
		reply, err := genkit.Generate(ctx, a.genkit, ai.WithModelName(a.model), ai.WithMessages(messages...), ai.WithTools(tools...),
			ai.WithMaxTurns(8), ai.WithConfig(config), ai.WithMiddleware(account),
			ai.WithStreaming(func(_ context.Context, c *ai.ModelResponseChunk) error {
				for _, part := range c.Content {
					var err error
					switch {
					case part.IsReasoning():
						err = w.Progress(part.Text)
					case part.IsText():
						err = w.Text(part.Text)
					}
					if err != nil {
						return err
					}
				}
				return nil
			}))
		if err != nil {
			return err
		}
		switch reply.FinishReason {
		case ai.FinishReasonLength:
			w.Finish(llm.FinishLength)
		case ai.FinishReasonBlocked:
			w.Finish(llm.FinishContentFilter)
		}
		for _, part := range reply.Interrupts() {
			arguments, err := json.Marshal(part.ToolRequest.Input)
			if err != nil {
				return err
			}
			call := llm.ToolCall{ID: part.ToolRequest.Ref, Function: llm.FunctionCall{Name: part.ToolRequest.Name, Arguments: string(arguments)}}
			if err := w.Calls(call); err != nil {
				return err
			}
		}
		return nil
	})
}

// account is middleware around each call of the model.
func account(next ai.ModelFunc) ai.ModelFunc {
	return func(ctx context.Context, req *ai.ModelRequest, send ai.ModelStreamCallback) (*ai.ModelResponse, error) {
		ctx, end := llm.StartCall(ctx, "")
		reply, err := next(ctx, req, send)
		result := llm.CallResult{Err: err}
		if err == nil && reply.Usage != nil {
			result.Usage = &llm.Usage{
				PromptTokens: reply.Usage.InputTokens, CompletionTokens: reply.Usage.OutputTokens,
				PromptTokensDetails:     llm.PromptTokensDetails{CachedTokens: reply.Usage.CachedContentTokens},
				CompletionTokensDetails: llm.CompletionTokensDetails{ReasoningTokens: reply.Usage.ThoughtsTokens},
			}
		}
		end(result)
		return reply, err
	}
}

// clientTool returns a tool of the client, a call of which ends the run.
func clientTool(t llm.Tool) (ai.ToolRef, error) {
	if t.Function == nil {
		return nil, llm.Errorf(400, "unsupported_value", "There are no tools of the type %q.", t.Type).WithParam("tools")
	}
	schema := map[string]any{"type": "object"}
	if t.Function.Parameters != nil {
		if err := json.Unmarshal(t.Function.Parameters, &schema); err != nil {
			return nil, err
		}
	}
	return ai.NewTool(t.Function.Name, t.Function.Description, func(ctx *ai.ToolContext, _ any) (string, error) {
		return "", ctx.Interrupt(nil)
	}, ai.WithInputSchema(schema)), nil
}

// convert returns messages as Genkit has them.
func convert(from []llm.Message) (to []*ai.Message, err error) {
	if from, err = agent.TextMessages(from); err != nil {
		return nil, err
	}
	names := agent.CallNames(from)
	roles := map[llm.Role]ai.Role{llm.RoleSystem: ai.RoleSystem, llm.RoleUser: ai.RoleUser, llm.RoleAssistant: ai.RoleModel, llm.RoleTool: ai.RoleTool}
	for _, m := range from {
		var parts []*ai.Part
		switch text := m.Content.Text(); {
		case m.Role == llm.RoleTool:
			parts = append(parts, ai.NewToolResponsePart(&ai.ToolResponse{Name: names[m.ToolCallID], Ref: m.ToolCallID, Output: text}))
		case text != "":
			parts = append(parts, ai.NewTextPart(text))
		}
		for _, call := range m.ToolCalls {
			input := json.RawMessage(call.Function.Arguments)
			parts = append(parts, ai.NewToolRequestPart(&ai.ToolRequest{Name: call.Function.Name, Ref: call.ID, Input: input}))
		}
		to = append(to, ai.NewMessage(roles[m.Role], nil, parts...))
	}
	return to, nil
}
