// Replies that a test defines step by step.

package memory

import (
	"context"
	"slices"
	"time"

	"github.com/llmhttp/llmhttp/llm"
)

// A Step is a part of a scripted reply. It passes its chunks to yield and returns true if the reply
// continues after it. It must return false when yield has returned false, as yield does after every
// error, and soon after ctx is done. It may panic.
//
// Steps may run for several requests at the same time. Each chunk must be new,
// because its receiver may change it.
type Step func(ctx context.Context, yield func(*llm.ChatChunk, error) bool) bool

// Scripted returns a Backend that replies to every chat request with steps. It
// is for tests of hosts and clients. The Backend sends only what the steps
// yield: no usage, and no cut at a token limit. A reply that does not end with
// [Fail] is complete.
func Scripted(steps ...Step) *Backend {
	steps = slices.Clone(steps)
	if steps == nil {
		steps = []Step{} // an empty reply; nil would make the Backend echo
	}
	return &Backend{Script: func(*llm.ChatRequest) []Step { return steps }}
}

// Say returns a Step that adds text to the first choice.
func Say(text string) Step {
	return choiceStep(llm.ChunkChoice{Delta: llm.Delta{Content: text}})
}

// Reason returns a Step that adds text to the reasoning of the first choice.
func Reason(text string) Step {
	return choiceStep(llm.ChunkChoice{Delta: llm.Delta{Reasoning: text}})
}

// Sign returns a Step that adds a signature for the reasoning before it to the first
// choice.
func Sign(signature string) Step {
	return detailStep(llm.ReasoningDetail{Type: llm.ReasoningText, Signature: signature})
}

// ReasonEncrypted returns a Step that adds encrypted or redacted reasoning to the
// first choice.
func ReasonEncrypted(data string) Step {
	return detailStep(llm.ReasoningDetail{Type: llm.ReasoningEncrypted, Data: data})
}

// Call returns a Step that adds a complete call of the function with the given
// name to the first choice. The id must differ from those of other calls.
func Call(id, name, arguments string) Step {
	call := llm.ToolCallDelta{ID: id, Type: "function", Function: llm.FunctionCall{Name: name, Arguments: arguments}}
	return choiceStep(llm.ChunkChoice{Delta: llm.Delta{ToolCalls: []llm.ToolCallDelta{call}}})
}

// Chunk returns a Step that yields a copy of c. It is for what the other steps do not yield, such
// as usage, further choices and members of vendors.
func Chunk(c *llm.ChatChunk) Step {
	c = c.Clone()
	return func(_ context.Context, yield func(*llm.ChatChunk, error) bool) bool {
		return yield(c.Clone(), nil)
	}
}

// Finish returns a Step that ends the first choice with the given reason, such as
// [llm.FinishContentFilter].
func Finish(reason llm.FinishReason) Step {
	return choiceStep(llm.ChunkChoice{FinishReason: reason})
}

// Fail returns a Step that ends the reply with err. Before the first chunk, the client gets an
// error reply with the status of err; after it, the stream breaks off.
func Fail(err error) Step {
	return func(_ context.Context, yield func(*llm.ChatChunk, error) bool) bool {
		yield(nil, err)
		return false
	}
}

// Panic returns a Step that panics with v.
func Panic(v any) Step {
	return func(context.Context, func(*llm.ChatChunk, error) bool) bool { panic(v) }
}

// Wait returns a Step that waits for d. If ctx is done before that, the reply
// fails with the cause.
func Wait(d time.Duration) Step {
	return func(ctx context.Context, yield func(*llm.ChatChunk, error) bool) bool {
		s := sender{ctx: ctx, yield: yield}
		return s.wait(d)
	}
}

// Hang returns a Step that waits until ctx is done, like a model that has
// stopped. The reply then fails with the cause.
func Hang() Step {
	return func(ctx context.Context, yield func(*llm.ChatChunk, error) bool) bool {
		<-ctx.Done()
		yield(nil, context.Cause(ctx))
		return false
	}
}

// run runs steps until one of them ends the reply.
func (s *sender) run(steps []Step) {
	yield := func(c *llm.ChatChunk, err error) bool {
		if err != nil {
			s.yield(nil, err)
			return false
		}
		return s.send(c)
	}
	for _, step := range steps {
		if !s.wait(0) || !step(s.ctx, yield) {
			return
		}
	}
}

// choiceStep returns a Step that yields a chunk with a copy of choice.
func choiceStep(choice llm.ChunkChoice) Step { return Chunk(newChunk(choice)) }

// detailStep returns a Step that adds a reasoning detail to the first choice.
func detailStep(d llm.ReasoningDetail) Step {
	return choiceStep(llm.ChunkChoice{Delta: llm.Delta{ReasoningDetails: []llm.ReasoningDetail{d}}})
}

// newChunk returns a chunk with one choice.
func newChunk(choice llm.ChunkChoice) *llm.ChatChunk {
	return &llm.ChatChunk{Choices: []llm.ChunkChoice{choice}}
}
