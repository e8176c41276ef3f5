package redislimit

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/servertest"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
)

// hostVariable is set in the environment of a host: this test program, started
// as a process with a Handler of its own. Its value is a hostConfig.
const hostVariable = "REDISLIMIT_HOST"

type hostConfig struct {
	Addr     string
	KeyID    string
	Limits   llmhttp.Limits
	Lease    time.Duration
	Requests int
	Hang     bool // requests do not end
}

// The tokens that each reply uses and that the Handler expects it to use.
const promptTokens, completionTokens = 4, 10

// newHandler returns a Handler with one key. If onChat is not nil, its Backend
// calls onChat for each request.
func newHandler(l llmhttp.Limiter, keyID string, limits llmhttp.Limits, onChat func()) *llmhttp.Handler {
	keys := memory.NewKeyStore()
	keys.Add("sk-fleet", &llmhttp.Key{ID: keyID, Limits: limits})
	backend := llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream {
		if onChat != nil {
			onChat()
		}
		c := llm.TextChunk("Hello")
		c.Usage = &llm.Usage{PromptTokens: promptTokens, CompletionTokens: completionTokens}
		return func(yield func(*llm.ChatChunk, error) bool) { yield(c, nil) }
	})
	return llmhttp.NewHandler(backend, keys, &llmhttp.Options{
		Limiter: l, Estimates: llmhttp.TokenEstimates{TextTokens: func(string, string) int { return 0 }}, Logger: slog.New(slog.DiscardHandler),
	})
}

// chat sends a request to h.
func chat(h http.Handler) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "/v1/chat/completions",
		strings.NewReader(fmt.Sprintf(`{"model": "m", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": %d}`, completionTokens)))
	r.Header.Set("Authorization", "Bearer sk-fleet")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// runHost is the program of a host. It prints "ready", reads a line, sends the
// requests, and prints the number of replies by status. With Hang, it prints
// "began" when a request begins, and with each further line it renews its leases
// and prints "renewed".
func runHost() int {
	var cfg hostConfig
	if err := json.Unmarshal([]byte(os.Getenv(hostVariable)), &cfg); err != nil {
		fmt.Println(err)
		return 1
	}
	client := redis.NewClient(&redis.Options{Addr: cfg.Addr, ContextTimeoutEnabled: true})
	defer client.Close()
	limiter, err := New(client, &Options{Timeout: longTimeout, Lease: cfg.Lease})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer limiter.Close()
	var onChat func()
	if cfg.Hang {
		onChat = func() {
			fmt.Println("began")
			select {}
		}
	}
	h := newHandler(limiter, cfg.KeyID, cfg.Limits, onChat)
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	if !lines.Scan() {
		return 1
	}
	go func() {
		for lines.Scan() {
			limiter.leases.renew()
			fmt.Println("renewed")
		}
	}()
	var mu sync.Mutex
	statuses := map[int]int{}
	var wg sync.WaitGroup
	next := make(chan struct{})
	for range 16 {
		wg.Go(func() {
			for range next {
				status := chat(h).Code
				mu.Lock()
				statuses[status]++
				mu.Unlock()
			}
		})
	}
	for range cfg.Requests {
		next <- struct{}{}
	}
	close(next)
	wg.Wait()
	_ = json.NewEncoder(os.Stdout).Encode(statuses)
	return 0
}

// A host is a process that runs runHost.
type host struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// startHost starts a host and waits until it is ready.
func startHost(t *testing.T, cfg hostConfig) *host {
	t.Helper()
	b, err := json.Marshal(cfg)
	require.NoError(t, err)
	h := &host{Cmd: exec.Command(os.Args[0])}
	h.Env = append(os.Environ(), hostVariable+"="+string(b))
	h.Stderr = os.Stderr
	out, err := h.StdoutPipe()
	require.NoError(t, err)
	h.out = bufio.NewScanner(out)
	h.in, err = h.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, h.Start())
	t.Cleanup(func() { _ = h.Process.Kill(); _ = h.Wait() })
	require.Equal(t, "ready", h.readLine())
	return h
}

func (h *host) readLine() string {
	h.out.Scan()
	return h.out.Text()
}

// begin makes the host send its requests.
func (h *host) begin(t *testing.T) {
	t.Helper()
	_, err := fmt.Fprintln(h.in)
	require.NoError(t, err)
}

// Eight processes together admit exactly as many requests as one process would.
func TestFleet_AdmitsExactly(t *testing.T) {
	const hosts, requests, admitted = 8, 10_000, 5_500
	l, key := newLimiter(t, nil, nil), uniqueKey()
	limits := llmhttp.Limits{
		Requests: slow(6_000), Tokens: slow(admitted*(promptTokens+completionTokens) + 13), Concurrent: 1000,
	}
	cfg := hostConfig{Addr: servertest.SharedRedis(t).Addr(), KeyID: key, Limits: limits, Requests: requests / hosts}
	var fleet []*host
	for range hosts {
		fleet = append(fleet, startHost(t, cfg))
	}
	for _, h := range fleet {
		h.begin(t)
	}
	sum := map[int]int{}
	for i, h := range fleet {
		statuses := map[int]int{}
		require.NoError(t, json.Unmarshal([]byte(h.readLine()), &statuses))
		for status, n := range statuses {
			sum[status] += n
		}
		t.Logf("host %d: %d admitted, %d refused", i, statuses[200], statuses[429])
		require.NoError(t, h.Wait())
	}
	assert.Equal(t, map[int]int{200: admitted, 429: requests - admitted}, sum)

	for bucket, want := range map[string]struct {
		rate llmhttp.Rate
		left int
	}{
		llmhttp.BucketRequests: {limits.Requests, 500},
		llmhttp.BucketTokens:   {limits.Tokens, 13},
	} {
		assert.EqualValues(t, want.left, remaining(t, l, llmhttp.BucketAmount{Subject: keySubject(key), Bucket: bucket, Rate: want.rate}), bucket)
	}
	assert.Zero(t, leaseCount(t, l, key))
}

// Requests in progress count for all hosts. The leases of a killed host expire, and those
// of a running host do not.
func TestFleet_HostDies(t *testing.T) {
	t.Parallel()
	const limit = 10
	key := uniqueKey()
	cfg := hostConfig{
		Addr: servertest.SharedRedis(t).Addr(), KeyID: key, Limits: llmhttp.Limits{Concurrent: limit},
		Lease: time.Hour, Requests: 4, Hang: true,
	}
	dies, lives := startHost(t, cfg), startHost(t, cfg)
	for _, h := range []*host{dies, lives} {
		h.begin(t)
		for range cfg.Requests {
			require.Equal(t, "began", h.readLine())
		}
	}
	l := newLimiter(t, nil, &Options{Lease: cfg.Lease})
	end := make(chan struct{})
	h := newHandler(l, key, cfg.Limits, func() { <-end })
	var wg sync.WaitGroup
	begin := func(n int) {
		for range n {
			wg.Go(func() { assert.Equal(t, 200, chat(h).Code) })
		}
	}
	begin(2)
	eventually(t, func() bool { return leaseCount(t, l, key) == limit }, "ten requests are in progress")
	assert.Equal(t, 429, chat(h).Code)

	require.NoError(t, dies.Process.Kill())
	require.Error(t, dies.Wait())
	last := slices.Max(expiries(t, l, key))
	eventually(t, func() bool { return redisTime(t, l) > last-float64(cfg.Lease.Milliseconds()) }, "the clock of Redis moves on")
	lives.begin(t)
	require.Equal(t, "renewed", lives.readLine())
	l.leases.renew()
	assert.Equal(t, 429, chat(h).Code)
	assert.Equal(t, cfg.Requests, expireUntil(t, l, key, last), "leases that nobody renews")
	mustAcquire(t, l, key, limit)() // removes them
	require.Equal(t, limit-cfg.Requests, leaseCount(t, l, key))

	begin(cfg.Requests)
	eventually(t, func() bool { return leaseCount(t, l, key) == limit }, "ten requests are in progress")
	assert.Equal(t, 429, chat(h).Code)
	close(end)
	wg.Wait()
	assert.Equal(t, cfg.Requests, leaseCount(t, l, key), "leases of the host that lives")
}

// redisTime returns the time of Redis in milliseconds.
func redisTime(t *testing.T, l *Limiter) float64 {
	t.Helper()
	now, err := l.client.redis.Time(t.Context()).Result()
	require.NoError(t, err)
	return float64(now.UnixMilli())
}

// expireUntil makes the leases of key that expire until last expire at once. It
// returns how many there are.
func expireUntil(t *testing.T, l *Limiter, key string, last float64) (n int) {
	t.Helper()
	leases, err := l.client.redis.ZRangeByScoreWithScores(t.Context(), l.leasesKey(key), &redis.ZRangeBy{Min: "(0", Max: "+inf"}).Result()
	require.NoError(t, err)
	for _, e := range leases {
		if e.Score <= last {
			n++
			e.Score = 1
			require.NoError(t, l.client.redis.ZAddXX(t.Context(), l.leasesKey(key), e).Err())
		}
	}
	return n
}

// A reply that its client does not read is a request in progress for all Handlers.
func TestFleet_UnreadReply(t *testing.T) {
	s := servertest.Redis(t)
	limits, key := llmhttp.Limits{Concurrent: 1}, uniqueKey()
	keys := memory.NewKeyStore()
	keys.Add("sk-fleet", &llmhttp.Key{ID: key, Limits: limits})
	large := llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream {
		return func(yield func(*llm.ChatChunk, error) bool) {
			yield(llm.TextChunk(strings.Repeat("x", 24<<20)), nil) // more than the system buffers
		}
	})
	l := newLimiter(t, newClient(t, s), nil)
	srv := httptest.NewServer(llmhttp.NewHandler(large, keys, &llmhttp.Options{Limiter: l, Logger: slog.New(slog.DiscardHandler)}))
	defer srv.Close()
	r, err := http.NewRequest("POST", srv.URL+"/v1/chat/completions", strings.NewReader(`{"model": "m", "messages": [{"role": "user", "content": "Hello"}]}`))
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer sk-fleet")
	resp, err := srv.Client().Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, 200, resp.StatusCode)

	other := newHandler(newLimiter(t, newClient(t, s), nil), key, limits, nil)
	assert.Equal(t, 1, leaseCount(t, l, key))
	assert.Equal(t, 429, chat(other).Code)
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	assert.Equal(t, 200, chat(other).Code, "as soon as the client has the reply")
	assert.Zero(t, leaseCount(t, l, key))
}
