package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/messages"
	"github.com/llmhttp/llmhttp/route"
)

// setSecrets sets the environment variables that gateway.json names.
func setSecrets(t *testing.T) {
	t.Setenv("FIRST_KEY", "sk-first")
	t.Setenv("SECOND_KEY", "sk-second")
	t.Setenv("GATEWAY_KEY", "sk-gateway")
}

func TestNewGateway(t *testing.T) {
	setSecrets(t)
	c, err := readConfig("gateway.json")
	require.NoError(t, err)
	g, err := newGateway(c)
	require.NoError(t, err)

	demo, err := g.keys.Lookup(t.Context(), "sk-gateway")
	require.NoError(t, err)
	assert.Equal(t, &llmhttp.Key{ID: "demo"}, demo)
	trial, err := g.keys.Lookup(t.Context(), "sk-trial")
	require.NoError(t, err)
	assert.Equal(t, &llmhttp.Key{
		ID: "trial", Account: "acme",
		Scopes:  []llmhttp.Scope{llmhttp.ScopeChat, llmhttp.ScopeModels},
		Models:  []string{"parrot"},
		Expires: time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC),
		Limits: llmhttp.Limits{
			Requests:   llmhttp.Rate{N: 60},
			Tokens:     llmhttp.Rate{N: 20_000, Burst: 40_000},
			Quota:      llmhttp.Quota{Tokens: 1_000_000},
			Concurrent: 4,
		},
	}, trial)
	_, err = g.keys.Lookup(t.Context(), "sk-first")
	assert.ErrorIs(t, err, llmhttp.ErrKeyNotFound)

	var targets []string
	for _, s := range g.router.Status() {
		targets = append(targets, s.Route+" "+s.Target)
	}
	assert.Equal(t, []string{"demo-* first", "demo-* second", "parrot second", "parrot first",
		"claude-demo-* first", "claude-demo-* second", "claude-* first", "claude-* second"}, targets)

	assert.Equal(t, 5*time.Minute, g.timeout)
	c.Upstreams[0].FirstByteTimeout = duration(10 * time.Minute)
	slow, err := newGateway(c)
	require.NoError(t, err)
	assert.Equal(t, 21*time.Minute, slow.timeout)
}

// Each error names the field, and contains no secrets.
func TestConfig_Subjects(t *testing.T) {
	key, err := (&keyConfig{
		ID: "a", Account: "acme",
		Subjects: []subjectConfig{
			{Kind: "team", ID: "search", Limits: limitsConfig{Requests: &rateConfig{N: 9}}},
			{Kind: "account", ID: "acme", Limits: limitsConfig{Quota: &quotaConfig{Tokens: 1000}}},
		},
		PerUser: limitsConfig{Concurrent: 2},
	}).key("keys[0]")
	require.NoError(t, err)
	assert.Equal(t, []llmhttp.Subject{
		{ID: llmhttp.SubjectID{Kind: "team", ID: "search"}, Limits: llmhttp.Limits{Requests: llmhttp.Rate{N: 9}}},
		{ID: llmhttp.SubjectID{Kind: llmhttp.KindAccount, ID: "acme"}, Limits: llmhttp.Limits{Quota: llmhttp.Quota{Tokens: 1000}}},
	}, key.Subjects)
	assert.Equal(t, llmhttp.Limits{Concurrent: 2}, key.PerUser)
}

func TestConfig_Errors(t *testing.T) {
	setSecrets(t)
	t.Setenv("SPACED_KEY", "sk-se cret")
	t.Setenv("SAME_KEY", "sk-gateway")
	data, err := os.ReadFile("gateway.json")
	require.NoError(t, err)
	valid := string(data)

	for _, test := range []struct {
		old, new string // what to change in gateway.json
		want     string // the beginning of the error and, after "...", another part of it
	}{
		// JSON
		{`"upstreams": [`, `"upstreams": `, `:3: ... "/upstreams"`},
		{valid, ``, `:1: ... EOF`},
		{valid, `{"keys": [`, `:1: ... EOF`},
		{valid, `[]`, `:1: ... array`},
		{valid, valid + "{}", `:57: ... after top-level value`},
		{`"routes": [`, `"keys": [{"id": "a"}], "routes": [`, `:36: ... duplicate object member name "keys"`},
		{`{"n": 60}`, `{"n": 60, "n": 61}`, `:49: ... duplicate object member name "n" within "/keys/1/limits/requests"`},
		{`"weight"`, `"wieght"`, `:20: ... unknown object member name "wieght" within "/routes/0/targets/0"`},
		{`"weight": 2`, `"weight": "2"`, `:20: ... "/routes/0/targets/0/weight"`},
		{`"weight": 2`, `"weight": 2.5`, `:20: ... "/routes/0/targets/0/weight"`},
		{`["127.0.0.1:8081"]`, `"127.0.0.1:8081"`, `:7: ... "/upstreams/0/image_hosts"`},
		{`{"n": 60}`, `60`, `:49: ... "/keys/1/limits/requests"`},
		{`"id": "demo"`, `"id": true`, `:38: ... "/keys/0/id"`},
		{`"key_env": "FIRST_KEY"`, `"omit_image_format": 1`, `:6: ... "/upstreams/0/omit_image_format"`},
		{`"1m"`, `"1"`, `:14: ... "/upstreams/1/first_byte_timeout": time: missing unit in duration "1"`},
		{`"first_byte_timeout": "1m"`, `"silence_timeout": "-1s"`, `:14: ... "/upstreams/1/silence_timeout": duration "-1s" is not positive`},
		{`"tokens": 1000000}`, `"tokens": 1000000, "per": "30d"}`, `:51: ... "/keys/1/limits/quota/per": time: unknown unit "d" in duration "30d"`},
		{`2040-01-01T00:00:00Z`, `2040-01-01`, `:47: ... "/keys/1/expires"`},
		{`"routes": [`, `"codex_instructions_file": "/nowhere/prompt.md", "routes": [`, `: codex_instructions_file: open /nowhere/prompt.md: no such file or directory`},
		{`"routes": [`, `"breaker": {"open_for": "0s"}, "routes": [`, `:17: ... "/breaker/open_for": duration "0s" is not positive`},

		{`"upstreams"`, `"public_url": "llm.example.com", "upstreams"`, `: public_url: "llm.example.com" is not a URL such as "https://llm.example.com"`},
		{`"upstreams"`, `"responses_secret_env": "NO_KEY", "upstreams"`, `: responses_secret_env: the environment variable is not set`},
		{`"upstreams"`, `"responses_secret_env": "FIRST_KEY", "upstreams"`, `: responses_secret_env: the secret has less than 16 characters`},

		// upstreams
		{`"name": "second"`, `"name": ""`, `: upstreams[1].name: must not be empty`},
		{`"name": "second"`, `"name": "first"`, `: upstreams[1].name: another upstream has the name "first"`},
		{`"url": "http://127.0.0.1:8082/v1",`, ``, `: upstreams[1]: upstream: ... URL`},
		{`http://127.0.0.1:8082/v1`, `http://me:sk-password@127.0.0.1:8082/v1`, `: upstreams[1]: upstream: ... URL`},
		{`["127.0.0.1:8081"]`, `["*"]`, `: upstreams[0]: upstream: ... Images.Hosts`},
		{`"key_env": "FIRST_KEY"`, `"cache_control": "1h"`, `: upstreams[0]: upstream: ... CacheControl`},
		{`"key_env": "FIRST_KEY"`, `"format": "gemini"`, `: upstreams[0]: format: "gemini" is neither openai nor anthropic`},
		{`"key_env": "FIRST_KEY"`, `"format": "anthropic"`, `: upstreams[0]: anthropic: Options.Server must not have ... Images`},
		{`"key_env": "FIRST_KEY"`, `"anthropic": {"bearer_key": true}`, `: upstreams[0]: anthropic: the format must be "anthropic"`},
		{`FIRST_KEY`, `NO_KEY`, `: upstreams[0].key_env: the environment variable is not set`},
		{`FIRST_KEY`, `SPACED_KEY`, `: upstreams[0].key_env: the environment variable has a character that a key must not have`},

		// routes
		{`[{"upstream": "second", "model"`, `[{"upstream": "third", "model"`, `: routes[1].targets[0].upstream: there is no upstream "third"`},
		{`"weight": 2`, `"weight": -1`, `: route: routes[0].targets[0].weight: ... -1`},
		{`in-order`, `in-turns`, `: route: routes[1].strategy: ... "in-turns"`},
		{`"model": "parrot"`, `"model": "demo-*"`, `: route: routes[1].model: ... "demo-*"`},
		{`{"upstream": "first", "model"`, `{"upstream": "second", "model"`, `: route: routes[1].targets[1].name: ... "second"`},

		// keys
		{`"id": "trial"`, `"id": ""`, `: keys[1].id: must not be empty`},
		{`"id": "trial"`, `"id": "demo"`, `: keys[1].id: another key has the ID "demo"`},
		{`GATEWAY_KEY`, `SPACED_KEY`, `: keys[0].secret_env: the environment variable has a character that a key must not have`},
		{`GATEWAY_KEY`, `sk-gateway`, `: keys[0].secret_env: the environment variable is not set`},
		{`"secret_env": "GATEWAY_KEY"`, `"account": "demo"`, `: keys[0]: must have either secret_env or secret_hash`},
		{`"account": "acme"`, `"secret_env": "SAME_KEY"`, `: keys[1]: must have either secret_env or secret_hash`},
		{`"secret_hash": "`, `"secret_hash": "0`, `: keys[1].secret_hash: must be a SHA-256 hash of 64 hexadecimal digits`},
		{`"secret_env": "GATEWAY_KEY"`, `"secret_hash": "` + strings.ToUpper(llmhttp.HashSecret("sk-trial")) + `"`, `: keys[1]: key "demo" has the same secret`},
		{`["chat", "models"]`, `["chat", "model"]`, `: keys[1].scopes[1]: "model" is not one of ` + fmt.Sprintf("%q", llmhttp.Scopes())},
		{`{"n": 60}`, `{"per": "1h"}`, `: keys[1].limits.requests.n: must be positive`},
		{`"burst": 40000`, `"burst": -1`, `: keys[1].limits.tokens.burst: must not be negative`},
		{`"concurrent": 4`, `"max_completion_tokens": -4`, `: keys[1].limits.max_completion_tokens: must not be negative`},
		{`"concurrent": 4`, `"concurrent": -4`, `: keys[1].limits.concurrent: must not be negative`},
		{`"account": "acme"`, `"account": "acme", "per_user": {"quota": {"tokens": -5}}`, `: keys[1].per_user.quota.tokens: must be positive`},
		{`"account": "acme"`, `"account": "acme", "per_user": {"concurrent": -1}`, `: keys[1].per_user.concurrent: must not be negative`},
		{`"account": "acme"`, `"account": "acme", "subjects": [{"kind": "team", "id": "a", "limits": {"requests": {"n": 0}}}]`, `: keys[1].subjects[0].limits.requests.n: must be positive`},
		{`"account": "acme"`, `"account": "acme", "subjects": [{"kind": "account", "id": "other"}]`, `: keys[1]: Key.Subjects[0].ID.ID: is "other", and the account of the key is "acme"`},
	} {
		t.Run(test.want, func(t *testing.T) {
			require.Equal(t, 1, strings.Count(valid, test.old), test.old)
			file := filepath.Join(t.TempDir(), "gateway.json")
			require.NoError(t, os.WriteFile(file, []byte(strings.Replace(valid, test.old, test.new, 1)), 0o600))
			err := run(t.Context(), file, "127.0.0.1:0", time.Second)
			require.Error(t, err)
			text, ok := strings.CutPrefix(err.Error(), file)
			assert.True(t, ok, err)
			prefix, part, _ := strings.Cut(test.want, "... ")
			assert.True(t, strings.HasPrefix(text, prefix), text)
			assert.Contains(t, text, part)
			for _, secret := range []string{"sk-", "127.0.0.1:808", llmhttp.HashSecret("sk-trial")[1:]} {
				assert.NotContains(t, text, secret)
			}
		})
	}

	c, err := readConfig("gateway.json")
	require.NoError(t, err)
	_, err = newGateway(&config{Upstreams: c.Upstreams, Keys: c.Keys})
	assert.EqualError(t, err, "route: routes: must not be empty")
	_, err = newGateway(&config{Upstreams: c.Upstreams, Routes: c.Routes})
	assert.EqualError(t, err, "keys: must not be empty")
	assert.ErrorContains(t, run(t.Context(), "missing.json", "127.0.0.1:0", time.Second), "missing.json")
}

// The first-byte timeout of an upstream that hangs leads to the next target.
func TestGateway_UpstreamHangs(t *testing.T) {
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	defer hangs.Close()
	works := httptest.NewServer(llmhttp.NewHandler(memory.Echo(), llmhttp.AllowAll("a"), nil))
	defer works.Close()
	setSecrets(t)
	g, err := newGateway(&config{
		Upstreams: []upstreamConfig{
			{Name: "hangs", URL: hangs.URL + "/v1", FirstByteTimeout: duration(100 * time.Millisecond)},
			{Name: "works", URL: works.URL + "/v1"},
		},
		Routes: []routeConfig{{Model: "demo-chat", Strategy: route.InOrder, Targets: []targetConfig{{Upstream: "hangs"}, {Upstream: "works"}}}},
		Keys:   []keyConfig{{ID: "demo", SecretEnv: "GATEWAY_KEY"}},
	})
	require.NoError(t, err)
	h := llmhttp.NewHandler(g.router, &g.keys, &llmhttp.Options{Bounds: llmhttp.Bounds{Timeout: g.timeout}})
	w := httptest.NewRecorder()
	r := httptest.NewRequest("POST", chatPath, strings.NewReader(hello))
	r.Header.Set("Authorization", "Bearer sk-gateway")
	h.ServeHTTP(w, r)
	assert.Equal(t, 200, w.Code, w.Body)
	assert.EqualValues(t, 1, g.router.Status()[0].Failures)
}

func TestGateway_BreakerOptions(t *testing.T) {
	fails := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }))
	defer fails.Close()
	works := httptest.NewServer(llmhttp.NewHandler(memory.Echo(), llmhttp.AllowAll("a"), nil))
	defer works.Close()
	g, err := newGateway(&config{
		Upstreams: []upstreamConfig{{Name: "fails", URL: fails.URL + "/v1"}, {Name: "works", URL: works.URL + "/v1"}},
		Routes:    []routeConfig{{Model: "demo-chat", Strategy: route.InOrder, Targets: []targetConfig{{Upstream: "fails"}, {Upstream: "works"}}}},
		Breaker:   breakerConfig{Failures: 2, OpenFor: duration(24 * time.Hour)},
		Keys:      []keyConfig{{ID: "demo", SecretHash: llmhttp.HashSecret("sk-gateway")}},
	})
	require.NoError(t, err)
	h := llmhttp.NewHandler(g.router, &g.keys, nil)
	for range 5 {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("POST", chatPath, strings.NewReader(hello))
		r.Header.Set("Authorization", "Bearer sk-gateway")
		h.ServeHTTP(w, r)
		require.Equal(t, 200, w.Code, w.Body)
	}
	s := g.router.Status()[0]
	assert.EqualValues(t, 2, s.Tries)
	require.Len(t, s.Breakers, 1)
	assert.GreaterOrEqual(t, time.Until(s.Breakers[0].RetryAt), 23*time.Hour)
}

// A server that knows cache_control gets it, and the next one that does not gets none.
func TestGateway_CacheControl(t *testing.T) {
	var bodies []string
	newServer := func(status int) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost {
				http.NotFound(w, r)
				return
			}
			body, _ := io.ReadAll(r.Body)
			bodies = append(bodies, string(body))
			w.WriteHeader(status)
			io.WriteString(w, `{"id":"a","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}]}`)
		}))
		t.Cleanup(s.Close)
		return s
	}
	setSecrets(t)
	g, err := newGateway(&config{
		Upstreams: []upstreamConfig{
			{Name: "knows", URL: newServer(503).URL, CacheControl: "ttl"},
			{Name: "refuses", URL: newServer(200).URL},
		},
		Routes: []routeConfig{{Model: "claude-*", Strategy: route.InOrder, Targets: []targetConfig{{Upstream: "knows"}, {Upstream: "refuses"}}}},
		Keys:   []keyConfig{{ID: "demo", SecretEnv: "GATEWAY_KEY"}},
	})
	require.NoError(t, err)
	h := llmhttp.NewHandler(g.router, &g.keys, &llmhttp.Options{Protocols: []llmhttp.Protocol{messages.New(nil)}})
	const hour = `"cache_control":{"type":"ephemeral","ttl":"1h"}`
	w := httptest.NewRecorder()
	r := httptest.NewRequest("POST", "/v1/messages", strings.NewReader(`{"model":"claude-x","max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":"Hello!",`+hour+`}]}]}`))
	r.Header.Set("Authorization", "Bearer sk-gateway")
	h.ServeHTTP(w, r)
	require.Equal(t, 200, w.Code, w.Body)
	assert.Equal(t, []string{
		`{"model":"claude-x","messages":[{"role":"user","content":[{"type":"text","text":"Hello!",` + hour + `}]}],"max_tokens":9}`,
		`{"model":"claude-x","messages":[{"role":"user","content":"Hello!"}],"max_tokens":9}`,
	}, bodies)
}
