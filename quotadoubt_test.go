package llmhttp_test

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/quotawatch"
	"github.com/llmhttp/llmhttp/usagebuffer"
)

// A lateStore is a store in memory whose first Record returns late, or which returns errors until
// then, although the records are stored.
type lateStore struct {
	*memory.UsageStore
	release chan struct{} // closed when the first Record returns
	err     error         // of Record until then; nil if it blocks
	calls   atomic.Int64
}

func (s *lateStore) Record(ctx context.Context, records ...llmhttp.UsageRecord) error {
	if err := s.UsageStore.Record(ctx, records...); err != nil {
		return err
	}
	first := s.calls.Add(1) == 1
	select {
	case <-s.release:
		return nil
	default:
	}
	if s.err == nil && first {
		<-s.release
	}
	return s.err
}

// Sums that are read while usage is recorded may include it or not. Until they are read again, it
// leads neither to events nor to an error that clients do not retry, and it is not served twice.
func TestQuota_ReadWhileUsageIsRecorded(t *testing.T) {
	for name, test := range map[string]struct {
		buffer  *usagebuffer.Options // nil for none
		wrap    bool                 // a wrapper that hides what it does not have
		limiter llmhttp.Limiter
		err     error
		reread  time.Duration // when the sums are read again after that
	}{
		"one Handler":         {},
		"shared reservations": {limiter: new(stubReserver)},
		"a buffer":            {buffer: &usagebuffer.Options{Delay: -1, Logger: noLog}, reread: 5 * time.Second},
		"a batch":             {buffer: &usagebuffer.Options{Delay: time.Second, Logger: noLog}, reread: 5 * time.Second},
		"a failed batch":      {buffer: &usagebuffer.Options{Delay: time.Second, Logger: noLog}, err: errCause, reread: 5 * time.Second},
		"behind a wrapper":    {buffer: &usagebuffer.Options{Delay: time.Second, Logger: noLog}, wrap: true, err: errCause, reread: 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				late := &lateStore{UsageStore: memory.NewUsageStore(), release: make(chan struct{}), err: test.err}
				release := sync.OnceFunc(func() { close(late.release) })
				defer release()
				var store llmhttp.UsageStore = late
				if test.buffer != nil {
					buffer := usagebuffer.New(late, test.buffer)
					defer buffer.Close(t.Context())
					store = buffer
				}
				if test.wrap {
					store = guardStore{store}
				}
				var shares []int
				watcher := quotawatch.New(store, func(_ context.Context, e *quotawatch.Event) error {
					shares = append(shares, e.Share)
					return nil
				}, nil)
				told := func() []int { // since the last call
					synctest.Wait()
					defer func() { shares = nil }()
					return shares
				}
				var served atomic.Int64
				s := startPipeServer(t, config{
					backend: chunkBackend(func() []*llm.ChatChunk {
						c := llm.TextChunk("Hello!")
						c.Usage = &llm.Usage{PromptTokens: 1, CompletionTokens: 9}
						if served.Add(1) == 1 {
							c.Usage.CompletionTokens = 600
						}
						return []*llm.ChatChunk{c}
					}),
					keys: limitedKeys(llmhttp.Limits{Quota: llmhttp.Quota{Tokens: 1000}}),
					opts: llmhttp.Options{Usage: store, Estimates: llmhttp.TokenEstimates{TextTokens: countWords}, Limiter: test.limiter, Observe: watcher.Observe},
				})
				done := make(chan int)
				go func() { done <- s.chat(chatWith(`"max_tokens":600`)).StatusCode }()
				synctest.Wait() // the usage is stored, but the store has not answered
				time.Sleep(5 * time.Second)
				r := s.chat(chatWith(tenTokens))
				require.Equal(t, "rate_limit_exceeded", r.checkError(t, http.StatusTooManyRequests).Code)
				assert.Equal(t, "1", r.Header.Get("Retry-After"))
				assert.Empty(t, told())

				release()
				require.Equal(t, 200, <-done)
				time.Sleep(test.reread)
				for range 18 {
					require.Equal(t, 200, s.chat(chatWith(tenTokens)).StatusCode)
				}
				assert.Empty(t, told(), "781 tokens")
				require.Equal(t, 200, s.chat(chatWith(tenTokens)).StatusCode)
				synctest.Wait()
				require.Equal(t, 200, s.chat(chatWith(tenTokens)).StatusCode)
				assert.Equal(t, []int{80}, told())
				for range 19 {
					require.Equal(t, 200, s.chat(chatWith(tenTokens)).StatusCode)
				}
				assert.Empty(t, told(), "991 tokens")
				require.Equal(t, "insufficient_quota", s.chat(chatWith(tenTokens)).checkError(t, 429).Code)
				assert.Equal(t, []int{100}, told())
			})
		})
	}
}
