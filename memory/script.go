package memory

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/llmhttp/llmhttp"
)

// A Step is a piece of a scripted reply: it yields what it has to, and reports
// whether the reply goes on. It may wait, and panic; it must return when yield
// returns false, which it does after an error, and soon after ctx is done.
//
// A Step may be performed for several requests at a time. Each chunk that it
// yields must be a new one.
type Step func(ctx context.Context, yield func(*llmhttp.ChatChunk, error) bool) bool

// Scripted returns a Backend whose reply to every chat is steps, for tests of
// hosts and clients. It does nothing but what steps say: it reports no usage,
// and limits nothing. If it ends without [Fail], the reply is complete.
func Scripted(steps ...Step) *Backend {
	steps = slices.Clone(steps)
	if steps == nil {
		steps = []Step{} // an empty reply, not an echo
	}
	return &Backend{Script: func(*llmhttp.ChatRequest) []Step { return steps }}
}

// Say returns a Step that adds text to the first choice.
func Say(text string) Step {
	return func(_ context.Context, yield func(*llmhttp.ChatChunk, error) bool) bool {
		return yield(llmhttp.TextChunk(text), nil)
	}
}

// Chunk returns a Step that yields a copy of c, for what the other steps do not
// say: usage, tool calls, further choices, vendors' own members.
func Chunk(c *llmhttp.ChatChunk) Step {
	c = cloneChunk(c)
	return func(_ context.Context, yield func(*llmhttp.ChatChunk, error) bool) bool {
		return yield(cloneChunk(c), nil)
	}
}

// Finish returns a Step that ends the first choice for the given reason, such
// as [llmhttp.FinishContentFilter].
func Finish(reason llmhttp.FinishReason) Step {
	return func(_ context.Context, yield func(*llmhttp.ChatChunk, error) bool) bool {
		c := llmhttp.TextChunk("")
		c.Choices[0].FinishReason = reason
		return yield(c, nil)
	}
}

// Fail returns a Step that ends the reply with err. If nothing was said yet,
// the client gets the status of err; otherwise its stream breaks.
func Fail(err error) Step {
	return func(_ context.Context, yield func(*llmhttp.ChatChunk, error) bool) bool {
		yield(nil, err)
		return false
	}
}

// Panic returns a Step that panics with v.
func Panic(v any) Step {
	return func(context.Context, func(*llmhttp.ChatChunk, error) bool) bool { panic(v) }
}

// Wait returns a Step that waits for d. If ctx is done before, the reply ends
// with its cause.
func Wait(d time.Duration) Step {
	return func(ctx context.Context, yield func(*llmhttp.ChatChunk, error) bool) bool {
		s := speaker{ctx: ctx, yield: yield}
		return s.wait(d)
	}
}

// Hang returns a Step that waits until ctx is done, and ends the reply with its
// cause: a model that has fallen silent.
func Hang() Step {
	return func(ctx context.Context, yield func(*llmhttp.ChatChunk, error) bool) bool {
		<-ctx.Done()
		yield(nil, context.Cause(ctx))
		return false
	}
}

// perform performs steps until one ends the reply.
func (s *speaker) perform(steps []Step) {
	yield := func(c *llmhttp.ChatChunk, err error) bool {
		if err != nil {
			s.yield(nil, err)
			return false
		}
		return s.chunk(c)
	}
	for _, step := range steps {
		if !s.wait(0) || !step(s.ctx, yield) {
			return
		}
	}
}

// cloneChunk returns a copy of c that shares nothing with it that may change.
func cloneChunk(c *llmhttp.ChatChunk) *llmhttp.ChatChunk {
	n := *c
	n.Extra = maps.Clone(c.Extra)
	if c.Usage != nil {
		u := *c.Usage
		u.Extra = maps.Clone(u.Extra)
		n.Usage = &u
	}
	n.Choices = slices.Clone(c.Choices)
	for i := range n.Choices {
		choice := &n.Choices[i]
		choice.Extra = maps.Clone(choice.Extra)
		choice.Delta.Extra = maps.Clone(choice.Delta.Extra)
		choice.Delta.ToolCalls = slices.Clone(choice.Delta.ToolCalls)
		for j := range choice.Delta.ToolCalls {
			call := &choice.Delta.ToolCalls[j]
			call.Extra = maps.Clone(call.Extra)
			call.Function.Extra = maps.Clone(call.Function.Extra)
		}
	}
	return &n
}
