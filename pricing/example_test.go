package pricing_test

import (
	"fmt"
	"log"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/pricing"
)

func Example() {
	table, err := pricing.Parse([]byte(`{
		"models": {"chat-large*": {"input": "3", "cache_read": "0.3", "output": "15"}},
		"accounts": {"acme": "0.9"}
	}`), nil)
	if err != nil {
		log.Fatal(err)
	}
	h := llmhttp.NewHandler(memory.Echo(), memory.NewKeyStore(), &llmhttp.Options{Usage: memory.NewUsageStore(), Price: table.Price})
	var _ http.Handler = h

	cost, err := table.Price(&llmhttp.UsageRecord{
		Time: time.Now(), Account: "acme", Model: "large", ServedModel: "chat-large-2",
		Units: llmhttp.Units{PromptTokens: 1_000_000, CachedTokens: 500_000, CompletionTokens: 100_000},
	})
	fmt.Println(cost.Input, cost.CacheRead, cost.Output, err)
	// Output: 1.35 0.135 1.35 <nil>
}

// A host reads its prices again without a restart: it keeps the Table in an atomic pointer.
// What was recorded does not change.
func ExampleTable() {
	load := func(doc string) *pricing.Table {
		table, err := pricing.Parse([]byte(doc), nil) // or pricing.ReadFile
		if err != nil {
			log.Fatal(err) // a host that runs logs the error and keeps the old Table
		}
		return table
	}
	var current atomic.Pointer[pricing.Table]
	current.Store(load(`{"models": {"m": {"input": "1"}}}`))
	opts := llmhttp.Options{
		Price: func(r *llmhttp.UsageRecord) (llmhttp.Cost, error) { return current.Load().Price(r) },
	}

	r := &llmhttp.UsageRecord{Model: "m", Units: llmhttp.Units{PromptTokens: 1_000_000}}
	before, _ := opts.Price(r)
	current.Store(load(`{"models": {"m": {"input": "2"}}}`))
	after, _ := opts.Price(r)
	fmt.Println(before.Total(), after.Total())
	// Output: 1 2
}

// A host uses a file in LiteLLM's format, and its own prices for some models and accounts.
func ExampleParseLiteLLM() {
	shared, err := pricing.ParseLiteLLM([]byte(`{
		"large": {"mode": "chat", "input_cost_per_token": 3e-06, "output_cost_per_token": 1.5e-05},
		"strange": {"mode": "chat", "input_cost_per_token": 1e-06, "cost_per_full_moon": 1}
	}`), nil)
	if err != nil {
		log.Fatal(err)
	}
	for _, mistake := range shared.Mistakes() {
		fmt.Println(mistake)
	}
	table, err := pricing.Parse([]byte(`{
		"models": {"small": {"input": "0.1", "output": "0.4"}},
		"aliases": {"best": "large"},
		"accounts": {"*": "1.2"}
	}`), &pricing.Options{Fallback: shared})
	if err != nil {
		log.Fatal(err)
	}
	for _, model := range []string{"best", "small", "strange"} {
		cost, err := table.Price(&llmhttp.UsageRecord{Model: model, Units: llmhttp.Units{PromptTokens: 1_000_000}})
		fmt.Println(model, cost.Total(), err != nil)
	}
	// Output:
	// pricing: model "strange": member "cost_per_full_moon": is unknown, and may be a price
	// best 3.6 false
	// small 0.12 false
	// strange 0 true
}

func ExampleParse() {
	table, err := pricing.Parse([]byte(documented), nil)
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range []llmhttp.UsageRecord{
		{Model: "large", Units: llmhttp.Units{PromptTokens: 100_000}},
		{Model: "chat-large", Account: "acme", Units: llmhttp.Units{PromptTokens: 1_000_000}},
		{Model: "chat-large", ServiceTier: "batch", Units: llmhttp.Units{PromptTokens: 1_000_000}},
		{Model: "chat-small-2", Units: llmhttp.Units{PromptTokens: 1_000_000}},
		{Model: "chat-small-2", Time: time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC), Units: llmhttp.Units{PromptTokens: 1_000_000}},
		{Model: "pictures", ImageSize: "1024x1024", ImageQuality: "hd", Units: llmhttp.Units{Images: 1}},
		{Model: "another", Units: llmhttp.Units{PromptTokens: 1_000_000}},
	} {
		cost, err := table.Price(&r)
		fmt.Println(r.Model, cost.Total(), err)
	}
	// Output:
	// large 0.36 <nil>
	// chat-large 5.4 <nil>
	// chat-large 3.6 <nil>
	// chat-small-2 0.12 <nil>
	// chat-small-2 0.096 <nil>
	// pictures 0.096 <nil>
	// another 12 <nil>
}

// documented is the example in the documentation of the package.
const documented = `{
  "models": {
    "chat-large": {
      "input": "3", "output": "15", "cache_read": "0.3", "cache_write": "3.75", "cache_write_1h": "6",
      "above": [{"prompt_tokens": 200000, "input": "6", "output": "22.5"}],
      "service_tiers": {"batch": {
        "input": "1.5", "output": "7.5",
        "above": [{"prompt_tokens": 200000, "input": "3", "output": "11.25"}]
      }}
    },
    "chat-small*": [
      {"input": "0.1", "output": "0.4"},
      {"from": "2026-07-01", "input": "0.08", "output": "0.3"}
    ],
    "pictures": {"image": "0.04", "images": [{"size": "1024x1024", "quality": "hd", "price": "0.08"}]}
  },
  "aliases": {"large": "chat-large"},
  "accounts": {"acme": "0.9", "*": "1.2"},
  "default": {"input": "10", "output": "30"}
}`
