package llmhttp_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/imageedit"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
)

// oneChoice is a Backend that makes one choice, whatever N is, and tells how often it was called. usage is that of
// each call, which report, if it is set, reports instead of the last chunk.
type oneChoice struct {
	calls    int
	usage    llm.Usage
	report   func(ctx context.Context, u llm.Usage)
	failFrom int // the call that fails; zero for none
}

func (b *oneChoice) Chat(ctx context.Context, r *llm.ChatRequest) llm.ChatStream {
	return func(yield yieldFunc) {
		b.calls++
		call := b.calls
		if r.N != nil && *r.N > 1 {
			yield(nil, errors.New("N was passed on"))
			return
		}
		r.Messages[0].Content = llm.TextContent("changed") // the Backend owns the request
		defer func() {
			if b.report != nil {
				b.report(ctx, b.usage)
			}
		}()
		if !yield(llm.TextChunk(fmt.Sprintf("text %d", call)), nil) {
			return
		}
		if call == b.failFrom {
			yield(nil, errCause)
			return
		}
		end := llm.TextChunk("!")
		if b.report == nil {
			end.Usage = &b.usage
		}
		yield(end, nil)
	}
}

// Each choice is that of one call, and the usage is the sum of the calls, whether they yield or report it.
func TestChoices(t *testing.T) {
	for name, report := range map[string]func(context.Context, llm.Usage){"yielded": nil, "reported": llm.ReportUsage} {
		for mode, body := range map[string]string{"whole": chatWith(`"n":3`), "stream": chatWith(`"n":3,"stream":true`)} {
			t.Run(name+"/"+mode, func(t *testing.T) {
				b := &oneChoice{usage: usageOf(10, 5), report: report}
				s := startServer(t, config{backend: llmhttp.Choices(b)})
				r := s.chat(body)
				require.Equal(t, 200, r.StatusCode, "%s", r.body)
				assert.Equal(t, 3, b.calls)
				if mode == "whole" {
					for i := range 3 {
						assert.Contains(t, r.body, fmt.Sprintf(`{"index":%d,"message":{"role":"assistant","content":"text %d!","refusal":null}`, i, i+1))
					}
				} else {
					last := -1
					for i := range 3 {
						at := strings.Index(r.body, fmt.Sprintf(`"choices":[{"index":%d,"delta":{"content":"text %d"}`, i, i+1))
						assert.Greater(t, at, last, r.body)
						last = at
					}
					assert.Equal(t, 3, strings.Count(r.body, `"finish_reason":"stop"`))
				}
				assert.Equal(t, llmhttp.Units{PromptTokens: 30, CompletionTokens: 15}, s.record().Units)
				assert.False(t, s.record().Estimated)
				assert.NotContains(t, s.log.String(), "choices")
			})
		}
	}
}

// A call that fails ends the reply. What was used until then is recorded.
func TestChoices_Error(t *testing.T) {
	b := &oneChoice{usage: usageOf(10, 5), failFrom: 2}
	s := startServer(t, config{backend: llmhttp.Choices(b)})
	assert.Equal(t, 500, s.chat(chatWith(`"n":3`)).StatusCode)
	assert.Equal(t, 2, b.calls)
	assert.Equal(t, llmhttp.Units{PromptTokens: 10, CompletionTokens: 5}, s.record().Units)

	for name, stream := range map[string]llm.ChatStream{"nil": nil, "empty": func(yieldFunc) {}} {
		chats := llmhttp.Choices(llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream { return stream }))
		_, err := join.Collect(chats.Chat(t.Context(), &llm.ChatRequest{N: new(2)}))
		assert.Error(t, err, name)
	}
	assert.Panics(t, func() { llmhttp.Choices(nil) })
}

// When the reader stops, or the context is done, there are no further calls, and a call that still reports its usage
// adds it to that of the calls before.
func TestChoices_ReaderStops(t *testing.T) {
	b := &oneChoice{usage: usageOf(10, 5), report: llm.ReportUsage}
	outer := llmhttp.BackendFunc(func(ctx context.Context, r *llm.ChatRequest) llm.ChatStream {
		return func(yield yieldFunc) {
			chunks := 0
			_, end := llm.StartCall(ctx, "")
			end(llm.CallResult{Usage: new(usageOf(100, 0))})
			for c, err := range llmhttp.Choices(b).Chat(ctx, r) {
				if chunks++; chunks == 3 { // the first one of the second choice
					break
				}
				if !yield(c, err) {
					return
				}
			}
		}
	})
	s := startServer(t, config{backend: outer})
	assert.Equal(t, 200, s.chat(chatWith(`"n":3`)).StatusCode)
	assert.Equal(t, 2, b.calls)
	assert.Equal(t, llmhttp.Units{PromptTokens: 120, CompletionTokens: 10}, s.record().Units, "of the agent, and of two calls")

	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	chats := llmhttp.Choices(llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream {
		return func(yield yieldFunc) {
			calls++
			yield(llm.TextChunk("a"), nil)
			cancel()
		}
	}))
	_, err := join.Collect(chats.Chat(ctx, &llm.ChatRequest{N: new(2)}))
	assert.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, 1, calls)
}

// A request for one choice is passed on as it is, and so are the optional interfaces.
func TestChoices_PassesOn(t *testing.T) {
	stub := &stubBackend{chat: func(_ context.Context, r *llm.ChatRequest) llm.ChatStream {
		assert.Equal(t, new(1), r.N)
		return llm.Reply("one")
	}}
	s := startServer(t, config{backend: llmhttp.Choices(stub)})
	assert.Contains(t, s.chat(chatWith(`"n":1`)).body, `"content":"one"`)
	assert.Equal(t, 200, s.do("POST", imagesPath, imageBody).StatusCode)
}

// Fewer choices or images than a client asked for are logged, once a request, and it gets those.
func TestFewerThanAskedFor(t *testing.T) {
	image := &llm.ImageResponse{Data: []llm.Image{{Data: []byte(pngData)}}}
	draw := func(context.Context, *llm.ImageRequest) (*llm.ImageResponse, error) { return image, nil }
	b := &stubBackend{
		images: draw,
		edit:   func(context.Context, *imageedit.Request) (*llm.ImageResponse, error) { return image, nil },
	}
	s := startServer(t, config{backend: b})
	logged := func(what string) int { return strings.Count(s.log.String(), "fewer "+what+" than were asked for") }
	for _, test := range []struct{ path, members, what string }{
		{chatPath, `"n":3`, "choices"},
		{chatPath, `"n":3,"stream":true`, "choices"},
		{completionsPath, `"n":2`, "choices"},
		{completionsPath, `"n":2,"stream":true`, "choices"},
		{imagesPath, `"n":2`, "images"},
		{imagesPath, `"n":2,"stream":true`, "images"},
		{imageEditsPath, `"n":2`, "images"},
		{imageEditsPath, `"n":2,"stream":true`, "images"},
		{chatPath, `"n":1`, ""},
		{chatPath, `"stream":true`, ""},
		{completionsPath, `"n":1`, ""},
		{imagesPath, `"n":1`, ""},
		{imagesPath, `"stream":true`, ""},
		{imageEditsPath, `"n":1`, ""},
	} {
		choices, images := logged("choices"), logged("images")
		body := strings.TrimSuffix(modelBodies[test.path], "}") + "," + test.members + "}"
		require.Equal(t, 200, s.do("POST", test.path, body).StatusCode, "%s", body)
		switch test.what {
		case "choices":
			choices++
		case "images":
			images++
		}
		assert.Equal(t, [2]int{choices, images}, [2]int{logged("choices"), logged("images")}, "%s with %s", test.path, test.members)
	}
	assert.Contains(t, s.log.String(), `"level":"WARN"`)
}
