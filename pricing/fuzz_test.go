package pricing_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/pricing"
)

// Whatever is read, costs are not negative, and each record has a cost or an error.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		published, publishedLiteLLM, `{}`, `[]`,
		`{"models": {"m": {"input": 1e-24, "above": [{"prompt_tokens": 5, "input": 2}]}, "n*": [{"from": "2026-01-01", "request": 0}]}, "aliases": {"a": "m"}, "accounts": {"*": 2}}`,
		`{"default": {"audio_second": "3", "images": [{"size": "1x1", "quality": "auto", "price": 1}], "service_tiers": {"flex": {"input": 1}}}}`,
		`{"m": {"tiered_pricing": [{"range": [0, 5], "input_cost_per_token": 1e-30}, {"range": [5, 1e3], "input_cost_per_token": "4"}]}}`,
		`{"hd/8-x-8/m": {"mode": "image_generation", "input_cost_per_pixel": 1e-08}, "m": {"input_cost_per_token_above_9k_tokens_flex": 3}}`,
		`{"m": {"mode": "audio_speech", "output_cost_per_second": 1, "input_cost_per_second": 100000000}}`,
	} {
		f.Add([]byte(seed), "m", "flex", int64(7), int64(3))
	}
	f.Fuzz(func(t *testing.T, data []byte, model, tier string, prompt, other int64) {
		r := llmhttp.UsageRecord{
			Model: model, ServiceTier: tier, ImageSize: "8x8", ImageQuality: "hd", Account: model, Operation: llmhttp.OperationImages,
			Units: llmhttp.Units{
				PromptTokens: prompt, CachedTokens: other, CacheWriteTokens: other, CompletionTokens: other, ReasoningTokens: prompt,
				Images: other, AudioMillis: other, Characters: prompt, SearchUnits: other,
			},
		}
		for _, parse := range []func([]byte, *pricing.Options) (*pricing.Table, error){pricing.Parse, pricing.ParseLiteLLM} {
			table, err := parse(data, nil)
			if err != nil {
				continue
			}
			for _, r.Operation = range []llmhttp.Operation{llmhttp.OperationChat, llmhttp.OperationImages} {
				cost, err := table.Price(&r)
				if err != nil {
					assert.Zero(t, cost)
					continue
				}
				for part, m := range cost.All() {
					assert.GreaterOrEqual(t, *m, llm.Money(0), part)
				}
			}
		}
	})
}
