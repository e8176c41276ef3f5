package keytext

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

func TestParseRate(t *testing.T) {
	for text, want := range map[string]llmhttp.Rate{
		"60/m":             {N: 60, Per: time.Minute},
		"60/m,burst=10":    {N: 60, Per: time.Minute, Burst: 10},
		"5/s":              {N: 5, Per: time.Second},
		"7/90m":            {N: 7, Per: 90 * time.Minute},
		"1000000/30d":      {N: 1_000_000, Per: 30 * day},
		"-1/h":             {N: -1, Per: time.Hour},
		"1/1.5s":           {N: 1, Per: 1500 * time.Millisecond},
		"1/106751d":        {N: 1, Per: 106751 * day},
		"1/1ns,burst=9999": {N: 1, Per: 1, Burst: 9999},
	} {
		r, err := ParseRate(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, r)
		assert.Equal(t, text, FormatRate(r))
	}
	for text, want := range map[string]llmhttp.Rate{
		"60/min": {N: 60, Per: time.Minute}, "60/minute": {N: 60, Per: time.Minute}, "1M/day": {N: 1_000_000, Per: day},
		"1_000_000/30 days": {N: 1_000_000, Per: 30 * day}, "1.5k/2weeks": {N: 1500, Per: 14 * day}, "1/1h30m,burst=2k": {N: 1, Per: 90 * time.Minute, Burst: 2000}, "none": {},
	} {
		r, err := ParseRate(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, r)
	}
	for _, text := range []string{"", "60", "0/m", "60/", "60/fortnight", "60/-1s", "60/0s", "1__0/m", "_1/m", "1_/m", "1e3/m", "0x10/m", "Infk/m", "1.5/m", "1.0001k/m", "99999999999G/m", "60/m,burst=0", "60/m,burst=-1"} {
		_, err := ParseRate(text)
		assert.Error(t, err, text)
	}
	assert.Equal(t, "3/m", FormatRate(llmhttp.Rate{N: 3}), "the default period is a minute")
	assert.Empty(t, FormatRate(llmhttp.Rate{Per: time.Hour}))
}

func TestParseQuota(t *testing.T) {
	for text, want := range map[string]llmhttp.Quota{
		"1000000/month":       {Tokens: 1_000_000},
		"1000000/30d":         {Tokens: 1_000_000, Per: 30 * day},
		"5/all":               {Tokens: 5, Per: -1},
		"20usd/month":         {Cost: llm.USD(20)},
		"1000000,0.5usd/week": {Tokens: 1_000_000, Cost: llm.USD(0.5), Per: 7 * day},
		"-1/d":                {Tokens: -1, Per: day},
	} {
		q, err := ParseQuota(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, q)
		again, err := ParseQuota(FormatQuota(q))
		require.NoError(t, err, text)
		assert.Equal(t, want, again)
	}
	for _, text := range []string{"", "5", "0/month", "0usd/month", "NaNusd/month", "Infusd/month", "1,2/month", "1usd,2usd/month", "5/0s"} {
		_, err := ParseQuota(text)
		assert.Error(t, err, text)
	}
	assert.Empty(t, FormatQuota(llmhttp.Quota{Per: day}))
}

func TestParseExpiry(t *testing.T) {
	now := time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"never":                     {},
		"2026-03-15":                now.Add(12 * time.Hour),
		"2026-03-14T14:00:00+01:00": now.Add(time.Hour),
		"2d":                        now.Add(2 * day),
		"h":                         now.Add(time.Hour),
	} {
		got, err := ParseExpiry(text, now)
		require.NoError(t, err)
		assert.True(t, want.Equal(got), text)
	}
	_, err := ParseExpiry("2026-03-14T13:00:00+01:00", now)
	assert.ErrorContains(t, err, "not in the future")
}

func TestParseList(t *testing.T) {
	for _, text := range []string{"all", "none", "a", "a,b*"} {
		list, err := ParseList[string](text)
		require.NoError(t, err)
		assert.Equal(t, text, FormatList(list))
	}
	_, err := ParseList[string]("a,,b")
	assert.Error(t, err)
}

func TestSetLimit(t *testing.T) {
	l := llmhttp.Limits{Quota: llmhttp.Quota{Since: time.Unix(1, 0)}}
	for name, text := range map[string]string{"requests": "60/m", "tokens": "5/s", "quota": "7/month", "max-completion-tokens": "900", "concurrent": "-1"} {
		require.NoError(t, SetLimit(&l, name, text))
		assert.Equal(t, text, FormatLimit(&l, name))
	}
	assert.Equal(t, time.Unix(1, 0), l.Quota.Since, "a new quota does not reset what counts")
	for _, name := range LimitNames() {
		assert.Error(t, SetLimit(&llmhttp.Limits{}, name, "many"), name)
		require.NoError(t, SetLimit(&l, name, ""))
		assert.Empty(t, FormatLimit(&l, name))
	}
	for _, name := range []string{"max-completion-tokens", "concurrent"} {
		assert.ErrorIs(t, SetLimit(&l, name, "0"), errZero, name)
		require.NoError(t, SetLimit(&l, name, "-1"))
		assert.Equal(t, "-1", FormatLimit(&l, name))
	}
	assert.Error(t, SetLimit(&l, "speed", "1"))
	assert.PanicsWithValue(t, `keytext: there is no limit "speed"`, func() { FormatLimit(&l, "speed") })
}

func TestUsageCSV(t *testing.T) {
	var b strings.Builder
	w := NewUsageCSV(&b, []string{"key", "model"})
	sum := &llmhttp.UsageSum{
		Requests: 1, Unpriced: 7, Units: llmhttp.Units{PromptTokens: 2, CachedTokens: 3, CacheWrites: llm.CacheWrites{time.Hour: 200, 5 * time.Minute: 100}, CompletionTokens: 4, ReasoningTokens: 5, Images: -6},
		Cost: llmhttp.Cost{Input: llm.USD(0.25), Output: -llm.MoneyUnit},
	}
	for _, text := range []string{"plain", "=1+1", "+1", "-1", "@a", "\ta", "", `a "b", c`} {
		w.Write([]string{text, "m"}, sum)
	}
	for _, start := range []string{"\uff1d", "\uff0b", "\uff0d", "\uff20", "\r", "\n"} { // = + - @ in full width
		assert.Equal(t, "'"+start+"1", spreadsheetText(start+"1"))
	}
	require.NoError(t, w.Flush())
	const numbers = ",m,1,2,3,0,\"5m=100,1h=200\",0,0,4,5,0,-6,0,0,0,0.25,0,0,-1,0,-0.75,7\n"
	assert.Equal(t, "key,model,requests,prompt_tokens,cached_tokens,cache_write_tokens,cache_writes,prompt_audio_tokens,prompt_image_tokens,"+
		"completion_tokens,reasoning_tokens,completion_audio_tokens,images,audio_millis,characters,search_units,"+
		"cost_input,cost_cache_read,cost_cache_write,cost_output,cost_other,cost,unpriced\n"+
		"plain"+numbers+"'=1+1"+numbers+"'+1"+numbers+"'-1"+numbers+"'@a"+numbers+"'\ta"+numbers+numbers+`"a ""b"", c"`+numbers, b.String())
}
