package llmhttp_test

import (
	"bufio"
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// A key never has more requests in progress than its limit, and each key has its own.
func TestConcurrent_LimitOfEachKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inside, most atomic.Int64
		release := make(chan struct{})
		s := startPipeServer(t, config{
			keys: llmhttp.KeyStoreFunc(func(_ context.Context, secret string) (*llmhttp.Key, error) {
				return &llmhttp.Key{ID: secret, Limits: llmhttp.Limits{Concurrent: 3}}, nil
			}),
			backend: streamBackend(func(_ context.Context, yield yieldFunc) {
				n := inside.Add(1)
				defer inside.Add(-1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				<-release
				yield(llm.TextChunk("x"), nil)
			}),
		})
		var statuses statusCount
		var wg sync.WaitGroup
		for range 20 {
			for _, secret := range []string{"a", "b"} {
				wg.Go(func() { statuses.add(s.chat(chatBody, withSecret(secret)).StatusCode) })
			}
		}
		synctest.Wait()
		assert.Equal(t, 34, statuses.get(429))
		assert.Equal(t, int64(6), inside.Load())
		close(release)
		wg.Wait()
		assert.Equal(t, 6, statuses.get(200))
		assert.Equal(t, int64(6), most.Load())
	})
}

// A request that has ended no longer counts as in progress, whatever its result.
func TestConcurrent_IsReleased(t *testing.T) {
	reached := make(chan struct{}, 1)
	backends := map[string]llmhttp.Backend{
		"reply":            textBackend("x"),
		"error":            failingBackend(errCause),
		"error after text": failAfter(errCause, "x"),
		"panic":            streamBackend(func(context.Context, yieldFunc) { panic("boom") }),
		"panic after text": streamBackend(func(_ context.Context, yield yieldFunc) { yield(llm.TextChunk("x"), nil); panic("boom") }),
		"client leaves": streamBackend(func(ctx context.Context, yield yieldFunc) {
			yield(llm.TextChunk("x"), nil)
			reached <- struct{}{}
			<-ctx.Done()
		}),
	}
	for name, b := range backends {
		for mode, body := range chatModes {
			t.Run(name+"/"+mode, func(t *testing.T) {
				checkNoLeaks(t)
				s := startServer(t, config{backend: b, keys: limitedKeys(llmhttp.Limits{Concurrent: 2})})
				for i := range 5 {
					ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
					if name == "client leaves" {
						go func() { <-reached; cancel() }()
					}
					resp, err := s.open(ctx, "POST", chatPath, body)
					if err == nil {
						assert.NotEqual(t, 429, resp.StatusCode)
						readReply(resp)
					}
					cancel()
					s.waitForSummaries(i + 1)
				}
			})
		}
	}
	t.Run("refused by another limit", func(t *testing.T) {
		s := startServer(t, config{keys: limitedKeys(llmhttp.Limits{Concurrent: 1, Requests: llmhttp.Rate{N: -1}})})
		for range 3 {
			assert.NotContains(t, s.chat(chatBody).checkError(t, 429).Message, "in progress")
		}
	})
	t.Run("Limiter fails", func(t *testing.T) {
		s := startServer(t, config{keys: limitedKeys(llmhttp.Limits{Concurrent: 1, Requests: llmhttp.PerMinute(1)}), opts: llmhttp.Options{
			Limiter: &stubLimiter{take: func(context.Context, []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) { return nil, errCause }}}})
		for range 3 {
			s.chat(chatBody).checkError(t, 503)
		}
	})
}

// A ConcurrencyLimiter counts the requests of all its Handlers. Each request is released
// when it ends.
func TestConcurrent_LimiterOfSeveralHandlers(t *testing.T) {
	var mu sync.Mutex
	var inside []string
	l := &stubConcurrencyLimiter{acquire: func(_ context.Context, slots ...llmhttp.SlotAmount) (func(), int, error) {
		mu.Lock()
		defer mu.Unlock()
		assert.Len(t, slots, 1)
		assert.Equal(t, llmhttp.SlotAmount{Subject: llmhttp.SubjectID{Kind: llmhttp.KindKey, ID: "key_1"}, Name: llmhttp.SlotConcurrent, Amount: 1, Limit: slots[0].Limit}, slots[0])
		if int64(len(inside)) >= slots[0].Limit {
			return nil, 0, nil
		}
		inside = append(inside, slots[0].Subject.ID)
		return func() {
			mu.Lock()
			defer mu.Unlock()
			inside = inside[1:]
		}, 0, nil
	}}
	keys := func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(inside)
	}
	finish := make(chan struct{})
	start := func(limits llmhttp.Limits) *testServer {
		return startServer(t, config{keys: limitedKeys(limits), opts: llmhttp.Options{Limiter: l},
			backend: streamBackend(func(context.Context, yieldFunc) { <-finish; panic("boom") })})
	}
	servers := []*testServer{start(llmhttp.Limits{Concurrent: 2}), start(llmhttp.Limits{Concurrent: 2})}
	var wg sync.WaitGroup
	for _, s := range servers {
		wg.Go(func() { s.chat(chatBody).checkError(t, 500) })
	}
	waitFor(t, "two requests in progress", func() bool { return len(keys()) == 2 })
	assert.Equal(t, []string{"key_1", "key_1"}, keys())
	for _, s := range servers {
		assert.Contains(t, s.chat(chatBody).checkError(t, 429).Message, "in progress: Limit 2")
	}
	close(finish)
	wg.Wait()
	waitFor(t, "their ends", func() bool { return len(keys()) == 0 })

	start(llmhttp.Limits{Concurrent: -1}).chat(chatBody).checkError(t, 429)
	start(llmhttp.Limits{Concurrent: 1, Requests: llmhttp.PerMinute(1)}).chat("{").checkError(t, 400)
	start(llmhttp.Limits{}).chat(chatBody).checkError(t, 500)
	assert.Empty(t, keys())
}

func TestConcurrent_LimiterFails(t *testing.T) {
	for name, tt := range map[string]struct {
		acquire func(context.Context, ...llmhttp.SlotAmount) (func(), int, error)
		status  int
	}{
		"error": {func(context.Context, ...llmhttp.SlotAmount) (func(), int, error) { return nil, 0, errCause }, 503},
		"*Error is shown": {func(context.Context, ...llmhttp.SlotAmount) (func(), int, error) {
			return nil, 0, llm.Errorf(418, "", "Tea.")
		}, 418},
		"panic":        {func(context.Context, ...llmhttp.SlotAmount) (func(), int, error) { panic(errCause) }, 500},
		"no such slot": {func(context.Context, ...llmhttp.SlotAmount) (func(), int, error) { return nil, 1, nil }, 503},
		"release panics": {func(context.Context, ...llmhttp.SlotAmount) (func(), int, error) {
			return func() { panic(errCause) }, 0, nil
		}, 200},
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, config{keys: limitedKeys(llmhttp.Limits{Concurrent: 1}), opts: llmhttp.Options{Limiter: &stubConcurrencyLimiter{acquire: tt.acquire}}})
			for range 2 {
				r := s.chat(chatBody)
				if tt.status == 200 {
					assert.Equal(t, 200, r.StatusCode)
				} else {
					r.checkError(t, tt.status)
				}
				assert.NotContains(t, r.body, secretCause)
			}
		})
	}
}

// slowRelease returns a Limiter that permits one request in progress, and takes a while
// to release it.
func slowRelease() llmhttp.Limiter {
	var inside atomic.Int64
	return &stubConcurrencyLimiter{acquire: func(context.Context, ...llmhttp.SlotAmount) (func(), int, error) {
		if inside.Add(1) > 1 {
			inside.Add(-1)
			return nil, 0, nil
		}
		return func() { time.Sleep(time.Second); inside.Add(-1) }, 0, nil
	}}
}

// A client that has received a whole reply may send the next request, even if only one
// may be in progress and the release is slow.
func TestConcurrent_ReleasedBeforeTheReplyEnds(t *testing.T) {
	tests := map[string]struct {
		method, path, body string
		backend            llmhttp.Backend
	}{
		"whole":             {"POST", chatPath, chatBody, nil},
		"stream":            {"POST", chatPath, streamBody, nil},
		"whole that fails":  {"POST", chatPath, chatBody, failAfter(errCause, "a")},
		"stream that fails": {"POST", chatPath, streamBody, failAfter(errCause, "a")},
		"long list of models": {"GET", modelsPath, "", &stubBackend{models: func(context.Context) ([]llm.Model, error) {
			return []llm.Model{{ID: "m", OwnedBy: strings.Repeat("o", 20<<10)}}, nil // more than net/http buffers
		}}},
	}
	for limiter, newLimiter := range map[string]func() llmhttp.Limiter{"default": func() llmhttp.Limiter { return nil }, "slow": slowRelease} {
		for name, tt := range tests {
			t.Run(name+"/Limiter="+limiter, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := startPipeServer(t, config{backend: tt.backend, keys: limitedKeys(llmhttp.Limits{Concurrent: 1}), opts: llmhttp.Options{Limiter: newLimiter()}})
					for range 50 {
						// On a connection of its own: on the same one, net/http serves a request
						// only when the one before it has ended.
						resp, err := s.open(t.Context(), tt.method, tt.path, tt.body, withHeader("Connection", "close"))
						require.NoError(t, err)
						require.NotEqual(t, http.StatusTooManyRequests, resp.StatusCode)
						// As SDKs do, the client takes [DONE] and an error for the end of a stream.
						for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
							if line := lines.Text(); line == "data: [DONE]" || strings.HasPrefix(line, `data: {"error"`) {
								break
							}
						}
						resp.Body.Close()
					}
				})
			})
		}
	}
}
