package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/proctest"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/route"
)

var (
	soakTime     = flag.Duration("soak", time.Second, "how long TestReload_UnderLoad runs")
	soakInterval = flag.Duration("soak-interval", 50*time.Millisecond, "the time between its reloads")
)

// A file is the configuration file of a gateway.
type file struct{ path string }

func newFile(t *testing.T, c any) file {
	f := file{filepath.Join(t.TempDir(), "gateway.json")}
	f.write(t, c)
	return f
}

// write writes a configuration, which may be text.
func (f file) write(t *testing.T, c any) {
	t.Helper()
	data, ok := c.(string)
	if !ok {
		b, err := json.Marshal(c)
		require.NoError(t, err)
		data = string(b)
	}
	require.NoError(t, os.WriteFile(f.path, []byte(data), 0o600))
}

// object is a JSON object of a configuration file.
type object = map[string]any

// newConfig returns the content of a file with upstreams for servers, which is a list of
// names and URLs, a route with a target for each of them, and the key "demo".
func newConfig(servers ...string) object {
	var upstreams, targets []object
	for i := 0; i < len(servers); i += 2 {
		upstreams = append(upstreams, object{"name": servers[i], "url": servers[i+1] + "/v1"})
		targets = append(targets, object{"upstream": servers[i]})
	}
	return object{
		"upstreams": upstreams,
		"routes":    []object{{"model": "demo-*", "strategy": route.InOrder, "targets": targets}},
		"breaker":   object{"failures": 3, "open_for": "24h"},
		"keys":      []object{{"id": "demo", "secret_hash": llmhttp.HashSecret("sk-gateway-secret")}},
	}
}

// with returns a copy of c with other members.
func with(c object, members object) object {
	changed := object{}
	for _, m := range []object{c, members} {
		for name, value := range m {
			changed[name] = value
		}
	}
	return changed
}

// readObject returns c as the gateway reads it.
func readObject(t *testing.T, c object) *config {
	t.Helper()
	read, err := readConfig(newFile(t, c).path)
	require.NoError(t, err)
	return read
}

func TestReload(t *testing.T) {
	t.Setenv("OTHER_KEY", "sk-other")
	before := newConfig("a", "http://127.0.0.1:1", "b", "http://127.0.0.1:2")
	g, err := newGateway(readObject(t, before))
	require.NoError(t, err)
	a, b := g.upstreams["a"].backend, g.upstreams["b"].backend

	// Upstreams whose configuration stays keep their Backends.
	require.NoError(t, g.reload(readObject(t, with(newConfig("b", "http://127.0.0.1:3", "c", "http://127.0.0.1:4", "a", "http://127.0.0.1:1"), object{
		"keys": []object{{"id": "other", "secret_env": "OTHER_KEY"}},
	}))))
	assert.Len(t, g.upstreams, 3)
	assert.Same(t, a, g.upstreams["a"].backend)
	assert.NotSame(t, b, g.upstreams["b"].backend)
	var targets []string
	for _, s := range g.router.Status() {
		targets = append(targets, s.Target)
	}
	assert.Equal(t, []string{"b", "c", "a"}, targets)
	key, err := g.keys.Lookup(t.Context(), "sk-other")
	require.NoError(t, err)
	assert.Equal(t, "other", key.ID)
	_, err = g.keys.Lookup(t.Context(), "sk-gateway-secret")
	assert.ErrorIs(t, err, llmhttp.ErrKeyNotFound)

	// A key is part of the configuration of an upstream.
	require.NoError(t, g.reload(readObject(t, with(before, object{"upstreams": []object{
		{"name": "a", "url": "http://127.0.0.1:1/v1", "key_env": "OTHER_KEY"}, {"name": "b", "url": "http://127.0.0.1:2/v1"},
	}}))))
	assert.NotSame(t, a, g.upstreams["a"].backend)
}

func TestReload_MistakeChangesNothing(t *testing.T) {
	before := newConfig("a", "http://127.0.0.1:1")
	g, err := newGateway(readObject(t, before))
	require.NoError(t, err)
	upstreams, status := g.upstreams, g.router.Status()
	const restart = "a change takes effect only when the gateway starts again"
	for want, change := range map[string]object{
		"public_url: " + restart:              {"public_url": "https://llm.example.com"},
		"codex_instructions_file: " + restart: {"codex_instructions_file": "prompt.md"},
		"breaker: " + restart:                 {"breaker": object{"failures": 4, "open_for": "24h"}},
		"responses_secret_env: " + restart:    {"responses_secret_env": "SECRET"},
		"upstreams: a first_byte_timeout is longer than the gateway waits, which is 5m0s: " + restart: {"upstreams": []object{
			{"name": "a", "url": "http://127.0.0.1:1/v1", "first_byte_timeout": "3m"},
		}},
		"upstreams[0].name: must not be empty":                                             {"upstreams": []object{{"url": "http://127.0.0.1:1/v1"}}},
		`routes[0].targets[0].upstream: there is no upstream "a"`:                          {"upstreams": []object{{"name": "b", "url": "http://127.0.0.1:1/v1"}}},
		"keys[0]: must have either secret_env or secret_hash":                              {"upstreams": []object{{"name": "a", "url": "http://127.0.0.1:2/v1"}}, "keys": []object{{"id": "demo"}}},
		"route: routes: must not be empty":                                                 {"upstreams": []object{{"name": "a", "url": "http://127.0.0.1:2/v1"}}, "routes": []object{}, "keys": []object{{"id": "b", "secret_hash": llmhttp.HashSecret("b")}}},
		`route: routes[0].targets[0].params.drop: the parameter "model" cannot be changed`: {"routes": []object{{"model": "m", "targets": []object{{"upstream": "a", "params": object{"drop": []string{"model"}}}}}}},
	} {
		assert.EqualError(t, g.reload(readObject(t, with(before, change))), want)
		assert.Equal(t, upstreams, g.upstreams)
		assert.Equal(t, status, g.router.Status())
		_, err := g.keys.Lookup(t.Context(), "sk-gateway-secret")
		assert.NoError(t, err)
	}
}

// A reloading is a gateway in a process of its own, which is told to reload its file.
type reloading struct {
	file
	gateway *proctest.Process
	reloads int
}

func startReloading(t *testing.T, c object) *reloading {
	t.Helper()
	r := &reloading{file: newFile(t, c)}
	r.gateway = start(t, os.Args[0], []string{"LLMHTTP_TEST_GATEWAY=1"}, "-config", r.path)
	return r
}

// reload writes a configuration and waits until the gateway has read it. It returns the line that
// the gateway has logged.
func (r *reloading) reload(t *testing.T, c any) (logged string) {
	t.Helper()
	r.write(t, c)
	require.NoError(t, r.gateway.Cmd.Process.Signal(syscall.SIGHUP))
	r.reloads++
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		var lines []string
		for line := range strings.Lines(r.gateway.Output.String()) {
			if strings.Contains(line, "reloaded") {
				lines = append(lines, line)
			}
		}
		require.Len(c, lines, r.reloads)
		logged = lines[r.reloads-1]
	}, proctest.Timeout, time.Millisecond)
	return logged
}

// chat sends a request and returns an error unless there is a complete reply with the text.
func (r *reloading) chat(secret, text string, stream bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), proctest.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "POST", r.gateway.URL+chatPath,
		strings.NewReader(fmt.Sprintf(`{"model": "demo-chat", "stream": %v, "messages": [{"role": "user", "content": %q}]}`, stream, text)))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+secret)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	words := strings.Count(string(body), "word")
	if err != nil || res.StatusCode != 200 || words != strings.Count(text, "word") || stream && !strings.HasSuffix(string(body), "data: [DONE]\n\n") {
		return fmt.Errorf("status %d, %d words, error %v: %.1000s", res.StatusCode, words, err, body)
	}
	return nil
}

// newModel starts a server of a model that pauses before each chunk. It counts connections.
func newModel(t *testing.T, pause time.Duration) (url string, connections *atomic.Int64) {
	connections = new(atomic.Int64)
	server := httptest.NewUnstartedServer(llmhttp.NewHandler(&memory.Backend{Delay: pause}, llmhttp.AllowAll("a"), nil))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	return server.URL, connections
}

// newFailing starts a server that answers each chat with an error, and counts them.
func newFailing(t *testing.T) (url string, chats *atomic.Int64) {
	chats = new(atomic.Int64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/chat/completions") {
			chats.Add(1)
		}
		w.WriteHeader(http.StatusInternalServerError)
	}))
	t.Cleanup(server.Close)
	return server.URL, chats
}

// After SIGHUP the gateway has a new configuration, or says why not and where.
func TestReload_Signal(t *testing.T) {
	t.Parallel()
	first, _ := newModel(t, 5*time.Millisecond)
	second, _ := newModel(t, 0)
	r := startReloading(t, newConfig("first", first))
	running := (&setup{gateway: r.gateway}).startStream(t, "demo-chat", 200)

	next := with(newConfig("second", second), object{"keys": []object{{"id": "new", "secret_hash": llmhttp.HashSecret("sk-new")}}})
	assert.Contains(t, r.reload(t, next), "msg=reloaded file="+r.path)
	assert.NoError(t, r.chat("sk-new", "word", false))
	assert.ErrorContains(t, r.chat("sk-gateway-secret", "word", false), "status 401")

	for want, mistake := range map[string]any{
		`gateway.json:2: json: `:                      "{\n\"routes\": 5}",
		`gateway.json: keys[0].id: must not be empty`: with(next, object{"keys": []object{{"secret_hash": llmhttp.HashSecret("sk-new")}}}),
		`gateway.json: routes[0].targets[0].upstream: there is no upstream \"third\"`: with(next, object{
			"routes": []object{{"model": "*", "targets": []object{{"upstream": "third"}}}},
		}),
	} {
		logged := r.reload(t, mistake)
		assert.Contains(t, logged, `level=ERROR msg="not reloaded, the old configuration stays" error="`)
		assert.Contains(t, logged, want)
		assert.NoError(t, r.chat("sk-new", "word", false))
	}
	require.NoError(t, os.Remove(r.path))
	rest, err := io.ReadAll(running)
	require.NoError(t, err)
	assert.Equal(t, 199, strings.Count(string(rest), "word"), "the stream goes on with the key and the server that are gone")
}

// While the gateway reloads again and again, no request fails, no breaker is forgotten, and the
// connections to a server that stays are kept.
func TestReload_UnderLoad(t *testing.T) {
	t.Parallel()
	one, connections := newModel(t, time.Millisecond)
	two, _ := newModel(t, time.Millisecond)
	failing, chats := newFailing(t)
	both := newConfig("failing", failing, "one", one, "two", two)
	targets := func(weights ...int) (list []object) {
		for i, name := range []string{"failing", "one", "two"} {
			list = append(list, object{"upstream": name, "weight": weights[i]})
		}
		return list
	}
	configs := []any{
		both,
		newConfig("one", one, "failing", failing),
		with(both, object{"routes": []object{{"model": "demo-*", "strategy": route.LeastInFlight, "targets": targets(1, 1, 1)}}}),
		with(both, object{"routes": []object{{"model": "other", "targets": targets(1, 1, 1)}, {"model": "demo-*", "targets": targets(9, 2, 1)}}}),
		with(both, object{"routes": []object{{"model": "demo-*", "strategy": route.Affinity, "targets": targets(5, 5, 1)}}}),
		with(both, object{"keys": []object{}}), // a mistake
		`{`,
	}
	r := startReloading(t, both)

	const clients = 8
	for range 3 { // open the breaker, one request after another
		require.NoError(t, r.chat("sk-gateway-secret", "word", false))
	}
	require.Equal(t, int64(3), chats.Load())
	require.NoError(t, r.chat("sk-gateway-secret", "word", false))
	require.Equal(t, int64(3), chats.Load(), "the breaker is open")

	ctx, cancel := context.WithTimeout(t.Context(), *soakTime)
	defer cancel()
	var sending sync.WaitGroup
	var requests atomic.Int64
	for i := range clients {
		sending.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				err := r.chat("sk-gateway-secret", strings.Repeat("word ", 1+n%7*30), n%3 > 0)
				requests.Add(1)
				assert.NoError(t, err)
			}
		})
	}
	for i := 1; ctx.Err() == nil; i++ {
		mistake := i%len(configs) >= len(configs)-2
		assert.Equal(t, mistake, strings.Contains(r.reload(t, configs[i%len(configs)]), "level=ERROR"))
		select {
		case <-ctx.Done():
		case <-time.After(*soakInterval):
		}
	}
	sending.Wait()
	t.Logf("%d requests, %d reloads, %d connections", requests.Load(), r.reloads, connections.Load())
	assert.Equal(t, int64(3), chats.Load(), "a reload has forgotten a breaker")
	assert.LessOrEqual(t, connections.Load(), int64(2*clients), "a reload has closed connections")
}
