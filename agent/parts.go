package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/llmhttp/llmhttp/internal/callctx"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
)

var errNoChoice = errors.New("agent: the reply has no choice")

// ForwardReply sends what a model generates in s on while it comes, and returns the whole reply as
// [join.Collect] does. It is for agents of a host's own, which show the client what the model says and carry out the
// tool calls of the reply.
//
// Not sent are tool calls, the ends of choices, the usage, and what identifies the reply: an agent
// sends those calls that are for the client, and at the end the reason and the usage of the whole
// request. The chunks that send gets are copies.
//
// If s or send fails, ForwardReply returns the error, and what came before as a reply. A reply without a
// choice is an error too. The reply is never nil, so that its Usage can be added in any case.
func ForwardReply(s llm.ChatStream, send func(*llm.ChatChunk) error) (*llm.ChatResponse, error) {
	if s == nil {
		s = llm.Fail(callctx.ErrNilStream)
	}
	var sendErr error
	reply, err := join.Collect(func(yield func(*llm.ChatChunk, error) bool) {
		for chunk, err := range s {
			if c := relayed(chunk); err == nil && c != nil {
				sendErr = send(c)
			}
			if !yield(chunk, err) || sendErr != nil {
				return
			}
		}
	})
	switch {
	case sendErr != nil:
		return reply, sendErr
	case err == nil && len(reply.Choices) == 0:
		return reply, errNoChoice
	}
	return reply, err
}

// relayed returns a copy of what ForwardReply sends of c, or nil if that is nothing.
func relayed(c *llm.ChatChunk) *llm.ChatChunk {
	if c == nil {
		return nil
	}
	var sent llm.ChatChunk
	for i := range c.Choices {
		from := &c.Choices[i]
		to := llm.ChunkChoice{Index: from.Index, Delta: from.Delta, Extra: from.Extra}
		to.Delta.Role, to.Delta.ToolCalls = "", nil
		if !to.Delta.IsEmpty() || jsonwire.HasValue(to.Extra) {
			sent.Choices = append(sent.Choices, to)
		}
	}
	if sent.Choices == nil {
		return nil
	}
	return sent.Clone()
}

// maxParallelCalls is how many calls CallTools runs at a time. A reply may have 1024.
const maxParallelCalls = 16

// CallTools runs f for each of the calls, at most 16 at a time, and returns the messages with their
// results in the order of the calls, for the next request to the model. f returns the Content of the
// message, with IsError set if the model is to be told that the call failed; CallTools sets its
// Role and ToolCallID. f runs on goroutines of its own, and must return soon after its context is
// done. CallTools waits for all of them.
//
// An error of f is not for the model: it cancels the context of the others, and CallTools returns
// the first one. If ctx is done, CallTools returns its cause. A panic of f continues on the
// goroutine of CallTools, so that it ends the request and not the process.
func CallTools(ctx context.Context, calls []llm.ToolCall, f func(ctx context.Context, call llm.ToolCall) (llm.Message, error)) ([]llm.Message, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		results  = make([]llm.Message, len(calls))
		slots    = make(chan struct{}, maxParallelCalls)
		panicked atomic.Pointer[any]
		wg       sync.WaitGroup
	)
	for i, call := range calls {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() {
				if v := recover(); v != nil {
					panicked.CompareAndSwap(nil, withStack(v))
					cancel(nil)
				}
				<-slots
			}()
			m, err := f(ctx, call)
			if err != nil {
				cancel(err)
			}
			m.Role, m.ToolCallID = llm.RoleTool, call.ID
			results[i] = m
		})
	}
	wg.Wait()
	if v := panicked.Load(); v != nil {
		panic(*v)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return results, nil
}

// withStack returns the value of a panic together with the stack of its goroutine, which the
// goroutine that panics again does not have. http.ErrAbortHandler stays as it is.
func withStack(v any) *any {
	if v == http.ErrAbortHandler {
		return &v
	}
	return new(any(fmt.Sprintf("%v\n\n%s", v, debug.Stack())))
}

// SplitCalls divides the calls of a model into those of tools of the client, which are in ChatRequest.Tools as the
// client sent them, and the others, which are the agent's. An agent that has offered both sends the
// former on with [Writer.Calls] and returns: the client sends the results in its next request.
func SplitCalls(calls []llm.ToolCall, client []llm.Tool) (own, theirs []llm.ToolCall) {
	for _, call := range calls {
		if slices.ContainsFunc(client, func(t llm.Tool) bool { return t.Function != nil && t.Function.Name == call.Function.Name }) {
			theirs = append(theirs, call)
		} else {
			own = append(own, call)
		}
	}
	return own, theirs
}

// CallNames returns the names of the functions that the messages call, by the IDs of the calls: frameworks
// whose results have the name of the function need it for messages with RoleTool, which have only the ID.
func CallNames(messages []llm.Message) map[string]string {
	names := make(map[string]string)
	for i := range messages {
		for _, call := range messages[i].ToolCalls {
			names[call.ID] = call.Function.Name
		}
	}
	return names
}
