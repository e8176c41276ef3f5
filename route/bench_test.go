package route_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/route"
)

// newRepeating returns a Backend that replies with n chunks.
func newRepeating(n int) llmhttp.Backend {
	chunk := llm.TextChunk("token ")
	return newFake(func(_ context.Context, yield yieldFunc) {
		for range n {
			if !yield(chunk, nil) {
				return
			}
		}
	})
}

// drain reads b's reply to the end.
func drain(b llmhttp.Backend, req *llm.ChatRequest) {
	b.Chat(context.Background(), req)(func(*llm.ChatChunk, error) bool { return true })
}

func TestChat_AllocatesPerRequestOnly(t *testing.T) {
	req := newRequest("m")
	allocs := func(chunks int) float64 {
		r := newRouter(t, nil, route.Route{Model: "m", Targets: []route.Target{
			{Name: "a", Backend: newRepeating(chunks), Model: "x"}, {Name: "b", Backend: newRepeating(chunks), Model: "x"}}})
		return testing.AllocsPerRun(100, func() { drain(r, req) })
	}
	one := allocs(1)
	assert.LessOrEqual(t, one, 25.0)
	assert.InDelta(t, one, allocs(1000), 1)
}

// BenchmarkChat compares a Backend with the same one behind a Router.
func BenchmarkChat(b *testing.B) {
	for name, chunks := range map[string]int{"1chunk": 1, "100chunks": 100} {
		backend := newRepeating(chunks)
		for via, backend := range map[string]llmhttp.Backend{
			"direct": backend,
			"routed": newRouter(b, nil, route.Route{Model: "m", Targets: targets(backend, backend)}),
		} {
			b.Run(name+"/"+via, func(b *testing.B) {
				b.ReportAllocs()
				req := newRequest("m")
				for b.Loop() {
					drain(backend, req)
				}
			})
		}
	}
}
