package pricing_test

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/pricing"
)

// Entries with members that need not be known have a price, and so have those with members that depend on what
// records tell.
func TestParseLiteLLM_Published(t *testing.T) {
	table := parseLiteLLM(t, `{
		"gpt-image-1.5": {
			"mode": "image_generation", "litellm_provider": "openai", "supports_vision": true,
			"cache_read_input_image_token_cost": 2e-06, "cache_read_input_token_cost": 1.25e-06,
			"input_cost_per_token": 5e-06, "output_cost_per_token": 1e-05,
			"input_cost_per_image_token": 8e-06, "output_cost_per_image_token": 3.2e-05
		},
		"low/1024-x-1024/gpt-image-1.5": {"mode": "image_generation", "input_cost_per_image": 0.009},
		"gemini-3.1-flash-lite-preview": {
			"mode": "chat", "input_cost_per_token": 2.5e-07, "output_cost_per_token": 1.5e-06, "input_cost_per_audio_token": 5e-07,
			"cache_read_input_token_cost": 2.5e-08, "cache_read_input_token_cost_per_audio_token": 5e-08
		},
		"titan": {
			"mode": "image_generation", "input_cost_per_image": 0.0, "output_cost_per_image": 0.008, "output_cost_per_image_premium_image": 0.01,
			"output_cost_per_image_above_1024_and_1024_pixels": 0.011, "output_cost_per_image_above_1024_and_1024_pixels_and_premium_image": 0.012
		},
		"nano": {
			"mode": "image_generation", "output_cost_per_image": 0.02, "output_cost_per_image_high_quality": 0.06,
			"output_cost_per_image_above_2048_and_2048_pixels": 0.09, "output_cost_per_image_above_4096_and_4096_pixels": 0.12
		},
		"nscale/flux": {"mode": "image_generation", "input_cost_per_pixel": 1.3e-09, "output_cost_per_pixel": 0.0},
		"text-embedding-preview-0409": {
			"mode": "embedding", "input_cost_per_token": 6.25e-09, "input_cost_per_token_batch_requests": 5e-09, "output_cost_per_token": 0
		},
		"fast": {
			"mode": "chat", "input_cost_per_token": 1e-06, "input_cost_per_token_above_272k_tokens": 2e-06,
			"input_cost_per_token_fast": 6e-06, "input_cost_per_token_flex_above_272k_tokens": 3e-06, "google_maps_grounding_cost_per_query": 0.014
		}
	}`)
	assert.Empty(t, table.Mistakes())
	const images = llmhttp.OperationImages
	image := func(model, size, quality string) llmhttp.UsageRecord {
		return llmhttp.UsageRecord{Model: model, Operation: images, ImageSize: size, ImageQuality: quality, Units: llmhttp.Units{Images: 1}}
	}
	for name, test := range map[string]struct {
		record llmhttp.UsageRecord
		want   llmhttp.Cost
		err    string
	}{
		// 10 * $5/M + 40 * $8/M = $0.00037; 272 * $32/M = $0.008704
		"tokens of images": {record: llmhttp.UsageRecord{Model: "gpt-image-1.5", Operation: images, ImageSize: "1024x1024", ImageQuality: "low", Units: llmhttp.Units{
			PromptTokens: 50, PromptImageTokens: 40, CompletionTokens: 272, Images: 1}}, want: llmhttp.Cost{Input: 370_000, Output: 8_704_000}},
		"images without tokens":   {record: image("gpt-image-1.5", "1024x1024", "low"), want: llmhttp.Cost{Output: 9_000_000}},
		"cached audio":            {record: llmhttp.UsageRecord{Model: "gemini-3.1-flash-lite-preview", Units: llmhttp.Units{PromptTokens: 10, CachedTokens: 10}}, want: llmhttp.Cost{CacheRead: 250}},
		"small":                   {record: image("titan", "1024x1024", ""), want: llmhttp.Cost{Output: 8_000_000}},
		"large in one dimension":  {record: image("titan", "2048x1024", ""), want: llmhttp.Cost{Output: 8_000_000}},
		"large":                   {record: image("titan", "1280x1280", "standard"), want: llmhttp.Cost{Output: 11_000_000}},
		"premium":                 {record: image("titan", "512x512", "hd"), want: llmhttp.Cost{Output: 10_000_000}},
		"large and premium":       {record: image("titan", "1280x1280", "hd"), want: llmhttp.Cost{Output: 12_000_000}},
		"any size":                {record: image("titan", "auto", ""), want: llmhttp.Cost{Output: 8_000_000}},
		"high quality":            {record: image("nano", "1024x1024", "high"), want: llmhttp.Cost{Output: 60_000_000}},
		"larger":                  {record: image("nano", "3000x3000", ""), want: llmhttp.Cost{Output: 90_000_000}},
		"largest":                 {record: image("nano", "5000x5000", "low"), want: llmhttp.Cost{Output: 120_000_000}},
		"pixels":                  {record: image("nscale/flux", "1000x500", ""), want: llmhttp.Cost{Output: 650_000}},
		"pixels that are unknown": {record: image("nscale/flux", "auto", ""), err: "has no price for images of this size and quality"},
		"batch":                   {record: llmhttp.UsageRecord{Model: "text-embedding-preview-0409", ServiceTier: "batch", Units: llmhttp.Units{PromptTokens: 1000}}, want: llmhttp.Cost{Input: 5000}},
		"tier before length":      {record: llmhttp.UsageRecord{Model: "fast", ServiceTier: "flex", Units: llmhttp.Units{PromptTokens: 272_001}}, want: llmhttp.Cost{Input: 816_003_000}},
		"fast":                    {record: llmhttp.UsageRecord{Model: "fast", ServiceTier: "fast", Units: llmhttp.Units{PromptTokens: 1}}, want: llmhttp.Cost{Input: 6000}},
	} {
		t.Run(name, func(t *testing.T) {
			cost, err := table.Price(&test.record)
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.want, cost)
		})
	}
}

// liteLLMFile is the environment variable with the name of a copy of LiteLLM's published file.
const liteLLMFile = "LITELLM_PRICES"

// Of LiteLLM's published file only those entries are refused that charge for what records do not tell. With -v the
// test lists them.
func TestReadLiteLLMFile_Published(t *testing.T) {
	name := os.Getenv(liteLLMFile)
	if name == "" {
		t.Skip(liteLLMFile + " does not name a copy of model_prices_and_context_window.json")
	}
	table, err := pricing.ReadLiteLLMFile(name, nil)
	require.NoError(t, err)
	reasons := make(map[string][]string)
	for _, mistake := range table.Mistakes() {
		parts := regexp.MustCompile(`^pricing: model ("[^"]*"): (?:member "[^"]*": )?(.*)$`).FindStringSubmatch(mistake.Error())
		require.NotNil(t, parts, mistake)
		reasons[parts[2]] = append(reasons[parts[2]], parts[1])
		assert.Contains(t, parts[2], "which records do not tell", "%v", mistake)
	}
	for reason, models := range reasons {
		slices.Sort(models)
		t.Logf("%d: %s: %v", len(models), reason, models)
	}
	t.Logf("%d entries are refused", len(table.Mistakes()))
}
