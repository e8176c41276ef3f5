package main

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"

	"github.com/llmhttp/llmhttp/agent"
	"github.com/llmhttp/llmhttp/llm"
)

// maxTurns bounds the calls of the model for a request.
const maxTurns = 8

// An assistant is a loop around a client of OpenAI's SDK.
type assistant struct {
	client openai.Client
	states agent.Sessions[notes]
}

func (a *assistant) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	return agent.Stream(ctx, nil, func(ctx context.Context, w *agent.Writer) error {
		state := a.states.Get(ctx)
		clientTools, err := agent.ClientTools(req, "forecast", "note")
		if err != nil {
			return err
		}
		req.Tools = slices.Concat(clientTools, tools)
		req.Messages = slices.Concat(state.messages(), req.Messages)
		for range maxTurns {
			reply, err := a.call(ctx, req, w)
			if err != nil {
				return err
			}
			m := reply.Choices[0].Message
			own, theirs := agent.SplitCalls(m.ToolCalls, clientTools)
			if len(own) == 0 || len(theirs) > 0 {
				w.Finish(reply.Choices[0].FinishReason)
				return w.Calls(theirs...)
			}
			results, err := agent.CallTools(ctx, own, state.call)
			if err != nil {
				return err
			}
			req.Messages = append(append(req.Messages, m), results...)
		}
		return errors.New("the model has no answer")
	})
}

// call calls the model and sends on what it says. The types of llm are encoded as the SDK's are.
func (a *assistant) call(ctx context.Context, req *llm.ChatRequest, w *agent.Writer) (*llm.ChatResponse, error) {
	req.Stream, req.StreamOptions = true, &llm.StreamOptions{IncludeUsage: true}
	body, err := json.Marshal(req)
	if err != nil {
		return nil, err
	}
	ctx, end := llm.StartCall(ctx, req.Model)
	stream := a.client.Chat.Completions.NewStreaming(ctx, param.Override[openai.ChatCompletionNewParams](json.RawMessage(body)))
	defer stream.Close()
	reply, err := agent.ForwardReply(llm.NewStream(func(send func(*llm.ChatChunk) error) error {
		for stream.Next() {
			chunk, err := agent.Convert[*llm.ChatChunk](json.RawMessage(stream.Current().RawJSON()))
			if err != nil {
				return err
			}
			if err := send(chunk); err != nil {
				return err
			}
		}
		return stream.Err()
	}), w.Send)
	end(llm.CallResult{Model: reply.Model, Usage: reply.Usage, Err: err})
	return reply, err
}
