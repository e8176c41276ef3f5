package llmhttp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
)

// hourly permits n, and gives nothing back while a test runs.
func hourly(n int) llmhttp.Rate { return llmhttp.Rate{N: n, Per: 24 * 365 * time.Hour} }

// fxLeft reads how much the headers say is left.
func fxLeft(t testing.TB, h http.Header, what string) int {
	t.Helper()
	n, err := strconv.Atoi(h.Get("X-Ratelimit-Remaining-" + what))
	require.NoError(t, err, "x-ratelimit-remaining-%s", what)
	return n
}

// counted makes a message cost 4 tokens, whatever it says, and each word of a
// reply one.
func counted(_, text string) int {
	if strings.HasPrefix(text, "Hello, how") {
		return 0
	}
	return len(strings.Fields(text))
}

// fxUsed is a Backend that reports what it used.
func fxUsed(prompt, completion int) llmhttp.Backend {
	return fxChat(func(_ context.Context, yield func(*llmhttp.ChatChunk, error) bool) {
		c := llmhttp.TextChunk("Hello!")
		c.Usage = &llmhttp.Usage{PromptTokens: prompt, CompletionTokens: completion}
		yield(c, nil)
	})
}

// A request that one limit refuses takes nothing from another:
// BerriAI/litellm#39309.
func TestLimitsAllOrNothing(t *testing.T) {
	const dear = `"max_tokens":60` // 64 tokens with the prompt
	limits := llmhttp.Limits{Requests: hourly(10), Tokens: hourly(100), Quota: hourly(1000)}
	t.Run("tokens", func(t *testing.T) {
		s := fxStart(t, fxConfig{keys: fxLimited(limits), backend: fxUsed(4, 60), opts: llmhttp.Options{CountTokens: counted}})
		r := s.chat(fxMember(dear))
		require.Equal(t, 200, r.StatusCode)
		require.Equal(t, 9, fxLeft(t, r.Header, "Requests"))
		require.Equal(t, 36, fxLeft(t, r.Header, "Tokens"))
		for range 3 {
			r = s.chat(fxMember(dear))
			assert.Equal(t, "tokens", r.checkError(t, 429).Type)
			assert.Equal(t, 9, fxLeft(t, r.Header, "Requests"))
			assert.Equal(t, 36, fxLeft(t, r.Header, "Tokens"))
		}
		r = s.chat(fxMember(`"max_tokens":32`))
		require.Equal(t, 200, r.StatusCode)
		require.Equal(t, 8, fxLeft(t, r.Header, "Requests"))
	})
	t.Run("requests", func(t *testing.T) {
		l := limits
		l.Requests = hourly(1)
		s := fxStart(t, fxConfig{keys: fxLimited(l), backend: fxUsed(4, 6), opts: llmhttp.Options{CountTokens: counted}})
		require.Equal(t, 200, s.chat(fxMember(`"max_tokens":6`)).StatusCode)
		for range 3 {
			r := s.chat(fxMember(`"max_tokens":6`))
			assert.Equal(t, "requests", r.checkError(t, 429).Type)
			assert.Equal(t, 90, fxLeft(t, r.Header, "Tokens"))
		}
	})
	t.Run("quota", func(t *testing.T) {
		l := limits
		l.Quota = hourly(65)
		s := fxStart(t, fxConfig{keys: fxLimited(l), backend: fxUsed(4, 60), opts: llmhttp.Options{CountTokens: counted}})
		require.Equal(t, 200, s.chat(fxMember(dear)).StatusCode)
		r := s.chat(fxMember(`"max_tokens":10`))
		assert.Equal(t, "insufficient_quota", r.checkError(t, 429).Code)
		assert.Equal(t, 9, fxLeft(t, r.Header, "Requests"))
		assert.Equal(t, 36, fxLeft(t, r.Header, "Tokens"))
		assert.Equal(t, "false", r.Header.Get("X-Should-Retry"))
		assert.Empty(t, r.Header.Get("Retry-After"))
	})
	t.Run("concurrency", func(t *testing.T) {
		l := limits
		l.Concurrent = 1
		started, release := make(chan struct{}), make(chan struct{})
		s := fxStart(t, fxConfig{keys: fxLimited(l), backend: fxChat(func(_ context.Context, yield func(*llmhttp.ChatChunk, error) bool) {
			close(started)
			<-release
			yield(&llmhttp.ChatChunk{Usage: &llmhttp.Usage{PromptTokens: 4}}, nil)
		}), opts: llmhttp.Options{CountTokens: counted}})
		first := make(chan fxReply, 1)
		go func() { first <- s.chat(fxMember(dear)) }()
		fxReceive(t, "the Backend", started)
		for range 20 {
			r := s.chat(fxMember(dear))
			e := r.checkError(t, 429)
			assert.Equal(t, "rate_limit_exceeded", e.Code)
			assert.Equal(t, "1", r.Header.Get("Retry-After"))
			assert.Equal(t, 9, fxLeft(t, r.Header, "Requests"))
			assert.Equal(t, 36, fxLeft(t, r.Header, "Tokens"))
		}
		close(release)
		assert.Equal(t, 200, fxReceive(t, "the first", first).StatusCode)
	})
	t.Run("too large", func(t *testing.T) {
		s := fxStart(t, fxConfig{keys: fxLimited(limits), opts: llmhttp.Options{CountTokens: counted}})
		r := s.chat(fxMember(`"max_tokens":97`))
		e := r.checkError(t, 429)
		assert.Equal(t, "Request too large: Limit 100 tokens, Requested 101. Ask for fewer tokens, or shorten the messages.", e.Message)
		assert.Equal(t, "tokens", e.Type)
		assert.Equal(t, "false", r.Header.Get("X-Should-Retry"))
		assert.Equal(t, 10, fxLeft(t, r.Header, "Requests"))
		assert.Equal(t, 100, fxLeft(t, r.Header, "Tokens"))
		// With n the choices add up, and with absurd numbers nothing overflows.
		for _, member := range []string{`"max_tokens":33,"n":3`, `"max_tokens":9007199254740991,"n":128`, `"max_completion_tokens":2147483647`} {
			r := s.chat(fxMember(member))
			assert.Contains(t, r.checkError(t, 429).Message, "Request too large")
		}
		assert.Equal(t, 200, s.chat(fxMember(`"max_tokens":96`)).StatusCode)
	})
}

// What was reserved and not used comes back, and what was used beyond it is
// taken: BerriAI/litellm#18730.
func TestLimitsSettle(t *testing.T) {
	text := func(s string) llmhttp.Backend {
		return fxChat(func(_ context.Context, yield func(*llmhttp.ChatChunk, error) bool) { yield(llmhttp.TextChunk(s), nil) })
	}
	tests := []struct {
		name     string
		backend  llmhttp.Backend
		member   string
		stream   bool
		status   int
		reserved int // visible in the reply's own headers
		used     int // visible in the next one's
	}{
		{"less", fxUsed(4, 6), `"max_tokens":50`, false, 200, 54, 10},
		{"less/stream", fxUsed(4, 6), `"max_tokens":50`, true, 200, 54, 10},
		{"more", fxUsed(40, 600), `"max_tokens":50`, false, 200, 54, 640},
		{"more, without a limit", fxUsed(4, 200), `"n":1`, false, 200, 4, 204},
		{"exactly", fxUsed(4, 50), `"max_tokens":50`, false, 200, 54, 54},
		{"none reported", text("three words here"), `"max_tokens":50`, false, 200, 54, 4 + 3},
		{"none reported/stream", text("three words here"), `"max_tokens":50`, true, 200, 54, 4 + 3},
		{"a debt", fxUsed(4, 3000), `"max_tokens":50`, false, 200, 54, 1000},
		{"failed", fxFail(errors.New("boom")), `"max_tokens":50`, false, 500, 54, 0},
		{"failed/stream", fxFail(errors.New("boom")), `"max_tokens":50`, true, 500, 54, 0},
		{"panicked", fxChat(func(context.Context, func(*llmhttp.ChatChunk, error) bool) { panic("boom") }), `"max_tokens":50`, false, 500, 54, 0},
		{"n", fxUsed(4, 6), `"max_tokens":50,"n":3`, false, 200, 154, 10},
		{"max_completion_tokens counts", fxUsed(4, 6), `"max_tokens":500,"max_completion_tokens":50`, false, 200, 54, 10},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := fxStart(t, fxConfig{backend: tt.backend, opts: llmhttp.Options{CountTokens: counted},
				keys: fxLimited(llmhttp.Limits{Requests: hourly(100), Tokens: hourly(1000), Quota: hourly(100000)})})
			body := fxMember(tt.member)
			if tt.stream {
				body = fxMember(tt.member + `,"stream":true`)
			}
			r := s.chat(body)
			require.Equal(t, tt.status, r.StatusCode, "%s", r.body)
			assert.Equal(t, 1000-tt.reserved, fxLeft(t, r.Header, "Tokens"))
			assert.Equal(t, 99, fxLeft(t, r.Header, "Requests"))
			fxAwait(t, "the end", func() bool { return len(s.watch.exchanges()) == 1 })
			// A request that is refused shows how things are.
			r = s.chat("{")
			r.checkError(t, 400)
			assert.Equal(t, 1000-tt.used, fxLeft(t, r.Header, "Tokens"))
			assert.Equal(t, 99, fxLeft(t, r.Header, "Requests"))
		})
	}
}

// Every reply to a limited key tells how its limits stand, in the format's way.
func TestLimitHeaders(t *testing.T) {
	s := fxStart(t, fxConfig{
		backend: &fxBackend{chat: func(_ context.Context, r *llmhttp.ChatRequest) llmhttp.ChatStream {
			if r.Model != "demo-chat" {
				return llmhttp.Fail(llmhttp.ModelNotFound(r.Model))
			}
			return llmhttp.Reply("Hello!")
		}},
		keys: fxLimited(llmhttp.Limits{Requests: llmhttp.PerMinute(500), Tokens: llmhttp.Rate{N: 200000, Per: time.Minute, Burst: 300000}, Quota: hourly(1 << 40)}),
	})
	replies := map[string]fxReply{
		"200":        s.chat(fxWhole),
		"stream":     s.chat(fxStream),
		"400":        s.chat("{"),
		"404 model":  s.chat(strings.Replace(fxWhole, "demo-chat", "nope", 1)),
		"415":        s.chat(fxWhole, fxHeader("Content-Type", "text/plain")),
		"models":     s.do("GET", "/v1/models", ""),
		"model":      s.do("GET", "/v1/models/demo-chat", ""),
		"no model":   s.do("GET", "/v1/models/nope", ""),
		"usage":      s.do("GET", "/v1/dashboard/billing/usage", ""),
		"bad usage":  s.do("GET", "/v1/dashboard/billing/usage?start_date=x", ""),
		"images":     s.do("POST", "/v1/images/generations", `{"model":"m","prompt":"p"}`),
		"embeddings": s.do("POST", "/v1/embeddings", `{"model":"m","input":"p"}`),
		"429":        s.chat(fxMember(`"max_tokens":300001`)),
	}
	for name, r := range replies {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, "500", r.Header.Get("X-Ratelimit-Limit-Requests"))
			assert.Equal(t, "300000", r.Header.Get("X-Ratelimit-Limit-Tokens"))
			for _, what := range []string{"Requests", "Tokens"} {
				assert.Regexp(t, `^\d+$`, r.Header.Get("X-Ratelimit-Remaining-"+what))
				reset := r.Header.Get("X-Ratelimit-Reset-" + what)
				d, err := time.ParseDuration(reset)
				require.NoError(t, err, "%q", reset)
				assert.Equal(t, d.String(), reset, "as Go writes durations")
				assert.Zero(t, d%time.Millisecond)
				assert.Len(t, r.Header.Values("X-Ratelimit-Reset-"+what), 1)
			}
		})
	}
	t.Run("unlimited", func(t *testing.T) {
		s := fxStart(t, fxConfig{})
		for _, r := range []fxReply{s.chat(fxWhole), s.chat(fxStream), s.chat("{")} {
			for name := range r.Header {
				assert.NotContains(t, name, "Ratelimit")
			}
		}
	})
	t.Run("only one", func(t *testing.T) {
		s := fxStart(t, fxConfig{keys: fxLimited(llmhttp.Limits{Tokens: hourly(1000)})})
		for _, r := range []fxReply{s.chat(fxWhole), s.chat("{")} {
			assert.NotEmpty(t, r.Header.Get("X-Ratelimit-Limit-Tokens"))
			assert.Empty(t, r.Header.Get("X-Ratelimit-Limit-Requests"))
		}
	})
	t.Run("strangers learn nothing", func(t *testing.T) {
		for _, r := range []fxReply{s.chat(fxWhole, fxNoKey), s.chat(fxWhole, fxHeader("Authorization", "Bearer sk-wrong"))} {
			assert.Equal(t, 401, r.StatusCode)
			assert.Empty(t, r.Header.Get("X-Ratelimit-Limit-Requests"))
		}
	})
}

// The reset forms of the original: 120ms, 1ms, 0s, 6m0s.
func TestResetForms(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", time.Nanosecond: "1ms", time.Millisecond: "1ms", 120 * time.Millisecond: "120ms",
		6 * time.Minute: "6m0s", 1500 * time.Microsecond: "2ms", 8640 * time.Millisecond: "8.64s", time.Hour: "1h0m0s",
	} {
		s := fxStart(t, fxConfig{keys: fxLimited(llmhttp.Limits{Requests: hourly(5)}), opts: llmhttp.Options{
			Limiter: fxLevels(llmhttp.Level{Remaining: 3, ResetAfter: d})}})
		r := s.chat(fxWhole)
		assert.Equal(t, want, r.Header.Get("X-Ratelimit-Reset-Requests"))
		assert.Equal(t, "3", r.Header.Get("X-Ratelimit-Remaining-Requests"))
	}
}

// A client that waits as long as it is told is admitted.
func TestRetryAfterIsTrue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, dial, done := fxServePipe(t, fxConfig{keys: fxLimited(llmhttp.Limits{Requests: llmhttp.PerMinute(3)})})
		defer done()
		ask := func() fxReply {
			return fxParse(t, "POST", fxRound(t, dial(), fxPost("HTTP/1.1", "/v1/chat/completions", fxWhole, "Connection: close")))
		}
		for n := range 3 {
			r := ask()
			require.Equal(t, 200, r.StatusCode)
			assert.Equal(t, 2-n, fxLeft(t, r.Header, "Requests"))
			assert.Equal(t, fmt.Sprint(time.Duration(n+1)*20*time.Second), r.Header.Get("X-Ratelimit-Reset-Requests"))
		}
		for range 5 {
			r := ask()
			e := r.checkError(t, 429)
			assert.Equal(t, "Rate limit reached on requests per min (RPM): Limit 3, Used 3, Requested 1. Please try again in 20s.", e.Message)
			assert.Equal(t, "20", r.Header.Get("Retry-After"))
			assert.Equal(t, "20000", r.Header.Get("Retry-After-Ms"))
			assert.Equal(t, "true", r.Header.Get("X-Should-Retry"))
			time.Sleep(19 * time.Second)
			r = ask()
			r.checkError(t, 429)
			ms, err := strconv.Atoi(r.Header.Get("Retry-After-Ms"))
			require.NoError(t, err)
			assert.Equal(t, "1", r.Header.Get("Retry-After"))
			time.Sleep(time.Duration(ms) * time.Millisecond)
			require.Equal(t, 200, ask().StatusCode)
		}
	})
}

// A wait that SDKs would not sit out is not advised.
func TestLongWait(t *testing.T) {
	ask := func(l llmhttp.Level) fxReply {
		return fxStart(t, fxConfig{keys: fxLimited(llmhttp.Limits{Requests: hourly(5)}), opts: llmhttp.Options{Limiter: fxLevels(l)}}).chat(fxWhole)
	}
	r := ask(llmhttp.Level{RetryAfter: time.Hour})
	r.checkError(t, 429)
	assert.Equal(t, "3600", r.Header.Get("Retry-After"))
	assert.Equal(t, "false", r.Header.Get("X-Should-Retry"))
	r = ask(llmhttp.Level{RetryAfter: 1<<63 - 1})
	r.checkError(t, 429)
	assert.Empty(t, r.Header.Get("Retry-After"))
	assert.Equal(t, "false", r.Header.Get("X-Should-Retry"))
	s := fxStart(t, fxConfig{keys: fxLimited(llmhttp.Limits{Requests: llmhttp.Rate{N: -1}})})
	r = s.chat(fxWhole)
	r.checkError(t, 429)
	assert.Equal(t, "false", r.Header.Get("X-Should-Retry"))
}

// A key's place among requests in progress is free again however one ended.
func TestConcurrencyIsReleased(t *testing.T) {
	type yield = func(*llmhttp.ChatChunk, error) bool
	fail := errors.New("boom")
	called := make(chan struct{}, 1)
	backends := map[string]func(context.Context, yield){
		"reply":     func(_ context.Context, y yield) { y(llmhttp.TextChunk("x"), nil) },
		"error":     func(_ context.Context, y yield) { y(nil, fail) },
		"mid error": func(_ context.Context, y yield) { _ = y(llmhttp.TextChunk("x"), nil) && y(nil, fail) },
		"panic":     func(context.Context, yield) { panic("boom") },
		"mid panic": func(_ context.Context, y yield) { y(llmhttp.TextChunk("x"), nil); panic("boom") },
		"client left": func(ctx context.Context, y yield) {
			y(llmhttp.TextChunk("x"), nil)
			called <- struct{}{}
			<-ctx.Done()
		},
	}
	for name, b := range backends {
		for _, body := range []string{fxWhole, fxStream} {
			t.Run(fmt.Sprintf("%s/stream=%t", name, body == fxStream), func(t *testing.T) {
				fxNoLeaks(t)
				s := fxStart(t, fxConfig{backend: fxChat(b), keys: fxLimited(llmhttp.Limits{Concurrent: 2})})
				for i := range 5 {
					ctx, cancel := context.WithTimeout(t.Context(), fxPatience)
					if name == "client left" {
						go func() { <-called; cancel() }()
					}
					resp, err := s.open(ctx, "POST", "/v1/chat/completions", body)
					if err == nil {
						assert.NotEqual(t, 429, resp.StatusCode)
						_, _ = io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
					}
					cancel()
					fxAwait(t, "the end", func() bool { return len(s.watch.exchanges()) == i+1 })
				}
			})
		}
	}
	t.Run("refused", func(t *testing.T) {
		s := fxStart(t, fxConfig{keys: fxLimited(llmhttp.Limits{Concurrent: 1, Requests: llmhttp.Rate{N: -1}})})
		for range 3 {
			assert.NotContains(t, s.chat(fxWhole).checkError(t, 429).Message, "in progress")
		}
	})
	t.Run("the Limiter fails", func(t *testing.T) {
		s := fxStart(t, fxConfig{keys: fxLimited(llmhttp.Limits{Concurrent: 1, Requests: llmhttp.PerMinute(1)}), opts: llmhttp.Options{
			Limiter: &scriptedLimiter{take: func(context.Context, []llmhttp.Draw) ([]llmhttp.Level, error) { return nil, fail }}}})
		for range 3 {
			s.chat(fxWhole).checkError(t, 503)
		}
	})
}

// Concurrent counts keys apart, and never admits more.
func TestConcurrencyLimit(t *testing.T) {
	var inside, most atomic.Int64
	release := make(chan struct{})
	keys := llmhttp.KeyFunc(func(_ context.Context, secret string) (*llmhttp.Key, error) {
		return &llmhttp.Key{ID: secret, Limits: llmhttp.Limits{Concurrent: 3}}, nil
	})
	s := fxStart(t, fxConfig{keys: keys, backend: fxChat(func(context.Context, func(*llmhttp.ChatChunk, error) bool) {
		n := inside.Add(1)
		defer inside.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		<-release
	})})
	var wg sync.WaitGroup
	var statuses [600]atomic.Int64
	ask := func(key string) {
		wg.Go(func() { statuses[s.chat(fxWhole, fxHeader("Authorization", "Bearer "+key)).StatusCode].Add(1) })
	}
	for range 20 {
		ask("a")
		ask("b")
	}
	fxAwait(t, "refusals", func() bool { return statuses[429].Load() == 34 })
	assert.Equal(t, int64(6), inside.Load())
	close(release)
	wg.Wait()
	assert.Equal(t, int64(6), statuses[200].Load())
	assert.Equal(t, int64(6), most.Load())
}

// An acquirer is a Limiter that counts requests in progress.
type acquirer struct {
	scriptedLimiter
	acquire func(ctx context.Context, bucket string, limit int) (func(), error)
}

func (l *acquirer) Acquire(ctx context.Context, bucket string, limit int) (func(), error) {
	return l.acquire(ctx, bucket, limit)
}

// A Limiter that counts requests in progress does so for all its Handlers, and
// is told of the end of each, whatever it was.
func TestConcurrencyLimiter(t *testing.T) {
	var mu sync.Mutex
	var inside []string
	l := &acquirer{acquire: func(_ context.Context, bucket string, limit int) (func(), error) {
		mu.Lock()
		defer mu.Unlock()
		if len(inside) >= limit {
			return nil, nil
		}
		inside = append(inside, bucket)
		return func() {
			mu.Lock()
			defer mu.Unlock()
			inside = inside[1:]
		}, nil
	}}
	buckets := func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(inside)
	}
	finish := make(chan struct{})
	serve := func(limits llmhttp.Limits) *fxServer {
		return fxStart(t, fxConfig{keys: fxLimited(limits), opts: llmhttp.Options{Limiter: l},
			backend: fxChat(func(context.Context, func(*llmhttp.ChatChunk, error) bool) {
				<-finish
				panic("boom")
			})})
	}
	a, b := serve(llmhttp.Limits{Concurrent: 2}), serve(llmhttp.Limits{Concurrent: 2})
	var wg sync.WaitGroup
	for _, s := range []*fxServer{a, b} {
		wg.Go(func() { s.chat(fxWhole).checkError(t, 500) })
	}
	fxAwait(t, "two in progress", func() bool { return len(buckets()) == 2 })
	assert.Equal(t, []string{"key_1", "key_1"}, buckets())
	for _, s := range []*fxServer{a, b} {
		e := s.chat(fxWhole).checkError(t, 429)
		assert.Contains(t, e.Message, "in progress: Limit 2")
	}
	close(finish)
	wg.Wait()
	fxAwait(t, "their ends", func() bool { return len(buckets()) == 0 })

	serve(llmhttp.Limits{Concurrent: -1}).chat(fxWhole).checkError(t, 429)
	serve(llmhttp.Limits{Concurrent: 1, Requests: llmhttp.PerMinute(1)}).chat("{").checkError(t, 400)
	serve(llmhttp.Limits{}).chat(fxWhole).checkError(t, 500)
	assert.Empty(t, buckets())
}

// A Limiter that cannot tell how many are in progress refuses, and one that
// panics at the end of a request fails no other.
func TestConcurrencyLimiterFails(t *testing.T) {
	fail := errors.New("marker-of-the-cause")
	for name, tt := range map[string]struct {
		acquire func(context.Context, string, int) (func(), error)
		status  int
	}{
		"error":        {func(context.Context, string, int) (func(), error) { return nil, fail }, 503},
		"told":         {func(context.Context, string, int) (func(), error) { return nil, llmhttp.Errorf(418, "", "Tea.") }, 418},
		"panic":        {func(context.Context, string, int) (func(), error) { panic(fail) }, 500},
		"panic at end": {func(context.Context, string, int) (func(), error) { return func() { panic(fail) }, nil }, 200},
	} {
		t.Run(name, func(t *testing.T) {
			s := fxStart(t, fxConfig{keys: fxLimited(llmhttp.Limits{Concurrent: 1}), opts: llmhttp.Options{Limiter: &acquirer{acquire: tt.acquire}}})
			for range 2 {
				r := s.chat(fxWhole)
				if tt.status != 200 {
					r.checkError(t, tt.status)
				}
				assert.Equal(t, tt.status, r.StatusCode)
				assert.NotContains(t, r.body, "marker")
			}
		})
	}
}

// N requests at once are admitted exactly as far as the bucket goes:
// songquanpeng/one-api#2440, QuantumNous/new-api#5690, #6609, litellm#24677.
func TestLimitsAdmitExactly(t *testing.T) {
	for name, l := range map[string]llmhttp.Limits{
		"requests": {Requests: hourly(25), Tokens: hourly(1 << 30)},
		"tokens":   {Requests: hourly(1 << 30), Tokens: hourly(25 * 14)},
		"quota":    {Quota: hourly(25*14 + 13)},
	} {
		t.Run(name, func(t *testing.T) {
			s := fxStart(t, fxConfig{keys: fxLimited(l), backend: fxUsed(4, 10), opts: llmhttp.Options{CountTokens: counted}})
			var statuses [600]atomic.Int64
			var wg sync.WaitGroup
			for range 80 {
				wg.Go(func() { statuses[s.chat(fxMember(`"max_tokens":10`)).StatusCode].Add(1) })
			}
			wg.Wait()
			assert.Equal(t, int64(25), statuses[200].Load())
			assert.Equal(t, int64(55), statuses[429].Load())
		})
	}
}

// A Limiter that cannot tell refuses, with 503.
func TestLimiterFails(t *testing.T) {
	fail := errors.New("marker-of-the-cause")
	tests := map[string]struct {
		take   func(context.Context, []llmhttp.Draw) ([]llmhttp.Level, error)
		status int
	}{
		"error":     {func(context.Context, []llmhttp.Draw) ([]llmhttp.Level, error) { return nil, fail }, 503},
		"no levels": {func(context.Context, []llmhttp.Draw) ([]llmhttp.Level, error) { return nil, nil }, 503},
		"too many":  {func(context.Context, []llmhttp.Draw) ([]llmhttp.Level, error) { return make([]llmhttp.Level, 9), nil }, 503},
		"told": {func(context.Context, []llmhttp.Draw) ([]llmhttp.Level, error) {
			return nil, llmhttp.Errorf(418, "", "Tea.")
		}, 418},
		"panic": {func(context.Context, []llmhttp.Draw) ([]llmhttp.Level, error) { panic(fail) }, 500},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			called := false
			s := fxStart(t, fxConfig{keys: fxLimited(llmhttp.Limits{Requests: hourly(5), Tokens: hourly(500)}),
				backend: fxChat(func(context.Context, func(*llmhttp.ChatChunk, error) bool) { called = true }),
				opts:    llmhttp.Options{Limiter: &scriptedLimiter{take: tt.take}}})
			r := s.chat(fxStream)
			r.checkError(t, tt.status)
			if tt.status == 503 {
				assert.Equal(t, "1", r.Header.Get("Retry-After"))
			}
			assert.NotContains(t, r.body, "marker")
			assert.Empty(t, r.Header.Get("X-Ratelimit-Limit-Requests"))
			assert.False(t, called)
			assert.Empty(t, s.usage.all())
			s.chat("{").checkError(t, 400) // fails as it would otherwise
		})
	}
}

// What a Limiter is asked for.
func TestDraws(t *testing.T) {
	limits := llmhttp.Limits{Requests: llmhttp.PerMinute(5), Tokens: llmhttp.Rate{N: 7000, Per: time.Second, Burst: 9000}, Quota: hourly(1 << 40)}
	requests := func(cost int) llmhttp.Draw {
		return llmhttp.Draw{Bucket: llmhttp.BucketRequests, Rate: limits.Requests, Cost: cost}
	}
	tokens := func(cost int) llmhttp.Draw {
		return llmhttp.Draw{Bucket: llmhttp.BucketTokens, Rate: limits.Tokens, Cost: cost}
	}
	quota := func(cost int) llmhttp.Draw {
		return llmhttp.Draw{Bucket: llmhttp.BucketQuota, Rate: limits.Quota, Cost: cost}
	}
	type draws = [][]llmhttp.Draw
	chat := func(member string) func(*fxServer) fxReply {
		return func(s *fxServer) fxReply { return s.chat(fxMember(member)) }
	}
	get := func(path string) func(*fxServer) fxReply {
		return func(s *fxServer) fxReply { return s.do("GET", path, "") }
	}
	tests := []struct {
		name            string
		backend         llmhttp.Backend
		ask             func(*fxServer) fxReply
		taken, adjusted draws
	}{
		{"chat", fxUsed(4, 6), chat(`"max_tokens":100,"n":2`), draws{{requests(1), tokens(204), quota(204)}}, draws{{tokens(-194), quota(-194)}}},
		{"stream", fxUsed(4, 600), chat(`"max_tokens":100,"stream":true`), draws{{requests(1), tokens(104), quota(104)}}, draws{{tokens(500), quota(500)}}},
		{"exact", fxUsed(4, 100), chat(`"max_tokens":100`), draws{{requests(1), tokens(104), quota(104)}}, nil},
		{"failed", fxFail(errors.New("x")), chat(`"max_tokens":100`), draws{{requests(1), tokens(104), quota(104)}}, draws{{tokens(-104), quota(-104)}}},
		{"models", nil, get("/v1/models"), draws{{requests(1), tokens(0)}}, nil},
		{"usage", nil, get("/v1/dashboard/billing/usage"), draws{{requests(1), tokens(0)}}, nil},
		{"bad request", nil, chat(`"n":0`), draws{{requests(0), tokens(0)}}, nil},
		{"too large", nil, chat(`"max_tokens":9000`), draws{{requests(0), tokens(0)}}, nil},
		{"no key", nil, func(s *fxServer) fxReply { return s.chat(fxWhole, fxNoKey) }, nil, nil},
		{"unknown URL", nil, get("/v1/x"), nil, nil},
		{"embeddings", nil, func(s *fxServer) fxReply {
			return s.do("POST", "/v1/embeddings", `{"model":"m","input":["one two three","four"]}`)
		}, draws{{requests(1), tokens(4), quota(4)}}, draws{{tokens(4), quota(4)}}},
		{"images", nil, func(s *fxServer) fxReply {
			return s.do("POST", "/v1/images/generations", `{"model":"m","prompt":"one two three"}`)
		}, draws{{requests(1), tokens(3), quota(3)}}, draws{{tokens(-3), quota(-3)}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := new(scriptedLimiter)
			s := fxStart(t, fxConfig{backend: tt.backend, keys: fxLimited(limits), opts: llmhttp.Options{CountTokens: counted, Limiter: l}})
			tt.ask(s)
			s.watch.only(t)
			taken, adjusted := l.log()
			assert.Equal(t, tt.taken, taken)
			assert.Equal(t, tt.adjusted, adjusted)
		})
	}
}

// A client that left pays for what was made, and gets the rest back.
func TestAbandonedIsSettled(t *testing.T) {
	l := new(scriptedLimiter)
	yielded := make(chan struct{})
	s := fxStart(t, fxConfig{keys: fxLimited(llmhttp.Limits{Tokens: hourly(1000)}), opts: llmhttp.Options{CountTokens: counted, Limiter: l},
		backend: fxChat(func(ctx context.Context, yield func(*llmhttp.ChatChunk, error) bool) {
			yield(llmhttp.TextChunk("three words here"), nil)
			close(yielded)
			<-ctx.Done()
		})})
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := s.open(ctx, "POST", "/v1/chat/completions", fxMember(`"max_tokens":100,"stream":true`))
	require.NoError(t, err)
	fxReceive(t, "the chunk", yielded)
	cancel()
	resp.Body.Close()
	s.watch.only(t)
	_, adjusted := l.log()
	require.Len(t, adjusted, 1)
	assert.Equal(t, 4+3-104, adjusted[0][0].Cost)
	u := s.usage.only(t)
	assert.Equal(t, llmhttp.Usage{PromptTokens: 4, CompletionTokens: 3, TotalTokens: 7}, u.Usage)
	assert.True(t, u.Estimated)
}

// Limits are per key, and follow the key's rates as they change.
func TestLimitsPerKey(t *testing.T) {
	var n atomic.Int64
	n.Store(2)
	s := fxStart(t, fxConfig{keys: llmhttp.KeyFunc(func(_ context.Context, secret string) (*llmhttp.Key, error) {
		return &llmhttp.Key{ID: secret, Limits: llmhttp.Limits{Requests: hourly(int(n.Load()))}}, nil
	})})
	ask := func(key string) int {
		return s.chat(fxWhole, fxHeader("Authorization", "Bearer "+key)).StatusCode
	}
	assert.Equal(t, []int{200, 200, 429}, []int{ask("a"), ask("a"), ask("a")})
	assert.Equal(t, []int{200, 200, 429}, []int{ask("b"), ask("b"), ask("b")})
	n.Store(0) // no limit any more
	assert.Equal(t, 200, ask("a"))
}

// oneAtATime returns a Limiter that lets one request in, and takes a while to
// know of its end.
func oneAtATime() llmhttp.Limiter {
	var inside atomic.Int64
	return &acquirer{acquire: func(context.Context, string, int) (func(), error) {
		if inside.Add(1) > 1 {
			inside.Add(-1)
			return nil, nil
		}
		return func() { time.Sleep(time.Millisecond); inside.Add(-1) }, nil
	}}
}

// Whoever has all of a reply may ask for the next, even if only one request may
// be in progress and its end takes a while to be known.
func TestConcurrentInTurn(t *testing.T) {
	broken := fxChat(func(_ context.Context, yield func(*llmhttp.ChatChunk, error) bool) {
		yield(llmhttp.TextChunk("a"), nil)
		yield(nil, errors.New("boom"))
	})
	for name, limiter := range map[string]llmhttp.Limiter{"in process": nil, "elsewhere": oneAtATime()} {
		for reply, backend := range map[string]llmhttp.Backend{"whole": new(fxBackend), "broken": broken} {
			for _, body := range []string{fxWhole, fxStream} {
				t.Run(name+"/"+reply, func(t *testing.T) {
					s := fxStart(t, fxConfig{backend: backend, keys: fxLimited(llmhttp.Limits{Concurrent: 1}), opts: llmhttp.Options{Limiter: limiter}})
					for range 50 {
						resp, err := s.open(t.Context(), "POST", "/v1/chat/completions", body)
						require.NoError(t, err)
						require.NotEqual(t, 429, resp.StatusCode)
						if body == fxWhole {
							_, err = io.Copy(io.Discard, resp.Body)
							require.NoError(t, err)
						}
						// As SDKs do: they know an end when they see it.
						for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
							if line := lines.Text(); line == "data: [DONE]" || strings.Contains(line, `"error"`) {
								break
							}
						}
						resp.Body.Close()
					}
				})
			}
		}
	}
}

// Lists are no different, on connections of their own.
func TestConcurrentListsInTurn(t *testing.T) {
	// More than net/http keeps until the Handler has returned.
	models := func(context.Context) ([]llmhttp.Model, error) {
		return []llmhttp.Model{{ID: "m", OwnedBy: strings.Repeat("o", 20<<10)}}, nil
	}
	for _, limiter := range []llmhttp.Limiter{nil, oneAtATime()} {
		s := fxStart(t, fxConfig{backend: &fxBackend{models: models}, keys: fxLimited(llmhttp.Limits{Concurrent: 1}), opts: llmhttp.Options{Limiter: limiter}})
		for range 30 {
			r := s.do("GET", "/v1/models", "", fxHeader("Connection", "close"))
			require.NoError(t, r.err)
			require.Equal(t, 200, r.StatusCode, r.body)
		}
	}
}

// A Limiter that fails is not asked again in the same request.
func TestLimiterFailsOnce(t *testing.T) {
	l := &scriptedLimiter{take: func(context.Context, []llmhttp.Draw) ([]llmhttp.Level, error) { return nil, errors.New("down") }}
	s := fxStart(t, fxConfig{keys: fxLimited(llmhttp.Limits{Tokens: llmhttp.PerMinute(1000)}), opts: llmhttp.Options{Limiter: l}})
	assert.Equal(t, 503, s.chat(fxWhole).StatusCode)
	assert.Len(t, l.taken, 1)
}

// A client that leaves while it sends its body is no error, and nobody asks how
// its limits stand.
func TestLeavesWhileItSends(t *testing.T) {
	l := &scriptedLimiter{}
	s := fxStart(t, fxConfig{keys: fxLimited(llmhttp.Limits{Tokens: llmhttp.PerMinute(1000)}), opts: llmhttp.Options{Limiter: l}})
	c := s.dial()
	_, err := fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 100\r\n\r\n{", fxSecret)
	require.NoError(t, err)
	time.Sleep(20 * time.Millisecond)
	c.Close()
	s.watch.only(t)
	assert.Empty(t, l.taken)
	assert.NotContains(t, s.log.String(), `"ERROR"`)
}
