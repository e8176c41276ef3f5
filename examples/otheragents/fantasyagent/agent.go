// Fantasyagent serves an agent of Fantasy (charm.land/fantasy) as if it were a model.
//
//	cd examples/otheragents && MODEL_KEY=sk-... GOWORK=off go run ./fantasyagent -upstream https://models.example.com/v1
//
// What Fantasy cannot do, and so this agent neither:
//
//   - A tool has properties and required ones. What else a schema of the client has is lost.
//   - Beside a call of the client's tools, those of the agent run too, and their results are lost.
//   - It repeats calls of the model that fail. Each is accounted for, and texts that were sent are sent again.
//   - Of a reply, the name of the model that served it and its service tier are lost.
package main

import (
	"context"
	"errors"
	"slices"

	"charm.land/fantasy"
	"charm.land/fantasy/providers/openaicompat"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/agent"
	"github.com/llmhttp/llmhttp/examples/otheragents/notes"
	"github.com/llmhttp/llmhttp/examples/otheragents/serve"
	"github.com/llmhttp/llmhttp/llm"
)

func main() { serve.Main(newAgent) }

func newAgent(server, key string) llmhttp.Backend {
	p, err := openaicompat.New(openaicompat.WithBaseURL(server), openaicompat.WithAPIKey(key))
	if err != nil {
		panic(err)
	}
	return &assistant{provider: p}
}

// An assistant is an agent of Fantasy.
type assistant struct {
	provider fantasy.Provider
	states   agent.Sessions[notes.Notes]
}

func (a *assistant) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	return agent.Stream(ctx, nil, func(ctx context.Context, w *agent.Writer) error {
		state := a.states.Get(ctx)
		client, err := agent.ClientTools(req, "forecast", "note")
		if err != nil {
			return err
		}
		messages, err := convert(slices.Concat(state.Messages(), req.Messages))
		if err != nil {
			return err
		}
		m, err := a.provider.LanguageModel(ctx, req.Model)
		if err != nil {
			return err
		}
		var tools []fantasy.AgentTool
		for _, t := range client {
			if t.Function == nil {
				return llm.Errorf(400, "unsupported_value", "There are no tools of the type %q.", t.Type).WithParam("tools")
			}
			tools = append(tools, &tool{Function: t.Function})
		}
		for _, t := range notes.Tools {
			tools = append(tools, &tool{Function: t.Function, state: state})
		}
		var calls []llm.ToolCall
		call := fantasy.AgentStreamCall{
			Messages:         messages,
			Temperature:      req.Temperature,
			StopWhen:         []fantasy.StopCondition{fantasy.StepCountIs(8)},
			OnTextDelta:      func(_, text string) error { return w.Text(text) },
			OnReasoningDelta: func(_, text string) error { return w.Progress(text) },
			OnToolCall: func(c fantasy.ToolCallContent) error {
				calls = append(calls, llm.ToolCall{ID: c.ToolCallID, Function: llm.FunctionCall{Name: c.ToolName, Arguments: c.Input}})
				return nil
			},
		}
		if limit, ok := req.TokenLimit(); ok {
			call.MaxOutputTokens = new(int64(limit))
		}
		result, err := fantasy.NewAgent(model{m}, fantasy.WithTools(tools...)).Stream(ctx, call)
		if err != nil {
			return err
		}
		if result.Response.FinishReason == fantasy.FinishReasonLength {
			w.Finish(llm.FinishLength)
		}
		_, theirs := agent.SplitCalls(calls, client)
		return w.Calls(theirs...)
	})
}

// A model accounts for the calls of another one.
type model struct{ fantasy.LanguageModel }

func (m model) Stream(ctx context.Context, call fantasy.Call) (fantasy.StreamResponse, error) {
	ctx, end := llm.StartCall(ctx, m.Model())
	stream, err := m.LanguageModel.Stream(ctx, call)
	if err != nil {
		end(llm.CallResult{Err: err})
		return nil, err
	}
	return func(yield func(fantasy.StreamPart) bool) {
		result := llm.CallResult{Err: context.Canceled} // if the agent stops reading
		defer func() { end(result) }()
		for part := range stream {
			switch part.Type {
			case fantasy.StreamPartTypeError:
				result.Err = part.Error
			case fantasy.StreamPartTypeFinish:
				u := part.Usage // whose InputTokens are those that were not cached
				result = llm.CallResult{Usage: &llm.Usage{
					PromptTokens: int(u.InputTokens + u.CacheReadTokens + u.CacheCreationTokens), CompletionTokens: int(u.OutputTokens),
					PromptTokensDetails:     llm.PromptTokensDetails{CachedTokens: int(u.CacheReadTokens), CacheWriteTokens: int(u.CacheCreationTokens)},
					CompletionTokensDetails: llm.CompletionTokensDetails{ReasoningTokens: int(u.ReasoningTokens)},
				}}
			}
			if !yield(part) {
				return
			}
		}
	}, nil
}

// convert returns messages as Fantasy has them.
func convert(from []llm.Message) (to []fantasy.Message, err error) {
	if from, err = agent.TextMessages(from); err != nil {
		return nil, err
	}
	for _, m := range from {
		c := fantasy.Message{Role: fantasy.MessageRole(m.Role)}
		switch text := m.Content.Text(); {
		case m.Role == llm.RoleTool && m.IsError:
			c.Content = append(c.Content, fantasy.ToolResultPart{ToolCallID: m.ToolCallID, Output: fantasy.ToolResultOutputContentError{Error: errors.New(text)}})
		case m.Role == llm.RoleTool:
			c.Content = append(c.Content, fantasy.ToolResultPart{ToolCallID: m.ToolCallID, Output: fantasy.ToolResultOutputContentText{Text: text}})
		case text != "":
			c.Content = append(c.Content, fantasy.TextPart{Text: text})
		}
		for _, call := range m.ToolCalls {
			c.Content = append(c.Content, fantasy.ToolCallPart{ToolCallID: call.ID, ToolName: call.Function.Name, Input: call.Function.Arguments})
		}
		to = append(to, c)
	}
	return to, nil
}
