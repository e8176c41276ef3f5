package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/llmhttp/llmhttp"
)

// A tool is a function that the model can call and that the agent runs.
type tool struct {
	llmhttp.Function
	run func(ctx context.Context, arguments string, s *session) (string, error)
}

// errArguments is an error of a tool that the model is told, so that it can try again. Any other
// error ends the request: the log has it, and the client gets a general message.
var errArguments = errors.New("the arguments are not those of this tool")

// An agent is a Backend. It lets a model call its tools until the model has an answer. The client
// sees one reply: what the model says on the way, and the progress as reasoning. Other operations of
// the model, such as images, are not served.
type agent struct {
	model    llmhttp.Backend
	tools    []tool
	maxTurns int                                                       // calls of the model for a request
	maxCost  llmhttp.Money                                             // for a request
	price    func(*llmhttp.UsageRecord) (cost llmhttp.Cost, err error) // nil if the cost is not bounded
	sessions *sessions
}

func newAgent(model llmhttp.Backend, tools []tool) *agent {
	return &agent{model: model, tools: tools, maxTurns: 8, sessions: newSessions()}
}

// ListModels implements [llmhttp.ModelLister].
func (a *agent) ListModels(ctx context.Context) ([]llmhttp.Model, error) {
	return llmhttp.Forwarder{Backend: a.model}.ListModels(ctx)
}

// Chat implements [llmhttp.Backend].
func (a *agent) Chat(ctx context.Context, req *llmhttp.ChatRequest) llmhttp.ChatStream {
	if req.Choices() > 1 {
		return llmhttp.Fail(llmhttp.Errorf(http.StatusBadRequest, "unsupported_value", "There is one answer.").WithParam("n"))
	}
	for _, t := range req.Tools {
		if t.Function != nil && a.find(t.Function.Name) != nil {
			return llmhttp.Fail(llmhttp.Errorf(http.StatusBadRequest, "invalid_value",
				"The server has a tool with the name %q.", t.Function.Name).WithParam("tools"))
		}
	}
	return llmhttp.NewStream(func(send func(*llmhttp.ChatChunk) error) error { return a.run(ctx, req, send) })
}

// run calls the model until it has an answer or calls a tool of the client.
func (a *agent) run(ctx context.Context, req *llmhttp.ChatRequest, send func(*llmhttp.ChatChunk) error) error {
	var used llmhttp.Usage
	clientTools, session := req.Tools, a.sessions.get(ctx)
	for turn := 1; ; turn++ {
		req.Tools = clientTools
		bounded, err := a.isBounded(req.Model, turn, &used)
		if err != nil {
			return err
		}
		if !bounded { // otherwise the model answers with what it knows by now
			req.Tools = slices.Concat(clientTools, a.offer())
		}
		reply, err := llmhttp.Relay(a.model.Chat(llmhttp.WithUsage(ctx, used), session.addNotes(req.Clone())), send)
		used.Add(reply.Usage)
		if reply.Usage != nil { // otherwise the Handler estimates it
			llmhttp.ReportUsage(ctx, used) // a client that leaves has paid for it
		}
		if err != nil {
			return err
		}
		choice := &reply.Choices[0]
		own, client := a.split(choice.Message.ToolCalls)
		if len(own) == 0 || len(client) > 0 || bounded {
			// The client gets its calls. If the model has called tools of the agent beside them, it
			// calls them again when it has the results of the client.
			return send(last(client, choice, used))
		}
		for _, call := range own {
			if err := send(progress("Calling %s %s\n", call.Function.Name, call.Function.Arguments)); err != nil {
				return err
			}
		}
		results, err := llmhttp.CallTools(ctx, own, func(ctx context.Context, call llmhttp.ToolCall) (llmhttp.Message, error) {
			text, err := a.find(call.Function.Name).run(ctx, call.Function.Arguments, session)
			if errors.Is(err, errArguments) {
				return llmhttp.Message{Content: llmhttp.Text(err.Error()), IsError: true}, nil
			}
			return llmhttp.Message{Content: llmhttp.Text(text)}, err
		})
		if err != nil {
			return err
		}
		req.Messages = append(append(req.Messages, choice.Message), results...)
	}
}

// isBounded reports whether a turn is the last one of its request.
func (a *agent) isBounded(model string, turn int, used *llmhttp.Usage) (bool, error) {
	if turn >= a.maxTurns || a.price == nil {
		return turn >= a.maxTurns, nil
	}
	cost, err := a.price(&llmhttp.UsageRecord{Model: model, Units: used.Units()})
	return cost.Total() >= a.maxCost, err
}

// find returns the agent's tool with that name, or nil.
func (a *agent) find(name string) *tool {
	i := slices.IndexFunc(a.tools, func(t tool) bool { return t.Name == name })
	if i < 0 {
		return nil
	}
	return &a.tools[i]
}

// offer returns the agent's tools as the model gets them.
func (a *agent) offer() (tools []llmhttp.Tool) {
	for i := range a.tools {
		tools = append(tools, llmhttp.Tool{Type: "function", Function: &a.tools[i].Function})
	}
	return tools
}

// split divides the calls of the model into those of the agent's tools and those of the client's.
func (a *agent) split(calls []llmhttp.ToolCall) (own, client []llmhttp.ToolCall) {
	for _, call := range calls {
		if a.find(call.Function.Name) != nil {
			own = append(own, call)
		} else {
			client = append(client, call)
		}
	}
	return own, client
}

// progress returns a chunk that clients show as reasoning.
func progress(format string, args ...any) *llmhttp.ChatChunk {
	return &llmhttp.ChatChunk{Choices: []llmhttp.ChunkChoice{{Delta: llmhttp.Delta{Reasoning: fmt.Sprintf(format, args...)}}}}
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

// decodeArguments decodes the arguments of a call, which the model has written.
func decodeArguments(arguments string, v any) error {
	if err := json.Unmarshal([]byte(arguments), v); err != nil {
		return fmt.Errorf("%w: %w", errArguments, err)
	}
	return nil
}
