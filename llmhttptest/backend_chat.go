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
)

var backendChecks = []check[backendTest]{
	{"Chat", checkChat},
	{"ChatChoices", checkChatChoices},
	{"ChatRequests", checkChatRequests},
	{"ChatTokenLimit", checkChatTokenLimit},
	{"ChatUnknownModel", checkChatUnknownModel},
	{"ChatLazy", checkChatLazy},
	{"ChatBreak", checkChatBreak},
	{"ChatCancel", checkChatCancel},
	{"ChatCancelled", checkChatCancelled},
	{"ChatConcurrent", checkChatConcurrent},
	{"ChatAbandoned", checkChatAbandoned},
	{"Models", checkModels},
	{"Images", checkImages},
	{"ImageSizes", checkImageSizes},
	{"ImageUnknownModel", checkImageUnknownModel},
	{"ImageCancelled", checkImageCancelled},
	{"Embeddings", checkEmbeddings},
	{"EmbeddingOrder", checkEmbeddingOrder},
	{"EmbeddingUnknownModel", checkEmbeddingUnknownModel},
	{"EmbeddingCancelled", checkEmbeddingCancelled},
}

// checkChat makes the plainest of chats, which must succeed. Whether a client
// wants a stream is of no concern to a Backend.
func checkChat(t testing.TB, b backendTest) {
	need(t, b.ChatModel)
	for _, stream := range []bool{false, true} {
		req := b.request()
		req.Stream = stream
		if stream {
			req.StreamOptions = &llmhttp.StreamOptions{IncludeUsage: true}
		}
		if r := b.chat(t.Context(), t, req); r.err != nil {
			t.Errorf("a plain chat, with stream %t, failed: %v", stream, r.err)
		}
	}
}

func checkChatChoices(t testing.TB, b backendTest) {
	need(t, b.ChatModel)
	for _, n := range []int{1, 2, 5} {
		req := b.request()
		req.N = &n
		r := b.chat(t.Context(), t, req)
		if r.err != nil && n == 1 {
			t.Errorf("a chat of one choice failed: %v", r.err)
		}
	}
}

// checkChatRequests sends one of each kind of request that a Handler lets pass.
func checkChatRequests(t testing.TB, b backendTest) {
	need(t, b.ChatModel)
	user := llmhttp.Message{Role: llmhttp.RoleUser, Content: llmhttp.Text(b.Prompt)}
	tool := llmhttp.Tool{Type: "function", Function: &llmhttp.Function{Name: "weather", Description: "Tells the weather.",
		Parameters: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}`)}}
	for what, change := range map[string]func(r *llmhttp.ChatRequest){
		"a conversation": func(r *llmhttp.ChatRequest) {
			r.Messages = []llmhttp.Message{
				{Role: llmhttp.RoleSystem, Content: llmhttp.Text("Be brief.")},
				{Role: llmhttp.RoleUser, Content: llmhttp.Text("Hello!"), Name: "Alice"},
				{Role: llmhttp.RoleAssistant, Content: llmhttp.Text("Hello, Alice!"), Reasoning: "It is Alice."},
				user,
			}
		},
		"no message of a user": func(r *llmhttp.ChatRequest) {
			r.Messages = []llmhttp.Message{{Role: llmhttp.RoleSystem, Content: llmhttp.Text("Greet the user.")}}
		},
		"the beginning of a reply": func(r *llmhttp.ChatRequest) {
			r.Messages = append(r.Messages, llmhttp.Message{Role: llmhttp.RoleAssistant, Content: llmhttp.Text("Well,")})
		},
		"a developer's message": func(r *llmhttp.ChatRequest) {
			r.Messages = []llmhttp.Message{{Role: llmhttp.RoleDeveloper, Content: llmhttp.Text("Be brief.")}, user}
		},
		"an empty message": func(r *llmhttp.ChatRequest) {
			r.Messages = []llmhttp.Message{{Role: llmhttp.RoleUser, Content: llmhttp.Text("")}}
		},
		"an odd text": func(r *llmhttp.ChatRequest) {
			r.Messages[0].Content = llmhttp.Text("\x00\x1b\u2028 data: [DONE]\r\n\r\n\"\\ \U0001f468\u200d\U0001f469\u200d\U0001f467 e\u0301 \ufffd")
		},
		"a long text": func(r *llmhttp.ChatRequest) {
			r.Messages[0].Content = llmhttp.Text(strings.Repeat("A word and another. ", 100))
		},
		"several parts": func(r *llmhttp.ChatRequest) {
			r.Messages[0].Content = llmhttp.Content{{Type: llmhttp.PartText, Text: "Repeat: "}, {Type: llmhttp.PartText, Text: b.Prompt}}
		},
		"an image": func(r *llmhttp.ChatRequest) {
			r.Messages[0].Content = llmhttp.Content{{Type: llmhttp.PartText, Text: "What is this?"},
				{Type: llmhttp.PartImage, ImageURL: &llmhttp.ImageURL{URL: onePixel}}}
		},
		"a part of an unknown type": func(r *llmhttp.ChatRequest) {
			r.Messages[0].Content = llmhttp.Content{{Type: "smell", Extra: llmhttp.Extra{"smell": json.RawMessage(`{"of":"roses"}`)}}}
		},
		"unknown members": func(r *llmhttp.ChatRequest) {
			r.Extra = llmhttp.Extra{"x_unknown": json.RawMessage(`{"a":[1,2]}`), "user": json.RawMessage(`"u-1"`)}
			r.Messages[0].Extra = llmhttp.Extra{"x_unknown": json.RawMessage(`null`)}
		},
		"every number": func(r *llmhttp.ChatRequest) {
			r.Temperature, r.TopP, r.PresencePenalty, r.FrequencyPenalty = ptr(0.0), ptr(1.0), ptr(-2.0), ptr(2.0)
			r.MaxTokens = ptr(50)
		},
		"stop sequences": func(r *llmhttp.ChatRequest) { r.Stop = llmhttp.StringList{"fox", "", "\n", "dog"} },
		"a JSON object": func(r *llmhttp.ChatRequest) {
			r.ResponseFormat = &llmhttp.ResponseFormat{Type: "json_object"}
			r.Messages[0].Content = llmhttp.Text("Reply with a JSON object that has a member named a.")
		},
		"tools": func(r *llmhttp.ChatRequest) {
			r.Tools = []llmhttp.Tool{tool}
			r.Messages[0].Content = llmhttp.Text("What is the weather in Paris?")
		},
		"a required tool": func(r *llmhttp.ChatRequest) {
			r.Tools, r.ToolChoice = []llmhttp.Tool{tool}, json.RawMessage(`"required"`)
		},
		"a tool of an unknown type": func(r *llmhttp.ChatRequest) {
			r.Tools = []llmhttp.Tool{{Type: "x_unknown", Extra: llmhttp.Extra{"x": json.RawMessage(`1`)}}}
		},
		"a tool's result": func(r *llmhttp.ChatRequest) {
			r.Tools = []llmhttp.Tool{tool}
			r.Messages = []llmhttp.Message{
				{Role: llmhttp.RoleUser, Content: llmhttp.Text("What is the weather in Paris?")},
				{Role: llmhttp.RoleAssistant, ToolCalls: []llmhttp.ToolCall{
					{ID: "call_1", Type: "function", Function: llmhttp.FunctionCall{Name: "weather", Arguments: `{"city":"Paris"}`}}}},
				{Role: llmhttp.RoleTool, ToolCallID: "call_1", Content: llmhttp.Text("It rains.")},
			}
		},
	} {
		req := b.request()
		change(req)
		if r := b.chat(t.Context(), t, req); t.Failed() {
			t.Fatalf("the request was one with %s; %d chunks came, and the error %v", what, len(r.chunks), r.err)
		}
	}
}

// onePixel is the smallest of PNGs.
const onePixel = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="

func checkChatTokenLimit(t testing.TB, b backendTest) {
	need(t, b.ChatModel)
	const limit = 16
	for _, set := range []func(*llmhttp.ChatRequest){
		func(r *llmhttp.ChatRequest) { r.MaxTokens = ptr(limit) },
		func(r *llmhttp.ChatRequest) { r.MaxCompletionTokens = ptr(limit) },
	} {
		req := b.request()
		set(req)
		r := b.chat(t.Context(), t, req)
		if u := r.usage(); u != nil && u.CompletionTokens > limit {
			t.Errorf("the reply to a request for at most %d tokens used %d", limit, u.CompletionTokens)
		}
	}
}

func checkChatUnknownModel(t testing.TB, b backendTest) {
	need(t, b.ChatModel)
	if b.AnyModel {
		t.Skip("the Backend knows any model")
	}
	for _, model := range unknownModels(b.ChatModel) {
		req := b.request()
		req.Model = model
		switch r := b.chat(t.Context(), t, req); {
		case len(r.chunks) > 0:
			t.Errorf("the model %q does not exist, but says something", model)
		case r.err == nil:
			t.Errorf("the model %q does not exist, but there is no error", model)
		}
	}
}

// unknownModels returns names of models that do not exist.
func unknownModels(model string) []string {
	return []string{unique("no-such-model"), model + "-" + unique("x"), "no/such/" + unique("model") + "?*'\"%"}
}

// checkChatLazy checks that the work is not done before the stream is ranged
// over. It sees only work that takes time or goroutines.
func checkChatLazy(t testing.TB, b backendTest) {
	need(t, b.ChatModel)
	const long, streams, few = 100 * time.Millisecond, 20, 10
	quickest := time.Hour // for the machine may be slow at times
	label, idle := unique("llmhttptest"), 0
	pprof.Do(t.Context(), pprof.Labels("llmhttptest", label), func(ctx context.Context) {
		if err := b.call(ctx, func(ctx context.Context) {
			for range streams {
				begin := time.Now()
				if b.Chat(ctx, b.request()) == nil {
					panic("Chat returned a nil stream")
				}
				quickest = min(quickest, time.Since(begin))
			}
			idle = labelled(label)
		}); err != nil {
			t.Fatalf("Chats whose streams are not ranged over: %v", err)
		}
	})
	if quickest > long {
		t.Errorf("Chat takes %v before its stream is ranged over, which is when the work is to begin", quickest)
	}
	if idle > few {
		t.Errorf("%d Chats started %d goroutines before their streams are ranged over, which is when the work is to begin", streams, idle)
	}
}

func checkChatBreak(t testing.TB, b backendTest) {
	need(t, b.ChatModel)
	for n := 1; n <= 3; n++ {
		req := b.request()
		r, ended := b.observe(t.Context(), t, req, func(r reply) bool { return len(r.chunks) < n })
		if ended && r.err != nil {
			t.Errorf("a plain chat failed: %v", r.err)
		}
	}
}

// checkChatCancel cancels the context in mid-stream.
func checkChatCancel(t testing.TB, b backendTest) {
	need(t, b.ChatModel)
	const many = 10_000 // chunks that cannot have been on their way
	for n := range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		r, _ := b.observe(ctx, t, b.request(), func(r reply) bool {
			if len(r.chunks) == n+1 {
				cancel()
			}
			return len(r.chunks) <= n+many
		})
		cancel()
		if len(r.chunks) > n+many {
			t.Errorf("the stream went on for %d chunks after its context was cancelled", many)
		}
	}
}

// checkChatCancelled ranges when the context was cancelled before.
func checkChatCancelled(t testing.TB, b backendTest) {
	need(t, b.ChatModel)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b.observe(ctx, t, b.request(), func(reply) bool { return true })
}

func checkChatConcurrent(t testing.TB, b backendTest) {
	need(t, b.ChatModel)
	together(t, 8, func(int) {
		if r := b.chat(t.Context(), t, b.request()); r.err != nil {
			t.Errorf("one of 8 concurrent chats failed: %v", r.err)
		}
	})
}

// checkChatAbandoned checks that no goroutine is left of streams that were not
// ranged over to the end, apart from a few that tend idle connections.
func checkChatAbandoned(t testing.TB, b backendTest) {
	need(t, b.ChatModel)
	const streams, few = 20, 10
	label := unique("llmhttptest")
	pprof.Do(t.Context(), pprof.Labels("llmhttptest", label), func(ctx context.Context) { // goroutines inherit labels
		for range streams {
			ctx, cancel := context.WithCancel(ctx)
			b.observe(ctx, t, b.request(), func(reply) bool { return false })
			cancel()
		}
	})
	deadline := time.Now().Add(b.Grace)
	for wait := time.Millisecond; ; wait *= 2 {
		n := labelled(label)
		if n <= few {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("%d streams that were abandoned left %d goroutines behind", streams, n)
			return
		}
		time.Sleep(min(wait, time.Until(deadline)+time.Millisecond))
	}
}

// labelled returns how many goroutines have the given label.
func labelled(label string) int {
	var b strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&b, 1); err != nil {
		return 0
	}
	count := 0
	for group := range strings.SplitSeq(b.String(), "\n\n") { // "3 @ 0x1 0x2\n# labels: {...}\n#..."
		if !strings.Contains(group, label) {
			continue
		}
		for line := range strings.Lines(group) {
			var n int
			if _, err := fmt.Sscanf(line, "%d @", &n); err == nil {
				count += n
			}
		}
	}
	return count
}
