package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cloudwego/eino/callbacks"
	"github.com/cloudwego/eino/components/model"
	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/compose"
	eino "github.com/cloudwego/eino/flow/agent"
	"github.com/cloudwego/eino/flow/agent/react"
	"github.com/cloudwego/eino/schema"
	einocallbacks "github.com/cloudwego/eino/utils/callbacks"

	"github.com/llmhttp/llmhttp/agent"
	"github.com/llmhttp/llmhttp/llm"
)

// An assistant is a ReAct agent of Eino.
type assistant struct {
	model  model.ToolCallingChatModel
	states agent.Sessions[notes]
}

func (a *assistant) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	return agent.Stream(ctx, nil, func(ctx context.Context, w *agent.Writer) error {
		state := a.states.Get(ctx)
		client, err := agent.ClientTools(req, "forecast", "note")
		if err != nil {
			return err
		}
		tools, err := state.tools()
		if err != nil {
			return err
		}
		for _, t := range client {
			tools = append(tools, clientTool{t})
		}
		texts, err := agent.TextMessages(slices.Concat(state.messages(), req.Messages))
		if err != nil {
			return err
		}
		messages, err := agent.Convert[[]*schema.Message](texts)
		if err != nil {
			return err
		}
		runner, err := react.NewAgent(ctx, &react.AgentConfig{
			ToolCallingModel: a.model,
			ToolsConfig:      compose.ToolsNodeConfig{Tools: tools},
			MaxStep:          16, // of the model and of tools
			// A call of a tool of the client ends the run.
			StreamToolCallChecker: func(_ context.Context, s *schema.StreamReader[*schema.Message]) (bool, error) {
				own, theirs, err := splitCalls(s, client)
				return len(own) > 0 && len(theirs) == 0, err
			},
		})
		if err != nil {
			return err
		}
		reply, err := runner.Stream(ctx, messages,
			eino.WithComposeOptions(compose.WithCallbacks(handler(w, req.Model))),
			react.WithChatModelOptions(model.WithModel(req.Model)))
		if err != nil {
			return err
		}
		_, theirs, err := splitCalls(reply, client)
		if err != nil {
			return err
		}
		return w.Calls(theirs...)
	})
}

// splitCalls reads a reply of the model to its end, and returns the calls in it.
func splitCalls(s *schema.StreamReader[*schema.Message], client []llm.Tool) (own, theirs []llm.ToolCall, err error) {
	m, err := schema.ConcatMessageStream(s)
	if err != nil {
		return nil, nil, err
	}
	calls, err := agent.Convert[[]llm.ToolCall](m.ToolCalls)
	own, theirs = agent.SplitCalls(calls, client)
	return own, theirs, err
}

// callKey is the key of the function that ends a call of the model.
type callKey struct{}

// handler returns callbacks that write what the model says to w, show which tools it calls, and account for each
// call of the model.
func handler(w *agent.Writer, name string) callbacks.Handler {
	end := func(ctx context.Context, usage *llm.Usage, err error) {
		ctx.Value(callKey{}).(func(llm.CallResult))(llm.CallResult{Usage: usage, Err: err})
	}
	return react.BuildAgentCallback(&einocallbacks.ModelCallbackHandler{
		OnStart: func(ctx context.Context, _ *callbacks.RunInfo, _ *model.CallbackInput) context.Context {
			ctx, end := llm.StartCall(ctx, name)
			return context.WithValue(ctx, callKey{}, end)
		},
		OnEndWithStreamOutput: func(ctx context.Context, _ *callbacks.RunInfo, s *schema.StreamReader[*model.CallbackOutput]) context.Context {
			defer s.Close()
			var usage *llm.Usage
			for {
				out, err := s.Recv()
				if errors.Is(err, io.EOF) {
					end(ctx, usage, nil)
					return ctx
				}
				if err == nil {
					usage = usageOf(out.TokenUsage, usage)
					if meta := out.Message.ResponseMeta; meta != nil && meta.FinishReason != "" {
						w.Finish(llm.FinishReason(meta.FinishReason)) // that of the last call counts
					}
					err = errors.Join(w.Progress(out.Message.ReasoningContent), w.Text(out.Message.Content))
				}
				if err != nil { // the run ends with it
					end(ctx, usage, err)
					return ctx
				}
			}
		},
		OnError: func(ctx context.Context, _ *callbacks.RunInfo, err error) context.Context {
			end(ctx, nil, err)
			return ctx
		},
	}, &einocallbacks.ToolCallbackHandler{
		OnStart: func(ctx context.Context, info *callbacks.RunInfo, in *tool.CallbackInput) context.Context {
			_ = w.Progress(fmt.Sprintf("Calling %s %s\n", info.Name, in.ArgumentsInJSON)) // ctx ends if the client has left
			return ctx
		},
	})
}

// usageOf returns the usage u, or that before if u has none.
func usageOf(u *model.TokenUsage, before *llm.Usage) *llm.Usage {
	if u == nil || u.PromptTokens == 0 {
		return before
	}
	return &llm.Usage{
		PromptTokens: u.PromptTokens, CompletionTokens: u.CompletionTokens,
		PromptTokensDetails:     llm.PromptTokensDetails{CachedTokens: u.PromptTokenDetails.CachedTokens},
		CompletionTokensDetails: llm.CompletionTokensDetails{ReasoningTokens: u.CompletionTokensDetails.ReasoningTokens},
	}
}
