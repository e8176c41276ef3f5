package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/internal/servertest"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/route"
	"github.com/llmhttp/llmhttp/upstream"
)

var unknownSecret = "sk-" + strings.Repeat("x", 40)

func TestFleet_Keys(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 0, "-key-ttl", "300ms")
	k := createKey(t, f.dsn)
	for range 4 {
		client{f.url, k.Secret}.mustChat(t, 1)
	}
	for _, p := range []*process{f.first, f.second} {
		p.awaitOutput(t, `"status":200`)
	}
	status, reply := client{f.url, unknownSecret}.chat(t)
	assert.Equal(t, 401, status, reply)

	runCtl[key](t, f.dsn, "keys", "revoke", k.ID)
	for _, p := range []*process{f.first, f.second} {
		eventually(t, func(c *assert.CollectT) {
			status, _ := client{p.url, k.Secret}.chat(t)
			require.Equal(c, 401, status)
		})
	}
}

func TestFleet_RequestLog(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 0)
	k := createKey(t, f.dsn)
	c := client{f.first.url, k.Secret}
	c.mustChat(t, 1)
	require.NoError(t, f.upstream.Cmd.Process.Kill())
	f.upstream.Wait(t)
	status, reply := c.chat(t)
	assert.GreaterOrEqual(t, status, 500, reply)

	var lines []map[string]any
	eventually(t, func(c *assert.CollectT) {
		lines = nil
		for line := range strings.Lines(f.first.Output.String()) {
			if strings.Contains(line, `"msg":"request"`) && strings.Contains(line, k.ID) {
				var v map[string]any
				require.NoError(c, json.Unmarshal([]byte(line), &v))
				lines = append(lines, v)
			}
		}
		require.Len(c, lines, 2)
	})
	for name, want := range map[string]any{
		"level": "INFO", "scope": "chat", "model": "demo-chat", "status": 200.0, "target": "models", "tries": 1.0, "streamed": false,
	} {
		assert.Equal(t, want, lines[0][name], name)
	}
	assert.NotContains(t, lines[0], "error")
	assert.Equal(t, "models", lines[1]["target"])
	assert.NotEmpty(t, lines[1]["error"])
}

func TestFleet_RequestLimit(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 0)
	const limit, clients, requestsPerClient = 40, 20, 6
	k := createKey(t, f.dsn, "--requests", fmt.Sprint(limit, "/365d")) // refills none during the test
	var running sync.WaitGroup
	var admitted, refused atomic.Int64
	for range clients {
		running.Go(func() {
			for range requestsPerClient {
				switch status, reply := (client{f.url, k.Secret}).chat(t); status {
				case 200:
					admitted.Add(1)
				case 429:
					refused.Add(1)
				default:
					assert.Fail(t, "unexpected status", "%d %s", status, reply)
				}
			}
		})
	}
	running.Wait()
	assert.EqualValues(t, limit, admitted.Load())
	assert.EqualValues(t, clients*requestsPerClient-limit, refused.Load())
	f.first.awaitOutput(t, `"status":200`)
	f.second.awaitOutput(t, `"status":200`)
}

func TestFleet_ConcurrencyLimit(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 20*time.Millisecond)
	k := createKey(t, f.dsn, "--concurrent", "3")
	first, second := client{f.first.url, k.Secret}, client{f.second.url, k.Secret}
	stream := first.startStream(t, 5000)
	first.startStream(t, 5000)
	second.startStream(t, 5000)
	for _, c := range []client{first, second} {
		status, reply := c.chat(t)
		assert.Equal(t, 429, status, reply)
	}
	stream.close()
	eventually(t, func(c *assert.CollectT) {
		status, _ := second.chat(t)
		require.Equal(c, 200, status)
	})
}

func TestFleet_Usage(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 0, "-usage-delay", "100ms")
	k := createKey(t, f.dsn)
	var want usage
	for i := range 20 {
		want.add(client{f.url, k.Secret}.mustChat(t, 1+i))
	}
	eventually(t, func(c *assert.CollectT) { require.Equal(c, want, storedUsage(t, f.dsn, t.Name())) })
	for _, p := range []*process{f.first, f.second} {
		status, reply := client{p.url, k.Secret}.send(t, "GET", usagePath, "")
		require.Equal(t, 200, status, reply)
		var got usage
		require.NoError(t, json.Unmarshal([]byte(reply), &got))
		assert.Equal(t, want, got)
	}
}

// TestFleet_RollingRestart stops a copy while it serves streams. No request may
// fail, and all usage must be stored.
func TestFleet_RollingRestart(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 20*time.Millisecond, "-usage-delay", "1h", "-drain-delay", "5s", "-drain", "60s")
	k := createKey(t, f.dsn)
	other := createKey(t, f.dsn, "--account", t.Name()+"/other")
	const words = 80
	var streams []*stream
	for _, p := range []*process{f.first, f.first, f.second, f.second} {
		streams = append(streams, client{p.url, k.Secret}.startStream(t, words))
	}
	require.NoError(t, f.first.Cmd.Process.Signal(syscall.SIGTERM))
	f.first.awaitReply(t, "/readyz", "draining")
	client{f.first.url, other.Secret}.mustChat(t, 1) // a draining copy still serves
	requests := 1
	for requests < 90 && !f.first.HasEnded() { // a Buffer stores 100 records at once
		client{f.url, other.Secret}.mustChat(t, 1)
		requests++
		time.Sleep(50 * time.Millisecond)
	}
	for _, s := range streams {
		s.requireComplete(t, words)
	}
	require.NoError(t, f.first.Wait(t))
	assert.NotContains(t, f.first.Output.String(), "requests were interrupted")
	assert.Equal(t, 2, storedUsage(t, f.dsn, t.Name()).Requests)
	f.second.stop(t)
	assert.Equal(t, 4, storedUsage(t, f.dsn, t.Name()).Requests)
	assert.Equal(t, requests, storedUsage(t, f.dsn, t.Name()+"/other").Requests)
}

// A stream that takes longer than -drain is interrupted, and its usage is stored. So it is
// after each of the signals.
func TestFleet_DrainTimeout(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) { testDrainTimeout(t, signal) })
	}
}

func testDrainTimeout(t *testing.T, signal os.Signal) {
	f := newFleet(t, 20*time.Millisecond, "-usage-delay", "1h", "-drain", "50ms")
	k := createKey(t, f.dsn)
	s := client{f.first.url, k.Secret}.startStream(t, 5000)
	require.NoError(t, f.first.Cmd.Process.Signal(signal))
	require.NoError(t, f.first.Wait(t))
	rest, err := io.ReadAll(s.body)
	assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
	assert.Contains(t, string(rest), `data: {"error":{"message":"The server is shutting down.`)
	assert.NotContains(t, string(rest), "[DONE]")
	assert.Contains(t, f.first.Output.String(), "requests were interrupted")
	stored := storedUsage(t, f.dsn, t.Name())
	assert.Equal(t, 1, stored.Requests)
	assert.Positive(t, stored.CompletionTokens)
}

// TestFleet_KilledCopy checks that a killed copy loses only the usage that it
// has not stored, and that the other copy continues.
func TestFleet_KilledCopy(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 20*time.Millisecond, "-usage-delay", "1h")
	k := createKey(t, f.dsn)
	first, second := client{f.first.url, k.Secret}, client{f.second.url, k.Secret}
	const stored, lost, afterwards = 5, 7, 10
	for range stored {
		first.mustChat(t, 1)
	}
	status, reply := first.send(t, "GET", usagePath, "") // makes the buffer store
	require.Equal(t, 200, status, reply)
	for range lost {
		first.mustChat(t, 1)
	}
	interrupted, complete := first.startStream(t, 5000), second.startStream(t, 50)
	require.NoError(t, f.first.Cmd.Process.Kill())
	require.Error(t, f.first.Wait(t))
	rest, err := io.ReadAll(interrupted.body)
	assert.Error(t, err)
	assert.NotContains(t, string(rest), "[DONE]")

	for range afterwards {
		client{f.url, k.Secret}.mustChat(t, 1)
	}
	complete.requireComplete(t, 50)
	assert.Equal(t, stored, storedUsage(t, f.dsn, t.Name()).Requests)
	f.second.stop(t)
	assert.Equal(t, stored+afterwards+1, storedUsage(t, f.dsn, t.Name()).Requests)
}

func TestUnavailableDatabase(t *testing.T) {
	t.Parallel()
	postgres := servertest.Postgres(t, servertest.Args("-c", "fsync=off"))
	dsn := newDatabase(t, postgres)
	models := startUpstream(t, 0)
	p := startCopy(t, dsn, "", models, "-key-ttl", "100ms", "-key-grace", "1h", "-usage-delay", "50ms")
	withoutGrace := startCopy(t, dsn, "", models, "-key-ttl", "100ms", "-key-grace", "0s")
	c := client{p.url, createKey(t, dsn).Secret}
	p.awaitReply(t, "/readyz", "ok")
	c.mustChat(t, 1)
	postgres.Stop(t)
	p.awaitReply(t, "/readyz", "ok\nkeys: failing\nresponses: failing")
	withoutGrace.awaitReply(t, "/readyz", "not ready\nkeys: failing\nresponses: failing")
	status, _ := probe(p.url + "/readyz")
	assert.Equal(t, 200, status)
	status, _ = probe(withoutGrace.url + "/readyz")
	assert.Equal(t, 503, status)
	status, reply := probe(withoutGrace.url + "/healthz")
	assert.Equal(t, 200, status, reply)
	for range 3 {
		c.mustChat(t, 1) // the key is cached
	}
	p.awaitReply(t, "/readyz", "ok\nkeys: failing\nusage: failing\nresponses: failing")
	status, reply = client{p.url, unknownSecret}.chat(t)
	assert.Equal(t, 503, status, reply)

	postgres.Start(t)
	p.awaitReply(t, "/readyz", "ok")
	eventually(t, func(c *assert.CollectT) { require.Equal(c, 4, storedUsage(t, dsn, t.Name()).Requests) })

	// A copy that cannot store its usage at the end reports how much is lost.
	postgres.Stop(t)
	c.mustChat(t, 1)
	require.NoError(t, p.Cmd.Process.Signal(syscall.SIGTERM))
	assert.Error(t, p.Wait(t))
	assert.Contains(t, p.Output.String(), "1 usage records not stored")
	assert.Contains(t, p.Output.String(), `"msg":"check failed","check":"keys"`)
	assert.Contains(t, p.Output.String(), `"msg":"check succeeded","check":"usage"`)
}

func TestUnavailableRedis(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	dsn, models := newDatabase(t, servertest.SharedPostgres(t)), startUpstream(t, 0)
	strict := startCopy(t, dsn, redis.DSN(), models, "-redis-timeout", "1s")
	withFallback := startCopy(t, dsn, redis.DSN(), models, "-redis-timeout", "1s", "-redis-fallback")
	k := createKey(t, dsn, "--requests", "5/365d")
	strictClient, fallbackClient := client{strict.url, k.Secret}, client{withFallback.url, k.Secret}
	strict.awaitReply(t, "/readyz", "ok")
	strictClient.mustChat(t, 1)
	fallbackClient.mustChat(t, 1)

	redis.Stop(t)
	strict.awaitReply(t, "/readyz", "ok\nlimits: failing")
	withFallback.awaitReply(t, "/readyz", "ok\nlimits: failing")
	status, reply := strictClient.chat(t)
	assert.Equal(t, 503, status, reply)
	client{strict.url, createKey(t, dsn).Secret}.mustChat(t, 1) // a key without limits
	for range 5 {
		fallbackClient.mustChat(t, 1)
	}
	status, reply = fallbackClient.chat(t)
	assert.Equal(t, 429, status, reply)

	redis.Start(t)
	strict.awaitReply(t, "/readyz", "ok")
	withFallback.awaitReply(t, "/readyz", "ok")
	eventually(t, func(c *assert.CollectT) {
		status, _ := strictClient.chat(t)
		require.Equal(c, 200, status)
	})
	for _, p := range []*process{strict, withFallback} {
		p.stop(t)
		for line := range strings.Lines(p.Output.String()) {
			assert.True(t, strings.HasPrefix(line, "{") || strings.HasPrefix(line, "listening "), "the Redis client does not log: %s", line)
		}
	}
}

func TestSQLite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	dsn := filepath.Join(dir, "llmhttp.db") // the default of -dsn
	startDemo := func() *process {
		cmd := newCommand([]string{"LLMHTTP_DSN=", "LLMHTTP_REDIS="}, "-demo")
		cmd.Dir = dir
		return start(t, cmd)
	}
	p := startDemo()
	k := createKey(t, dsn, "--requests", "3/365d")
	p.awaitReply(t, "/readyz", "ok")
	for range 3 {
		client{p.url, k.Secret}.mustChat(t, 1)
	}
	status, reply := client{p.url, k.Secret}.chat(t)
	assert.Equal(t, 429, status, reply)
	p.stop(t)

	p = startDemo()
	client{p.url, k.Secret}.mustChat(t, 1)
	p.stop(t)
	assert.Equal(t, 4, storedUsage(t, dsn, t.Name()).Requests)
}

// TestInvalidConfig checks that an error ends the program before it listens and
// contains no secret.
func TestInvalidConfig(t *testing.T) {
	t.Parallel()
	_, invalidURL := upstream.New("pass", nil)
	twin := route.Target{Name: "a", Backend: memory.Echo()}
	_, sameName := route.New([]route.Route{{Model: "*", Targets: []route.Target{twin, twin}}}, nil)
	for _, test := range []struct {
		env, args []string
		want      string
	}{
		{nil, nil, "no models to serve: set -upstream or -demo"},
		{nil, []string{"-demo", "now"}, `unexpected argument "now"`},
		{[]string{"LLMHTTP_UPSTREAM=a=http://a/v1"}, []string{"-demo"}, "-demo and -upstream exclude each other"},
		{[]string{"LLMHTTP_UPSTREAM=a=http://a/v1 http://pass@b/v1"}, nil,
			"-upstream 2: expected name=URL with lower-case letters, digits and _ in the name"},
		{nil, []string{"-upstream", "a-b=http://a/v1"}, "-upstream 1: expected name=URL with lower-case letters, digits and _ in the name"},
		{nil, []string{"-upstream", "a=pass"}, "-upstream a: " + invalidURL.Error()},
		{nil, []string{"-upstream", "a=http://a/v1", "-upstream", "a=http://b/v1"}, "-upstream: " + sameName.Error()},
		{[]string{"LLMHTTP_DRAIN=pass"}, nil, "LLMHTTP_DRAIN: parse error"},
		{[]string{"LLMHTTP_REDIS=redis://:pa/ss@a"}, []string{"-demo"}, errRedisURL.Error()},
		{[]string{"LLMHTTP_REDIS=redis+sentinel://a:pass@a:1/0?addr=b:1"}, []string{"-demo"}, errRedisURL.Error()},
		{[]string{"LLMHTTP_REDIS=redis+other://a:pass@a:1"}, []string{"-demo"}, errRedisURL.Error()},
		{[]string{"LLMHTTP_REDIS=redis://a:1/pass@word,pass@a:1"}, []string{"-demo"}, errRedisURL.Error()},
		{[]string{"LLMHTTP_REDIS=redis+cluster://a:1#pass@a:1"}, []string{"-demo"}, errRedisURL.Error()},
		{nil, []string{"-demo", "-responses-secret-file", "/none"}, "-responses-secret-file: open /none: no such file or directory"},
		{nil, []string{"-demo", "-responses-secret-file", "testdata/unknown.json"}, "-responses-secret-file: the secret has less than 32 characters"},
		{[]string{"LLMHTTP_RESPONSES_SECRET=pass@"}, []string{"-demo"}, "LLMHTTP_RESPONSES_SECRET: the secret has less than 32 characters"},
		{[]string{"LLMHTTP_RESPONSES_SECRET=pass@"}, []string{"-demo", "-responses-secret-file", "/none"},
			"-responses-secret-file and LLMHTTP_RESPONSES_SECRET exclude each other"},
		{[]string{"LLMHTTP_TRUSTED_PROXIES=10.0.0.0/8 proxy"}, []string{"-demo"}, `LLMHTTP_TRUSTED_PROXIES: "proxy" is neither an address nor a network such as 10.0.0.0/8`},
		{nil, []string{"-demo", "-prices", "/none"}, "-prices: pricing: open /none: no such file or directory"},
		{nil, []string{"-demo", "-prices", "testdata/unknown.json"}, `-prices: testdata/unknown.json: pricing: member "a": is unknown`},
		{[]string{"LLMHTTP_DSN=postgres://a:pass@127.0.0.1:1/a"}, []string{"-demo"}, "sqlstore: failed to connect to `user=a database=a`:"},
	} {
		cmd := newCommand(append([]string{"LLMHTTP_DSN=" + filepath.Join(t.TempDir(), "llm.db")}, test.env...), test.args...)
		out, err := cmd.CombinedOutput()
		exit, ok := errors.AsType[*exec.ExitError](err)
		require.True(t, ok, "%v %s", err, out)
		assert.Equal(t, 1, exit.ExitCode())
		first, _, _ := strings.Cut(string(out), "\n")
		assert.Equal(t, "production: "+test.want, first)
		assert.NotContains(t, string(out), "pass@")
		assert.NotContains(t, string(out), "pa/ss")
	}
}

// TestProductionDocument runs the commands of docs/production.md.
func TestProductionDocument(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/production.md")
	require.NoError(t, err)
	var blocks []string
	for _, match := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		blocks = append(blocks, match[1])
	}
	require.Len(t, blocks, 3)

	// The blocks are pasted one after the other. The script waits where the text says so, and stops
	// the copies at its end.
	script := `set -euo pipefail
trap 'kill $(jobs -p) 2>/dev/null && wait' EXIT
cd ../..
` + blocks[0] + blocks[1] + `
until bin/llmhttpctl usage --account acme | grep 'demo-chat  *2 ' >/dev/null; do sleep 0.1; done
` + blocks[2]
	script = strings.NewReplacer(
		"8080", freePort(t), "8081", freePort(t), "bin/", t.TempDir()+"/", "curl http", "curl -sS --max-time 20 http",
		"postgres://postgres@127.0.0.1:5432/postgres", "'"+newDatabase(t, servertest.SharedPostgres(t))+"'",
		"redis://127.0.0.1:6379", servertest.SharedRedis(t).DSN(),
	).Replace(script)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", script)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // runs the trap
	cmd.WaitDelay = timeout
	cmd.Env = append(os.Environ(), "LLMHTTP_DRAIN_DELAY=0s", "GOWORK=") // the commands need go.work
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Equal(t, 2, strings.Count(string(out), `"content":"Hello there!"`), "%s", out)
	assert.Equal(t, 1, strings.Count(string(out), `"param":null,"code":"rate_limit_exceeded"`), "%s", out)
	assert.Regexp(t, `demo-chat +2 `, string(out))
}

// -breaker-failures and -breaker-open say when an upstream that fails is asked.
func TestBreaker(t *testing.T) {
	t.Parallel()
	works := startUpstream(t, 0)
	for name, tt := range map[string]struct {
		flags []string
		opens bool
	}{
		"opens":       {[]string{"-breaker-failures", "3", "-breaker-open", "24h"}, true},
		"opens later": {[]string{"-breaker-failures", "7", "-breaker-open", "24h"}, true},
		"asks again":  {[]string{"-breaker-failures", "3", "-breaker-open", "1ms"}, false},
		"never opens": {[]string{"-breaker-failures", "-1", "-breaker-open", "24h"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int32
			fails := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == "POST" {
					asked.Add(1)
				}
				w.WriteHeader(http.StatusInternalServerError)
			}))
			t.Cleanup(fails.Close)
			dsn := newDatabase(t, servertest.SharedPostgres(t))
			p := startCopy(t, dsn, servertest.SharedRedis(t).DSN(), works, append(tt.flags, "-redis-timeout", "10s", "-upstream", "models="+works.url+"/v1 fails="+fails.URL+"/v1")...)
			c := client{p.url, createKey(t, dsn).Secret}
			failures, err := strconv.Atoi(tt.flags[1])
			require.NoError(t, err)
			want := int32(failures)
			if !tt.opens {
				want = 9
			}
			for i := 0; i < 1000 && asked.Load() < want; i++ {
				c.mustChat(t, 1)
			}
			require.GreaterOrEqual(t, asked.Load(), want)
			for range 40 {
				c.mustChat(t, 1)
			}
			if tt.opens {
				assert.Equal(t, want, asked.Load())
			}
		})
	}
}
