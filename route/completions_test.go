package route_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/completion"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/llmhttp/llmhttp/route"
)

// A finisher is a Backend that completes prompts by a function.
type finisher struct {
	*multimodal
	complete func(r *completion.Request) llm.ChatStream
}

func (b *finisher) Complete(_ context.Context, r *completion.Request) llm.ChatStream {
	return b.complete(r)
}

// Another target gets the request as the client sent it, as long as no text was passed on.
func TestComplete_Fallback(t *testing.T) {
	down := &llm.Error{Status: 503, Message: "Down."}
	for name, test := range map[string]struct {
		first llm.ChatStream
		want  string // empty if the request fails
	}{
		"before a chunk": {llm.Fail(down), "b"},
		"after a chunk without text": {func(yield yieldFunc) {
			_ = yield(&llm.ChatChunk{ID: "x"}, nil) && yield(nil, down)
		}, "b"},
		"after text": {func(yield yieldFunc) { _ = yield(llm.TextChunk("a"), nil) && yield(nil, down) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			first := &finisher{newMultimodal("1", nil), func(r *completion.Request) llm.ChatStream {
				r.Prompt.Texts[0], *r.MaxTokens, r.Extra["x"] = "changed", 9, nil
				return test.first
			}}
			second := &finisher{newMultimodal("2", nil), func(r *completion.Request) llm.ChatStream {
				assert.Equal(t, &completion.Request{
					Model: "second", Prompt: completion.Prompt{Texts: []string{"a"}}, MaxTokens: new(5), Extra: llm.Extra{"x": json.RawMessage("1")},
				}, r)
				return llm.Reply("b")
			}}
			r := newRouter(t, nil, route.Route{Model: "m", Strategy: route.InOrder, Targets: []route.Target{
				{Name: "chats", Backend: newFake(say("a"))}, {Name: "first", Backend: first, Model: "first"}, {Name: "second", Backend: second, Model: "second"},
			}})
			req := &completion.Request{Model: "m", Prompt: completion.Prompt{Texts: []string{"a"}}, MaxTokens: new(5), Extra: llm.Extra{"x": json.RawMessage("1")}}
			got, err := join.Collect(r.Complete(t.Context(), req))
			if test.want == "" {
				require.ErrorIs(t, err, down)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.want, got.Choices[0].Message.Content.Text())
			assert.Equal(t, "m", got.Model)
		})
	}
	_, err := join.Collect(newRouter(t, nil, route.Route{Model: "m", Targets: targets(newFake(say("a")))}).Complete(t.Context(), &completion.Request{Model: "m"}))
	require.Error(t, err, "no target completes prompts")
}
