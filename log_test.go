package llmhttp_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// The log has the cause of a failure, the ID of the request and that of the key.
func TestLog_CauseOfAFailure(t *testing.T) {
	s := startServer(t, config{backend: failingBackend(errCause)})
	r := s.chat(chatBody)
	var line struct {
		Level, Msg, Error, Scope string
		RequestID                string `json:"request_id"`
		KeyID                    string `json:"key_id"`
	}
	require.NoError(t, json.Unmarshal([]byte(s.log.String()), &line), "%s", s.log)
	assert.Equal(t, "ERROR", line.Level)
	assert.Equal(t, secretCause, line.Error)
	assert.Equal(t, r.Header.Get("X-Request-Id"), line.RequestID)
	assert.Equal(t, "key_1", line.KeyID)
	assert.Equal(t, "chat", line.Scope)
}

func TestLog_MistakesOfClientsAreNotLogged(t *testing.T) {
	s := startServer(t, config{})
	s.chat("{")
	s.chat(chatBody, withoutKey)
	s.get("/x")
	assert.Empty(t, s.log.String())
}

// The line of a refused request tells why, and which model was asked for.
func TestLog_RefusedRequests(t *testing.T) {
	for model, want := range map[string]any{
		"big": "big", `a\nb`: "ab", testSecret: "[redacted]", strings.Repeat("x", 400): strings.Repeat("x", 128) + "...", "small": nil,
	} {
		var out logBuffer
		key := testKey()
		key.Models = []string{"small"}
		s := startServer(t, config{keys: keysFor(key), opts: llmhttp.Options{Observe: llmhttp.LogRequests(slog.New(slog.NewJSONHandler(&out, nil)))}})
		status := s.chat(strings.Replace(chatBody, "demo-chat", model, 1)).StatusCode
		s.shutdown()
		var line map[string]any
		require.NoError(t, json.Unmarshal([]byte(out.String()), &line))
		assert.Equal(t, want, line["requested_model"])
		assert.NotContains(t, line, "error")
		if want == nil {
			assert.Equal(t, 200, status)
			assert.Equal(t, model, line["model"])
			assert.NotContains(t, line, "code")
			continue
		}
		assert.Equal(t, 404, status)
		assert.Equal(t, "model_not_found", line["code"])
		assert.NotContains(t, line, "model")
	}
}

func TestLog_Requests(t *testing.T) {
	var out logBuffer
	log := llmhttp.LogRequests(slog.New(slog.NewJSONHandler(&out, nil)))
	s := startServer(t, config{
		opts: llmhttp.Options{Observe: log},
		backend: streamBackend(func(ctx context.Context, yield yieldFunc) {
			_, end := llmhttp.StartTry(ctx, "a")
			end(nil)
			c := llm.TextChunk("reply")
			c.Usage = &llm.Usage{PromptTokens: 3, CompletionTokens: 4}
			_ = yield(c, nil) && yield(nil, errCause)
		}),
	})
	s.chat(streamBody)
	s.chat(`{"model":"demo-chat","messages":[{"role":"user","content":17}]}`)
	s.get("/v1/models/"+testSecret+"?q=query", withoutKey)
	s.get("/v1/models/" + testSecret + "?q=query")
	s.shutdown()
	var lines []map[string]any
	for line := range strings.Lines(out.String()) {
		var v map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &v))
		delete(v, "time")
		lines = append(lines, v)
	}
	require.Len(t, lines, 4)
	for _, name := range []string{"admitted_ms", "first_token_ms", "duration_ms"} {
		assert.Positive(t, lines[0][name], name)
		delete(lines[0], name)
	}
	assert.Equal(t, map[string]any{
		"level": "INFO", "msg": "request", "request_id": s.summaries()[0].Record.ID, "client": "127.0.0.1", "method": "POST", "path": chatPath,
		"status": 200.0, "protocol": "chat", "scope": "chat", "account": "acme", "key": "key_1", "model": "demo-chat",
		"target": "a", "tries": 1.0, "streamed": true, "prompt_tokens": 3.0, "completion_tokens": 4.0,
		"error_class": "backend", "error": secretCause,
	}, lines[0])
	assert.Equal(t, 400.0, lines[1]["status"])
	assert.Equal(t, "invalid_request", lines[1]["error_class"])
	assert.Equal(t, "messages[0].content", lines[1]["param"])
	assert.Equal(t, "invalid_type", lines[1]["code"])
	assert.NotContains(t, lines[1], "error", "it may quote the request")
	assert.NotContains(t, lines[1], "streamed", "the request was not read to its end")
	assert.Equal(t, "/v1/models/[redacted]", lines[3]["path"])
	assert.NotContains(t, out.String(), "query")
}

// The line tells who the end user is, what was used in each unit, and what that cost.
func TestLog_WhatWasUsed(t *testing.T) {
	price := func(c llmhttp.Cost, err error) func(*llmhttp.UsageRecord) (llmhttp.Cost, error) {
		return func(*llmhttp.UsageRecord) (llmhttp.Cost, error) { return c, err }
	}
	usage := &llm.Usage{
		PromptTokens: 90, CompletionTokens: 40,
		PromptTokensDetails:     llm.PromptTokensDetails{CachedTokens: 60, CacheWriteTokens: 20, AudioTokens: 3, ImageTokens: 2},
		CompletionTokensDetails: llm.CompletionTokensDetails{ReasoningTokens: 30, AudioTokens: 1},
	}
	all := map[string]any{
		"prompt_tokens": 90.0, "cached_tokens": 60.0, "cache_write_tokens": 20.0, "prompt_audio_tokens": 3.0, "prompt_image_tokens": 2.0,
		"completion_tokens": 40.0, "reasoning_tokens": 30.0, "completion_audio_tokens": 1.0,
	}
	with := func(more map[string]any) map[string]any {
		m := maps.Clone(all)
		maps.Copy(m, more)
		return m
	}
	for name, test := range map[string]struct {
		user  string
		usage *llm.Usage
		price func(*llmhttp.UsageRecord) (llmhttp.Cost, error)
		want  map[string]any
	}{
		"everything": {
			"ada", usage, price(llmhttp.Cost{Input: llm.USD(12) / 1000, Output: llm.MoneyUnit / 2000}, nil),
			with(map[string]any{"user": "ada", "cost": "0.0125"}),
		},
		"no price":           {"", usage, nil, all},
		"a cost of zero":     {"", usage, price(llmhttp.Cost{}, nil), all},
		"no price was found": {"", usage, price(llmhttp.Cost{}, errCause), with(map[string]any{"unpriced": true})},
		"an estimate":        {"", nil, nil, map[string]any{"prompt_tokens": 9.0, "completion_tokens": 2.0, "estimated": true}},
	} {
		t.Run(name, func(t *testing.T) {
			var out logBuffer
			s := startServer(t, config{
				opts: llmhttp.Options{Observe: llmhttp.LogRequests(slog.New(slog.NewJSONHandler(&out, nil))), Price: test.price},
				backend: streamBackend(func(_ context.Context, yield yieldFunc) {
					c := llm.TextChunk("reply")
					c.Usage = test.usage
					yield(c, nil)
				}),
			})
			body := chatBody
			if test.user != "" {
				body = withMember(t, body, `"user":"`+test.user+`"`)
			}
			require.Equal(t, 200, s.chat(body).StatusCode)
			s.shutdown()
			var line map[string]any
			require.NoError(t, json.Unmarshal([]byte(out.String()), &line))
			got := make(map[string]any)
			for _, name := range []string{"user", "cost", "estimated", "unpriced"} {
				if v, ok := line[name]; ok {
					got[name] = v
				}
			}
			for name := range new(llmhttp.Units).All() {
				if v, ok := line[name]; ok {
					got[name] = v
				}
			}
			assert.Equal(t, test.want, got)
		})
	}
}

// Behind a load balancer, the line has the address of the client.
func TestLog_ClientBehindAProxy(t *testing.T) {
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	for name, test := range map[string]struct {
		proxies []netip.Prefix
		want    string
	}{
		"trusted":     {loopback, "203.0.113.7"},
		"not trusted": {[]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, "127.0.0.1"},
		"none":        {nil, "127.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			var out logBuffer
			var outside, inside string // the addresses of the request around and inside of TrustProxies
			var pattern string         // of the request around it
			served := make(chan struct{})
			s := startServer(t, config{
				opts: llmhttp.Options{Observe: llmhttp.LogRequests(slog.New(slog.NewJSONHandler(&out, nil)))},
				wrap: func(h http.Handler) http.Handler {
					trusting := llmhttp.TrustProxies(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						inside = r.RemoteAddr
						h.ServeHTTP(w, r)
					}), test.proxies)
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						trusting.ServeHTTP(w, r)
						outside, pattern = r.RemoteAddr, r.Pattern
						close(served)
					})
				},
			})
			s.chat(chatBody, withHeader("X-Forwarded-For", "198.51.100.1, 203.0.113.7"))
			<-served
			s.shutdown()
			var line struct{ Client string }
			require.NoError(t, json.Unmarshal([]byte(out.String()), &line))
			assert.Equal(t, test.want, line.Client)
			assert.Contains(t, outside, "127.0.0.1:")
			assert.Equal(t, "POST /v1/chat/completions", pattern)
			assert.Contains(t, inside, test.want)
		})
	}
	assert.PanicsWithValue(t, "llmhttp: TrustProxies: proxies[1] is not valid", func() {
		llmhttp.TrustProxies(http.NotFoundHandler(), append(loopback, netip.Prefix{}))
	})
}
