package llmhttp_test

import (
	"errors"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
)

// TestUsageSum_Add counts in every field, so that a new field is not forgotten.
func TestUsageSum_Add(t *testing.T) {
	sum := llmhttp.UsageSum{Start: day(2026, 3, 1), Model: "m"}
	other := llmhttp.UsageSum{Start: day(2026, 4, 1), Model: "other"}
	fields := reflect.ValueOf(&other).Elem()
	for i := range fields.NumField() {
		if f := fields.Field(i); f.CanInt() {
			f.SetInt(int64(i))
		}
	}
	sum.Add(other)
	sum.Add(other)
	want := llmhttp.UsageSum{Start: sum.Start, Model: "m"}
	for i := range fields.NumField() {
		if f := fields.Field(i); f.CanInt() {
			reflect.ValueOf(&want).Elem().Field(i).SetInt(2 * int64(i))
		}
	}
	assert.Equal(t, want, sum)
}

func TestUsageRecord_Sum(t *testing.T) {
	record := llmhttp.UsageRecord{
		Time: day(2026, 3, 1), Model: "m", Images: 2,
		Usage: llmhttp.Usage{
			PromptTokens: 3, CompletionTokens: 4,
			PromptTokensDetails:     llmhttp.PromptTokensDetails{CachedTokens: 5},
			CompletionTokensDetails: llmhttp.CompletionTokensDetails{ReasoningTokens: 6},
		},
	}
	assert.Equal(t, llmhttp.UsageSum{
		Start: record.Time, Model: "m", Requests: 1, Images: 2, PromptTokens: 3, CompletionTokens: 4, CachedTokens: 5, ReasoningTokens: 6,
	}, record.Sum())
}

func TestQueryKey_Unsupported(t *testing.T) {
	for _, s := range []llmhttp.UsageStore{nil, new(usageLog), llmhttp.NewUsageBuffer(new(usageLog), 0, 0)} {
		_, err := llmhttp.QueryKey(t.Context(), s, "key_1", llmhttp.UsageQuery{})
		assert.True(t, errors.Is(err, errors.ErrUnsupported), "%T: %v", s, err)
	}
}
