package pricing_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/pricing"
)

func TestParse_Mistakes(t *testing.T) {
	model := func(entry string) string { return `{"models": {"m": ` + entry + `}}` }
	for _, test := range []struct{ doc, want string }{
		{``, "pricing: the prices are not JSON, near byte 0: unexpected EOF"},
		{`{"models": {}} {}`, "pricing: the prices are not JSON, near byte 16: there is more than one value"},
		{`{"models": }`, "pricing: the prices are not JSON, near byte "},
		{"{\"\xff\": 1}", "pricing: the prices are not UTF-8"},
		{strings.Repeat("[", 100), "nested too deep"},
		{`[]`, "pricing: the prices must be an object"},
		{`{"modles": {}}`, `pricing: member "modles": is unknown`},
		{`{"models": {}, "models": {}}`, `pricing: member "models": occurs twice`},
		{`{"models": []}`, `pricing: member "models": must be an object, not an array`},
		{`{"models": {"*": {"input": 1}}}`, `pricing: model "*": is no name of a model; prices of all other models are the member "default"`},
		{`{"models": {"m": {"input": 1}, "m": {"input": 2}}}`, `pricing: model "m": occurs twice`},
		{`{"models": {"a*c": {"input": 1}, "ab*": {"input": 1}}}`, `pricing: model "ab*": is as specific as "a*c", and a name can match both`},
		{model(`3`), `pricing: model "m": must be an object, not a number`},
		{model(`{}`), `pricing: model "m": has no prices`},
		{model(`[]`), `pricing: model "m": has no prices`},
		{model(`{"input": 1, "cache_reed": 1}`), `pricing: model "m": member "cache_reed": is unknown`},
		{model(`{"input": 1, "input": 1}`), `pricing: model "m": member "input": occurs twice`},
		{model(`{"cache_read": null}`), `pricing: model "m": member "cache_read": must be a number, not null`},
		{model(`{"cache_read": true}`), `pricing: model "m": member "cache_read": must be a number, not a boolean`},
		{model(`{"cache_read": "-1"}`), `pricing: model "m": member "cache_read": the number is negative`},
		{model(`{"cache_read": "1,5"}`), `pricing: model "m": member "cache_read": "1,5" is not a decimal number`},
		{model(`{"cache_read": ""}`), `"" is not a decimal number`},
		{model(`{"cache_read": ".5"}`), `".5" is not a decimal number`},
		{model(`{"cache_read": "1e+-2"}`), `"1e+-2" is not a decimal number`},
		{model(`{"cache_read": 1e99}`), `"1e99" is not a decimal number`},
		{model(`{"cache_read": 1e50}`), `pricing: model "m": member "cache_read": the price is too large`},
		{model(`{"cache_read": 1e-25}`), `pricing: model "m": member "cache_read": the number has more than 24 decimal places`},
		{model(`{"audio_second": 1, "audio_hour": 1}`), `pricing: model "m": member "audio_hour": the price of audio is told twice`},
		{model(`{"input": 1, "from": 3}`), `pricing: model "m": member "from": must be a time, not a number`},
		{model(`{"input": 1, "from": "May"}`), `pricing: model "m": member "from": must be a time such as "2026-01-31T12:00:00Z" or a date, not "May"`},
		{model(`[{"input": 1, "from": "2026-01-01"}, {"input": 1, "from": "2026-01-01T01:00:00+01:00"}]`), `pricing: model "m": member "from": two entries begin at the same time`},
		{model(`[{"input": 1}, {"input": "x", "from": "2026-01-01"}]`), `pricing: model "m": member "[1].input": "x" is not a decimal number`},
		{model(`{"input": 1, "above": 3}`), `pricing: model "m": member "above": must be an array, not a number`},
		{model(`{"input": 1, "above": [{"input": 3}]}`), `pricing: model "m": member "above[0].prompt_tokens": must be a number, not null`},
		{model(`{"input": 1, "above": [{"prompt_tokens": 0, "input": 3}]}`), `pricing: model "m": member "above[0].prompt_tokens": the number of tokens must be positive, and not too large`},
		{model(`{"input": 1, "above": [{"prompt_tokens": 9}]}`), `pricing: model "m": member "above[0]": has no prices`},
		{model(`{"input": 1, "above": [{"prompt_tokens": 9, "input": 1}, {"prompt_tokens": 9, "input": 2}]}`), `pricing: model "m": member "above": 9 prompt tokens occur twice`},
		{model(`{"input": 1, "service_tiers": {"flex": {"outputs": 1}}}`), `pricing: model "m": member "service_tiers.flex.outputs": is unknown`},
		{model(`{"input": 1, "service_tiers": {"flex": {"above": [{"prompt_tokens": 9, "output": ""}]}}}`), `pricing: model "m": member "service_tiers.flex.above[0].output": "" is not a decimal number`},
		{model(`{"input": 2, "above": [{"prompt_tokens": 9, "input": 4}], "service_tiers": {"flex": {"input": 1}}}`),
			`pricing: model "m": member "service_tiers.flex.input": needs a price above 9 prompt tokens, as the standard price has one`},
		{model(`{"images": [{"size": "1x1"}]}`), `pricing: model "m": member "images[0].price": is missing`},
		{model(`{"images": [{"sise": "1x1", "price": 1}]}`), `pricing: model "m": member "images[0].sise": is unknown`},
		{model(`{"images": [{"size": "1x1", "price": 1}, {"size": "1x1", "price": 2}]}`), `pricing: model "m": member "images": two prices are for size "1x1" and quality ""`},
		{model(`{"images": [{"size": "1x1", "price": 1}, {"quality": "hd", "price": 2}]}`), `pricing: model "m": member "images": two prices match size "1x1" and quality "hd", which need a price of their own`},
		{`{"default": {"inputs": 1}}`, `pricing: member "default": member "inputs": is unknown`},
		{`{"accounts": {"a": "-0.5"}}`, `pricing: account "a": the number is negative`},
		{`{"accounts": {"a": "0.1234567891"}}`, `pricing: account "a": the number has more than 9 decimal places`},
		{`{"accounts": {"a": 1e7}}`, `pricing: account "a": the factor is too large`},
		{`{"accounts": {"a*": 1, "*a": 2}}`, `pricing: account "a*": is as specific as "*a", and a name can match both`},
		{`{"aliases": {"a": "b"}}`, `pricing: alias "a": the model "b" has no price`},
		{`{"aliases": {"a": 1}}`, `pricing: alias "a": must be the name of a model, not a number`},
		{`{"aliases": {"a*": "b"}}`, `pricing: alias "a*": is no name of a model`},
		{`{"aliases": {"a": "a"}, "models": {"a": {"input": 1}}}`, `pricing: alias "a": is also a model`},
	} {
		_, err := pricing.Parse([]byte(test.doc), nil)
		assert.ErrorContains(t, err, test.want, "%s", test.doc)
	}
}

// All mistakes are told, but not without end.
func TestParse_ManyMistakes(t *testing.T) {
	_, err := pricing.Parse([]byte(`{"models": {"a": {"x": 1}, "b": {"input": ""}}}`), nil)
	for _, want := range []string{`model "a": member "x"`, `model "b": member "input"`} {
		assert.ErrorContains(t, err, want)
	}
	_, err = pricing.Parse([]byte("{"+strings.Repeat(`"x": 1, `, 50)+`"y": 1}`), nil)
	require.Error(t, err)
	assert.Equal(t, 21, strings.Count(err.Error(), "pricing: "))
	assert.ErrorContains(t, err, "more mistakes")
}

func TestOptions_Mistakes(t *testing.T) {
	_, err := pricing.Parse([]byte(`{}`), &pricing.Options{Unknown: 7})
	assert.EqualError(t, err, "pricing: Options.Unknown is 7, which is neither Refuse nor Free")
	_, err = pricing.ParseLiteLLM([]byte(`{}`), &pricing.Options{Unknown: -1})
	assert.ErrorContains(t, err, "Options.Unknown is -1")
}

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "prices.json")
	_, err := pricing.ReadFile(file, nil)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(file, []byte(`{"models": {"m": {"input": "x"}}}`), 0o600))
	_, err = pricing.ReadFile(file, nil)
	require.ErrorContains(t, err, file+`: pricing: model "m"`)
	require.NoError(t, os.WriteFile(file, []byte(`{"m": {"input_cost_per_token": 1e-06}}`), 0o600))
	table, err := pricing.ReadLiteLLMFile(file, nil)
	require.NoError(t, err)
	cost, err := table.Price(&llmhttp.UsageRecord{Model: "m", Units: llmhttp.Units{PromptTokens: 1}})
	require.NoError(t, err)
	assert.EqualValues(t, 1000, cost.Input)
}

// An entry with a mistake does not affect others. The model has no price, and the error says why.
func TestParseLiteLLM_Mistakes(t *testing.T) {
	for _, test := range []struct{ entry, want string }{
		{`3`, `pricing: model "m": must be an object, not a number`},
		{`{"input_cost_per_token": "x"}`, `pricing: model "m": member "input_cost_per_token": "x" is not a decimal number`},
		{`{"input_cost_per_token": -1}`, `pricing: model "m": member "input_cost_per_token": the number is negative`},
		{`{"input_cost_per_token": 1, "output_cost_per_token_flex": {}}`, `pricing: model "m": member "output_cost_per_token_flex": must be a number, not an object`},
		{`{"input_cost_per_token": 1, "input_cost_per_token_above_0k_tokens": 1}`, `pricing: model "m": member "input_cost_per_token_above_0k_tokens": is unknown, and may be a price`},
		{`{"input_cost_per_token": 1, "input_cost_per_token_at_night": 1}`, `pricing: model "m": member "input_cost_per_token_at_night": is unknown, and may be a price`},
		{`{"mode": "chat", "input_cost_per_second": 1}`, `pricing: model "m": member "input_cost_per_second": is a price for the time of a server, which records do not tell`},
		{`{"input_cost_per_token": 1, "input_cost_per_token_flex_flex": 1}`, `pricing: model "m": member "input_cost_per_token_flex_flex": is unknown, and may be a price`},
		{`{"output_cost_per_image_above_0_and_99999_pixels": 1}`, `pricing: model "m": member "output_cost_per_image_above_0_and_99999_pixels": is unknown, and may be a price`},
		{`{"output_cost_per_image_premium_image": "x"}`, `pricing: model "m": member "output_cost_per_image_premium_image": "x" is not a decimal number`},
		{`{"tiered_pricing": {}}`, `pricing: model "m": member "tiered_pricing": must be an array of objects`},
		{`{"tiered_pricing": [{"input_cost_per_query": 1}]}`, `pricing: model "m": member "tiered_pricing": needs a "range" of prompt tokens in each element`},
		{`{"tiered_pricing": [{"input_cost_per_query": 1, "max_results_range": [0, 5]}]}`, `pricing: model "m": member "tiered_pricing": is a price for the number of results, which records do not tell`},
		{`{"tiered_pricing": [{"input_cost_per_token": "x", "range": [0, 5]}]}`, `pricing: model "m": member "tiered_pricing.input_cost_per_token": "x" is not a decimal number`},
		{`{"tiered_pricing": [{"input_cost_per_token": 1, "range": [0, 5]}, {"input_cost_per_token": 1, "range": [0, 5]}]}`, `pricing: model "m": member "tiered_pricing": the elements must be sorted by "range"`},
	} {
		table, err := pricing.ParseLiteLLM([]byte(`{"m": `+test.entry+`, "good": {"input_cost_per_token": 1e-06}}`), nil)
		require.NoError(t, err)
		require.Len(t, table.Mistakes(), 1, test.entry)
		require.EqualError(t, table.Mistakes()[0], test.want)
		units := llmhttp.Units{PromptTokens: 1}
		_, err = table.Price(&llmhttp.UsageRecord{Model: "m", Units: units})
		told, ok := errors.AsType[*llm.Error](err)
		require.True(t, ok)
		assert.Equal(t, 404, told.Status)
		assert.ErrorIs(t, err, table.Mistakes()[0])
		_, err = table.Price(&llmhttp.UsageRecord{Model: "good", Units: units})
		assert.NoError(t, err)
	}
	for _, doc := range []string{``, `[]`, `{}`, `{"models": {}}`, `{"m": {"mode": "chat"}}`} {
		_, err := pricing.ParseLiteLLM([]byte(doc), nil)
		assert.ErrorContains(t, err, "pricing: ", doc)
	}
}
