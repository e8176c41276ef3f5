// Checks of completions of prompts.

package llmhttptest

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/llmhttp/llmhttp/completion"
	"github.com/llmhttp/llmhttp/internal/ability"
	"github.com/llmhttp/llmhttp/llm"
)

var completionsOperation = operation{
	model: func(o *BackendOptions) string { return o.CompletionModel },
	checks: []check[backendTest]{
		{
			"Completions",
			checkCompletions,
		},
		{"CompletionTokenLimit", checkCompletionTokenLimit},
		{"CompletionUnknownModel", func(t testing.TB, b backendTest) {
			b.wantUnknownModels(t, b.opts.CompletionModel, func(model string) error {
				req := b.completionRequest("a")
				req.Model = model
				return b.complete(t.Context(), t, req, allChunks).err
			})
		}},
		{"CompletionBreak", func(t testing.TB, b backendTest) {
			for n := 1; n <= 3; n++ {
				b.complete(t.Context(), t, b.completionRequest(b.opts.Prompt), func(r backendReply) bool { return len(r.chunks) < n })
			}
		}},
		{"CompletionCancel", func(t testing.TB, b backendTest) {
			b.wantCancelledStream(t, func(ctx context.Context, more func(backendReply) bool) backendReply {
				req := b.completionRequest(b.opts.Prompt)
				req.MaxTokens = nil
				return b.complete(ctx, t, req, more)
			})
		}},
	},
	guards: []check[guard]{
		{"Complete", func(t testing.TB, g guard) {
			guardStream(t, g, completion.Completer.Complete, &completion.Request{Model: "m", Prompt: completion.Prompt{Texts: []string{g.text}}})
		}},
	},
}

// completionRequest returns a plain request to complete prompts.
func (b *backendTest) completionRequest(prompts ...string) *completion.Request {
	return &completion.Request{Model: b.opts.CompletionModel, Prompt: completion.Prompt{Texts: prompts}, MaxTokens: new(50)}
}

// complete iterates over the reply to req until more returns false, and reports its faults.
func (b *backendTest) complete(ctx context.Context, t testing.TB, req *completion.Request, more func(backendReply) bool) backendReply {
	t.Helper()
	n := req.Choices() // before the Backend may change req
	whole := true
	r, ok := b.iterateStream(ctx, t, "Complete", func(ctx context.Context) llm.ChatStream {
		return ability.Stream(completion.Completer.Complete)(ctx, b.Backend, req)
	},
		func(r backendReply) bool { whole = more(r); return whole })
	switch {
	case !ok || !whole || ctx.Err() != nil:
	case r.err != nil:
		wantClientError(t, r.err)
	default:
		r.check(t, n)
		r.wantTextsOnly(t)
	}
	return r
}

// wantTextsOnly reports an error if a chunk has something that a completion does not have.
func (r *backendReply) wantTextsOnly(t testing.TB) {
	t.Helper()
	for i, c := range r.chunks {
		for _, choice := range c.Choices {
			if d := choice.Delta; d.Reasoning != "" || d.Refusal != "" || len(d.ToolCalls) > 0 || len(d.ReasoningDetails) > 0 {
				t.Errorf("chunk %d: the delta is %+v, want only Content, because clients get nothing else", i, d)
			}
		}
	}
}

// allChunks is a condition that lasts.
func allChunks(backendReply) bool { return true }

func checkCompletions(t testing.TB, b backendTest) {
	for _, stream := range []bool{false, true} {
		req := b.completionRequest(b.opts.Prompt)
		if req.Stream = stream; stream {
			req.StreamOptions = &llm.StreamOptions{IncludeUsage: true}
		}
		if r := b.complete(t.Context(), t, req, allChunks); r.err != nil {
			t.Errorf("a plain completion with Stream %t yielded the error %v, want none", stream, r.err)
		}
	}
	for _, change := range []func(*completion.Request){
		func(r *completion.Request) { r.Prompt.Texts = sampleTexts },
		func(r *completion.Request) { r.Prompt.Texts = []string{"", "\x00", "\U0001f642 \"quoted\"\n"} },
		func(r *completion.Request) {
			r.Prompt = completion.Prompt{Tokens: [][]int{{1, 2, 3}, {4}}}
		},
		func(r *completion.Request) { r.N, r.Prompt.Texts = new(2), sampleTexts[:2] },
		func(r *completion.Request) { r.N, r.BestOf = new(1), new(2) },
		func(r *completion.Request) {
			r.Prompt.Texts, r.Suffix = []string{"def add(a, b):\n"}, "\n    return c\n"
		},
		func(r *completion.Request) { r.Echo, r.Logprobs = true, new(1) },
		func(r *completion.Request) { r.Echo, r.Logprobs, r.MaxTokens = true, new(0), new(0) },
		func(r *completion.Request) { r.MaxTokens = nil },
		func(r *completion.Request) { r.Stop = llm.StringList{"fox", "", "\n", "dog"} },
		func(r *completion.Request) {
			r.Temperature, r.TopP, r.PresencePenalty, r.FrequencyPenalty = new(0.0), new(1.0), new(-2.0), new(2.0)
		},
		func(r *completion.Request) { r.Extra = llm.Extra{"x_unknown": json.RawMessage(`{"a":1}`)} },
	} {
		req := b.completionRequest(b.opts.Prompt)
		change(req)
		b.complete(t.Context(), t, req, allChunks)
	}
	const calls = 8
	runConcurrently(t, calls, func(int) {
		if r := b.complete(t.Context(), t, b.completionRequest(b.opts.Prompt), allChunks); r.err != nil {
			t.Errorf("one of %d concurrent completions yielded the error %v, want none", calls, r.err)
		}
	})
}

func checkCompletionTokenLimit(t testing.TB, b backendTest) {
	const limit = 4
	req := b.completionRequest(b.opts.Prompt, b.opts.Prompt)
	req.MaxTokens = new(limit)
	for _, c := range b.complete(t.Context(), t, req, allChunks).chunks {
		if c.Usage != nil && c.Usage.CompletionTokens > 2*limit {
			t.Errorf("the reply to 2 prompts used %d completion tokens, want at most %d for each", c.Usage.CompletionTokens, limit)
		}
	}
}
