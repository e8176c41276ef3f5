package pricing_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/pricing"
)

// The prices that vendors publish, in US dollars, for models of different shape.
const published = `{"models": {
	"claude-sonnet-4-5*": {
		"input": "3", "output": "15", "cache_read": "0.30", "cache_write": "3.75", "cache_write_1h": "6",
		"above": [{"prompt_tokens": 200000, "input": "6", "output": "22.50", "cache_read": "0.60", "cache_write": "7.50", "cache_write_1h": "12"}],
		"service_tiers": {"batch": {
			"input": "1.50", "output": "7.50", "cache_read": "0.15", "cache_write": "1.875", "cache_write_1h": "3",
			"above": [{"prompt_tokens": 200000, "input": "3", "output": "11.25", "cache_read": "0.30", "cache_write": "3.75", "cache_write_1h": "6"}]
		}}
	},
	"gpt-5": {
		"input": 1.25, "output": 10, "cache_read": 0.125,
		"service_tiers": {
			"flex": {"input": 0.625, "output": 5, "cache_read": 0.0625},
			"priority": {"input": 2.5, "output": 20, "cache_read": 0.25}
		}
	},
	"gpt-4o-audio-preview": {"input": "2.50", "output": "10", "audio_input": "40", "audio_output": "80"},
	"gemini-2.5-pro": {
		"input": "1.25", "output": "10", "cache_read": "0.125",
		"above": [{"prompt_tokens": 200000, "input": "2.50", "output": "15", "cache_read": "0.25"}]
	},
	"dall-e-3": {"images": [
		{"size": "1024x1024", "price": "0.04"}, {"size": "1024x1024", "quality": "hd", "price": "0.08"},
		{"size": "1024x1792", "price": "0.08"}, {"size": "1024x1792", "quality": "hd", "price": "0.12"}
	]},
	"whisper-1": {"audio_minute": "0.006"},
	"tts-1": {"characters": "15"},
	"gpt-4o-mini-tts": {"input": "0.60", "audio_output": "12", "audio_minute": "0.015"},
	"rerank-v3.5": {"search_unit": "0.002"}
}}`

// The same prices as LiteLLM's format writes them, for each token.
const publishedLiteLLM = `{
	"sample_spec": {"input_cost_per_token": 0.0, "mode": "one of: chat, embedding"},
	"claude-sonnet-4-5-20250929": {
		"mode": "chat", "litellm_provider": "anthropic", "max_input_tokens": 200000,
		"input_cost_per_token": 3e-06, "output_cost_per_token": 1.5e-05, "cache_read_input_token_cost": 3e-07,
		"cache_creation_input_token_cost": 3.75e-06, "cache_creation_input_token_cost_above_1hr": 6e-06,
		"input_cost_per_token_above_200k_tokens": 6e-06, "output_cost_per_token_above_200k_tokens": 2.25e-05,
		"cache_read_input_token_cost_above_200k_tokens": 6e-07, "cache_creation_input_token_cost_above_200k_tokens": 7.5e-06,
		"cache_creation_input_token_cost_above_1hr_above_200k_tokens": 1.2e-05,
		"input_cost_per_token_batches": 1.5e-06, "output_cost_per_token_batches": 7.5e-06, "cache_read_input_token_cost_batches": 1.5e-07,
		"cache_creation_input_token_cost_batches": 1.875e-06, "cache_creation_input_token_cost_above_1hr_batches": 3e-06,
		"search_context_cost_per_query": {"search_context_size_low": 0.01}
	},
	"gpt-5": {
		"mode": "chat", "input_cost_per_token": 1.25e-06, "output_cost_per_token": 1e-05, "cache_read_input_token_cost": 1.25e-07,
		"input_cost_per_token_flex": 6.25e-07, "output_cost_per_token_flex": 5e-06, "cache_read_input_token_cost_flex": 6.25e-08,
		"input_cost_per_token_priority": 2.5e-06, "output_cost_per_token_priority": 2e-05, "cache_read_input_token_cost_priority": 2.5e-07
	},
	"gpt-4o-audio-preview": {
		"mode": "chat", "input_cost_per_token": 2.5e-06, "output_cost_per_token": 1e-05,
		"input_cost_per_audio_token": 4e-05, "output_cost_per_audio_token": 8e-05
	},
	"gemini-2.5-pro": {
		"mode": "chat", "input_cost_per_token": 1.25e-06, "output_cost_per_token": 1e-05, "cache_read_input_token_cost": 1.25e-07,
		"input_cost_per_token_above_200k_tokens": 2.5e-06, "output_cost_per_token_above_200k_tokens": 1.5e-05,
		"cache_read_input_token_cost_above_200k_tokens": 2.5e-07
	},
	"standard/1024-x-1024/dall-e-3": {"mode": "image_generation", "input_cost_per_image": 0.04},
	"standard/1024-x-1792/dall-e-3": {"mode": "image_generation", "input_cost_per_image": 0.08},
	"hd/1024-x-1024/dall-e-3": {"mode": "image_generation", "input_cost_per_image": 0.08},
	"hd/1024-x-1792/dall-e-3": {"mode": "image_generation", "input_cost_per_image": 0.12},
	"whisper-1": {"mode": "audio_transcription", "input_cost_per_second": 0.0001, "output_cost_per_second": 0.0001},
	"tts-1": {"mode": "audio_speech", "input_cost_per_character": 1.5e-05},
	"gpt-4o-mini-tts": {
		"mode": "audio_speech", "input_cost_per_token": 6e-07, "output_cost_per_audio_token": 1.2e-05, "output_cost_per_second": 0.00025
	},
	"rerank-v3.5": {"mode": "rerank", "input_cost_per_query": 0.002, "input_cost_per_token": 0.0, "output_cost_per_token": 0.0}
}`

func dollars(t *testing.T, s string) (m llm.Money) {
	if s != "" {
		require.NoError(t, m.UnmarshalText([]byte(s)))
	}
	return m
}

func TestPublishedPrices(t *testing.T) {
	tables := make(map[string]*pricing.Table)
	var err error
	tables["own"], err = pricing.Parse([]byte(published), nil)
	require.NoError(t, err)
	tables["litellm"], err = pricing.ParseLiteLLM([]byte(publishedLiteLLM), nil)
	require.NoError(t, err)
	assert.Empty(t, tables["litellm"].Mistakes())

	const sonnet = "claude-sonnet-4-5-20250929"
	type cost struct{ input, cacheRead, cacheWrite, output, other string }
	for name, test := range map[string]struct {
		record llmhttp.UsageRecord
		want   cost
	}{
		// https://docs.claude.com/en/docs/about-claude/pricing, Claude Sonnet 4.5
		"cache writes": {
			// 10,000 prompt tokens: 4,000 read, 3,000 written, of which 1,000 for an hour, 3,000 others.
			// 3,000 * $3/M = $0.009; 4,000 * $0.30/M = $0.0012;
			// 2,000 * $3.75/M + 1,000 * $6/M = $0.0075 + $0.006 = $0.0135; 500 * $15/M = $0.0075
			llmhttp.UsageRecord{Model: "sonnet", ServedModel: sonnet, Units: llmhttp.Units{
				PromptTokens: 10_000, CachedTokens: 4_000, CacheWriteTokens: 3_000, CacheWrites: llm.CacheWrites{time.Hour: 1_000}, CompletionTokens: 500,
			}},
			cost{input: "0.009", cacheRead: "0.0012", cacheWrite: "0.0135", output: "0.0075"},
		},
		"exactly 200,000 tokens": { // 200,000 * $3/M = $0.6; 1,000 * $15/M = $0.015
			llmhttp.UsageRecord{Model: sonnet, Units: llmhttp.Units{PromptTokens: 200_000, CompletionTokens: 1_000}},
			cost{input: "0.6", output: "0.015"},
		},
		"a long prompt": {
			// 200,001 prompt tokens, so all of it has the higher price: 100,000 * $6/M = $0.6;
			// 100,000 * $0.60/M = $0.06; 1 * $12/M = $0.000012; 1,000 * $22.50/M = $0.0225
			llmhttp.UsageRecord{Model: sonnet, Units: llmhttp.Units{
				PromptTokens: 200_001, CachedTokens: 100_000, CacheWriteTokens: 1, CacheWrites: llm.CacheWrites{time.Hour: 1}, CompletionTokens: 1_000,
			}},
			cost{input: "0.6", cacheRead: "0.06", cacheWrite: "0.000012", output: "0.0225"},
		},
		"batch": { // 1,000 * $1.50/M = $0.0015; 1,000 * $7.50/M = $0.0075; 100 * $1.875/M = $0.0001875
			llmhttp.UsageRecord{Model: sonnet, ServiceTier: "batch", Units: llmhttp.Units{PromptTokens: 1_100, CacheWriteTokens: 100, CompletionTokens: 1_000}},
			cost{input: "0.0015", cacheWrite: "0.0001875", output: "0.0075"},
		},
		// https://platform.openai.com/docs/pricing, gpt-5
		"reasoning": { // 900 * $1.25/M = $0.001125; 100 * $0.125/M = $0.0000125; 2,000 * $10/M = $0.02, reasoning included
			llmhttp.UsageRecord{Model: "gpt-5", ServiceTier: "default", Units: llmhttp.Units{PromptTokens: 1_000, CachedTokens: 100, CompletionTokens: 2_000, ReasoningTokens: 1_500}},
			cost{input: "0.001125", cacheRead: "0.0000125", output: "0.02"},
		},
		"flex": { // 900 * $0.625/M = $0.0005625; 100 * $0.0625/M = $0.00000625; 2,000 * $5/M = $0.01
			llmhttp.UsageRecord{Model: "gpt-5", ServiceTier: "flex", Units: llmhttp.Units{PromptTokens: 1_000, CachedTokens: 100, CompletionTokens: 2_000}},
			cost{input: "0.0005625", cacheRead: "0.00000625", output: "0.01"},
		},
		"priority": { // 900 * $2.50/M = $0.00225; 100 * $0.25/M = $0.000025; 2,000 * $20/M = $0.04
			llmhttp.UsageRecord{Model: "gpt-5", ServiceTier: "priority", Units: llmhttp.Units{PromptTokens: 1_000, CachedTokens: 100, CompletionTokens: 2_000}},
			cost{input: "0.00225", cacheRead: "0.000025", output: "0.04"},
		},
		// https://platform.openai.com/docs/models/gpt-4o-audio-preview
		"audio tokens": {
			// 100 * $2.50/M + 400 * $40/M = $0.00025 + $0.016; 50 * $10/M + 250 * $80/M = $0.0005 + $0.02
			llmhttp.UsageRecord{Model: "gpt-4o-audio-preview", Units: llmhttp.Units{PromptTokens: 500, PromptAudioTokens: 400, CompletionTokens: 300, CompletionAudioTokens: 250}},
			cost{input: "0.01625", output: "0.0205"},
		},
		// https://ai.google.dev/gemini-api/docs/pricing, Gemini 2.5 Pro
		"gemini, short": { // 100,000 * $1.25/M = $0.125; 10 * $10/M = $0.0001
			llmhttp.UsageRecord{Model: "gemini-2.5-pro", Units: llmhttp.Units{PromptTokens: 100_000, CompletionTokens: 10}},
			cost{input: "0.125", output: "0.0001"},
		},
		"gemini, long": { // 250,000 * $2.50/M = $0.625; 50,000 * $0.25/M = $0.0125; 10 * $15/M = $0.00015
			llmhttp.UsageRecord{Model: "gemini-2.5-pro", Units: llmhttp.Units{PromptTokens: 300_000, CachedTokens: 50_000, CompletionTokens: 10}},
			cost{input: "0.625", cacheRead: "0.0125", output: "0.00015"},
		},
		// https://platform.openai.com/docs/pricing, image generation
		"images": { // 2 * $0.08
			llmhttp.UsageRecord{Model: "dall-e-3", Operation: llmhttp.OperationImages, ImageSize: "1024x1792", Units: llmhttp.Units{PromptTokens: 9, Images: 2}},
			cost{output: "0.16"},
		},
		"images in hd": { // 3 * $0.08
			llmhttp.UsageRecord{Model: "dall-e-3", Operation: llmhttp.OperationImages, ImageSize: "1024x1024", ImageQuality: "hd", Units: llmhttp.Units{PromptTokens: 9, Images: 3}},
			cost{output: "0.24"},
		},
		// https://platform.openai.com/docs/pricing, transcription and speech
		"transcription": { // 1.5 seconds * $0.006/60 = $0.00015
			llmhttp.UsageRecord{Model: "whisper-1", Units: llmhttp.Units{AudioMillis: 1_500}},
			cost{output: "0.00015"},
		},
		"speech": { // 40 * $15/M = $0.0006
			llmhttp.UsageRecord{Model: "tts-1", Units: llmhttp.Units{Characters: 40, AudioMillis: 3_000}},
			cost{output: "0.0006"},
		},
		"speech by tokens": { // 14 * $0.60/M = $0.0000084, 101 * $12/M = $0.001212
			llmhttp.UsageRecord{Model: "gpt-4o-mini-tts", Units: llmhttp.Units{PromptTokens: 14, CompletionTokens: 101, CompletionAudioTokens: 101, Characters: 40, AudioMillis: 3_000}},
			cost{input: "0.0000084", output: "0.001212"},
		},
		"speech by its duration": { // 3 seconds * $0.015/60 = $0.00075
			llmhttp.UsageRecord{Model: "gpt-4o-mini-tts", Units: llmhttp.Units{Characters: 40, AudioMillis: 3_000}},
			cost{output: "0.00075"},
		},
		// https://cohere.com/pricing, Rerank 3.5: $2 for 1,000 searches
		"rerank": { // 3 * $0.002
			llmhttp.UsageRecord{Model: "rerank-v3.5", Units: llmhttp.Units{SearchUnits: 3}},
			cost{other: "0.006"},
		},
	} {
		for format, table := range tables {
			t.Run(name+"/"+format, func(t *testing.T) {
				r := test.record
				r.Time = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
				got, err := table.Price(&r)
				require.NoError(t, err)
				assert.Equal(t, llmhttp.Cost{
					Input: dollars(t, test.want.input), CacheRead: dollars(t, test.want.cacheRead), CacheWrite: dollars(t, test.want.cacheWrite),
					Output: dollars(t, test.want.output), Other: dollars(t, test.want.other),
				}, got)
			})
		}
	}
}
