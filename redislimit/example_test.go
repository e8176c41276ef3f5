package redislimit_test

import (
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/redislimit"
)

// A server that shares the limits of its keys with other servers.
func ExampleNew() {
	client := redis.NewClient(&redis.Options{Addr: "redis:6379", ContextTimeoutEnabled: true})
	defer client.Close()
	limiter, err := redislimit.New(client, &redislimit.Options{Prefix: "api:"})
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()

	keys := memory.NewKeyStore()
	keys.Add("sk-demo", &llmhttp.Key{Limits: llmhttp.Limits{Requests: llmhttp.PerMinute(60), Concurrent: 4}})
	h := llmhttp.NewHandler(memory.Echo(), keys, &llmhttp.Options{Limiter: limiter})
	log.Fatal(http.ListenAndServe("localhost:8080", h))
}

// A server that limits in its own process while Redis is unavailable.
func ExampleOptions_fallback() {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true}) // no server
	defer client.Close()
	limiter, err := redislimit.New(client, &redislimit.Options{
		Fallback: llmhttp.NewLimiter(),
		Timeout:  50 * time.Millisecond,
		Logger:   slog.New(slog.DiscardHandler),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()

	keys := memory.NewKeyStore()
	keys.Add("sk-demo", &llmhttp.Key{Limits: llmhttp.Limits{Requests: llmhttp.PerMinute(2)}})
	h := llmhttp.NewHandler(memory.Echo(), keys, &llmhttp.Options{Limiter: limiter})
	for range 3 {
		r := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(
			`{"model": "demo-chat", "messages": [{"role": "user", "content": "Hello"}]}`))
		r.Header.Set("Authorization", "Bearer sk-demo")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Header().Get("X-Ratelimit-Remaining-Requests"))
	}
	// Output:
	// 200 1
	// 200 0
	// 429 0
}
