package redislimit

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/servertest"
	"github.com/llmhttp/llmhttp/memory"
)

// hostVariable makes the program of these tests a host instead: a process with
// a Handler of its own. It has a hostConfig.
const hostVariable = "REDISLIMIT_HOST"

type hostConfig struct {
	Addr     string
	KeyID    string
	Limits   llmhttp.Limits
	Lease    time.Duration
	Requests int
	Hold     bool // replies never end
}

// A reply of a host's uses so many tokens, as its Handler expects.
const promptTokens, completionTokens = 4, 10

func newHandler(l llmhttp.Limiter, keyID string, limits llmhttp.Limits, chat func()) *llmhttp.Handler {
	keys := memory.Keys()
	keys.Add("sk-fleet", &llmhttp.Key{ID: keyID, Limits: limits})
	backend := llmhttp.BackendFunc(func(context.Context, *llmhttp.ChatRequest) llmhttp.ChatStream {
		if chat != nil {
			chat()
		}
		c := llmhttp.TextChunk("Hello")
		c.Usage = &llmhttp.Usage{PromptTokens: promptTokens, CompletionTokens: completionTokens}
		return func(yield func(*llmhttp.ChatChunk, error) bool) { yield(c, nil) }
	})
	return llmhttp.NewHandler(backend, keys, &llmhttp.Options{
		Limiter: l, CountTokens: func(string, string) int { return 0 }, Logger: new(logBuffer).logger(),
	})
}

// chat has h serve a request, and returns the status.
func chat(h http.Handler) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "/v1/chat/completions",
		strings.NewReader(fmt.Sprintf(`{"model": "m", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": %d}`, completionTokens)))
	r.Header.Set("Authorization", "Bearer sk-fleet")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// runHost says "ready", waits for a line, serves, and tells how many requests
// ended with which status. With Hold, it tells of each that begins.
func runHost() int {
	var cfg hostConfig
	if err := json.Unmarshal([]byte(os.Getenv(hostVariable)), &cfg); err != nil {
		fmt.Println(err)
		return 1
	}
	client := redis.NewClient(&redis.Options{Addr: cfg.Addr, ContextTimeoutEnabled: true})
	defer client.Close()
	limiter := New(client, &Options{Timeout: patient, Lease: cfg.Lease})
	defer limiter.Close()
	var hold func()
	if cfg.Hold {
		hold = func() {
			fmt.Println("began")
			select {}
		}
	}
	h := newHandler(limiter, cfg.KeyID, cfg.Limits, hold)
	fmt.Println("ready")
	if !bufio.NewScanner(os.Stdin).Scan() {
		return 1
	}
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

// A host is a process that runHost serves.
type host struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

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
	require.Equal(t, "ready", h.line())
	return h
}

func (h *host) line() string {
	h.out.Scan()
	return h.out.Text()
}

func (h *host) begin(t *testing.T) {
	t.Helper()
	_, err := fmt.Fprintln(h.in)
	require.NoError(t, err)
}

// Eight processes admit of a burst exactly what one would.
func TestFleet(t *testing.T) {
	const hosts, requests, admitted = 8, 10_000, 5_500
	s := servertest.SharedRedis(t)
	id := unique()
	limits := llmhttp.Limits{
		Requests: slow(6_000), Tokens: slow(admitted*(promptTokens+completionTokens) + 13), Quota: slow(1 << 20), Concurrent: 1000,
	}
	cfg := hostConfig{Addr: s.Addr(), KeyID: id, Limits: limits, Requests: requests / hosts}
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
		require.NoError(t, json.Unmarshal([]byte(h.line()), &statuses))
		for status, n := range statuses {
			sum[status] += n
		}
		t.Logf("host %d: %d admitted, %d refused", i, statuses[200], statuses[429])
		require.NoError(t, h.Wait())
	}
	t.Logf("all: %d admitted of %d", sum[200], requests)
	assert.Equal(t, map[int]int{200: admitted, 429: requests - admitted}, sum)

	l := newLimiter(t, nil, nil)
	for rest, want := range map[string]struct {
		rate llmhttp.Rate
		left int
	}{":requests": {limits.Requests, 500}, ":tokens": {limits.Tokens, 13}, ":quota": {limits.Quota, 1<<20 - admitted*(promptTokens+completionTokens)}} {
		assert.Equal(t, want.left, remaining(t, l, llmhttp.Draw{Bucket: id + rest, Rate: want.rate}), rest)
	}
	assert.Zero(t, newClient(t, s).ZCard(t.Context(), leaseKey(id+":concurrent")).Val(), "in progress")
}

// Requests in progress count for all hosts, and those of one that is killed
// come free when their leases expire, while those of one that lives do not.
func TestHostDies(t *testing.T) {
	t.Parallel()
	const limit = 10
	s := servertest.SharedRedis(t)
	cfg := hostConfig{Addr: s.Addr(), KeyID: unique(), Limits: llmhttp.Limits{Concurrent: limit}, Lease: 3 * time.Second, Requests: 4, Hold: true}
	dies, lives := startHost(t, cfg), startHost(t, cfg)
	for _, h := range []*host{dies, lives} {
		h.begin(t)
		for range cfg.Requests {
			require.Equal(t, "began", h.line())
		}
	}
	l := newLimiter(t, nil, &Options{Lease: cfg.Lease})
	release := make(chan struct{})
	h := newHandler(l, cfg.KeyID, cfg.Limits, func() {
		select {
		case <-release:
		case <-time.After(patient): // it should not have been admitted
		}
	})
	var wg sync.WaitGroup
	hold := func() { wg.Go(func() { assert.Equal(t, 200, chat(h).Code) }) }
	count := newClient(t, s)
	inProgress := func() int {
		return int(count.ZCard(t.Context(), leaseKey(cfg.KeyID+":concurrent")).Val())
	}
	hold()
	hold()
	eventually(t, "ten in progress", func() bool { return inProgress() == limit })
	assert.Equal(t, 429, chat(h).Code)
	time.Sleep(2 * cfg.Lease) // all of them are renewed
	assert.Equal(t, 429, chat(h).Code)

	require.NoError(t, dies.Process.Kill())
	eventually(t, "the end of its leases", func() bool {
		// Nobody counts those that have expired before one is to be acquired.
		if end, err := l.Acquire(t.Context(), cfg.KeyID+":concurrent", limit); err == nil && end != nil {
			end()
		}
		return inProgress() == limit-cfg.Requests
	})
	for range cfg.Requests {
		hold()
	}
	eventually(t, "ten in progress", func() bool { return inProgress() == limit })
	assert.Equal(t, 429, chat(h).Code)
	close(release)
	wg.Wait()
	assert.Equal(t, cfg.Requests, inProgress(), "those of the host that lives")
}
