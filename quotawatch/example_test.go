package quotawatch_test

import (
	"context"
	"fmt"
	"log"
	"net/http/httptest"
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/quotawatch"
)

func Example() {
	keys, usage := memory.NewKeyStore(), memory.NewUsageStore()
	keys.Add("sk-demo", &llmhttp.Key{ID: "demo", Account: "acme", Limits: llmhttp.Limits{Quota: llmhttp.Quota{Tokens: 1000}}})
	watcher := quotawatch.New(usage, func(ctx context.Context, e *quotawatch.Event) error {
		fmt.Printf("%s has used %d %% of %d tokens\n", e.Account, e.Share, e.Quota.Tokens)
		return nil
	}, nil)
	model := llmhttp.BackendFunc(func(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
		llm.ReportUsage(ctx, llm.Usage{PromptTokens: 800, CompletionTokens: 50})
		return llm.Reply("That was a long question.")
	})
	h := llmhttp.NewHandler(model, keys, &llmhttp.Options{Usage: usage, Observe: watcher.Observe})

	r := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(
		`{"model": "demo", "max_tokens": 50, "messages": [{"role": "user", "content": "Hello"}]}`))
	r.Header.Set("Authorization", "Bearer sk-demo")
	h.ServeHTTP(httptest.NewRecorder(), r)
	if err := watcher.Close(context.Background()); err != nil { // after the Handler has shut down
		log.Fatal(err)
	}
	// Output: acme has used 80 % of 1000 tokens
}
