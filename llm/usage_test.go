package llm_test

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"testing"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/stretchr/testify/assert"
)

// eachCount calls f for each number in a Usage, at every depth.
func eachCount(v reflect.Value, path string, f func(path string, n reflect.Value)) {
	switch v.Kind() {
	case reflect.Int, reflect.Int64, reflect.Float64:
		f(path, v)
	case reflect.Struct:
		for i := range v.NumField() {
			eachCount(v.Field(i), path+"."+v.Type().Field(i).Name, f)
		}
	}
}

// Add adds each number, also a new one, and none twice.
func TestUsage_AddEachCount(t *testing.T) {
	next := 0
	newUsage := func() (u llm.Usage) {
		eachCount(reflect.ValueOf(&u).Elem(), "", func(_ string, n reflect.Value) { next++; n.SetInt(int64(next * next)) })
		return u
	}
	sum, other := newUsage(), newUsage()
	before, added := map[string]int64{}, other
	eachCount(reflect.ValueOf(sum), "", func(path string, n reflect.Value) { before[path] += n.Int() })
	eachCount(reflect.ValueOf(other), "", func(path string, n reflect.Value) { before[path] += n.Int() })
	sum.Add(&other)
	eachCount(reflect.ValueOf(sum), "", func(path string, n reflect.Value) { assert.Equal(t, before[path], n.Int(), path) })
	assert.Equal(t, added, other)
	assert.GreaterOrEqual(t, len(before), 8)
}

func TestUsage_Add(t *testing.T) {
	cost := llm.Extra{"cost": json.RawMessage("1")}
	for name, test := range map[string]struct{ u, other, want llm.Usage }{
		"no totals":        {llm.Usage{PromptTokens: 1, CompletionTokens: 2}, llm.Usage{PromptTokens: 3}, llm.Usage{PromptTokens: 4, CompletionTokens: 2}},
		"one total":        {llm.Usage{PromptTokens: 1, CompletionTokens: 2, TotalTokens: 10}, llm.Usage{PromptTokens: 3}, llm.Usage{PromptTokens: 4, CompletionTokens: 2, TotalTokens: 13}},
		"the other total":  {llm.Usage{PromptTokens: 1, CompletionTokens: 2}, llm.Usage{TotalTokens: 10}, llm.Usage{PromptTokens: 1, CompletionTokens: 2, TotalTokens: 13}},
		"too much":         {llm.Usage{PromptTokens: math.MaxInt - 1}, llm.Usage{PromptTokens: 2, CompletionTokens: 1}, llm.Usage{PromptTokens: math.MaxInt, CompletionTokens: 1}},
		"too large totals": {llm.Usage{TotalTokens: math.MaxInt}, llm.Usage{TotalTokens: math.MaxInt}, llm.Usage{TotalTokens: math.MaxInt}},
		"negative":         {llm.Usage{PromptTokens: -5, CompletionTokens: 1}, llm.Usage{PromptTokens: 2, CompletionTokens: -7}, llm.Usage{PromptTokens: 2, CompletionTokens: 1}},
		"Extra":            {llm.Usage{Extra: cost}, llm.Usage{PromptTokens: 1, Extra: llm.Extra{"cost": json.RawMessage("2"), "x": nil}}, llm.Usage{PromptTokens: 1, Extra: cost}},
	} {
		t.Run(name, func(t *testing.T) {
			got := test.u
			got.Add(&test.other)
			assert.Equal(t, test.want, got)
		})
	}
	u := llm.Usage{PromptTokens: 1, TotalTokens: 3}
	u.Add(nil)
	assert.Equal(t, llm.Usage{PromptTokens: 1, TotalTokens: 3}, u, "nil adds nothing")
	u.Add(&u)
	assert.Equal(t, llm.Usage{PromptTokens: 2, TotalTokens: 6}, u, "a usage can be added to itself")
	huge := llm.Usage{PromptTokens: math.MaxInt, CompletionTokens: math.MaxInt}
	assert.Contains(t, encode(t, huge), fmt.Sprintf(`"total_tokens":%d`, math.MaxInt))
}

// The details of a prompt for images are numbers of the Usage. Clients get them with the tokens of text, which they expect.
func TestUsage_Images(t *testing.T) {
	for doc, want := range map[string]struct {
		usage   llm.Usage
		encoded string
	}{
		`{"input_tokens":50,"output_tokens":40,"input_tokens_details":{"image_tokens":40,"text_tokens":10}}`: {
			llm.Usage{PromptTokens: 50, CompletionTokens: 40, PromptTokensDetails: llm.PromptTokensDetails{ImageTokens: 40, Extra: llm.Extra{"text_tokens": json.RawMessage("10")}}},
			`{"input_tokens":50,"output_tokens":40,"total_tokens":90,"input_tokens_details":{"text_tokens":10,"image_tokens":40}}`,
		},
		`{"input_tokens":50,"output_tokens":40,"input_tokens_details":{"image_tokens":40,"cached_tokens":5}}`: {
			llm.Usage{PromptTokens: 50, CompletionTokens: 40, PromptTokensDetails: llm.PromptTokensDetails{ImageTokens: 40, CachedTokens: 5}},
			`{"input_tokens":50,"output_tokens":40,"total_tokens":90,"input_tokens_details":{"text_tokens":10,"image_tokens":40,"cached_tokens":5}}`,
		},
		`{"input_tokens":50,"output_tokens":40,"input_tokens_details":{"text_tokens":50,"image_tokens":0}}`: {
			llm.Usage{PromptTokens: 50, CompletionTokens: 40, PromptTokensDetails: llm.PromptTokensDetails{Extra: llm.Extra{"text_tokens": json.RawMessage("50")}}},
			`{"input_tokens":50,"output_tokens":40,"total_tokens":90,"input_tokens_details":{"text_tokens":50,"image_tokens":0}}`,
		},
		`{"input_tokens":50,"output_tokens":40,"input_tokens_details":null}`: {
			llm.Usage{PromptTokens: 50, CompletionTokens: 40}, `{"input_tokens":50,"output_tokens":40,"total_tokens":90}`,
		},
	} {
		var resp llm.ImageResponse
		assert.NoError(t, json.Unmarshal([]byte(`{"data":[],"usage":`+doc+`}`), &resp))
		assert.Equal(t, want.usage, *resp.Usage)
		assert.Equal(t, `{"created":0,"data":[],"usage":`+want.encoded+`}`, encode(t, resp))
	}
}
