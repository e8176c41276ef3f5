package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/llmhttp/llmhttp/llm"
)

// A run is one request.
type run struct {
	*Backend
	req     *llm.ChatRequest
	tools   map[string]*Tool // those of the agent, by their names
	offered []llm.Tool       // the same, as the model gets them
	client  []llm.Tool       // those of the client
	choice  *llm.ToolChoice
	used    llm.Usage // of all calls of the model so far
	unknown bool      // the usage of a call is not known
	w       *Writer
	asked   int // messages of the request as it came
}

func newRun(b *Backend, req *llm.ChatRequest, tools []Tool, w *Writer) (*run, error) {
	r := &run{Backend: b, req: req, tools: make(map[string]*Tool), choice: req.ToolChoice, w: w}
	for i := range tools {
		t := &tools[i]
		if t.Name == "" || t.Run == nil || r.tools[t.Name] != nil {
			return nil, fmt.Errorf("agent: tool %d, %q, has no name, no Run, or the name of another one", i, t.Name)
		}
		r.tools[t.Name] = t
		r.offered = append(r.offered, llm.Tool{Type: "function", Function: &t.Function})
	}
	client, err := ClientTools(req, slices.Collect(maps.Keys(r.tools))...)
	if err != nil {
		return nil, err
	}
	r.client = client
	if r.choice != nil && r.choice.Mode == llm.ToolChoiceNone { // of the client's tools
		r.choice = nil
	}
	return r, nil
}

// run calls the model and the tools in turns.
func (r *run) run(ctx context.Context) error {
	if err := r.resume(ctx); err != nil {
		return err
	}
	for turn := 1; ; turn++ {
		isLast, err := r.isLast(ctx, turn)
		if err != nil {
			return err
		}
		reply, err := r.callModel(ctx, isLast)
		if err != nil {
			return err
		}
		choice := &reply.Choices[0]
		own, client := r.split(choice.Message.ToolCalls)
		if len(own) == 0 || len(client) > 0 || isLast {
			return r.w.Send(r.end(choice, client))
		}
		refused, asks := r.askConsent(ctx, choice, own)
		if asks != nil {
			return r.w.Send(asks)
		}
		if err := r.carryOut(ctx, choice.Message, own, refused); err != nil {
			return err
		}
	}
}

// carryOut runs calls of the agent's tools, and adds the model's message that has them and their results to the
// request. Those with a text in refused do not run: the text is what the model is told.
func (r *run) carryOut(ctx context.Context, from llm.Message, calls []llm.ToolCall, refused map[string]string) error {
	for _, call := range calls {
		if r.opts.Progress == nil || refused[call.ID] != "" {
			continue
		}
		if err := r.w.Progress(r.opts.Progress(call)); err != nil {
			return err
		}
	}
	results, err := CallTools(ctx, calls, func(ctx context.Context, call llm.ToolCall) (llm.Message, error) {
		t := r.tools[call.Function.Name]
		switch {
		case refused[call.ID] != "":
			return Failure(refused[call.ID]), nil
		case t == nil:
			return Failure("There is no tool with this name."), nil
		}
		return t.Run(ctx, call.Function.Arguments)
	})
	if err != nil {
		return err
	}
	r.req.Messages = append(append(r.req.Messages, from), results...)
	return nil
}

// isLast reports whether a bound makes a turn the last one.
func (r *run) isLast(ctx context.Context, turn int) (bool, error) {
	if turn == r.opts.MaxTurns || r.opts.MaxCost <= 0 {
		return turn == r.opts.MaxTurns, nil
	}
	spent, err := llm.Spent(ctx)
	if errors.Is(err, errors.ErrUnsupported) {
		return false, fmt.Errorf("agent: Options.MaxCost cannot be enforced: %v", err) // not a 404
	}
	return err != nil || spent >= r.opts.MaxCost, nil
}

// callModel calls the model, sends on what it says, and accounts for it.
func (r *run) callModel(ctx context.Context, isLast bool) (*llm.ChatResponse, error) {
	req := r.req.Clone()
	req.Tools, req.ToolChoice = r.offer(isLast)
	ctx, end := llm.StartCall(ctx, req.Model)
	stream := llm.Tee(r.model.Chat(ctx, req), func(c *llm.ChatChunk, _ error) {
		if c != nil && c.Model != "" {
			r.w.setModel(c.Model) // the request is billed by it
		}
	})
	reply, err := ForwardReply(stream, r.w.Send)
	end(llm.CallResult{Model: reply.Model, ServiceTier: serviceTier(reply), Usage: reply.Usage, Err: err})
	r.used.Add(reply.Usage)
	r.unknown = r.unknown || reply.Usage == nil
	return reply, err
}

// serviceTier returns the service_tier of a reply, or "".
func serviceTier(reply *llm.ChatResponse) (tier string) {
	if raw := reply.Extra["service_tier"]; raw != nil && json.Unmarshal(raw, &tier) != nil {
		return ""
	}
	return tier
}

// offer returns the tools of a turn. In the last one the model keeps tools that it may not call if
// there are no others, because some servers refuse calls among the messages without them.
func (r *run) offer(isLast bool) ([]llm.Tool, *llm.ToolChoice) {
	switch {
	case !isLast:
		return slices.Concat(r.client, r.offered), r.choice
	case len(r.client) > 0 || len(r.offered) == 0:
		return r.client, r.choice
	}
	return r.offered, &llm.ToolChoice{Mode: llm.ToolChoiceNone}
}

// split divides the calls of the model into those for the client and the others, among which may be
// calls of tools that do not exist.
func (r *run) split(calls []llm.ToolCall) (own, client []llm.ToolCall) {
	for _, call := range calls {
		if r.tools[call.Function.Name] == nil && slices.ContainsFunc(r.client, func(t llm.Tool) bool {
			return t.Function == nil || t.Function.Name == call.Function.Name // tools of other types have their names elsewhere
		}) {
			client = append(client, call)
		} else {
			own = append(own, call)
		}
	}
	return own, client
}

// end returns the last chunk of a reply: the calls for the client, why it ends, and the usage of
// the whole request.
func (r *run) end(from *llm.Choice, calls []llm.ToolCall) *llm.ChatChunk {
	c := llm.ChunkChoice{FinishReason: from.FinishReason, StopSequence: from.StopSequence}
	if len(calls) == 0 && len(from.Message.ToolCalls) > 0 { // calls that a bound has prevented
		c.FinishReason = llm.FinishLength
	}
	for i, call := range calls {
		c.Delta.ToolCalls = append(
			c.Delta.ToolCalls,
			llm.ToolCallDelta{Index: i, ID: call.ID, Type: call.Type, Function: call.Function, Extra: call.Extra},
		)
	}
	chunk := &llm.ChatChunk{Choices: []llm.ChunkChoice{c}}
	if !r.unknown && (r.used.PromptTokens > 0 || r.used.CompletionTokens > 0) {
		chunk.Usage = &r.used
	}
	return chunk
}
