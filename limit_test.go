package llmhttp_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// These tests check how a Handler applies the limits of keys.

// remaining returns the value of an X-Ratelimit-Remaining header.
func remaining(t testing.TB, r reply, what string) int {
	t.Helper()
	n, err := strconv.Atoi(r.Header.Get("X-Ratelimit-Remaining-" + what))
	require.NoError(t, err, "x-ratelimit-remaining-%s", what)
	return n
}

// checkRemaining checks the X-Ratelimit-Remaining headers.
func checkRemaining(t testing.TB, r reply, requests, tokens int) {
	t.Helper()
	assert.Equal(t, requests, remaining(t, r, "Requests"), "requests")
	assert.Equal(t, tokens, remaining(t, r, "Tokens"), "tokens")
}

// A statusCount counts replies by their status.
type statusCount struct {
	mu sync.Mutex
	n  map[int]int
}

func (c *statusCount) add(status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[int]int{}
	}
	c.n[status]++
}

func (c *statusCount) get(status int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[status]
}

// smallLimits limits requests, tokens and the quota, but not requests in progress.
var smallLimits = llmhttp.Limits{Requests: noRefill(10), Tokens: noRefill(100), Quota: llmhttp.Quota{Tokens: 1000}}

// chatOfCost returns chatBody with the max_tokens for which a chat reserves cost tokens: 4
// for the prompt, and the rest for the reply.
func chatOfCost(cost int) string { return chatWith(fmt.Sprintf(`"max_tokens":%d`, cost-4)) }

// A request that one limit refuses takes nothing from the others: BerriAI/litellm#39309.
func TestLimits_AllOrNothing(t *testing.T) {
	start := func(t *testing.T, l llmhttp.Limits, b llmhttp.Backend) *testServer {
		return startServer(t, config{keys: limitedKeys(l), backend: b, opts: llmhttp.Options{Estimates: llmhttp.TokenEstimates{TextTokens: countWords}}})
	}
	t.Run("tokens", func(t *testing.T) {
		s := start(t, smallLimits, usageBackend(4, 60))
		r := s.chat(chatOfCost(64))
		require.Equal(t, 200, r.StatusCode)
		checkRemaining(t, r, 9, 36)
		for range 3 {
			r = s.chat(chatOfCost(64))
			assert.Equal(t, "tokens", r.checkError(t, 429).Type)
			checkRemaining(t, r, 9, 36)
		}
		r = s.chat(chatOfCost(36))
		require.Equal(t, 200, r.StatusCode)
		assert.Equal(t, 8, remaining(t, r, "Requests"))
	})
	t.Run("requests", func(t *testing.T) {
		l := smallLimits
		l.Requests = noRefill(1)
		s := start(t, l, usageBackend(4, 6))
		require.Equal(t, 200, s.chat(chatOfCost(10)).StatusCode)
		for range 3 {
			r := s.chat(chatOfCost(10))
			assert.Equal(t, "requests", r.checkError(t, 429).Type)
			checkRemaining(t, r, 0, 90)
		}
	})
	t.Run("quota", func(t *testing.T) {
		l := smallLimits
		l.Quota = llmhttp.Quota{Tokens: 65}
		s := start(t, l, usageBackend(4, 60))
		require.Equal(t, 200, s.chat(chatOfCost(64)).StatusCode)
		r := s.chat(chatOfCost(14))
		assert.Equal(t, "insufficient_quota", r.checkError(t, 429).Code)
		checkRemaining(t, r, 9, 36)
		assert.Equal(t, "false", r.Header.Get("X-Should-Retry"))
		assert.Empty(t, r.Header.Get("Retry-After"))
	})
	t.Run("requests in progress", func(t *testing.T) {
		l := smallLimits
		l.Concurrent = 1
		started, release := make(chan struct{}), make(chan struct{})
		s := start(t, l, streamBackend(func(_ context.Context, yield yieldFunc) {
			close(started)
			<-release
			yield(&llm.ChatChunk{Usage: &llm.Usage{PromptTokens: 4}}, nil)
		}))
		first := s.begin("POST", chatPath, chatOfCost(64))
		receive(t, "the Backend to be called", started)
		for range 20 {
			r := s.chat(chatOfCost(64))
			assert.Equal(t, "rate_limit_exceeded", r.checkError(t, 429).Code)
			assert.Equal(t, "1", r.Header.Get("Retry-After"))
			checkRemaining(t, r, 9, 36)
		}
		close(release)
		assert.Equal(t, 200, receive(t, "the first reply", first).StatusCode)
	})
}

// A request that needs more tokens than the burst of the limit can never succeed, and its
// error says so.
func TestLimits_MoreTokensThanTheLimit(t *testing.T) {
	s := startServer(t, config{
		keys: limitedKeys(smallLimits),
		opts: llmhttp.Options{Estimates: llmhttp.TokenEstimates{TextTokens: countWords}},
	})
	r := s.chat(chatOfCost(101))
	assert.Equal(t, apiError{
		Message: "Request too large: Limit 100 tokens, Requested 101. Ask for fewer tokens, or shorten the messages.",
		Type:    "tokens", Code: "rate_limit_exceeded",
	}, r.checkError(t, 429))
	assert.Equal(t, "false", r.Header.Get("X-Should-Retry"))
	checkRemaining(t, r, 10, 100)
	// Each choice counts, and nothing overflows.
	for _, members := range []string{`"max_tokens":33,"n":3`, `"max_tokens":9007199254740991,"n":128`, `"max_completion_tokens":2147483647`} {
		assert.Contains(t, s.chat(chatWith(members)).checkError(t, 429).Message, "Request too large")
	}
	assert.Equal(t, 200, s.chat(chatOfCost(100)).StatusCode)
}

// The request limit is checked before the body is read and its tokens are counted. A
// request that is refused for another reason does not count toward the limit.
func TestLimits_RequestLimitIsCheckedBeforeTheBody(t *testing.T) {
	counted := 0
	s := startServer(t, config{
		keys: limitedKeys(llmhttp.Limits{Requests: noRefill(2), Tokens: noRefill(20)}),
		opts: llmhttp.Options{Estimates: llmhttp.TokenEstimates{TextTokens: func(_, text string) int { counted++; return countWords("", text) }}},
	})
	for path, body := range map[string]string{chatPath: chatWith(`"max_tokens":17`), imagesPath: "{", embeddingsPath: `{"model":""}`, usagePath: "?"} {
		for range 3 {
			r := s.do("POST", path, body)
			assert.GreaterOrEqual(t, r.StatusCode, 400, "%s", r.body)
			if r.Header.Get("X-Ratelimit-Remaining-Requests") != "" {
				checkRemaining(t, r, 2, 20)
			}
		}
	}
	for range 2 {
		require.Equal(t, 200, s.chat(chatWith(`"max_tokens":1`)).StatusCode)
	}
	counted = 0
	r := s.chat("{")
	assert.Equal(t, "requests", r.checkError(t, 429).Type)
	assert.Zero(t, remaining(t, r, "Requests"))
	s.chat(chatWith(`"max_tokens":1`)).checkError(t, 429)
	assert.Zero(t, counted)
}

// Parallel requests without max_tokens exceed a token limit at most by the tokens that
// their replies use beyond the default reservations.
func TestLimits_RequestsWithoutMaxTokensReserveADefault(t *testing.T) {
	for name, tt := range map[string]struct {
		limits   llmhttp.Limits
		reserve  int
		admitted int
	}{
		"default":                 {llmhttp.Limits{Tokens: noRefill(1200)}, 0, 2},
		"default, small bucket":   {llmhttp.Limits{Tokens: noRefill(300)}, 0, 1},
		"option":                  {llmhttp.Limits{Tokens: noRefill(1000)}, 296, 3},
		"quota":                   {llmhttp.Limits{Quota: llmhttp.Quota{Tokens: 1000}}, 296, 3 + 25}, // if less is left, the prompt only
		"nothing":                 {llmhttp.Limits{Tokens: noRefill(48)}, -1, 12},
		"limit of the completion": {llmhttp.Limits{Tokens: noRefill(1000), MaxCompletionTokens: 96}, 0, 10},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				s := startPipeServer(t, config{
					keys: limitedKeys(tt.limits), opts: llmhttp.Options{Estimates: llmhttp.TokenEstimates{TextTokens: countWords, ReserveCompletion: tt.reserve}},
					backend: streamBackend(func(_ context.Context, yield yieldFunc) {
						<-release
						yield(llm.TextChunk("x"), nil)
					}),
				})
				var statuses statusCount
				var wg sync.WaitGroup
				for range 50 {
					wg.Go(func() { statuses.add(s.chat(chatBody).StatusCode) })
				}
				synctest.Wait()
				assert.Equal(t, 50-tt.admitted, statuses.get(429))
				close(release)
				wg.Wait()
				assert.Equal(t, tt.admitted, statuses.get(200))
			})
		})
	}
}

// The Backend gets the smaller of the client's max_tokens and the key's
// MaxCompletionTokens.
func TestLimits_MaxCompletionTokens(t *testing.T) {
	for members, want := range map[string]string{
		`"n":1`:                      `"max_completion_tokens":10`,
		`"max_tokens":7`:             `"max_tokens":7`,
		`"max_tokens":70`:            `"max_tokens":10`,
		`"max_completion_tokens":70`: `"max_completion_tokens":10`,
		`"max_tokens":70,"max_completion_tokens":3`: `"max_tokens":10,"max_completion_tokens":3`,
	} {
		s := startServer(t, config{keys: limitedKeys(llmhttp.Limits{MaxCompletionTokens: 10}), backend: llmhttp.BackendFunc(
			func(_ context.Context, r *llm.ChatRequest) llm.ChatStream {
				r.N, r.Messages = nil, nil
				b, err := r.MarshalJSON()
				assert.NoError(t, err)
				return llm.Reply(string(b))
			})})
		text, _ := s.chat(chatWith(members + `,"stream":true`)).text(t)
		assert.Equal(t, `{"model":"demo-chat","messages":[],"stream":true,`+want+"}", text)
	}
}

// A negative MaxCompletionTokens permits no chat of any length.
func TestLimits_NegativeMaxCompletionTokens(t *testing.T) {
	key := testKey()
	key.Limits = llmhttp.Limits{MaxCompletionTokens: -1, Requests: noRefill(1), Tokens: noRefill(1000)}
	s := startServer(t, config{keys: keysFor(key)})
	for _, members := range []string{`"n":1`, `"max_tokens":1`, `"stream":true`} {
		e := s.chat(chatWith(members)).checkError(t, 403) // gives back the request
		assert.Equal(t, "completions_not_permitted", e.Code)
	}
	assert.Equal(t, 200, s.get("/v1/models").StatusCode, "other endpoints")
}

// A Backend that ignores MaxCompletionTokens is stopped when every choice has reached the
// largest size of its text.
func TestLimits_MaxCompletionTokensIsEnforced(t *testing.T) {
	const most = 8*10 + 64
	long := strings.Repeat("é", most) // two bytes each
	choice := func(index int, d llm.Delta) *llm.ChatChunk {
		return &llm.ChatChunk{Choices: []llm.ChunkChoice{{Index: index, Delta: d}}}
	}
	for mode, stream := range map[string]string{"whole": "", "stream": `,"stream":true`} {
		t.Run(mode, func(t *testing.T) {
			yields := 0
			s := startServer(t, config{keys: limitedKeys(llmhttp.Limits{MaxCompletionTokens: 10}), backend: streamBackend(
				func(_ context.Context, yield yieldFunc) {
					for yields < 1000 && yield(choice(0, llm.Delta{Content: "a"}), nil) {
						yields++
					}
				})})
			r := s.chat(chatWith(`"n":1` + stream))
			if stream == "" {
				assert.Contains(t, r.body, `"`+strings.Repeat("a", most)+`"`)
			}
			assert.Contains(t, r.body, `"finish_reason":"length"`)
			assert.Equal(t, most, yields)
			assert.NoError(t, s.summary().Err)

			s = startServer(t, config{keys: limitedKeys(llmhttp.Limits{MaxCompletionTokens: 10}), backend: chunkBackend(
				func() []*llm.ChatChunk {
					return []*llm.ChatChunk{choice(0, llm.Delta{Content: long}), choice(1, llm.Delta{Content: "more"}), choice(0, llm.Delta{Content: "x"})}
				})})
			r = s.chat(chatWith(`"n":2` + stream))
			assert.Contains(t, r.body, `"`+long[:most]+`"`)
			assert.Contains(t, r.body, `"more"`)
			assert.NotContains(t, r.body, `"x"`)
		})
	}
}

// ImageSizes is called only for admitted requests. If it does not have the requested
// size, the reserved tokens are returned.
func TestLimits_ImageSizesIsCalledAfterAdmission(t *testing.T) {
	asked := 0
	b := &stubBackend{sizes: func(context.Context, string) ([]string, error) { asked++; return []string{"512x512"}, nil }}
	s := startServer(t, config{backend: b, keys: limitedKeys(llmhttp.Limits{Tokens: noRefill(10)})})
	s.do("POST", imagesPath, `{"model":"m","prompt":"`+strings.Repeat("word ", 50)+`"}`).checkError(t, 429)
	assert.Zero(t, asked)
	for range 9 {
		s.do("POST", imagesPath, `{"model":"m","prompt":"a cat, a dog","size":"1x1"}`).checkError(t, 400)
	}
	assert.Equal(t, 9, asked)
}

// Exactly as many concurrent requests are admitted as the limit permits:
// songquanpeng/one-api#2440, QuantumNous/new-api#5690, #6609, litellm#24677.
func TestLimits_ConcurrentRequestsAreAdmittedExactly(t *testing.T) {
	for name, l := range map[string]llmhttp.Limits{
		"requests": {Requests: noRefill(25), Tokens: noRefill(1 << 30)},
		"tokens":   {Requests: noRefill(1 << 30), Tokens: noRefill(25 * 14)},
		"quota":    {Quota: llmhttp.Quota{Tokens: 25*14 + 13}},
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, config{keys: limitedKeys(l), backend: usageBackend(4, 10), opts: llmhttp.Options{Estimates: llmhttp.TokenEstimates{TextTokens: countWords}}})
			var statuses statusCount
			var wg sync.WaitGroup
			for range 80 {
				wg.Go(func() { statuses.add(s.chat(chatWith(`"max_tokens":10`)).StatusCode) })
			}
			wg.Wait()
			assert.Equal(t, map[int]int{200: 25, 429: 55}, statuses.n)
		})
	}
}

// Each key has its own limits. New rates of a key apply to its next request.
func TestLimits_BelongToAKey(t *testing.T) {
	limit := 2
	s := startServer(t, config{keys: llmhttp.KeyStoreFunc(func(_ context.Context, secret string) (*llmhttp.Key, error) {
		return &llmhttp.Key{ID: secret, Limits: llmhttp.Limits{Requests: noRefill(limit)}}, nil
	})})
	ask := func(secret string) int { return s.chat(chatBody, withSecret(secret)).StatusCode }
	assert.Equal(t, []int{200, 200, 429}, []int{ask("a"), ask("a"), ask("a")})
	assert.Equal(t, []int{200, 200, 429}, []int{ask("b"), ask("b"), ask("b")})
	limit = 0 // no limit
	assert.Equal(t, 200, ask("a"))
}

// Options.Limits are those of keys that have none, and each of these has its own buckets.
func TestLimits_OfKeysThatHaveNone(t *testing.T) {
	limits := map[string]llmhttp.Limits{"limited": {Requests: noRefill(3)}, "unlimited": {Concurrent: math.MaxInt}}
	s := startServer(t, config{
		keys: llmhttp.KeyStoreFunc(func(_ context.Context, secret string) (*llmhttp.Key, error) {
			return &llmhttp.Key{ID: secret, Limits: limits[secret]}, nil
		}),
		opts: llmhttp.Options{Limits: llmhttp.Limits{Requests: noRefill(2)}},
	})
	for secret, want := range map[string][]int{"a": {200, 200, 429}, "b": {200, 200, 429}, "limited": {200, 200, 200, 429}, "unlimited": {200, 200, 200, 200}} {
		for _, status := range want {
			assert.Equal(t, status, s.chat(chatBody, withSecret(secret)).StatusCode, secret)
		}
	}
	opts := &llmhttp.Options{Limits: llmhttp.Limits{Quota: llmhttp.Quota{Per: time.Hour}}}
	assert.PanicsWithValue(t, "llmhttp: Options.Limits.Quota.Per: is set, but neither Tokens nor Cost",
		func() { llmhttp.NewHandler(new(stubBackend), llmhttp.AllowAll("a"), opts) })
}

// Every reply to a key with limits has the X-Ratelimit headers.
func TestLimits_Headers(t *testing.T) {
	s := startServer(t, config{
		backend: &stubBackend{chat: func(_ context.Context, r *llm.ChatRequest) llm.ChatStream {
			if r.Model != "demo-chat" {
				return llm.Fail(llm.ModelNotFound(r.Model))
			}
			return llm.Reply("Hello!")
		}},
		keys: limitedKeys(llmhttp.Limits{Requests: llmhttp.PerMinute(500), Tokens: llmhttp.Rate{N: 200000, Per: time.Minute, Burst: 300000}, Quota: llmhttp.Quota{Tokens: hugeLimit}}),
	})
	for name, r := range map[string]reply{
		"whole":           s.chat(chatBody),
		"stream":          s.chat(streamBody),
		"bad request":     s.chat("{"),
		"unknown model":   s.chat(strings.Replace(chatBody, "demo-chat", "nope", 1)),
		"media type":      s.chat(chatBody, withHeader("Content-Type", "text/plain")),
		"too many tokens": s.chat(chatWith(`"max_tokens":300001`)),
		"models":          s.get(modelsPath),
		"model":           s.get(modelsPath + "/demo-chat"),
		"model, unknown":  s.get(modelsPath + "/nope"),
		"usage":           s.get(usagePath),
		"usage, bad":      s.get(usagePath + "?start_date=x"),
		"images":          s.do("POST", imagesPath, imageBody),
		"embeddings":      s.do("POST", embeddingsPath, embeddingBody),
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, "500", r.Header.Get("X-Ratelimit-Limit-Requests"))
			assert.Equal(t, "300000", r.Header.Get("X-Ratelimit-Limit-Tokens"))
			for _, what := range []string{"Requests", "Tokens"} {
				assert.GreaterOrEqual(t, remaining(t, r, what), 0)
				reset := r.Header.Values("X-Ratelimit-Reset-" + what)
				require.Len(t, reset, 1)
				d, err := time.ParseDuration(reset[0])
				require.NoError(t, err)
				assert.Equal(t, d.String(), reset[0])
				assert.Zero(t, d%time.Millisecond)
			}
		})
	}
	t.Run("key without limits", func(t *testing.T) {
		s := startServer(t, config{})
		for _, r := range []reply{s.chat(chatBody), s.chat(streamBody), s.chat("{")} {
			for name := range r.Header {
				assert.NotContains(t, name, "Ratelimit")
			}
		}
	})
	t.Run("key with one limit", func(t *testing.T) {
		s := startServer(t, config{keys: limitedKeys(llmhttp.Limits{Tokens: noRefill(1000)})})
		for _, r := range []reply{s.chat(chatBody), s.chat("{")} {
			assert.NotEmpty(t, r.Header.Get("X-Ratelimit-Limit-Tokens"))
			assert.Empty(t, r.Header.Get("X-Ratelimit-Limit-Requests"))
		}
	})
	t.Run("unknown key", func(t *testing.T) {
		for _, option := range []requestOption{withoutKey, withSecret("sk-wrong")} {
			r := s.chat(chatBody, option)
			assert.Equal(t, 401, r.StatusCode)
			assert.Empty(t, r.Header.Get("X-Ratelimit-Limit-Requests"))
		}
	})
}

// Durations in headers have the format of the original API, rounded up to milliseconds.
func TestLimits_FormOfResetHeaders(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                       "0s",
		time.Nanosecond:         "1ms",
		time.Millisecond:        "1ms",
		120 * time.Millisecond:  "120ms",
		1500 * time.Microsecond: "2ms",
		8640 * time.Millisecond: "8.64s",
		6 * time.Minute:         "6m0s",
		time.Hour:               "1h0m0s",
		math.MaxInt64:           "876000h0m0s",
	} {
		s := startServer(t, config{keys: limitedKeys(llmhttp.Limits{Requests: noRefill(5)}), opts: llmhttp.Options{
			Limiter: fixedLevels(llmhttp.BucketLevel{Remaining: 3, ResetAfter: d})}})
		r := s.chat(chatBody)
		assert.Equal(t, want, r.Header.Get("X-Ratelimit-Reset-Requests"))
		assert.Equal(t, "3", r.Header.Get("X-Ratelimit-Remaining-Requests"))
	}
}

// A client that waits as long as Retry-After-Ms says is admitted.
func TestLimits_RetryAfterIsLongEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startPipeServer(t, config{keys: limitedKeys(llmhttp.Limits{Requests: llmhttp.PerMinute(3)})})
		for n := range 3 {
			r := s.chat(chatBody)
			require.Equal(t, 200, r.StatusCode)
			assert.Equal(t, 2-n, remaining(t, r, "Requests"))
			assert.Equal(t, fmt.Sprint(time.Duration(n+1)*20*time.Second), r.Header.Get("X-Ratelimit-Reset-Requests"))
		}
		for range 5 {
			r := s.chat(chatBody)
			assert.Equal(t, "Rate limit reached on requests per min (RPM): Limit 3, Used 3, Requested 1. Please try again in 20s.", r.checkError(t, 429).Message)
			assert.Equal(t, "20", r.Header.Get("Retry-After"))
			assert.Equal(t, "20000", r.Header.Get("Retry-After-Ms"))
			assert.Equal(t, "true", r.Header.Get("X-Should-Retry"))
			time.Sleep(19 * time.Second)
			r = s.chat(chatBody)
			r.checkError(t, 429)
			assert.Equal(t, "1", r.Header.Get("Retry-After"))
			ms, err := strconv.Atoi(r.Header.Get("Retry-After-Ms"))
			require.NoError(t, err)
			time.Sleep(time.Duration(ms) * time.Millisecond)
			require.Equal(t, 200, s.chat(chatBody).StatusCode)
		}
	})
}

// The reply asks clients not to retry if the wait is too long for them.
func TestLimits_LongWaits(t *testing.T) {
	ask := func(rate llmhttp.Rate, l llmhttp.Limiter) reply {
		r := startServer(t, config{keys: limitedKeys(llmhttp.Limits{Requests: rate}), opts: llmhttp.Options{Limiter: l}}).chat(chatBody)
		r.checkError(t, 429)
		assert.Equal(t, "false", r.Header.Get("X-Should-Retry"))
		return r
	}
	r := ask(noRefill(5), fixedLevels(llmhttp.BucketLevel{RetryAfter: time.Hour}))
	assert.Equal(t, "3600", r.Header.Get("Retry-After"))
	r = ask(noRefill(5), fixedLevels(llmhttp.BucketLevel{RetryAfter: 1<<63 - 1})) // never
	assert.Empty(t, r.Header.Get("Retry-After"))
	ask(llmhttp.Rate{N: -1}, nil) // permits nothing
}

// A request is refused if the Limiter fails. Take is called once.
func TestLimits_LimiterFails(t *testing.T) {
	tests := map[string]struct {
		take   func(context.Context, []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error)
		status int
	}{
		"error":          {func(context.Context, []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) { return nil, errCause }, 503},
		"too few levels": {func(context.Context, []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) { return nil, nil }, 503},
		"too many levels": {func(context.Context, []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
			return make([]llmhttp.BucketLevel, 9), nil
		}, 503},
		"*Error is shown": {func(context.Context, []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
			return nil, llm.Errorf(418, "", "Tea.")
		}, 418},
		"panic": {func(context.Context, []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) { panic(errCause) }, 500},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			called := false
			l := &stubLimiter{take: tt.take}
			s := startServer(t, config{
				keys:    limitedKeys(llmhttp.Limits{Requests: noRefill(5), Tokens: noRefill(500)}),
				backend: streamBackend(func(context.Context, yieldFunc) { called = true }),
				opts:    llmhttp.Options{Limiter: l},
			})
			r := s.chat(streamBody)
			r.checkError(t, tt.status)
			if tt.status == 503 {
				assert.Equal(t, "1", r.Header.Get("Retry-After"))
			}
			assert.NotContains(t, r.body, secretCause)
			assert.Empty(t, r.Header.Get("X-Ratelimit-Limit-Requests"))
			assert.False(t, called)
			assert.Empty(t, s.usage.records())
			taken, _ := l.calls()
			assert.Len(t, taken, 1)
			s.do("POST", "/v1/x", "{").checkError(t, 404) // is refused before the Limiter is called
		})
	}
}

// The Handler waits for a Limiter that ignores its context.
func TestLimits_LimiterIgnoresItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startPipeServer(t, config{keys: limitedKeys(llmhttp.Limits{Requests: llmhttp.PerMinute(9)}), opts: llmhttp.Options{
			Bounds: llmhttp.Bounds{Timeout: 2 * time.Second},
			Limiter: &stubLimiter{take: func(_ context.Context, draws []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
				time.Sleep(5 * time.Second)
				return make([]llmhttp.BucketLevel, len(draws)), nil
			}},
		}})
		// ImageSizes is called before, so that the Timeout of the Backend runs.
		assert.Contains(t, []int{200, 504}, s.do("POST", imagesPath, imageBody).StatusCode)
		assert.Equal(t, 200, s.chat(chatBody).StatusCode)
		s.shutdown()
	})
}

// TestLimits_Draws checks the draws that Take gets, and those that Adjust gets when the
// request has ended. What settle gets is the tokens that were used minus those that were
// reserved. What was used is what the Backend reports: the one of the table, or stubBackend, which
// reports 8 tokens for embeddings and none for images.
func TestLimits_Draws(t *testing.T) {
	limits := llmhttp.Limits{Requests: llmhttp.PerMinute(5), Tokens: llmhttp.Rate{N: 7000, Per: time.Second, Burst: 9000}, Quota: llmhttp.Quota{Tokens: hugeLimit}}
	key := llmhttp.SubjectID{Kind: llmhttp.KindKey, ID: "key_1"}
	requests := func(cost int64) llmhttp.BucketAmount {
		return llmhttp.BucketAmount{Subject: key, Bucket: llmhttp.BucketRequests, Rate: limits.Requests, Amount: cost}
	}
	tokens := func(cost int64) llmhttp.BucketAmount {
		return llmhttp.BucketAmount{Subject: key, Bucket: llmhttp.BucketTokens, Rate: limits.Tokens, Amount: cost}
	}
	reserve := func(n int64) []llmhttp.BucketAmount { return []llmhttp.BucketAmount{requests(1), tokens(0), tokens(n)} }
	settle := func(n int64) []llmhttp.BucketAmount { return []llmhttp.BucketAmount{tokens(n)} }
	onlyRequest := []llmhttp.BucketAmount{requests(1), tokens(0)}
	returnDraw := []llmhttp.BucketAmount{requests(-1)}
	tests := []struct {
		name               string
		backend            llmhttp.Backend
		method, path, body string
		take, adjust       []llmhttp.BucketAmount // nil if there is no call
	}{
		{"whole", usageBackend(4, 6), "POST", chatPath, chatWith(`"max_tokens":100,"n":2`), reserve(204), settle(-194)},
		{"stream", usageBackend(4, 600), "POST", chatPath, chatWith(`"max_tokens":100,"stream":true`), reserve(104), settle(500)},
		{"estimate is exact", usageBackend(4, 100), "POST", chatPath, chatWith(`"max_tokens":100`), reserve(104), nil},
		{"Backend fails", failingBackend(errCause), "POST", chatPath, chatWith(`"max_tokens":100`), reserve(104), settle(-104)},
		{"embeddings", nil, "POST", embeddingsPath, `{"model":"m","input":["one two three","four"]}`, reserve(4), settle(4)},
		{"rerank", &stubBackend{usage: &llm.Usage{PromptTokens: 9}}, "POST", rerankPath, `{"model":"m","query":"one two","documents":["three","four"]}`, reserve(6), settle(3)},
		{"completions", nil, "POST", completionsPath, `{"model":"m","prompt":["one two","three"],"max_tokens":5,"n":2}`, reserve(23), settle(-19)},
		{"best of", nil, "POST", completionsPath, `{"model":"m","prompt":["one two","three"],"max_tokens":5,"best_of":3}`, reserve(33), settle(-29)},
		{"moderations", &stubBackend{usage: &llm.Usage{PromptTokens: 9}}, "POST", moderationsPath, `{"model":"m","input":["one two","three"]}`, reserve(3), settle(6)},
		{"images", nil, "POST", imagesPath, `{"model":"m","prompt":"one two three"}`, reserve(3), settle(-3)},
		{"speech", nil, "POST", speechPath, `{"model":"m","input":"one two three","instructions":"slow","voice":"alloy"}`, reserve(4), settle(-4)},
		{"models", nil, "GET", modelsPath, "", onlyRequest, nil},
		{"usage", nil, "GET", usagePath, "", onlyRequest, nil},
		{"bad request", nil, "POST", chatPath, chatWith(`"n":0`), onlyRequest, returnDraw},
		{"more tokens than the limit", nil, "POST", chatPath, chatWith(`"max_tokens":9000`), onlyRequest, returnDraw},
		{"no key", nil, "POST", chatPath, chatBody, nil, nil},
		{"unknown URL", nil, "GET", "/v1/x", "", nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := new(stubLimiter)
			s := startServer(t, config{backend: tt.backend, keys: limitedKeys(limits), opts: llmhttp.Options{Estimates: llmhttp.TokenEstimates{TextTokens: countWords}, Limiter: l}})
			var options []requestOption
			if tt.name == "no key" {
				options = append(options, withoutKey)
			}
			s.do(tt.method, tt.path, tt.body, options...)
			s.summary()
			taken, adjusted := l.calls()
			assert.Equal(t, tt.take, slices.Concat(taken...))
			assert.Equal(t, tt.adjust, slices.Concat(adjusted...))
			assert.LessOrEqual(t, len(taken), 2)
			assert.LessOrEqual(t, len(adjusted), 1)
		})
	}
}

// Requests that only count tokens do not take from the bucket of requests.
func TestLimits_TokenCounts(t *testing.T) {
	for path, body := range map[string]string{
		"/v1/messages/count_tokens":  `{"model":"demo-chat","messages":[{"role":"user","content":"Hi"}]}`,
		"/v1/responses/input_tokens": `{"model":"demo-chat","input":"Hi"}`,
	} {
		t.Run(path, func(t *testing.T) {
			s := startServer(t, withProtocols(config{keys: limitedKeys(llmhttp.Limits{Requests: noRefill(1)})}))
			for range 27 {
				assert.Equal(t, 200, s.do("POST", path, body).StatusCode)
			}
			assert.Equal(t, 200, s.chat(chatBody).StatusCode)
			assert.Equal(t, 429, s.chat(chatBody).StatusCode)
			assert.Equal(t, 200, s.do("POST", path, body).StatusCode)
		})
	}
	t.Run("none", func(t *testing.T) {
		s := startServer(t, withProtocols(config{keys: limitedKeys(llmhttp.Limits{Requests: llmhttp.Rate{N: -1}})}))
		assert.Equal(t, 429, s.do("POST", "/v1/messages/count_tokens", `{"model":"demo-chat","messages":[{"role":"user","content":"Hi"}]}`).StatusCode)
	})
}

func TestPerMinute(t *testing.T) {
	assert.Equal(t, llmhttp.Rate{N: 5, Per: time.Minute}, llmhttp.PerMinute(5))
	for _, n := range []int{0, -1, math.MinInt} {
		assert.Equal(t, llmhttp.Rate{N: -1, Per: time.Minute}, llmhttp.PerMinute(n), "%d permits nothing", n)
	}
}

func TestLimits_PerMinuteOfZeroPermitsNothing(t *testing.T) {
	key := testKey()
	key.Limits.Requests = llmhttp.PerMinute(0)
	startServer(t, config{keys: keysFor(key)}).chat(chatBody).checkError(t, 429)
}

func TestLimits_Validate(t *testing.T) {
	valid := []llmhttp.Limits{
		{},
		{Requests: llmhttp.Rate{N: 1}, Tokens: llmhttp.Rate{N: 1, Per: 1, Burst: 1}},
		{Requests: llmhttp.Rate{N: -1}, Tokens: llmhttp.Rate{N: -5, Per: time.Hour, Burst: 2}, Concurrent: -1},
		{Requests: llmhttp.PerMinute(0)},
		{Quota: llmhttp.Quota{Tokens: -1, Cost: -1, Per: -1}, MaxCompletionTokens: 1},
		{MaxCompletionTokens: -1},
		{Quota: llmhttp.Quota{Since: time.Unix(1, 0)}},
	}
	for _, l := range valid {
		assert.NoError(t, l.Validate(), "%+v", l)
	}
	const isZero, negative, noAmount = ".N: is zero, but Per or Burst is set", ": must not be negative", "Limits.Quota.Per: is set, but neither Tokens nor Cost"
	for _, test := range []struct {
		limits llmhttp.Limits
		want   string
	}{
		{llmhttp.Limits{Requests: llmhttp.Rate{Burst: 5}}, "Limits.Requests" + isZero},
		{llmhttp.Limits{Requests: llmhttp.Rate{Per: time.Hour}}, "Limits.Requests" + isZero},
		{llmhttp.Limits{Tokens: llmhttp.Rate{Per: time.Hour, Burst: 5}}, "Limits.Tokens" + isZero},
		{llmhttp.Limits{Requests: llmhttp.Rate{N: 1, Per: -1}}, "Limits.Requests.Per" + negative},
		{llmhttp.Limits{Tokens: llmhttp.Rate{Per: -1}}, "Limits.Tokens.Per" + negative},
		{llmhttp.Limits{Tokens: llmhttp.Rate{N: -1, Burst: -1}}, "Limits.Tokens.Burst" + negative},
		{llmhttp.Limits{Quota: llmhttp.Quota{Per: time.Hour}}, noAmount},
		{llmhttp.Limits{Quota: llmhttp.Quota{Per: -1}}, noAmount},
	} {
		assert.EqualError(t, test.limits.Validate(), test.want)
	}
}
