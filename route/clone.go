package route

import (
	"maps"
	"slices"

	"github.com/llmhttp/llmhttp"
)

// The functions of this file copy requests, so that every target may change its
// own. Copies share strings and raw JSON with the original.

func cloneChat(r *llmhttp.ChatRequest) *llmhttp.ChatRequest {
	n := *r
	n.Messages = slices.Clone(r.Messages)
	for i := range n.Messages {
		cloneMessage(&n.Messages[i])
	}
	n.Tools = slices.Clone(r.Tools)
	for i := range n.Tools {
		t := &n.Tools[i]
		t.Extra = maps.Clone(t.Extra)
		if t.Function = clonePointer(t.Function); t.Function != nil {
			t.Function.Extra = maps.Clone(t.Function.Extra)
		}
	}
	n.Stop = slices.Clone(r.Stop)
	if n.StreamOptions = clonePointer(r.StreamOptions); n.StreamOptions != nil {
		n.StreamOptions.Extra = maps.Clone(r.StreamOptions.Extra)
	}
	if n.ResponseFormat = clonePointer(r.ResponseFormat); n.ResponseFormat != nil {
		n.ResponseFormat.Extra = maps.Clone(r.ResponseFormat.Extra)
	}
	for _, p := range []**float64{&n.Temperature, &n.TopP, &n.PresencePenalty, &n.FrequencyPenalty} {
		*p = clonePointer(*p)
	}
	for _, p := range []**int{&n.MaxTokens, &n.MaxCompletionTokens, &n.N} {
		*p = clonePointer(*p)
	}
	n.Extra = maps.Clone(r.Extra)
	return &n
}

// cloneMessage makes m independent of the message it was copied from.
func cloneMessage(m *llmhttp.Message) {
	m.Extra = maps.Clone(m.Extra)
	m.Content = slices.Clone(m.Content)
	for i := range m.Content {
		p := &m.Content[i]
		p.Extra = maps.Clone(p.Extra)
		if p.ImageURL = clonePointer(p.ImageURL); p.ImageURL != nil {
			p.ImageURL.Extra = maps.Clone(p.ImageURL.Extra)
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
	n.N = clonePointer(r.N)
	n.Extra = maps.Clone(r.Extra)
	return &n
}

func cloneEmbedding(r *llmhttp.EmbeddingRequest) *llmhttp.EmbeddingRequest {
	n := *r
	n.Dimensions = clonePointer(r.Dimensions)
	n.Extra = maps.Clone(r.Extra)
	return &n
}

// clonePointer returns a pointer to a copy of *p, or nil if p is nil.
func clonePointer[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}
