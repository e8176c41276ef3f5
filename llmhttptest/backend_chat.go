// Checks of chats.

package llmhttptest

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

var chatOperation = operation{
	model: func(o *BackendOptions) string { return o.ChatModel },
	checks: []check[backendTest]{
		{"Chat", checkChat},
		{"ChatChoices", checkChatChoices},
		{"ChatRequests", checkChatRequests},
		{"ChatTokenLimit", checkChatTokenLimit},
		{"ChatUnknownModel", func(t testing.TB, b backendTest) {
			b.wantUnknownModels(t, b.opts.ChatModel, func(model string) error {
				req := b.chatRequest()
				req.Model = model
				r := b.chat(t.Context(), t, req)
				if len(r.chunks) > 0 {
					t.Errorf("the Backend yielded %d chunks for the model %q, which does not exist; want only an error", len(r.chunks), model)
				}
				return r.err
			})
		}},
		{"ChatStartsLate", checkChatStartsLate},
		{"ChatBreak", func(t testing.TB, b backendTest) {
			for n := 1; n <= 3; n++ {
				r, ok := b.iterate(t.Context(), t, b.chatRequest(), func(r backendReply) bool { return len(r.chunks) < n })
				if ok && r.err != nil {
					t.Errorf("a plain chat yielded the error %v, want none", r.err)
				}
			}
		}},
		{"ChatCancel", func(t testing.TB, b backendTest) {
			b.wantCancelledStream(t, func(ctx context.Context, more func(backendReply) bool) backendReply {
				r, _ := b.iterate(ctx, t, b.chatRequest(), more)
				return r
			})
		}},
		{"ChatCancelledBefore", checkChatCancelledBefore},
		{"ChatConcurrent", checkChatConcurrent},
		{
			"ChatLeavesNoGoroutines",
			checkChatLeavesNoGoroutines,
		},
	},
	guards: []check[guard]{
		{"Chat", func(t testing.TB, g guard) {
			g.check(t, func(ctx context.Context, b llmhttp.Backend) { drain(b.Chat(ctx, g.chat())) })
		}},
		{"CountTokens", func(t testing.TB, g guard) {
			guardCall(t, g, llmhttp.TokenCounter.CountTokens, g.chat())
		}},
	},
}

func (g *guard) chat() *llm.ChatRequest {
	return &llm.ChatRequest{Model: "m", Messages: []llm.Message{{Role: llm.RoleUser, Content: llm.TextContent(g.text)}}}
}

// chatRequest returns a new plain chat request.
func (b *backendTest) chatRequest() *llm.ChatRequest {
	return &llm.ChatRequest{
		Model:    b.opts.ChatModel,
		Messages: []llm.Message{{Role: llm.RoleUser, Content: llm.TextContent(b.opts.Prompt)}},
	}
}

// checkChat makes plain chats, which must succeed whether or not the client asked for a stream.
func checkChat(t testing.TB, b backendTest) {
	for _, stream := range []bool{false, true} {
		req := b.chatRequest()
		req.Stream = stream
		if stream {
			req.StreamOptions = &llm.StreamOptions{IncludeUsage: true}
		}
		if r := b.chat(t.Context(), t, req); r.err != nil && stream {
			t.Errorf("a plain chat with Stream true yielded the error %v, want none", r.err)
		} else if r.err != nil {
			t.Errorf("a plain chat yielded the error %v, want none", r.err)
		}
	}
}

func checkChatChoices(t testing.TB, b backendTest) {
	for _, n := range []int{1, 2, 5} {
		req := b.chatRequest()
		req.N = &n
		if r := b.chat(t.Context(), t, req); r.err != nil && n == 1 {
			t.Errorf("a chat with N 1 yielded the error %v, want none", r.err)
		}
	}
}

func checkChatRequests(t testing.TB, b backendTest) {
	for what, change := range unusualRequests {
		req := b.chatRequest()
		change(req)
		if r := b.chat(t.Context(), t, req); t.Failed() {
			t.Fatalf("the request was one with %s; the Backend yielded %d chunks and the error %v", what, len(r.chunks), r.err)
		}
	}
}

// unusualRequests has functions that change a plain chat request to one of each kind that
// a Handler accepts.
var unusualRequests = map[string]func(r *llm.ChatRequest){
	"a conversation": func(r *llm.ChatRequest) {
		r.Messages = []llm.Message{
			{Role: llm.RoleSystem, Content: llm.TextContent("Be brief.")},
			{Role: llm.RoleUser, Content: llm.TextContent("Hello!"), Name: "Alice"},
			{Role: llm.RoleAssistant, Content: llm.TextContent("Hello, Alice!"), Reasoning: "It is Alice."},
			r.Messages[0],
		}
	},
	"no user message": func(r *llm.ChatRequest) {
		r.Messages = []llm.Message{{Role: llm.RoleSystem, Content: llm.TextContent("Greet the user.")}}
	},
	"an assistant message at the end": func(r *llm.ChatRequest) {
		r.Messages = append(r.Messages, llm.Message{Role: llm.RoleAssistant, Content: llm.TextContent("Well,")})
	},
	"a developer message": func(r *llm.ChatRequest) {
		r.Messages = []llm.Message{{Role: llm.RoleDeveloper, Content: llm.TextContent("Be brief.")}, r.Messages[0]}
	},
	"an empty message": func(r *llm.ChatRequest) {
		r.Messages = []llm.Message{{Role: llm.RoleUser, Content: llm.TextContent("")}}
	},
	"control characters and emoji": func(r *llm.ChatRequest) {
		r.Messages[0].Content = llm.TextContent(
			"\x00\x1b\u2028 data: [DONE]\r\n\r\n\"\\ \U0001f468\u200d\U0001f469\u200d\U0001f467 e\u0301 \ufffd",
		)
	},
	"a long text": func(r *llm.ChatRequest) {
		r.Messages[0].Content = llm.TextContent(strings.Repeat("A word and another. ", 100))
	},
	"several text parts": func(r *llm.ChatRequest) {
		r.Messages[0].Content = llm.Content{
			{Type: llm.PartText, Text: "Repeat: "},
			{Type: llm.PartText, Text: r.Messages[0].Content.Text()},
		}
	},
	"an image": func(r *llm.ChatRequest) {
		r.Messages[0].Content = llm.Content{{Type: llm.PartText, Text: "What is this?"},
			{Type: llm.PartImage, ImageURL: &llm.ImageURL{URL: onePixel}}}
	},
	"a part of an unknown type": func(r *llm.ChatRequest) {
		r.Messages[0].Content = llm.Content{{Type: "smell", Extra: llm.Extra{"smell": json.RawMessage(`{"of":"roses"}`)}}}
	},
	"unknown members": func(r *llm.ChatRequest) {
		r.Extra = llm.Extra{"x_unknown": json.RawMessage(`{"a":[1,2]}`), "user": json.RawMessage(`"u-1"`)}
		r.Messages[0].Extra = llm.Extra{"x_unknown": json.RawMessage(`null`)}
	},
	"all numbers": func(r *llm.ChatRequest) {
		r.Temperature, r.TopP, r.PresencePenalty, r.FrequencyPenalty = new(0.0), new(1.0), new(-2.0), new(2.0)
		r.MaxTokens = new(50)
	},
	"stop sequences": func(r *llm.ChatRequest) { r.Stop = llm.StringList{"fox", "", "\n", "dog"} },
	"a JSON object": func(r *llm.ChatRequest) {
		r.ResponseFormat = &llm.ResponseFormat{Type: "json_object"}
		r.Messages[0].Content = llm.TextContent("Reply with a JSON object that has a member named a.")
	},
	"tools": func(r *llm.ChatRequest) {
		r.Tools = []llm.Tool{weatherTool}
		r.Messages[0].Content = llm.TextContent("What is the weather in Paris?")
	},
	"a required tool": func(r *llm.ChatRequest) {
		r.Tools, r.ToolChoice = []llm.Tool{weatherTool}, &llm.ToolChoice{Mode: llm.ToolChoiceRequired}
	},
	"a tool of an unknown type": func(r *llm.ChatRequest) {
		r.Tools = []llm.Tool{{Type: "x_unknown", Extra: llm.Extra{"x": json.RawMessage(`1`)}}}
	},
	"a tool result": func(r *llm.ChatRequest) {
		r.Tools = []llm.Tool{weatherTool}
		r.Messages = []llm.Message{
			{Role: llm.RoleUser, Content: llm.TextContent("What is the weather in Paris?")},
			{Role: llm.RoleAssistant, ToolCalls: []llm.ToolCall{
				{ID: "call_1", Type: "function", Function: llm.FunctionCall{Name: "weather", Arguments: `{"city":"Paris"}`}}}},
			{Role: llm.RoleTool, ToolCallID: "call_1", Content: llm.TextContent("It rains.")},
		}
	},
}

var weatherTool = llm.Tool{Type: "function", Function: &llm.Function{Name: "weather", Description: "Tells the weather.",
	Parameters: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}`)}}

// onePixel is a PNG image of one pixel.
const onePixel = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="

func checkChatTokenLimit(t testing.TB, b backendTest) {
	const limit = 16
	for _, limited := range []llm.ChatRequest{{MaxTokens: new(limit)}, {MaxCompletionTokens: new(limit)}} {
		req := b.chatRequest()
		req.MaxTokens, req.MaxCompletionTokens = limited.MaxTokens, limited.MaxCompletionTokens
		for _, c := range b.chat(t.Context(), t, req).chunks {
			if c.Usage != nil && c.Usage.CompletionTokens > limit {
				t.Errorf("the reply used %d completion tokens, want at most %d", c.Usage.CompletionTokens, limit)
			}
		}
	}
}

// allowedGoroutines is how many goroutines manyStreams streams may leave behind,
// for example for idle connections.
const manyStreams, allowedGoroutines = 20, 10

// checkChatStartsLate checks that Chat itself neither takes time nor starts
// goroutines. Other work cannot be seen.
func checkChatStartsLate(t testing.TB, b backendTest) {
	const limit = 100 * time.Millisecond
	fastest := time.Hour // the machine may be slow for some of the calls
	goroutines := countGoroutines(t, func(ctx context.Context) {
		if err := b.call(ctx, func(ctx context.Context) {
			for range manyStreams {
				begin := time.Now()
				if b.Chat(ctx, b.chatRequest()) == nil {
					panic("Chat returned a nil stream, want one that yields an error")
				}
				fastest = min(fastest, time.Since(begin))
			}
		}); err != nil {
			t.Fatalf("Chat: %v", err)
		}
	})
	if n := goroutines(); n > allowedGoroutines {
		t.Errorf("%d calls of Chat started %d goroutines before the loop, want none", manyStreams, n)
	}
	if fastest > limit {
		t.Errorf("Chat took at least %v before the loop, want less than %v", fastest, limit)
	}
}

// wantCancelledStream checks that a stream ends when its context is cancelled after some chunks.
// iterate iterates over one until more returns false.
func (b *backendTest) wantCancelledStream(t testing.TB, iterate func(ctx context.Context, more func(backendReply) bool) backendReply) {
	t.Helper()
	const limit = 10_000 // more chunks than a Backend buffers
	for n := range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		r := iterate(ctx, func(r backendReply) bool {
			if len(r.chunks) == n+1 {
				cancel()
			}
			return len(r.chunks) <= n+limit
		})
		cancel()
		if len(r.chunks) > n+limit {
			t.Errorf("the stream yielded %d chunks after its context was cancelled, want it to end", limit)
		}
	}
}

func checkChatCancelledBefore(t testing.TB, b backendTest) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b.iterate(ctx, t, b.chatRequest(), func(backendReply) bool { return true })
}

func checkChatConcurrent(t testing.TB, b backendTest) {
	const chats = 8
	runConcurrently(t, chats, func(int) {
		if r := b.chat(t.Context(), t, b.chatRequest()); r.err != nil {
			t.Errorf("one of %d concurrent chats yielded the error %v, want none", chats, r.err)
		}
	})
}

// checkChatLeavesNoGoroutines checks that streams leak no goroutines when they are abandoned: by
// the end of the loop, or by a cancelled context, which the Backend may notice in the
// loop or while it waits for its next chunk.
func checkChatLeavesNoGoroutines(t testing.TB, b backendTest) {
	soon := func(cancel func()) { time.AfterFunc(time.Millisecond, cancel) }
	checkAbandonedStreams(
		t,
		b,
		"cancelled while the loop waited for the first chunk",
		0,
		func(cancel func()) bool { soon(cancel); return true },
	)
	for n := 1; n <= 3; n++ {
		for how, abandon := range map[string]func(cancel func()) (more bool){
			"whose loops ended":                                  func(func()) bool { return false },
			"cancelled in the loop":                              func(cancel func()) bool { cancel(); return true },
			"cancelled while the loop waited for the next chunk": func(cancel func()) bool { soon(cancel); return true },
		} {
			checkAbandonedStreams(t, b, fmt.Sprintf("%s after %d chunks", how, n), n, abandon)
		}
	}
}

// checkAbandonedStreams calls abandon after n chunks of each of several streams,
// which are described by how.
func checkAbandonedStreams(t testing.TB, b backendTest, how string, n int, abandon func(cancel func()) (more bool)) {
	goroutines := countGoroutines(t, func(ctx context.Context) {
		for range manyStreams {
			ctx, cancel := context.WithCancel(ctx)
			if n == 0 {
				abandon(cancel)
			}
			b.iterate(ctx, t, b.chatRequest(), func(r backendReply) bool { return len(r.chunks) != n || abandon(cancel) })
			cancel()
		}
	})
	deadline := time.Now().Add(b.opts.Grace)
	for left := goroutines(); left > allowedGoroutines; left = goroutines() {
		if time.Now().After(deadline) {
			t.Errorf("%d streams %s left %d goroutines behind after %v, want none", manyStreams, how, left, b.opts.Grace)
			return
		}
		time.Sleep(min(b.opts.Grace/100, time.Second))
	}
}

// countGoroutines calls f, and returns a function that counts the goroutines that f has started and
// that still run.
func countGoroutines(t testing.TB, f func(ctx context.Context)) func() int {
	label := unique("llmhttptest")
	pprof.Do(t.Context(), pprof.Labels("llmhttptest", label), f) // goroutines inherit labels
	return func() int {
		var profile strings.Builder
		if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
			return 0
		}
		count := 0
		for group := range strings.SplitSeq(profile.String(), "\n\n") { // "3 @ 0x1 0x2\n# labels: {...}\n#..."
			if !strings.Contains(group, label) {
				continue
			}
			for line := range strings.Lines(group) { // the profile begins with a title
				var n int
				if _, err := fmt.Sscanf(line, "%d @", &n); err == nil {
					count += n
				}
			}
		}
		return count
	}
}
