// Records several requests together, to save CPU time.

package otelllm

import (
	"context"
	"sync"

	"github.com/llmhttp/llmhttp"
)

// batchSize is how many requests are recorded together.
const batchSize = 16

// A batch has requests that are recorded together, when there are batchSize of them or
// when metrics are collected: see newMetrics. This takes less CPU time than recording
// each request when it ends (budget: whole 0.5 KB with otelllm, in docs/performance.md).
type batch struct {
	record func(context.Context, *llmhttp.RequestSummary) // Telemetry.record

	mu      sync.Mutex // guards waiting
	waiting []*llmhttp.RequestSummary
}

// add adds a request whose trace is not sampled.
func (b *batch) add(s *llmhttp.RequestSummary) {
	b.mu.Lock()
	b.waiting = append(b.waiting, s)
	full := len(b.waiting) >= batchSize
	b.mu.Unlock()
	if full {
		b.flush()
	}
}

// flush records the requests that wait.
func (b *batch) flush() {
	b.mu.Lock()
	all := b.waiting
	b.waiting = make([]*llmhttp.RequestSummary, 0, batchSize)
	b.mu.Unlock()
	for _, s := range all {
		b.record(context.Background(), s) // exemplars need the context of sampled requests only
	}
}
