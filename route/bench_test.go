package route_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/route"
)

// repeat returns a Backend whose replies are n times the same chunk.
func repeat(n int) llmhttp.Backend {
	chunk := llmhttp.TextChunk("token ")
	return steps(func(_ context.Context, yield func(*llmhttp.ChatChunk, error) bool) {
		for range n {
			if !yield(chunk, nil) {
				return
			}
		}
	})
}

// drain ranges over a reply of b.
func drain(b llmhttp.Backend, req *llmhttp.ChatRequest) {
	b.Chat(context.Background(), req)(func(*llmhttp.ChatChunk, error) bool { return true })
}

// A Router costs some allocations a request, and none a chunk.
func TestAllocs(t *testing.T) {
	req := request()
	allocs := func(n int) float64 {
		r := newRouter(t, nil, route.Route{Model: "m", Targets: []route.Target{
			{Name: "a", Backend: repeat(n), Model: "x"}, {Name: "b", Backend: repeat(n), Model: "x"}}})
		return testing.AllocsPerRun(100, func() { drain(r, req) })
	}
	one := allocs(1)
	assert.LessOrEqual(t, one, 25.0)
	assert.InDelta(t, one, allocs(1000), 1)
}

// BenchmarkChat measures what a Router adds to a Backend.
func BenchmarkChat(b *testing.B) {
	for _, size := range []struct {
		name string
		n    int
	}{{"1chunk", 1}, {"100chunks", 100}} {
		backend := repeat(size.n)
		for name, via := range map[string]llmhttp.Backend{
			"direct": backend,
			"routed": newRouter(b, nil, route.Route{Model: "m", Targets: targets(backend, backend)}),
		} {
			b.Run(size.name+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				req := request()
				for b.Loop() {
					drain(via, req)
				}
			})
		}
	}
}
