// Anthropicagent serves an agent of your own as if it were a model: a plain loop on anthropic-sdk-go, the Go SDK of Anthropic.
//
//	cd examples/otheragents && MODEL_KEY=sk-ant-... GOWORK=off go run ./anthropicagent -upstream https://api.anthropic.com
//
// Thinking that the model has signed stays in the run: a client of chat completions does not send it back in the form
// that the SDK needs. The SDK repeats requests that fail before the reply begins, which llmhttp cannot see.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/agent"
	"github.com/llmhttp/llmhttp/examples/otheragents/notes"
	"github.com/llmhttp/llmhttp/examples/otheragents/serve"
	"github.com/llmhttp/llmhttp/llm"
)

func main() { serve.Main(newAgent) }

func newAgent(server, key string) llmhttp.Backend {
	return &assistant{client: anthropic.NewClient(option.WithBaseURL(server), option.WithAPIKey(key))}
}

// maxTurns bounds the calls of the model for a request.
const maxTurns = 8

// An assistant is a loop around a client of Anthropic's SDK.
type assistant struct {
	client anthropic.Client
	states agent.Sessions[notes.Notes]
}

func (a *assistant) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	return agent.Stream(ctx, nil, func(ctx context.Context, w *agent.Writer) error {
		state := a.states.Get(ctx)
		client, err := agent.ClientTools(req, "forecast", "note")
		if err != nil {
			return err
		}
		messages, err := agent.TextMessages(slices.Concat(state.Messages(), req.Messages))
		if err != nil {
			return err
		}
		params, err := convert(req, messages, slices.Concat(client, notes.Tools))
		if err != nil {
			return err
		}
		for range maxTurns {
			reply, err := a.call(ctx, params, w)
			if err != nil {
				return err
			}
			var calls []llm.ToolCall
			for _, block := range reply.Content {
				if block.Type == "tool_use" {
					calls = append(calls, llm.ToolCall{ID: block.ID, Function: llm.FunctionCall{Name: block.Name, Arguments: string(block.Input)}})
				}
			}
			own, theirs := agent.SplitCalls(calls, client)
			if len(own) == 0 || len(theirs) > 0 {
				if reply.StopReason == anthropic.StopReasonMaxTokens {
					w.Finish(llm.FinishLength)
				}
				return w.Calls(theirs...)
			}
			results, err := agent.CallTools(ctx, own, state.Call)
			if err != nil {
				return err
			}
			var blocks []anthropic.ContentBlockParamUnion
			for _, m := range results {
				blocks = append(blocks, anthropic.NewToolResultBlock(m.ToolCallID, m.Content.Text(), m.IsError))
			}
			params.Messages = append(params.Messages, reply.ToParam(), anthropic.NewUserMessage(blocks...))
		}
		return errors.New("the model has no answer")
	})
}

// call calls the model and sends on what it says.
func (a *assistant) call(ctx context.Context, params anthropic.MessageNewParams, w *agent.Writer) (reply anthropic.Message, err error) {
	ctx, end := llm.StartCall(ctx, string(params.Model))
	stream := a.client.Messages.NewStreaming(ctx, params)
	defer stream.Close()
	for err == nil && stream.Next() {
		event := stream.Current()
		err = errors.Join(reply.Accumulate(event), w.Progress(event.Delta.Thinking), w.Text(event.Delta.Text))
	}
	err = errors.Join(err, stream.Err())
	result := llm.CallResult{Model: string(reply.Model), ServiceTier: string(reply.Usage.ServiceTier), Err: err}
	if u := reply.Usage; err == nil {
		result.Usage = &llm.Usage{
			PromptTokens: int(u.InputTokens + u.CacheReadInputTokens + u.CacheCreationInputTokens), CompletionTokens: int(u.OutputTokens),
			PromptTokensDetails: llm.PromptTokensDetails{CachedTokens: int(u.CacheReadInputTokens), CacheWriteTokens: int(u.CacheCreationInputTokens)},
		}
	}
	end(result)
	return reply, err
}

// convert returns a request as the SDK has it.
func convert(req *llm.ChatRequest, messages []llm.Message, tools []llm.Tool) (p anthropic.MessageNewParams, err error) {
	p = anthropic.MessageNewParams{Model: anthropic.Model(req.Model), MaxTokens: 4096}
	if limit, ok := req.TokenLimit(); ok {
		p.MaxTokens = int64(limit)
	}
	for _, t := range tools {
		if t.Function == nil {
			return p, llm.Errorf(400, "unsupported_value", "There are no tools of the type %q.", t.Type).WithParam("tools")
		}
		tool := &anthropic.ToolParam{Name: t.Function.Name, Description: anthropic.String(t.Function.Description)}
		if t.Function.Parameters != nil {
			if tool.InputSchema, err = agent.Convert[anthropic.ToolInputSchemaParam](t.Function.Parameters); err != nil {
				return p, err
			}
		}
		p.Tools = append(p.Tools, anthropic.ToolUnionParam{OfTool: tool})
	}
	for i, m := range messages {
		text := m.Content.Text()
		var blocks []anthropic.ContentBlockParamUnion
		if text != "" && m.Role != llm.RoleTool {
			blocks = append(blocks, anthropic.NewTextBlock(text))
		}
		for _, call := range m.ToolCalls {
			blocks = append(blocks, anthropic.NewToolUseBlock(call.ID, json.RawMessage(call.Function.Arguments), call.Function.Name))
		}
		switch {
		case m.Role == llm.RoleSystem:
			p.System = append(p.System, anthropic.TextBlockParam{Text: text})
		case m.Role == llm.RoleAssistant:
			p.Messages = append(p.Messages, anthropic.NewAssistantMessage(blocks...))
		case m.Role == llm.RoleTool && i > 0 && messages[i-1].Role == llm.RoleTool: // results are in one message
			last := p.Messages[len(p.Messages)-1].OfUser
			last.Content = append(last.Content, anthropic.NewToolResultBlock(m.ToolCallID, text, m.IsError))
		case m.Role == llm.RoleTool:
			p.Messages = append(p.Messages, anthropic.NewUserMessage(anthropic.NewToolResultBlock(m.ToolCallID, text, m.IsError)))
		default:
			p.Messages = append(p.Messages, anthropic.NewUserMessage(blocks...))
		}
	}
	return p, nil
}
