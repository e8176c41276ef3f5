package llmhttptest

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/llmhttp/llmhttp/completion"
	"github.com/llmhttp/llmhttp/llm"
)

type completionReq = completion.Request

func (e *echo) Complete(ctx context.Context, req *completionReq) stream { return e.complete(ctx, req) }

// repeatPrompts yields the words of each prompt for each of its choices.
func repeatPrompts(ctx context.Context, req *completionReq) stream {
	return func(yield yieldFunc) {
		if req.Model != "complete" {
			yield(nil, llm.ModelNotFound(req.Model))
			return
		}
		if req.Prompt.Tokens != nil {
			yield(nil, llm.Errorf(400, "invalid_type", "Tokens are not supported."))
			return
		}
		usage := &llm.Usage{PromptTokens: req.Prompt.Len()}
		n := req.Choices() / req.Prompt.Len()
		for i := range req.Choices() {
			words, reason := strings.SplitAfter(req.Prompt.Texts[i/n], " "), llm.FinishStop
			if limit, ok := req.TokenLimit(); ok && len(words) > limit {
				words, reason = words[:limit], llm.FinishLength
			}
			usage.CompletionTokens += len(words)
			for _, word := range words {
				if ctx.Err() != nil {
					yield(nil, ctx.Err())
					return
				}
				if !yield(&chunk{Choices: []choice{{Index: i, Delta: llm.Delta{Content: word}}}}, nil) {
					return
				}
			}
			if !yield(&chunk{Choices: []choice{{Index: i, FinishReason: reason}}}, nil) {
				return
			}
		}
		yield(&chunk{Usage: usage}, nil)
	}
}

// completing returns a constructor of a Backend with another Complete.
func completing(f func(ctx context.Context, req *completionReq) stream) func(testing.TB) backendTest {
	return backendFixture(func(e *echo) { e.complete = f })
}

// editingCompletion returns a constructor of a Backend that changes the chunks of its reply.
func editingCompletion(edit func(c *chunk)) func(testing.TB) backendTest {
	return completing(func(ctx context.Context, req *completionReq) stream {
		return func(yield yieldFunc) {
			for c, err := range repeatPrompts(ctx, req) {
				if c != nil {
					edit(c)
				}
				if !yield(c, err) {
					return
				}
			}
		}
	})
}

// completingUnless returns a constructor of a Backend that fails with err if refuses returns true.
func completingUnless(err error, refuses func(req *completionReq) bool) func(testing.TB) backendTest {
	return completing(func(ctx context.Context, req *completionReq) stream {
		if refuses(req) {
			return llm.Fail(err)
		}
		return repeatPrompts(ctx, req)
	})
}

var completionMutants = []mutant[backendTest]{
	{"Complete is not implemented", "Completions", chatOnly},
	{"the stream is nil", "Completions", completing(func(context.Context, *completionReq) stream { return nil })},
	{"only the first prompt is completed", "Completions", completing(func(ctx context.Context, req *completionReq) stream {
		if req.Prompt.Texts != nil {
			req.Prompt.Texts = req.Prompt.Texts[:1]
		}
		return repeatPrompts(ctx, req)
	})},
	{"N is ignored", "Completions", completing(func(ctx context.Context, req *completionReq) stream {
		req.N = nil
		return repeatPrompts(ctx, req)
	})},
	{"indices begin with 1", "Completions", editingCompletion(func(c *chunk) {
		for i := range c.Choices {
			c.Choices[i].Index++
		}
	})},
	{"the text is reasoning", "Completions", editingCompletion(func(c *chunk) {
		for i := range c.Choices {
			d := &c.Choices[i].Delta
			d.Reasoning, d.Content = d.Content, ""
		}
	})},
	{"token numbers are a server error", "Completions", completingUnless(errNotImplemented, func(req *completionReq) bool { return req.Prompt.Tokens != nil })},
	{"a suffix is a server error", "Completions", completingUnless(errNotImplemented, func(req *completionReq) bool { return req.Suffix != "" })},
	{"log probabilities are a server error", "Completions", completingUnless(errNotImplemented, func(req *completionReq) bool { return req.Logprobs != nil })},
	{"every completion fails", "Completions", completingUnless(llm.Errorf(429, "busy", "Busy."), func(*completionReq) bool { return true })},
	{"log probabilities are invalid", "Completions", editingCompletion(func(c *chunk) {
		for i := range c.Choices {
			c.Choices[i].Extra = invalid
		}
	})},
	{"the usage is negative", "Completions", editingCompletion(func(c *chunk) { c.Usage = &llm.Usage{PromptTokens: -1} })},
	{"MaxTokens is ignored", "CompletionTokenLimit", completing(func(ctx context.Context, req *completionReq) stream {
		req.MaxTokens = nil
		return repeatPrompts(ctx, req)
	})},
	{"any model is accepted", "CompletionUnknownModel", completing(func(ctx context.Context, req *completionReq) stream {
		req.Model = "complete"
		return repeatPrompts(ctx, req)
	})},
	{"an unknown model is a server error", "CompletionUnknownModel", completingUnless(errors.New("no such model"), func(req *completionReq) bool { return req.Model != "complete" })},
	{"the result of yield is ignored", "CompletionBreak", completing(func(ctx context.Context, req *completionReq) stream {
		return func(yield yieldFunc) {
			repeatPrompts(ctx, req)(func(c *chunk, err error) bool { yield(c, err); return true })
		}
	})},
	{"the context is ignored", "CompletionCancel", completing(func(_ context.Context, req *completionReq) stream {
		return func(yield yieldFunc) {
			for more := true; more; {
				repeatPrompts(context.Background(), req)(func(c *chunk, err error) bool { more = yield(c, err); return more })
			}
		}
	})},
}
