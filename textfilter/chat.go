// Where the texts of chats are.

package textfilter

import (
	"context"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/ability"
	"github.com/llmhttp/llmhttp/internal/callctx"
	"github.com/llmhttp/llmhttp/internal/order"
	"github.com/llmhttp/llmhttp/internal/texts"
	"github.com/llmhttp/llmhttp/llm"
)

var chatTexts = textsOf(func(w *rewriter, r *llm.ChatRequest) {
	for i := range r.Messages {
		w.message(&r.Messages[i])
	}
	for i := range r.Tools {
		t := &r.Tools[i]
		texts.WalkTool(t, w.visit, w.visitExtra)
		if t.Function != nil {
			w.json(&t.Function.Parameters)
		}
	}
	w.list(Other, r.Stop)
	w.toolChoice(r.ToolChoice)
	if format := r.ResponseFormat; format != nil {
		w.extra(format.Extra)
		if s := format.JSONSchema; s != nil {
			w.text(Name, &s.Name)
			w.text(Description, &s.Description)
			w.json(&s.Schema)
			w.extra(s.Extra)
		}
	}
	w.streamOptions(r.StreamOptions)
	w.extra(r.Extra)
})

// message rewrites the texts of m.
func (w *rewriter) message(m *llm.Message) {
	m.Content = joinRuns(w, Content, m.Content, partRun)
	m.ReasoningDetails = joinRuns(w, Reasoning, m.ReasoningDetails, detailRun)
	texts.WalkMessage(m, w.visit, w.visitExtra)
}

func (w *rewriter) toolChoice(c *llm.ToolChoice) {
	if c == nil {
		return
	}
	w.extra(c.Extra)
	w.namedTool(c.Function)
	w.namedTool(c.Custom)
	if a := c.AllowedTools; a != nil {
		w.extra(a.Extra)
		for i := range a.Tools {
			w.extra(a.Tools[i].Extra)
			w.namedTool(a.Tools[i].Function)
			w.namedTool(a.Tools[i].Custom)
		}
	}
}

func (w *rewriter) namedTool(t *llm.NamedTool) {
	if t != nil {
		w.text(Name, &t.Name)
		w.extra(t.Extra)
	}
}

func (w *rewriter) streamOptions(o *llm.StreamOptions) {
	if o != nil {
		w.extra(o.Extra)
	}
}

// Chat implements [llmhttp.Backend].
func (b *backend) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	return filterStream(ctx, b, chatTexts, ability.Stream(llmhttp.Backend.Chat), req, forwardChoices(ctx, req.Choices()))
}

// CountTokens implements [llmhttp.TokenCounter]. It does not change req.
func (b *backend) CountTokens(ctx context.Context, req *llm.ChatRequest) (int, error) {
	filter := b.newFilter(ctx)
	if filter.Request != nil {
		req = req.Clone()
	}
	if err := filterRequest(&filter, chatTexts, req); err != nil {
		return 0, err
	}
	return ability.Call(llmhttp.TokenCounter.CountTokens)(ctx, b.next, req)
}

// forwardChoices returns a function that filters a stream with the choices of a chat, or of
// completions of prompts.
func forwardChoices(ctx context.Context, choices int) func(*Filter, llm.ChatStream, func(*llm.ChatChunk, error) bool) {
	return func(f *Filter, stream llm.ChatStream, yield func(*llm.ChatChunk, error) bool) {
		s := newStreamFilter(choices, f.Reply, yield)
		s.run(stream)
		// The Handler does not see the mistakes of the Backend that s has put right.
		if r, ok := ctx.Value(callctx.Key{}).(interface{ WarnMisuses(order.Misuses) }); ok {
			r.WarnMisuses(s.order.Misuses)
		}
	}
}
