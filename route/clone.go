package route

import (
	"maps"
	"slices"

	"github.com/llmhttp/llmhttp"
)

// The copies of requests that targets get share texts and raw JSON
// with the original. If deep is false, which is enough for the last try, they
// share everything that is not in the request itself.

func cloneChat(r *llmhttp.ChatRequest, deep bool) *llmhttp.ChatRequest {
	n := *r
	if !deep {
		return &n
	}
	n.Messages = slices.Clone(r.Messages)
	for i := range n.Messages {
		cloneMessage(&n.Messages[i])
	}
	n.Tools = slices.Clone(r.Tools)
	for i := range n.Tools {
		t := &n.Tools[i]
		t.Extra = maps.Clone(t.Extra)
		if t.Function != nil {
			f := *t.Function
			f.Extra = maps.Clone(f.Extra)
			t.Function = &f
		}
	}
	n.Stop = slices.Clone(r.Stop)
	if r.StreamOptions != nil {
		o := *r.StreamOptions
		o.Extra = maps.Clone(o.Extra)
		n.StreamOptions = &o
	}
	if r.ResponseFormat != nil {
		f := *r.ResponseFormat
		f.Extra = maps.Clone(f.Extra)
		n.ResponseFormat = &f
	}
	for _, p := range []**float64{&n.Temperature, &n.TopP, &n.PresencePenalty, &n.FrequencyPenalty} {
		clonePtr(p)
	}
	for _, p := range []**int{&n.MaxTokens, &n.MaxCompletionTokens, &n.N} {
		clonePtr(p)
	}
	n.Extra = maps.Clone(r.Extra)
	return &n
}

func cloneMessage(m *llmhttp.Message) {
	m.Extra = maps.Clone(m.Extra)
	m.Content = slices.Clone(m.Content)
	for i := range m.Content {
		p := &m.Content[i]
		p.Extra = maps.Clone(p.Extra)
		if p.ImageURL != nil {
			u := *p.ImageURL
			u.Extra = maps.Clone(u.Extra)
			p.ImageURL = &u
		}
	}
	m.ToolCalls = slices.Clone(m.ToolCalls)
	for i := range m.ToolCalls {
		t := &m.ToolCalls[i]
		t.Extra, t.Function.Extra = maps.Clone(t.Extra), maps.Clone(t.Function.Extra)
	}
}

func cloneImages(r *llmhttp.ImageRequest) *llmhttp.ImageRequest {
	n := *r
	clonePtr(&n.N)
	n.Extra = maps.Clone(r.Extra)
	return &n
}

func cloneEmbedding(r *llmhttp.EmbeddingRequest) *llmhttp.EmbeddingRequest {
	n := *r
	clonePtr(&n.Dimensions)
	n.Extra = maps.Clone(r.Extra)
	return &n
}

// clonePtr makes *p point to a copy of what it points to, if it does.
func clonePtr[T any](p **T) {
	if *p != nil {
		v := **p
		*p = &v
	}
}
