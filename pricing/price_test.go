package pricing_test

import (
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/imageedit"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/pricing"
)

func parse(t testing.TB, doc string, opts *pricing.Options) *pricing.Table {
	t.Helper()
	table, err := pricing.Parse([]byte(doc), opts)
	require.NoError(t, err)
	return table
}

func parseLiteLLM(t testing.TB, doc string) *pricing.Table {
	t.Helper()
	table, err := pricing.ParseLiteLLM([]byte(doc), nil)
	require.NoError(t, err)
	require.Empty(t, table.Mistakes())
	return table
}

var aToken = llmhttp.Units{PromptTokens: 1}

// The names of models and what they cost in billionths for one prompt token.
func TestPrice_Models(t *testing.T) {
	fallback := parse(t, `{"models": {"old": {"input": 21}, "exact": {"input": 22}, "wild-x": {"input": 23}}, "default": {"input": 24}, "accounts": {"*": 5}}`, nil)
	table := parse(t, `{
		"models": {
			"exact": {"input": 1}, "exa*": {"input": 2}, "exp*t": {"input": 3}, "wild-*": {"input": 4}, "wild-*-mini": {"input": 5}, "UPPER": {"input": 6}
		},
		"aliases": {"short": "exact", "w": "wild-9", "o": "old"}
	}`, &pricing.Options{Fallback: fallback})
	for _, test := range []struct {
		served, model string
		want          llm.Money
	}{
		{"", "exact", 1000},
		{"", "exams", 2000},
		{"", "export", 3000},
		{"", "wild-", 4000},
		{"", "wild-x", 4000}, // the patterns of a Table come before its Fallback
		{"", "wild-7-mini", 5000},
		{"", "UPPER", 6000},
		{"", "upper", 24000},
		{"", "short", 1000},
		{"", "w", 4000},
		{"", "o", 21000},
		{"wild-1", "exact", 4000}, // who served is preferred
		{"unknown", "exact", 1000},
		{"", "old", 21000},
		{"unknown", "unknown", 24000},
	} {
		cost, err := table.Price(&llmhttp.UsageRecord{Model: test.model, ServedModel: test.served, Units: aToken, Account: "a"})
		require.NoError(t, err)
		assert.Equal(t, llmhttp.Cost{Input: test.want}, cost, "%+v", test)
	}

	named := parse(t, `{"models": {"azure/m": {"input": 1}, "m": {"input": 2}}}`, &pricing.Options{Name: func(r *llmhttp.UsageRecord) string {
		if r.Target == "" {
			return ""
		}
		return r.Target + "/" + r.ServedModel
	}})
	for target, want := range map[string]llm.Money{"azure": 1000, "other": 2000, "": 2000} {
		cost, err := named.Price(&llmhttp.UsageRecord{Model: "m", ServedModel: "m", Target: target, Units: aToken})
		require.NoError(t, err)
		assert.Equal(t, want, cost.Input, target)
	}
}

func TestPrice_Unknown(t *testing.T) {
	const doc = `{"models": {"m": {"input": 1}}}`
	r := llmhttp.UsageRecord{Model: "alias", ServedModel: "vendor-model", Units: aToken}
	_, err := parse(t, doc, nil).Price(&r)
	told, ok := errors.AsType[*llm.Error](err)
	require.True(t, ok)
	assert.Equal(t, 404, told.Status)
	assert.Equal(t, "model_not_found", told.Code)
	assert.NotContains(t, told.Message, "vendor-model", "clients do not learn who serves")
	assert.EqualError(t, told.Err, `pricing: model "vendor-model": has no price`)

	cost, err := parse(t, doc, &pricing.Options{Unknown: pricing.Free}).Price(&r)
	require.NoError(t, err)
	assert.Zero(t, cost)

	cost, err = parse(t, `{"default": {"input": 7}}`, nil).Price(&r)
	require.NoError(t, err)
	assert.Equal(t, llmhttp.Cost{Input: 7000}, cost)

	r.Units = llmhttp.Units{}
	cost, err = parse(t, doc, nil).Price(&r)
	assert.NoError(t, err, "a record without units costs nothing")
	assert.Zero(t, cost)
}

func TestPrice_From(t *testing.T) {
	table := parse(t, `{"models": {"m": [
		{"from": "2026-07-01T02:00:00+02:00", "input": 3}, {"from": "2026-01-01", "input": 1}, {"from": "2026-03-01", "input": 2}
	]}}`, nil)
	for at, want := range map[string]llm.Money{
		"2026-01-01T00:00:00Z": 1000, "2026-02-28T23:59:59Z": 1000, "2026-03-01T00:00:00Z": 2000, "2026-06-30T23:59:59.999999999Z": 2000, "2026-07-01T00:00:00Z": 3000,
		"2026-07-01T01:00:00+02:00": 2000,
	} {
		tm, err := time.Parse(time.RFC3339Nano, at)
		require.NoError(t, err)
		cost, err := table.Price(&llmhttp.UsageRecord{Model: "m", Time: tm, Units: aToken})
		require.NoError(t, err)
		assert.Equal(t, want, cost.Input, at)
	}
	_, err := table.Price(&llmhttp.UsageRecord{Model: "m", Time: time.Date(2025, 12, 31, 0, 0, 0, 0, time.UTC), Units: aToken})
	assert.ErrorContains(t, err, `pricing: model "m": has no price at the time of the request`)
}

func TestPrice_Accounts(t *testing.T) {
	table := parse(t, `{"models": {"m": {"input": "0.001", "output": 1, "request": "0.000001"}}, "accounts": {"acme": "0.9", "free": 0, "eu-*": "1.333333333", "*": "1.5"}}`, nil)
	for account, want := range map[string]llmhttp.Cost{
		"acme":  {Input: 1, Output: 900, Other: 900}, // 1 * 0.9 is rounded up
		"free":  {},
		"eu-1":  {Input: 1, Output: 1333, Other: 1333},
		"other": {Input: 2, Output: 1500, Other: 1500}, // 1.5 is rounded up
	} {
		cost, err := table.Price(&llmhttp.UsageRecord{Model: "m", Account: account, Units: llmhttp.Units{PromptTokens: 1, CompletionTokens: 1}})
		require.NoError(t, err)
		assert.Equal(t, want, cost, account)
	}
}

// Which units are billed, in units of the currency for a million of each.
func TestPrice_Units(t *testing.T) {
	const (
		tokens = `{"input": 1, "output": 2}`
		all    = `{"input": 1, "cache_read": 10, "cache_write": 100, "cache_write_1h": 1000, "audio_input": 10000, "image_input": 100000,
			"output": 1, "reasoning": 10, "audio_output": 100}`
		pictures = `{"input": 1, "output": 2, "image_output": 3, "image": "0.000004"}`
		audio    = `{"input": 1, "output": 2, "audio_second": "0.000001", "characters": 5}`
	)
	const images = llmhttp.OperationImages
	for name, test := range map[string]struct {
		model string
		op    llmhttp.Operation
		units llmhttp.Units
		want  llmhttp.Cost // in thousands
		err   string
	}{
		"defaults": {model: tokens,
			units: llmhttp.Units{PromptTokens: 9, CachedTokens: 1, CacheWriteTokens: 3, CacheWrites: llm.CacheWrites{time.Hour: 1}, PromptAudioTokens: 1, PromptImageTokens: 1, CompletionTokens: 4, ReasoningTokens: 1, CompletionAudioTokens: 1},
			want:  llmhttp.Cost{Input: 5, CacheRead: 1, CacheWrite: 3, Output: 8}},
		"all": {model: all,
			units: llmhttp.Units{PromptTokens: 9, CachedTokens: 1, CacheWriteTokens: 3, CacheWrites: llm.CacheWrites{time.Hour: 1}, PromptAudioTokens: 1, PromptImageTokens: 1, CompletionTokens: 4, ReasoningTokens: 1, CompletionAudioTokens: 1},
			want:  llmhttp.Cost{Input: 110_003, CacheRead: 10, CacheWrite: 1200, Output: 112}},
		"1h like other writes": {model: `{"input": 1, "cache_write": 2}`, units: llmhttp.Units{PromptTokens: 2, CacheWriteTokens: 2, CacheWrites: llm.CacheWrites{time.Hour: 1}}, want: llmhttp.Cost{CacheWrite: 4}},
		"audio that was cached": {model: all, units: llmhttp.Units{PromptTokens: 10, CachedTokens: 8, PromptAudioTokens: 10},
			want: llmhttp.Cost{Input: 20_000, CacheRead: 80}},
		"more cached than there is": {model: all, units: llmhttp.Units{PromptTokens: 2, CachedTokens: 5, CacheWriteTokens: 5, CacheWrites: llm.CacheWrites{time.Hour: 5}, PromptAudioTokens: 5}, want: llmhttp.Cost{CacheRead: 20}},
		"more written for an hour":  {model: all, units: llmhttp.Units{PromptTokens: 2, CacheWriteTokens: 2, CacheWrites: llm.CacheWrites{time.Hour: 5}}, want: llmhttp.Cost{CacheWrite: 2000}},
		"more reasoning":            {model: all, units: llmhttp.Units{CompletionTokens: 2, ReasoningTokens: 5, CompletionAudioTokens: 5}, want: llmhttp.Cost{Output: 20}},
		"negative":                  {model: all, units: llmhttp.Units{PromptTokens: 2, CachedTokens: -5, PromptAudioTokens: -1}, want: llmhttp.Cost{Input: 2}},
		"no output":                 {model: `{"input": 1}`, units: llmhttp.Units{PromptTokens: 1, CompletionTokens: 1}, err: "has no price for completion tokens"},
		"no input":                  {model: `{"output": 1}`, units: llmhttp.Units{PromptTokens: 1, CompletionTokens: 1}, err: "has no price for prompt tokens"},
		"free output":               {model: `{"input": 1, "output": 0}`, units: llmhttp.Units{PromptTokens: 1, CompletionTokens: 1}, want: llmhttp.Cost{Input: 1}},
		"no characters":             {model: tokens, units: llmhttp.Units{Characters: 1}, err: "has no price for what the request used"},
		"by the request":            {model: `{"request": "0.000001"}`, units: llmhttp.Units{PromptTokens: 5, CompletionTokens: 1}, want: llmhttp.Cost{Other: 1}},
		"request and tokens":        {model: `{"request": "0.000001", "output": 1}`, units: llmhttp.Units{PromptTokens: 5, CompletionTokens: 1}, want: llmhttp.Cost{Other: 1, Output: 1}},
		"images by tokens":          {model: pictures, op: images, units: llmhttp.Units{PromptTokens: 1, CompletionTokens: 7, Images: 2}, want: llmhttp.Cost{Input: 1, Output: 21}},
		"images without tokens":     {model: pictures, op: images, units: llmhttp.Units{PromptTokens: 1, Images: 2}, want: llmhttp.Cost{Input: 1, Output: 8}},
		"images in a chat":          {model: pictures, op: "chat", units: llmhttp.Units{CompletionTokens: 7, Images: 2}, want: llmhttp.Cost{Output: 22}},
		"text of a model of images": {model: pictures, op: "chat", units: llmhttp.Units{CompletionTokens: 7}, want: llmhttp.Cost{Output: 14}},
		"images instead of tokens":  {model: `{"output": 2, "image": 1}`, op: images, units: llmhttp.Units{CompletionTokens: 7, Images: 1}, want: llmhttp.Cost{Output: 1e6}},
		"tokens for images":         {model: tokens, op: images, units: llmhttp.Units{CompletionTokens: 7, Images: 1}, want: llmhttp.Cost{Output: 14}},
		"images of unknown tokens":  {model: `{"input": 1, "image_output": 2}`, op: images, units: llmhttp.Units{PromptTokens: 1, Images: 1}, err: "has no price for images of this size and quality"},
		"audio by characters":       {model: audio, units: llmhttp.Units{PromptTokens: 1, AudioMillis: 9000, Characters: 2}, want: llmhttp.Cost{Input: 1, Output: 10}},
		"audio by tokens":           {model: audio, units: llmhttp.Units{AudioMillis: 9000, CompletionTokens: 2}, want: llmhttp.Cost{Output: 4}},
		"audio by duration":         {model: audio, units: llmhttp.Units{PromptTokens: 1, AudioMillis: 9000}, want: llmhttp.Cost{Input: 1, Output: 9}},
		"duration, images, output":  {model: `{"audio_hour": "0.0036", "image": "0.000002"}`, units: llmhttp.Units{AudioMillis: 9000, CompletionTokens: 3, Images: 1}, want: llmhttp.Cost{Output: 11}},
	} {
		t.Run(name, func(t *testing.T) {
			cost, err := parse(t, `{"models": {"m": `+test.model+`}}`, nil).Price(&llmhttp.UsageRecord{Model: "m", Operation: test.op, Units: test.units})
			if test.err != "" {
				require.ErrorContains(t, err, `pricing: model "m": `+test.err)
				return
			}
			require.NoError(t, err)
			for _, m := range cost.All() {
				assert.Zero(t, *m%1000)
				*m /= 1000
			}
			assert.Equal(t, test.want, cost)
		})
	}
}

// A further part of a request does not cost the price of a request again.
func TestPrice_Parts(t *testing.T) {
	table := parse(t, `{"models": {"m": {"request": 1, "input": 1}}}`, nil)
	cost, err := table.Price(&llmhttp.UsageRecord{Model: "m", Part: 1, Units: aToken})
	require.NoError(t, err)
	assert.Equal(t, llmhttp.Cost{Input: 1000}, cost)
}

func TestPrice_Images(t *testing.T) {
	table := parse(t, `{"models": {"m": {"image": 1, "images": [
		{"size": "1x1", "price": 2}, {"quality": "hd", "price": 3}, {"size": "1x1", "quality": "hd", "price": 4}, {"quality": "auto", "size": "2x2", "price": 5}
	], "service_tiers": {"batch": {"images": [{"size": "1x1", "price": 6}]}}}, "n": {"images": [{"size": "1x1", "price": 2}]}}}`, nil)
	for _, test := range []struct {
		model, tier, size, quality string
		want                       int64
	}{
		{"m", "", "1x1", "", 2},
		{"m", "", "1x1", "low", 2},
		{"m", "", "1x1", "hd", 4},
		{"m", "", "9x9", "hd", 3},
		{"m", "", "9x9", "low", 1},
		{"m", "", "2x2", "", 5},
		{"m", "", "2x2", "low", 1},
		{"m", "", "", "", 1},
		{"m", "batch", "1x1", "hd", 6},
		{"m", "batch", "2x2", "", 1},
	} {
		cost, err := table.Price(&llmhttp.UsageRecord{Model: test.model, ServiceTier: test.tier, ImageSize: test.size, ImageQuality: test.quality, Operation: llmhttp.OperationImages, Units: llmhttp.Units{Images: 1}})
		require.NoError(t, err)
		assert.Equal(t, llmhttp.Cost{Output: llm.MoneyUnit * llm.Money(test.want)}, cost, "%+v", test)
	}
	_, err := table.Price(&llmhttp.UsageRecord{Model: "n", ImageSize: "2x2", Units: llmhttp.Units{Images: 1}})
	told, ok := errors.AsType[*llm.Error](err)
	require.True(t, ok)
	assert.Equal(t, 400, told.Status)
	assert.Equal(t, "size", told.Param)
}

// Prices of tiers and of long prompts that are not given.
func TestPrice_Inherited(t *testing.T) {
	table := parse(t, `{"models": {"m": {
		"input": 1, "output": 2, "reasoning": 3,
		"above": [{"prompt_tokens": 20, "output": 20}, {"prompt_tokens": 10, "output": 10}, {"prompt_tokens": 30, "reasoning": 30}],
		"service_tiers": {"flex": {"input": "0.5", "above": [{"prompt_tokens": 20, "input": "0.25"}]}}
	}}}`, nil)
	for _, test := range []struct {
		tier               string
		prompt             int64
		input, output, why llm.Money // for one token, in thousands and 4 decimal places
	}{
		{"", 10, 10_000, 2_000, 3_000},
		{"", 11, 11_000, 10_000, 3_000},
		{"", 21, 21_000, 20_000, 3_000},
		{"", 31, 31_000, 20_000, 30_000},
		{"default", 31, 31_000, 20_000, 30_000},
		{"flex", 10, 5_000, 2_000, 3_000},
		{"flex", 20, 10_000, 10_000, 3_000},
		{"flex", 40, 10_000, 20_000, 30_000},
	} {
		r := llmhttp.UsageRecord{Model: "m", ServiceTier: test.tier, Units: llmhttp.Units{PromptTokens: test.prompt, CompletionTokens: 2, ReasoningTokens: 1}}
		cost, err := table.Price(&r)
		require.NoError(t, err)
		assert.Equal(t, llmhttp.Cost{Input: test.input, Output: test.output + test.why}, cost, "%+v", test)
	}
}

func TestParseLiteLLM(t *testing.T) {
	table := parseLiteLLM(t, `{
		"tiered": {"tiered_pricing": [
			{"range": [0, 32000.0], "input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06, "cache_read_input_token_cost": 5e-07},
			{"range": [32000.0, 1e5], "input_cost_per_token": 3e-06, "output_cost_per_token": 4e-06}
		], "output_cost_per_reasoning_token": 9e-06},
		"hit": {"input_cost_per_token": 1e-06, "input_cost_per_token_cache_hit": 1e-07, "output_cost_per_token": null},
		"long": {"input_cost_per_token": 1e-06, "input_cost_per_token_flex": 5e-07, "input_cost_per_token_above_128k_tokens": 2e-06,
			"input_cost_per_token_above_272k_tokens": 4e-06, "input_cost_per_token_above_272k_tokens_flex": 3e-06},
		"azure/hd/1024-x-1792/paint": {"mode": "image_generation", "input_cost_per_pixel": 6.539e-08, "output_cost_per_token": 0.0},
		"medium/1024-x-1024/draw": {"mode": "image_generation", "input_cost_per_image": 0.042, "input_cost_per_pixel": 1e-08},
		"draw": {"mode": "image_generation", "input_cost_per_token": 5e-06, "output_cost_per_image_token": 4e-05},
		"512-x-512/50-steps/stable": {"mode": "image_generation", "output_cost_per_image": 0.018},
		"both": {"mode": "image_generation", "input_cost_per_image": 0.001, "output_cost_per_image": 0.05, "output_cost_per_token": 1e-06, "output_cost_per_image_token": 9e-06},
		"vision": {"mode": "chat", "input_cost_per_image": 0.5, "input_cost_per_token": 1e-06, "input_cost_per_token_at_night": 0.0},
		"speech": {"mode": "audio_transcription", "input_cost_per_second": 0.0, "output_cost_per_second": 2.77778e-05},
		"free": {"input_cost_per_token": 0, "output_cost_per_token": 0.0},
		"listed": {"mode": "chat", "max_tokens": 4096}
	}`)
	const images = llmhttp.OperationImages
	for name, test := range map[string]struct {
		record llmhttp.UsageRecord
		want   llmhttp.Cost
		err    string
	}{
		"first tier":      {record: llmhttp.UsageRecord{Model: "tiered", Units: llmhttp.Units{PromptTokens: 32_000, CachedTokens: 1000, CompletionTokens: 2, ReasoningTokens: 1}}, want: llmhttp.Cost{Input: 31e6, CacheRead: 500e3, Output: 11_000}},
		"second tier":     {record: llmhttp.UsageRecord{Model: "tiered", Units: llmhttp.Units{PromptTokens: 32_001, CachedTokens: 1, CompletionTokens: 1}}, want: llmhttp.Cost{Input: 96e6, CacheRead: 3000, Output: 4000}},
		"above all tiers": {record: llmhttp.UsageRecord{Model: "tiered", Units: llmhttp.Units{PromptTokens: 1e6}}, want: llmhttp.Cost{Input: 3e9}},
		"cache hit":       {record: llmhttp.UsageRecord{Model: "hit", Units: llmhttp.Units{PromptTokens: 1, CachedTokens: 1}}, want: llmhttp.Cost{CacheRead: 100}},
		"null":            {record: llmhttp.UsageRecord{Model: "hit", Units: llmhttp.Units{CompletionTokens: 1}}, err: `pricing: model "hit": has no price for completion tokens`},
		"flex":            {record: llmhttp.UsageRecord{Model: "long", ServiceTier: "flex", Units: llmhttp.Units{PromptTokens: 128_000}}, want: llmhttp.Cost{Input: 64e6}},
		"long flex":       {record: llmhttp.UsageRecord{Model: "long", ServiceTier: "flex", Units: llmhttp.Units{PromptTokens: 200_000}}, want: llmhttp.Cost{Input: 400e6}},
		"longest flex":    {record: llmhttp.UsageRecord{Model: "long", ServiceTier: "flex", Units: llmhttp.Units{PromptTokens: 300_000}}, want: llmhttp.Cost{Input: 900e6}},
		// 6.539e-08 * 1024 * 1792 = 0.11999117312; 0.119991173 rounded
		"pixels":             {record: llmhttp.UsageRecord{Model: "azure/paint", ImageSize: "1024x1792", ImageQuality: "hd", Operation: images, Units: llmhttp.Units{Images: 1}}, want: llmhttp.Cost{Output: 119_991_173}},
		"other quality":      {record: llmhttp.UsageRecord{Model: "azure/paint", ImageSize: "1024x1792", Operation: images, Units: llmhttp.Units{Images: 1}}, err: "has no price for images of this size and quality"},
		"images of a size":   {record: llmhttp.UsageRecord{Model: "draw", ImageSize: "1024x1024", ImageQuality: "medium", Operation: images, Units: llmhttp.Units{PromptTokens: 2, Images: 2}}, want: llmhttp.Cost{Input: 10_000, Output: 84e6}},
		"edits of a size":    {record: llmhttp.UsageRecord{Model: "draw", ImageSize: "1024x1024", ImageQuality: "medium", Operation: imageedit.Operation, Units: llmhttp.Units{PromptTokens: 2, Images: 2}}, want: llmhttp.Cost{Input: 10_000, Output: 84e6}},
		"edits by tokens":    {record: llmhttp.UsageRecord{Model: "draw", Operation: imageedit.Operation, Units: llmhttp.Units{PromptTokens: 2, CompletionTokens: 10, Images: 2}}, want: llmhttp.Cost{Input: 10_000, Output: 400_000}},
		"images by tokens":   {record: llmhttp.UsageRecord{Model: "draw", ImageSize: "1024x1024", ImageQuality: "medium", Operation: images, Units: llmhttp.Units{PromptTokens: 2, CompletionTokens: 10, Images: 2}}, want: llmhttp.Cost{Input: 10_000, Output: 400_000}},
		"steps":              {record: llmhttp.UsageRecord{Model: "512-x-512/50-steps/stable", Operation: images, Units: llmhttp.Units{Images: 1}}, want: llmhttp.Cost{Output: 18e6}},
		"steps of a model":   {record: llmhttp.UsageRecord{Model: "stable", Operation: images, Units: llmhttp.Units{Images: 1}}, err: `pricing: model "stable": has no price`},
		"image":              {record: llmhttp.UsageRecord{Model: "both", Operation: images, Units: llmhttp.Units{Images: 1}}, want: llmhttp.Cost{Output: 50e6}},
		"chat with pictures": {record: llmhttp.UsageRecord{Model: "both", Operation: "chat", Units: llmhttp.Units{CompletionTokens: 1}}, err: `pricing: model "both": member "output_cost_per_image_token": has a price for`},
		"images that are sent": {record: llmhttp.UsageRecord{Model: "vision", Units: llmhttp.Units{PromptTokens: 2, PromptImageTokens: 1}},
			want: llmhttp.Cost{Input: 2000}},
		"seconds":   {record: llmhttp.UsageRecord{Model: "speech", Units: llmhttp.Units{AudioMillis: 1000}}, want: llmhttp.Cost{Output: 27_778}}, // 27,777.8
		"free":      {record: llmhttp.UsageRecord{Model: "free", Units: llmhttp.Units{PromptTokens: 2, CompletionTokens: 1}}},
		"no prices": {record: llmhttp.UsageRecord{Model: "listed", Units: llmhttp.Units{PromptTokens: 2}}, err: `pricing: model "listed": has no price`},
		"sample":    {record: llmhttp.UsageRecord{Model: "sample_spec", Units: llmhttp.Units{PromptTokens: 2}}, err: "has no price"},
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

// Prices below a billionth for each token are exact: each part is rounded once.
func TestPrice_Rounding(t *testing.T) {
	table := parse(t, `{"models": {
		"tiny": {"input": "0.000000000000000000000001", "cache_read": "0.00049999999999999999", "cache_write": 5e-4},
		"huge": {"input": 1e14}
	}}`, nil)
	for _, test := range []struct {
		model string
		units llmhttp.Units
		want  llmhttp.Cost
	}{
		{"tiny", llmhttp.Units{PromptTokens: 1}, llmhttp.Cost{}},
		{"tiny", llmhttp.Units{PromptTokens: 1, CachedTokens: 1}, llmhttp.Cost{}},
		{"tiny", llmhttp.Units{PromptTokens: 1, CacheWriteTokens: 1}, llmhttp.Cost{CacheWrite: 1}},
		{"tiny", llmhttp.Units{PromptTokens: 3, CacheWriteTokens: 3}, llmhttp.Cost{CacheWrite: 2}},
		{"tiny", llmhttp.Units{PromptTokens: math.MaxInt64, CachedTokens: math.MaxInt64}, llmhttp.Cost{CacheRead: 4_611_686_018_427_387_811}},
		{"huge", llmhttp.Units{PromptTokens: 92}, llmhttp.Cost{Input: 9_200_000_000 * llm.MoneyUnit}},
		{"huge", llmhttp.Units{PromptTokens: math.MaxInt64}, llmhttp.Cost{Input: math.MaxInt64}},
	} {
		cost, err := table.Price(&llmhttp.UsageRecord{Model: test.model, Units: test.units})
		require.NoError(t, err)
		assert.Equal(t, test.want, cost, "%+v", test.units)
	}
}

// The sums and roundings are those of exact arithmetic.
func TestPrice_Exact(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	decimal := func(digits int) string {
		b := []byte("0.")
		for range 1 + random.IntN(digits) {
			b = append(b, byte('0'+random.IntN(10)))
		}
		return string(b)
	}
	for range 500 {
		input, audio, f := decimal(24), decimal(24), decimal(9)
		table := parse(t, `{"models": {"m": {"input": "`+input+`", "audio_input": "`+audio+`", "output": 0, "audio_hour": "`+input+`", "image": "`+audio+`"}}, "accounts": {"*": "`+f+`"}}`, nil)
		u := llmhttp.Units{PromptTokens: random.Int64N(1 << random.IntN(40)), AudioMillis: random.Int64N(1 << random.IntN(40)), Images: random.Int64N(9)}
		u.PromptAudioTokens = random.Int64N(u.PromptTokens + 1)
		if u.IsZero() {
			continue
		}
		cost, err := table.Price(&llmhttp.UsageRecord{Model: "m", Units: u})
		require.NoError(t, err)
		times := func(price string, n, per int64) *big.Rat {
			r, _ := new(big.Rat).SetString(price)
			fr, _ := new(big.Rat).SetString(f)
			return r.Mul(r.Mul(r, fr), big.NewRat(n, per))
		}
		exact := func(a, b *big.Rat) llm.Money {
			a.Mul(a.Add(a, b), big.NewRat(1e9, 1))
			a.Add(a, big.NewRat(1, 2))
			return llm.Money(new(big.Int).Quo(a.Num(), a.Denom()).Int64())
		}
		require.Equal(t, exact(times(input, u.PromptTokens-u.PromptAudioTokens, 1e6), times(audio, u.PromptAudioTokens, 1e6)), cost.Input)
		require.Equal(t, exact(times(input, u.AudioMillis, 3_600_000), times(audio, u.Images, 1)), cost.Output)
	}
}

// A lifetime of a cache has the price of the longest one that is not longer, or else that of all.
func TestPrice_CacheWrites(t *testing.T) {
	const m, h = time.Minute, time.Hour
	table := parse(t, `{"models": {"m": {
		"input": 1000, "cache_write": 1, "cache_write_30m": 10, "cache_write_1h": 100, "cache_write_12h": 1000,
		"above": [{"prompt_tokens": 100, "cache_write_1h": 200}],
		"service_tiers": {"batch": {"cache_write_12h": 500, "cache_write_1h": 50, "above": [{"prompt_tokens": 100, "cache_write_1h": 70}]}}
	}}}`, nil)
	for name, test := range map[string]struct {
		writes       llm.CacheWrites
		tier         string
		prompt, want int64 // 9 tokens are written
	}{
		"unknown":             {nil, "", 9, 9},
		"each":                {llm.CacheWrites{5 * m: 2, 30 * m: 2, h: 2, 12 * h: 3}, "", 9, 2 + 20 + 200 + 3000},
		"some":                {llm.CacheWrites{30 * m: 2, h: 2}, "", 9, 5 + 20 + 200},
		"between":             {llm.CacheWrites{29 * m: 1, 59 * m: 1, 11 * h: 1, 24 * h: 1}, "", 9, 5 + 1 + 10 + 100 + 1000},
		"more than there are": {llm.CacheWrites{30 * m: 8, 12 * h: 8}, "", 9, 8000 + 10},
		"a long prompt":       {llm.CacheWrites{h: 1, 12 * h: 1}, "", 101, 7 + 200 + 1000 + 92*1000},
		"a tier":              {llm.CacheWrites{30 * m: 1, h: 1, 12 * h: 1}, "batch", 9, 6 + 10 + 50 + 500},
		"a long one of it":    {llm.CacheWrites{h: 9}, "batch", 101, 9*70 + 92*1000},
	} {
		t.Run(name, func(t *testing.T) {
			cost, err := table.Price(&llmhttp.UsageRecord{Model: "m", ServiceTier: test.tier, Units: llmhttp.Units{
				PromptTokens: test.prompt, CacheWriteTokens: 9, CacheWrites: test.writes,
			}})
			require.NoError(t, err)
			assert.EqualValues(t, test.want*1000, cost.Total())
		})
	}
}

// Costs are not negative, more units do not cost less, and the cost of a sum is that of its
// parts except for rounding.
func TestPrice_Properties(t *testing.T) {
	table := parse(t, `{"models": {"m": {
		"input": "0.3331", "cache_read": "0.0333", "cache_write": "0.41", "cache_write_1h": "0.7", "audio_input": "1.1", "image_input": "0.9",
		"output": "1.7", "reasoning": "1.9", "audio_output": "3", "image": "0.0001", "search_unit": "0.00000001"
	}}}`, nil)
	random := rand.New(rand.NewPCG(3, 4))
	units := func() (u llmhttp.Units) {
		for name, n := range u.All() {
			if name != "audio_millis" && name != "characters" {
				*n = random.Int64N(1000)
			}
		}
		// The kinds fit, so that the sum of two records has the kinds of both.
		u.PromptTokens += u.CachedTokens + u.CacheWriteTokens + u.PromptAudioTokens + u.PromptImageTokens
		u.CompletionTokens += u.ReasoningTokens + u.CompletionAudioTokens
		u.CacheWrites = llm.CacheWrites{time.Hour: random.Int64N(u.CacheWriteTokens + 1)}
		return u
	}
	price := func(u llmhttp.Units) llmhttp.Cost {
		cost, err := table.Price(&llmhttp.UsageRecord{Model: "m", Units: u})
		require.NoError(t, err)
		return cost
	}
	for range 300 {
		a, b := units(), units()
		sum := a
		sum.Add(b)
		costA, costB, both := price(a), price(b), price(sum)
		added := costA
		added.Add(costB)
		for part, m := range both.All() {
			for other, n := range added.All() {
				if part == other {
					assert.InDelta(t, int64(*n), int64(*m), 1, part)
				}
			}
			assert.GreaterOrEqual(t, *m, llm.Money(0))
		}
		for name, n := range a.All() {
			switch name {
			case "prompt_tokens", "completion_tokens", "images", "search_units":
				*n++
				assert.GreaterOrEqual(t, price(a).Total(), costA.Total(), name)
				*n--
			}
		}
	}
}

func TestPrice_Allocations(t *testing.T) {
	table := parse(t, published, nil)
	for _, r := range []llmhttp.UsageRecord{
		{Model: "gpt-5", ServedModel: "gpt-5", ServiceTier: "flex", Account: "a", Units: llmhttp.Units{PromptTokens: 1000, CachedTokens: 10, CompletionTokens: 9}},
		{Model: "sonnet", ServedModel: "claude-sonnet-4-5-1", Units: llmhttp.Units{PromptTokens: 1000}},
	} {
		assert.Zero(t, testing.AllocsPerRun(100, func() { _, _ = table.Price(&r) }), r.Model)
	}
}

func BenchmarkPrice(b *testing.B) {
	table := parse(b, published, nil)
	units := llmhttp.Units{PromptTokens: 12_345, CachedTokens: 10_000, CacheWriteTokens: 1000, CompletionTokens: 678, ReasoningTokens: 99}
	for name, model := range map[string]string{"exact": "gpt-5", "pattern": "claude-sonnet-4-5-20250929"} {
		b.Run(name, func(b *testing.B) {
			r := llmhttp.UsageRecord{Model: model, Account: "a", Units: units}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := table.Price(&r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
