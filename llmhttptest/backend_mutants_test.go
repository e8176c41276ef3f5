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
)

type (
	chunk  = llmhttp.ChatChunk
	choice = llmhttp.ChunkChoice
	stream = llmhttp.ChatStream
	yields = func(*chunk, error) bool
)

// bad is not valid JSON.
var bad = llmhttp.Extra{"x": json.RawMessage(`{"a":`)}

// unknownAs is the fault of a Backend that reports a model that does not exist
// in its own way.
func unknownAs(err error) func(testing.TB) backendTest {
	return chats(func(p *parrot, ctx context.Context, req *llmhttp.ChatRequest) stream {
		if req.Model != "chat" {
			return llmhttp.Fail(err)
		}
		return p.speak(ctx, req)
	})
}

func TestBackendMutants(t *testing.T) {
	testMutants(t, backendChecks, backendFixture(func(*parrot) {}), slices.Concat(chatMutants, otherMutants))
}

// TestBackendParts tests Backends that do not do everything.
func TestBackendParts(t *testing.T) {
	p := &parrot{edit: func(_ int, c *llmhttp.ChatChunk) *llmhttp.ChatChunk { return c }}
	anyModel := llmhttp.BackendFunc(func(ctx context.Context, req *llmhttp.ChatRequest) llmhttp.ChatStream {
		if req.Choices() > 1 {
			return llmhttp.Fail(llmhttp.Errorf(400, "unsupported_value", "One choice is all there is."))
		}
		return llmhttp.Reply(strings.ToUpper(req.Messages[len(req.Messages)-1].Content.Text()))
	})
	t.Run("Chat", func(t *testing.T) { TestBackend(t, llmhttp.BackendFunc(p.Chat), BackendOptions{ChatModel: "chat"}) })
	t.Run("AnyModel", func(t *testing.T) {
		TestBackend(t, anyModel, BackendOptions{ChatModel: "any", AnyModel: true, Prompt: "Hi!"})
	})
	t.Run("Forwarder", func(t *testing.T) {
		TestBackend(t, llmhttp.Forwarder{Backend: p}, BackendOptions{ChatModel: "chat", ImageModel: "draw", EmbeddingModel: "embed"})
	})
	t.Run("Images", func(t *testing.T) { TestBackend(t, p, BackendOptions{ImageModel: "draw"}) })
}

// chatMutants chat badly.
var chatMutants = []mutant[backendTest]{
	{"a nil stream", "Chat", chats(func(*parrot, context.Context, *llmhttp.ChatRequest) stream { return nil })},
	{"always failing", "Chat", chats(func(*parrot, context.Context, *llmhttp.ChatRequest) stream {
		return llmhttp.Fail(llmhttp.Errorf(429, "busy", "Busy."))
	})},
	{"silent", "Chat", chats(func(*parrot, context.Context, *llmhttp.ChatRequest) stream { return func(yields) {} })},
	{"panics", "Chat", chats(func(*parrot, context.Context, *llmhttp.ChatRequest) stream {
		return func(yields) { panic("out of words") }
	})},
	{"nil chunks", "Chat", edits(func(i int, c *chunk) *chunk {
		if i == 1 {
			return nil
		}
		return c
	})},
	{"streams are an error", "Chat", failsUnless(func(req *llmhttp.ChatRequest) bool { return !req.Stream })},
	{"whole replies are an error", "Chat", failsUnless(func(req *llmhttp.ChatRequest) bool { return req.Stream })},
	{"goes on after an error", "Chat", chats(func(p *parrot, ctx context.Context, req *llmhttp.ChatRequest) stream {
		return func(yield yields) { yield(nil, errors.New("oops")); p.speak(ctx, req)(yield) }
	})},
	{"takes longer than there is time", "Chat", chats(func(p *parrot, ctx context.Context, req *llmhttp.ChatRequest) stream {
		return func(yield yields) {
			select {
			case <-ctx.Done():
			case <-time.After(time.Hour):
			}
			llmhttp.Reply("")(yield)
		}
	})},
	{"another goroutine", "Chat", chats(func(p *parrot, ctx context.Context, req *llmhttp.ChatRequest) stream {
		return func(yield yields) {
			var wg sync.WaitGroup
			wg.Go(func() { p.speak(ctx, req)(yield) })
			wg.Wait()
		}
	})},
	{"bad Extra of a chunk", "Chat", edits(func(_ int, c *chunk) *chunk { c.Extra = bad; return c })},
	{"bad Extra of a choice", "Chat", spoils(0, func(c *choice) { c.Extra = bad })},
	{"bad Extra of a delta", "Chat", spoils(0, func(c *choice) { c.Delta.Extra = bad })},
	{"bad Extra of a usage", "Chat", edits(func(_ int, c *chunk) *chunk { c.Usage = &llmhttp.Usage{Extra: bad}; return c })},
	{"negative usage", "Chat", edits(func(_ int, c *chunk) *chunk { c.Usage = &llmhttp.Usage{PromptTokens: -1}; return c })},
	{"a total that is not the sum", "Chat", edits(func(_ int, c *chunk) *chunk {
		c.Usage = &llmhttp.Usage{PromptTokens: 1, CompletionTokens: 2, TotalTokens: 4}
		return c
	})},
	{"negative index", "Chat", spoils(0, func(c *choice) { c.Index = -1 })},
	{"index from 1", "Chat", edits(func(_ int, c *chunk) *chunk {
		for i := range c.Choices {
			c.Choices[i].Index++
		}
		return c
	})},
	{"the user speaks", "Chat", spoils(0, func(c *choice) { c.Delta.Role = llmhttp.RoleUser })},
	{"a FinishReason of its own", "Chat", spoils(0, func(c *choice) {
		if c.FinishReason != "" {
			c.FinishReason = "end_turn"
		}
	})},
	{"a FinishReason in each chunk", "Chat", spoils(0, func(c *choice) { c.FinishReason = llmhttp.FinishStop })},
	{"Latin-1", "Chat", spoils(0, func(c *choice) { c.Delta.Content = strings.ReplaceAll(c.Delta.Content, "\u00fc", "\xfc") })},
	{"bytes are lost", "Chat", spoils(0, func(c *choice) { c.Delta.Content = strings.ReplaceAll(c.Delta.Content, "\U0001f44b", "\xf0\x9f\x91") })},

	{"n is ignored", "ChatChoices", chats(func(p *parrot, ctx context.Context, req *llmhttp.ChatRequest) stream {
		req.N = nil
		return p.speak(ctx, req)
	})},
	{"n is at least 2", "ChatChoices", chats(func(p *parrot, ctx context.Context, req *llmhttp.ChatRequest) stream {
		req.N = ptr(max(2, req.Choices()))
		return p.speak(ctx, req)
	})},
	{"the second choice is the first", "ChatChoices", spoils(1, func(c *choice) { c.Index = 0 })},
	{"n is the server's fault", "ChatChoices", failsUnless(func(req *llmhttp.ChatRequest) bool { return req.Choices() == 1 })},
	{"no n but 2", "ChatChoices", chats(func(p *parrot, ctx context.Context, req *llmhttp.ChatRequest) stream {
		if req.Choices() == 1 {
			return llmhttp.Fail(llmhttp.Errorf(400, "bad_n", "Bad n."))
		}
		return p.speak(ctx, req)
	})},

	{"images are the server's fault", "ChatRequests", failsUnless(func(req *llmhttp.ChatRequest) bool {
		return !slices.ContainsFunc(req.Messages[0].Content, func(p llmhttp.Part) bool { return p.Type == llmhttp.PartImage })
	})},
	{"tools are the server's fault", "ChatRequests", failsUnless(func(req *llmhttp.ChatRequest) bool { return len(req.Tools) == 0 })},
	{"no user, no reply", "ChatRequests", chats(func(p *parrot, ctx context.Context, req *llmhttp.ChatRequest) stream {
		i := slices.IndexFunc(req.Messages, func(m llmhttp.Message) bool { return m.Role == llmhttp.RoleUser })
		_ = req.Messages[i]
		return p.speak(ctx, req)
	})},
	{"tool calls have no ID", "ChatRequests", spoils(0, func(c *choice) {
		for i := range c.Delta.ToolCalls {
			c.Delta.ToolCalls[i].ID = ""
		}
	})},
	{"tool calls have no name", "ChatRequests", spoils(0, func(c *choice) {
		for i := range c.Delta.ToolCalls {
			c.Delta.ToolCalls[i].Function.Name = ""
		}
	})},
	{"bad Extra of tool calls", "ChatRequests", spoils(0, func(c *choice) {
		for i := range c.Delta.ToolCalls {
			c.Delta.ToolCalls[i].Extra = bad
		}
	})},

	{"no limit of tokens", "ChatTokenLimit", chats(func(p *parrot, ctx context.Context, req *llmhttp.ChatRequest) stream {
		req.MaxTokens, req.MaxCompletionTokens = nil, nil
		return p.speak(ctx, req)
	})},
	{"only the old limit of tokens", "ChatTokenLimit", chats(func(p *parrot, ctx context.Context, req *llmhttp.ChatRequest) stream {
		req.MaxCompletionTokens = nil
		return p.speak(ctx, req)
	})},

	{"any model", "ChatUnknownModel", chats(func(p *parrot, ctx context.Context, req *llmhttp.ChatRequest) stream {
		req.Model = "chat"
		return p.speak(ctx, req)
	})},
	{"any model that begins so", "ChatUnknownModel", chats(func(p *parrot, ctx context.Context, req *llmhttp.ChatRequest) stream {
		if strings.HasPrefix(req.Model, "chat") {
			req.Model = "chat"
		}
		return p.speak(ctx, req)
	})},
	{"unknown is the server's fault", "ChatUnknownModel", unknownAs(errors.New("no such model"))},
	{"unknown is 500", "ChatUnknownModel", unknownAs(llmhttp.Errorf(500, "", "no such model"))},
	{"unknown is a nil Error", "ChatUnknownModel", unknownAs((*llmhttp.Error)(nil))},
	{"unknown is a text", "ChatUnknownModel", chats(func(p *parrot, ctx context.Context, req *llmhttp.ChatRequest) stream {
		return func(yield yields) {
			if req.Model == "chat" || yield(llmhttp.TextChunk("Sorry, but"), nil) {
				p.speak(ctx, req)(yield)
			}
		}
	})},

	{"thinks before", "ChatLazy", chats(func(p *parrot, ctx context.Context, req *llmhttp.ChatRequest) stream {
		time.Sleep(150 * time.Millisecond)
		return p.speak(ctx, req)
	})},
	{"starts a goroutine", "ChatLazy", chats(func(p *parrot, ctx context.Context, req *llmhttp.ChatRequest) stream {
		chunks := make(chan *chunk)
		go func() {
			defer close(chunks)
			for c := range p.speak(ctx, req) {
				select {
				case chunks <- c:
				case <-ctx.Done():
				}
			}
		}()
		return func(yield yields) {
			for c := range chunks {
				if !yield(c, nil) {
					return
				}
			}
		}
	})},
	{"nil before", "ChatLazy", chats(func(*parrot, context.Context, *llmhttp.ChatRequest) stream { return nil })},

	{"goes on after the loop", "ChatBreak", chats(func(p *parrot, ctx context.Context, req *llmhttp.ChatRequest) stream {
		return func(yield yields) { p.speak(ctx, req)(func(c *chunk, err error) bool { yield(c, err); return true }) }
	})},
	{"says goodbye after the loop", "ChatBreak", chats(func(p *parrot, ctx context.Context, req *llmhttp.ChatRequest) stream {
		return func(yield yields) {
			p.speak(ctx, req)(yield)
			yield(&chunk{}, nil)
		}
	})},
	{"fails after the loop", "ChatBreak", chats(func(p *parrot, ctx context.Context, req *llmhttp.ChatRequest) stream {
		return func(yield yields) {
			for c, err := range p.speak(ctx, req) {
				if !yield(c, err) {
					yield(nil, context.Canceled)
					return
				}
			}
		}
	})},
	{"stays after the loop", "ChatBreak", chats(func(p *parrot, ctx context.Context, req *llmhttp.ChatRequest) stream {
		return func(yield yields) { p.speak(ctx, req)(yield); time.Sleep(2 * time.Minute) }
	})},

	{"does not hear", "ChatCancel", chats(func(p *parrot, _ context.Context, req *llmhttp.ChatRequest) stream {
		return func(yield yields) {
			p.speak(context.Background(), req)(func(c *chunk, err error) bool { time.Sleep(time.Second); return yield(c, err) })
		}
	})},
	{"is deep in thought", "ChatCancel", chats(func(p *parrot, ctx context.Context, req *llmhttp.ChatRequest) stream {
		return func(yield yields) {
			p.speak(ctx, req)(func(c *chunk, err error) bool {
				if ctx.Err() != nil {
					time.Sleep(time.Minute)
				}
				return yield(c, err)
			})
		}
	})},
	{"repeats itself for ever", "ChatCancel", chats(func(p *parrot, _ context.Context, req *llmhttp.ChatRequest) stream {
		return func(yield yields) {
			for yield(llmhttp.TextChunk("and "), nil) {
			}
		}
	})},
	{"does not hear at first", "ChatCancelled", chats(func(p *parrot, ctx context.Context, req *llmhttp.ChatRequest) stream {
		return func(yield yields) { time.Sleep(time.Minute); p.speak(ctx, req)(yield) }
	})},

	{"one at a time", "ChatConcurrent", backendFixture(func(p *parrot) {
		var mu sync.Mutex
		p.chat = func(p *parrot, ctx context.Context, req *llmhttp.ChatRequest) stream {
			return func(yield yields) {
				if !mu.TryLock() {
					yield(nil, llmhttp.Errorf(429, "busy", "Busy."))
					return
				}
				defer mu.Unlock()
				time.Sleep(time.Microsecond)
				p.speak(ctx, req)(yield)
			}
		}
	})},
	{"one current stream", "ChatConcurrent", backendFixture(func(p *parrot) {
		var mu sync.Mutex
		var current yields
		p.chat = func(p *parrot, ctx context.Context, req *llmhttp.ChatRequest) stream {
			return func(yield yields) {
				mu.Lock()
				current = yield
				mu.Unlock()
				time.Sleep(time.Microsecond)
				mu.Lock()
				defer mu.Unlock()
				p.speak(ctx, req)(current)
			}
		}
	})},

	{"leaves a goroutine", "ChatAbandoned", chats(func(p *parrot, ctx context.Context, req *llmhttp.ChatRequest) stream {
		return func(yield yields) {
			chunks := make(chan *chunk)
			go func() {
				defer close(chunks)
				for c := range p.speak(context.Background(), req) {
					select {
					case chunks <- c:
					case <-time.After(time.Hour): // for ever
						return
					}
				}
			}()
			for c := range chunks {
				if !yield(c, nil) {
					return
				}
			}
		}
	})},
}
