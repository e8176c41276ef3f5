package main

import (
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
	"github.com/llmhttp/llmhttp/route"
)

// setSecrets sets the variables that gateway.json names.
func setSecrets(t *testing.T) {
	t.Setenv("FIRST_KEY", "sk-first")
	t.Setenv("SECOND_KEY", "sk-second")
	t.Setenv("GATEWAY_KEY", "sk-gateway")
}

func TestConfig(t *testing.T) {
	setSecrets(t)
	c, err := readConfig("gateway.json")
	require.NoError(t, err)
	g, err := c.gateway()
	require.NoError(t, err)

	demo, err := g.keys.Lookup(t.Context(), "sk-gateway")
	require.NoError(t, err)
	assert.Equal(t, &llmhttp.Key{ID: "demo"}, demo)
	trial, err := g.keys.Lookup(t.Context(), "sk-trial")
	require.NoError(t, err)
	assert.Equal(t, &llmhttp.Key{
		ID: "trial", Account: "acme",
		Scopes:  []llmhttp.Endpoint{llmhttp.EndpointChat, llmhttp.EndpointModels},
		Models:  []string{"parrot"},
		Expires: time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC),
		Limits: llmhttp.Limits{
			Requests:   llmhttp.Rate{N: 60},
			Tokens:     llmhttp.Rate{N: 20_000, Burst: 40_000},
			Quota:      llmhttp.Rate{N: 1_000_000, Per: 30 * 24 * time.Hour},
			Concurrent: 4,
		},
	}, trial)
	assert.Equal(t, 5*time.Minute, g.timeout)
	c.Upstreams[0].FirstByteTimeout = "10m"
	slow, err := c.gateway()
	require.NoError(t, err)
	assert.Equal(t, 21*time.Minute, slow.timeout)
	_, err = g.keys.Lookup(t.Context(), "sk-first")
	assert.ErrorIs(t, err, llmhttp.ErrKeyNotFound)

	var targets []string
	for _, s := range g.router.Status() {
		targets = append(targets, s.Route+" "+s.Target)
	}
	assert.Equal(t, []string{"demo-* first", "demo-* second", "parrot second", "parrot first"}, targets)
}

// Each mistake in the file is told with the name of its field, and without
// secrets.
func TestConfigErrors(t *testing.T) {
	setSecrets(t)
	t.Setenv("SPACED_KEY", "sk-se cret")
	t.Setenv("SAME_KEY", "sk-gateway")
	valid, err := os.ReadFile("gateway.json")
	require.NoError(t, err)

	for _, tt := range []struct{ old, new, want string }{
		// Of the file as a whole.
		{`"upstreams": [`, `"upstreams": `, `:9: invalid character '{' looking for beginning of object key string`},
		{string(valid), ``, `: it is empty`},
		{string(valid), `{"keys": [`, `: unexpected EOF`},
		{string(valid), `[]`, `:1: the file: must be an object, not array`},
		{string(valid), string(valid) + "{}", `:49: there is more after the end`},
		{`"routes": [`, `"Keys": [{"id": "a"}], "routes": [`, `: keys: is there twice`},
		{`{"n": 60}`, `{"n": 60, "n": 61}`, `: keys[1].limits.requests.n: is there twice`},
		{`"weight"`, `"wieght"`, `: unknown field "wieght"`},
		{`"weight": 2`, `"weight": "2"`, `:20: routes.targets.weight: must be an integer, not string`},
		{`"weight": 2`, `"weight": 2.5`, `:20: routes.targets.weight: must be an integer, not number 2.5`},
		{`["127.0.0.1:8081"]`, `"127.0.0.1:8081"`, `:7: upstreams.image_hosts: must be an array, not string`},
		{`{"n": 60}`, `60`, `:41: keys.limits.requests: must be an object, not number`},
		{`"id": "demo"`, `"id": true`, `:30: keys.id: must be a string, not bool`},
		{`"key_env": "FIRST_KEY"`, `"omit_image_format": 1`, `:6: upstreams.omit_image_format: must be true or false, not number`},

		{`"upstreams"`, `"public_url": "llm.example.com", "upstreams"`, `: public_url: "llm.example.com" is not a URL such as "https://llm.example.com"`},

		// Of upstreams.
		{`"name": "second"`, `"name": ""`, `: upstreams[1].name: must not be empty`},
		{`"name": "second"`, `"name": "first"`, `: upstreams[1].name: there is another upstream "first"`},
		{`"url": "http://127.0.0.1:8082/v1",`, ``, `: upstreams[1]: url must begin with "http://" or "https://"`},
		{`http://127.0.0.1:8082/v1`, `http://me:sk-password@127.0.0.1:8082/v1`, `: upstreams[1]: url must not have a user or password`},
		{`FIRST_KEY`, `NO_KEY`, `: upstreams[0].key_env: NO_KEY is not set in the environment`},
		{`FIRST_KEY`, `SPACED_KEY`, `: upstreams[0].key_env: SPACED_KEY has a character that no key may have`},
		{`["127.0.0.1:8081"]`, `["*"]`, `: upstreams[0]: image_hosts has "*", which is not a host`},
		{`"1m"`, `"1"`, `: upstreams[1].first_byte_timeout: "1" is not a positive duration such as "1m30s"`},
		{`"first_byte_timeout": "1m"`, `"silence_timeout": "-1s"`, `: upstreams[1].silence_timeout: "-1s" is not a positive duration`},

		// Of routes.
		{`[{"upstream": "second", "model"`, `[{"upstream": "third", "model"`, `: routes[1].targets[0].upstream: no upstream "third"`},
		{`"weight": 2`, `"weight": -1`, `: routes[0].targets[0].weight: -1 is not between 0 and 1000000`},
		{`in-order`, `in-turns`, `: routes[1].strategy: unknown strategy "in-turns", want "weighted", "least-in-flight" or "in-order"`},
		{`"model": "parrot"`, `"model": "demo-*"`, `: routes[1].model: routes[0] has the model "demo-*" too`},
		{`{"upstream": "first", "model"`, `{"upstream": "second", "model"`, `: routes[1].targets[1].name: targets[0] has the name "second" too`},

		// Of keys.
		{`"id": "trial"`, `"id": ""`, `: keys[1].id: must not be empty`},
		{`"id": "trial"`, `"id": "demo"`, `: keys[1].id: there is another key "demo"`},
		{`GATEWAY_KEY`, `SPACED_KEY`, `: keys[0].secret_env: SPACED_KEY has a character that no key may have`},
		{`GATEWAY_KEY`, `sk-gateway`, `: keys[0].secret_env: must be the name of an environment variable`},
		{`GATEWAY_KEY`, `NO_KEY`, `: keys[0].secret_env: NO_KEY is not set in the environment`},
		{`"secret_env": "GATEWAY_KEY"`, `"account": "demo"`, `: keys[0]: must have either secret_env or secret_hash`},
		{`"account": "acme"`, `"secret_env": "SAME_KEY"`, `: keys[1]: must have either secret_env or secret_hash`},
		{`"secret_hash": "`, `"secret_hash": "0`, `: keys[1].secret_hash: must be a SHA-256 hash: 64 hexadecimal digits`},
		{`"secret_hash": "`, `"secret_env": "SAME_KEY", "secret_hash": "`, `: keys[1]: must have either secret_env or secret_hash`},
		{`"secret_env": "GATEWAY_KEY"`, `"secret_hash": "` + strings.ToUpper(llmhttp.HashSecret("sk-trial")) + `"`, `: keys[1]: has the secret of key "demo"`},
		{`["chat", "models"]`, `["chat", "model"]`, `: keys[1].scopes[1]: "model" is none of ["chat" "images" "embeddings" "models" "usage"]`},
		{`2040-01-01T00:00:00Z`, `2040-01-01`, `: keys[1].expires: "2040-01-01" is not a time such as "2030-12-31T23:59:59Z"`},
		{`{"n": 60}`, `{"per": "1h"}`, `: keys[1].limits.requests.n: must be positive`},
		{`"burst": 40000`, `"burst": -1`, `: keys[1].limits.tokens.burst: must not be negative`},
		{`"720h"`, `"30d"`, `: keys[1].limits.quota.per: "30d" is not a positive duration`},
		{`"concurrent": 4`, `"concurrent": -4`, `: keys[1].limits.concurrent: must not be negative`},
	} {
		t.Run(tt.want, func(t *testing.T) {
			require.Equal(t, 1, strings.Count(string(valid), tt.old), tt.old)
			file := filepath.Join(t.TempDir(), "gateway.json")
			require.NoError(t, os.WriteFile(file, []byte(strings.Replace(string(valid), tt.old, tt.new, 1)), 0o600))
			err := run(file, "127.0.0.1:0", time.Second)
			require.Error(t, err)
			told, ok := strings.CutPrefix(err.Error(), file)
			assert.True(t, ok, err)
			assert.True(t, strings.HasPrefix(told, tt.want), told)
			for _, secret := range []string{"sk-", "127.0.0.1:808", llmhttp.HashSecret("sk-trial")[1:]} {
				assert.NotContains(t, told, secret)
			}
		})
	}

	for name, list := range map[string]string{
		"routes": `: routes: must not be empty`,
		"keys":   `: keys: there must be at least one`,
	} {
		t.Run("no "+name, func(t *testing.T) {
			c, err := readConfig("gateway.json")
			require.NoError(t, err)
			switch name {
			case "routes":
				c.Routes = nil
			case "keys":
				c.Keys = nil
			}
			_, err = c.gateway()
			assert.EqualError(t, err, strings.TrimPrefix(list, ": "))
		})
	}
	assert.ErrorContains(t, run("nowhere.json", "127.0.0.1:0", time.Second), "nowhere.json")
}

// A target that hangs has another stand in for it.
func TestHangingUpstream(t *testing.T) {
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	defer hangs.Close()
	works := httptest.NewServer(llmhttp.NewHandler(memory.Echo(), llmhttp.AllowAll("a"), nil))
	defer works.Close()
	setSecrets(t)
	c := &config{
		Upstreams: []upstreamConfig{{Name: "hangs", URL: hangs.URL + "/v1", FirstByteTimeout: "100ms"}, {Name: "works", URL: works.URL + "/v1"}},
		Routes:    []routeConfig{{Model: "demo-chat", Strategy: route.InOrder, Targets: []targetConfig{{Upstream: "hangs"}, {Upstream: "works"}}}},
		Keys:      []keyConfig{{ID: "demo", SecretEnv: "GATEWAY_KEY"}},
	}
	g, err := c.gateway()
	require.NoError(t, err)
	h := llmhttp.NewHandler(g.router, g.keys, &llmhttp.Options{Timeout: g.timeout})
	w := httptest.NewRecorder()
	r := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(`{"model":"demo-chat","messages":[{"role":"user","content":"Hi"}]}`))
	r.Header.Set("Authorization", "Bearer sk-gateway")
	h.ServeHTTP(w, r)
	assert.Equal(t, 200, w.Code, w.Body)
	assert.EqualValues(t, 1, g.router.Status()[0].Failures)
}
