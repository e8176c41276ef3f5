package llmhttptest

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

func TestBackendMutants(t *testing.T) {
	testMutants(t, nil, backendChecks, backendFixture(func(*echo) {}), slices.Concat(chatMutants, optionalMethodMutants))
}

func TestBackend_AcceptsCorrectBackends(t *testing.T) {
	e := newEcho()
	anyModel := llmhttp.BackendFunc(func(ctx context.Context, req *chatReq) stream {
		if req.Choices() > 1 {
			return llm.Fail(llm.Errorf(400, "unsupported_value", "N must be 1."))
		}
		return llm.Reply(strings.ToUpper(req.Messages[len(req.Messages)-1].Content.Text()))
	})
	for name, test := range map[string]struct {
		backend llmhttp.Backend
		options BackendOptions
	}{
		"chat only":        {llmhttp.BackendFunc(e.Chat), BackendOptions{ChatModel: "chat"}},
		"images only":      {e, BackendOptions{ImageModel: "draw"}},
		"any model":        {anyModel, BackendOptions{ChatModel: "any", AnyModel: true, Prompt: "Hi!"}},
		"in a wrapper":     {passing{e}, echoOptions},
		"cumulative usage": {cumulativeUsage{e}, BackendOptions{ChatModel: "chat"}},
	} {
		t.Run(name, func(t *testing.T) { TestBackend(t, test.backend, test.options) })
	}
}

// A passing Backend is a wrapper that lets everything pass.
type passing struct{ llmhttp.Backend }

func (p passing) Unwrap(context.Context) llmhttp.Backend { return p.Backend }

// A cumulativeUsage reports the usage so far in every chunk.
type cumulativeUsage struct{ llmhttp.Backend }

func (b cumulativeUsage) Chat(ctx context.Context, req *chatReq) stream {
	return func(yield yieldFunc) {
		n := 0
		for c, err := range b.Backend.Chat(ctx, req) {
			if n++; c != nil && c.Usage == nil {
				c.Usage = &llm.Usage{PromptTokens: 7, CompletionTokens: n}
			}
			if !yield(c, err) {
				return
			}
		}
	}
}

// invalid is not valid JSON.
var invalid = llm.Extra{"x": json.RawMessage(`{"a":`)}

// background passes on the chunks of correct from another goroutine. The
// goroutine pauses before each chunk. It ends if a chunk is not received
// for an hour.
func background(correct stream, pause time.Duration) <-chan *chunk {
	chunks := make(chan *chunk)
	go func() {
		defer close(chunks)
		for c := range correct {
			time.Sleep(pause)
			select {
			case chunks <- c:
			case <-time.After(time.Hour):
				return
			}
		}
	}()
	return chunks
}

// chatMutants have faults in Chat.
var chatMutants = []mutant[backendTest]{
	{"the stream is nil", "Chat", chatting(func(*echo, context.Context, *chatReq) stream { return nil })},
	{"every chat fails", "Chat", failingWith(llm.Errorf(429, "busy", "Busy."), func(*chatReq) bool { return true })},
	{"the stream is empty", "Chat", yielding(func(stream, yieldFunc) {})},
	{"the stream panics", "Chat", yielding(func(stream, yieldFunc) { panic("no words") })},
	{"a chunk is nil", "Chat", editing(func(i int, c *chunk) *chunk {
		if i == 1 {
			return nil
		}
		return c
	})},
	{"streamed replies are an error", "Chat", failingWith(errNotImplemented, func(req *chatReq) bool { return req.Stream })},
	{"whole replies are an error", "Chat", failingWith(errNotImplemented, func(req *chatReq) bool { return !req.Stream })},
	{"the stream continues after an error", "Chat", yielding(func(correct stream, yield yieldFunc) { yield(nil, errors.New("oops")); correct(yield) })},
	{"the reply takes an hour", "Chat", chatting(func(e *echo, ctx context.Context, req *chatReq) stream {
		return func(yield yieldFunc) {
			select {
			case <-ctx.Done():
			case <-time.After(time.Hour):
			}
			llm.Reply("")(yield)
		}
	})},
	{"the stream yields on another goroutine", "Chat", yielding(func(correct stream, yield yieldFunc) {
		var wg sync.WaitGroup
		wg.Go(func() { correct(yield) })
		wg.Wait()
	})},
	{"the Extra of a chunk is invalid", "Chat", editing(func(_ int, c *chunk) *chunk { c.Extra = invalid; return c })},
	{"the Extra of a choice is invalid", "Chat", editingChoice(0, func(c *choice) { c.Extra = invalid })},
	{"the Extra of a delta is invalid", "Chat", editingChoice(0, func(c *choice) { c.Delta.Extra = invalid })},
	{"the Extra of a usage is invalid", "Chat", reporting(llm.Usage{Extra: invalid})},
	{"the usage is negative", "Chat", reporting(llm.Usage{PromptTokens: -1})},
	{"the total is not the sum", "Chat", reporting(llm.Usage{PromptTokens: 1, CompletionTokens: 2, TotalTokens: 4})},
	{"each usage is that of its chunk", "Chat", reporting(llm.Usage{PromptTokens: 7, CompletionTokens: 1})},
	{"only the first usage has prompt tokens", "Chat", editing(func(i int, c *chunk) *chunk {
		if c.Usage == nil {
			c.Usage = &llm.Usage{CompletionTokens: i + 1}
			if i == 0 {
				c.Usage.PromptTokens = 7
			}
		}
		return c
	})},
	{"an index is negative", "Chat", editingChoice(0, func(c *choice) { c.Index = -1 })},
	{"indices begin at 1", "Chat", editing(func(_ int, c *chunk) *chunk {
		for i := range c.Choices {
			c.Choices[i].Index++
		}
		return c
	})},
	{"the role is user", "Chat", editingChoice(0, func(c *choice) { c.Delta.Role = llm.RoleUser })},
	{"the FinishReason is unknown", "Chat", editingChoice(0, func(c *choice) {
		if c.FinishReason != "" {
			c.FinishReason = "end_turn"
		}
	})},
	{"each chunk has a FinishReason", "Chat", editingChoice(0, func(c *choice) { c.FinishReason = llm.FinishStop })},
	{"the text is Latin-1", "Chat", editingChoice(0, func(c *choice) { c.Delta.Content = strings.ReplaceAll(c.Delta.Content, "\u00fc", "\xfc") })},
	{"the last byte of a character is lost", "Chat", editingChoice(0, func(c *choice) {
		c.Delta.Content = strings.ReplaceAll(c.Delta.Content, "\U0001f44b", "\xf0\x9f\x91")
	})},

	{"N is ignored", "ChatChoices", rewriting(func(req *chatReq) { req.N = nil })},
	{"N is at least 2", "ChatChoices", rewriting(func(req *chatReq) { req.N = new(max(2, req.Choices())) })},
	{"all choices have index 0", "ChatChoices", editingChoice(1, func(c *choice) { c.Index = 0 })},
	{"N above 1 is a server error", "ChatChoices", failingWith(errNotImplemented, func(req *chatReq) bool { return req.Choices() > 1 })},
	{"N of 1 is refused", "ChatChoices", failingWith(llm.Errorf(400, "bad_n", "Bad n."), func(req *chatReq) bool { return req.Choices() == 1 })},

	{"an image is a server error", "ChatRequests", failingWith(errNotImplemented, func(req *chatReq) bool {
		return slices.ContainsFunc(req.Messages[0].Content, func(p llm.Part) bool { return p.Type == llm.PartImage })
	})},
	{"tools are a server error", "ChatRequests", failingWith(errNotImplemented, func(req *chatReq) bool { return len(req.Tools) > 0 })},
	{"a missing user message panics", "ChatRequests", rewriting(func(req *chatReq) {
		_ = req.Messages[slices.IndexFunc(req.Messages, func(m llm.Message) bool { return m.Role == llm.RoleUser })]
	})},
	{"tool calls have no ID", "ChatRequests", editingCalls(func(c *llm.ToolCallDelta) { c.ID = "" })},
	{"tool calls have no name", "ChatRequests", editingCalls(func(c *llm.ToolCallDelta) { c.Function.Name = "" })},
	{"the Extra of a tool call is invalid", "ChatRequests", editingCalls(func(c *llm.ToolCallDelta) { c.Extra = invalid })},

	{"token limits are ignored", "ChatTokenLimit", rewriting(func(req *chatReq) { req.MaxTokens, req.MaxCompletionTokens = nil, nil })},
	{"MaxCompletionTokens is ignored", "ChatTokenLimit", rewriting(func(req *chatReq) { req.MaxCompletionTokens = nil })},

	{"any model is accepted", "ChatUnknownModel", rewriting(func(req *chatReq) { req.Model = "chat" })},
	{"a model is accepted by its prefix", "ChatUnknownModel", rewriting(func(req *chatReq) {
		if strings.HasPrefix(req.Model, "chat") {
			req.Model = "chat"
		}
	})},
	{"an unknown model is a server error", "ChatUnknownModel", unknownModel(errors.New("no such model"))},
	{"an unknown model has status 500", "ChatUnknownModel", unknownModel(llm.Errorf(500, "", "no such model"))},
	{"an unknown model is a nil Error", "ChatUnknownModel", unknownModel((*llm.Error)(nil))},
	{"an unknown model is an error after a text", "ChatUnknownModel", chatting(func(e *echo, ctx context.Context, req *chatReq) stream {
		return func(yield yieldFunc) {
			if req.Model == "chat" || yield(llm.TextChunk("Sorry"), nil) {
				e.repeat(ctx, req)(yield)
			}
		}
	})},

	{"Chat takes time", "ChatStartsLate", rewriting(func(*chatReq) { time.Sleep(150 * time.Millisecond) })},
	{"Chat starts a goroutine", "ChatStartsLate", chatting(func(e *echo, ctx context.Context, req *chatReq) stream {
		chunks := background(e.repeat(ctx, req), 0)
		return func(yield yieldFunc) {
			for c := range chunks {
				if !yield(c, nil) {
					return
				}
			}
		}
	})},
	{"the stream is nil", "ChatStartsLate", chatting(func(*echo, context.Context, *chatReq) stream { return nil })},

	{"the result of yield is ignored", "ChatBreak", yielding(func(correct stream, yield yieldFunc) {
		correct(func(c *chunk, err error) bool { yield(c, err); return true })
	})},
	{"a last chunk follows the end of the loop", "ChatBreak", yielding(func(correct stream, yield yieldFunc) { correct(yield); yield(&chunk{}, nil) })},
	{"an error follows the end of the loop", "ChatBreak", yielding(func(correct stream, yield yieldFunc) {
		for c, err := range correct {
			if !yield(c, err) {
				yield(nil, context.Canceled)
				return
			}
		}
	})},
	{"the stream returns two minutes after the loop", "ChatBreak", yielding(func(correct stream, yield yieldFunc) {
		correct(yield)
		time.Sleep(2 * time.Minute)
	})},

	{"the context is ignored", "ChatCancel", chatting(func(e *echo, _ context.Context, req *chatReq) stream {
		return func(yield yieldFunc) {
			e.repeat(context.Background(), req)(func(c *chunk, err error) bool { time.Sleep(time.Second); return yield(c, err) })
		}
	})},
	{"the stream returns a minute after its context is done", "ChatCancel", chatting(func(e *echo, ctx context.Context, req *chatReq) stream {
		return func(yield yieldFunc) {
			e.repeat(ctx, req)(func(c *chunk, err error) bool {
				if ctx.Err() != nil {
					time.Sleep(time.Minute)
				}
				return yield(c, err)
			})
		}
	})},
	{"the stream never ends", "ChatCancel", yielding(func(_ stream, yield yieldFunc) {
		for yield(llm.TextChunk("and "), nil) {
		}
	})},
	{"the context is ignored before the first chunk", "ChatCancelledBefore", yielding(func(correct stream, yield yieldFunc) {
		time.Sleep(time.Minute)
		correct(yield)
	})},

	{"concurrent chats are refused", "ChatConcurrent", backendFixture(func(e *echo) {
		var mu sync.Mutex
		e.chat = func(e *echo, ctx context.Context, req *chatReq) stream {
			return func(yield yieldFunc) {
				if !mu.TryLock() {
					yield(nil, llm.Errorf(429, "busy", "Busy."))
					return
				}
				defer mu.Unlock()
				time.Sleep(time.Microsecond)
				e.repeat(ctx, req)(yield)
			}
		}
	})},
	{"yield is stored in a shared variable", "ChatConcurrent", backendFixture(func(e *echo) {
		var mu sync.Mutex
		var current yieldFunc
		e.chat = func(e *echo, ctx context.Context, req *chatReq) stream {
			return func(yield yieldFunc) {
				mu.Lock()
				current = yield
				mu.Unlock()
				time.Sleep(time.Microsecond)
				mu.Lock()
				defer mu.Unlock()
				e.repeat(ctx, req)(current)
			}
		}
	})},

	{"a goroutine continues after the loop", "ChatLeavesNoGoroutines", yielding(func(correct stream, yield yieldFunc) {
		for c := range background(correct, 0) {
			if !yield(c, nil) {
				return
			}
		}
	})},
	{"a goroutine continues when the first chunk is cancelled", "ChatLeavesNoGoroutines", slowGoroutine(0)},
	{"a goroutine continues when the second chunk is cancelled", "ChatLeavesNoGoroutines", slowGoroutine(1)},
	{"a goroutine continues when the fourth chunk is cancelled", "ChatLeavesNoGoroutines", slowGoroutine(3)},
	{"a goroutine continues when the loop ends between slow chunks", "ChatLeavesNoGoroutines", yielding(func(correct stream, yield yieldFunc) {
		n := 0
		for c := range background(correct, 10*time.Millisecond) {
			if n++; !yield(c, nil) && n > 1 {
				return
			}
		}
	})},
	{"a goroutine continues when the context is done in the loop", "ChatLeavesNoGoroutines", chatting(func(e *echo, ctx context.Context, req *chatReq) stream {
		return func(yield yieldFunc) {
			chunks := background(e.repeat(context.WithoutCancel(ctx), req), 10*time.Millisecond)
			for c := range chunks {
				more := yield(c, nil)
				if more && ctx.Err() != nil {
					return
				}
				if !more {
					for range chunks {
					}
				}
			}
		}
	})},
}

// slowGoroutine returns a constructor of a Backend whose goroutine pauses before
// each chunk. If the context is done while the stream waits for chunk n, the
// stream returns without the goroutine. At other times it waits for it.
func slowGoroutine(n int) func(testing.TB) backendTest {
	return chatting(func(e *echo, ctx context.Context, req *chatReq) stream {
		return func(yield yieldFunc) {
			chunks := background(e.repeat(context.WithoutCancel(ctx), req), 10*time.Millisecond)
			drain := func() {
				for range chunks {
				}
			}
			for i := 0; ; i++ {
				select {
				case c, ok := <-chunks:
					if !ok || !yield(c, nil) {
						drain()
						return
					}
				case <-ctx.Done():
					if i != n {
						drain()
					}
					return
				}
			}
		}
	})
}
