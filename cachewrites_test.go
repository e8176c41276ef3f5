package llmhttp_test

import (
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
)

// fourLifetimes are those that are sold.
var fourLifetimes = llm.CacheWrites{5 * time.Minute: 100, 30 * time.Minute: 200, time.Hour: 300, 12 * time.Hour: 400}

// Sums keep the 8 shortest lifetimes, in any order, and do not change what they add.
func TestCacheWrites_SumsAreBounded(t *testing.T) {
	hours := func(from, to int) llm.CacheWrites {
		w := make(llm.CacheWrites)
		for i := from; i <= to; i++ {
			w[time.Duration(i)*time.Hour] = 1
		}
		return w
	}
	parts := []llm.CacheWrites{hours(5, 12), hours(1, 3), nil, hours(10, 1000), hours(2, 5), {time.Millisecond: 1, -time.Hour: 1, time.Hour: -5}}
	want := llm.CacheWrites{}
	for i, n := range []int64{1, 2, 2, 1, 2, 1, 1, 1} {
		want[time.Duration(i+1)*time.Hour] = n
	}
	var forth, back llmhttp.Units
	for i := range parts {
		forth.Add(llmhttp.Units{CacheWrites: parts[i]})
		back.Add(llmhttp.Units{CacheWrites: parts[len(parts)-1-i]})
	}
	assert.Equal(t, want, forth.CacheWrites)
	assert.Equal(t, want, back.CacheWrites)
	assert.Equal(t, hours(5, 12), parts[0])
	forth.Add(llmhttp.Units{CacheWrites: llm.CacheWrites{time.Hour: math.MaxInt64}})
	assert.Equal(t, int64(math.MaxInt64), forth.CacheWrites[time.Hour])
	assert.False(t, forth.IsZero())
	assert.True(t, llmhttp.Units{CacheWrites: llm.CacheWrites{time.Hour: 0}}.IsZero())
}

// What a Backend reports is recorded: at most 8 lifetimes, and no more than there are prompt tokens.
func TestCacheWrites_AreRecorded(t *testing.T) {
	many := make(llm.CacheWrites)
	for i := range 1000 {
		many[time.Duration(1+i)*time.Second] = 1
	}
	for name, test := range map[string]struct {
		details     llm.PromptTokensDetails
		wantTotal   int64
		want        llm.CacheWrites
		wantMembers int
	}{
		"more than the total": {llm.PromptTokensDetails{CacheWrites: fourLifetimes}, 1000, fourLifetimes, 4},
		"less":                {llm.PromptTokensDetails{CacheWriteTokens: 1200, CacheWrites: fourLifetimes}, 1200, fourLifetimes, 4},
		"more than the prompt": {llm.PromptTokensDetails{CachedTokens: 1500, CacheWrites: fourLifetimes}, 500,
			llm.CacheWrites{time.Hour: 100, 12 * time.Hour: 400}, 2},
		"many": {llm.PromptTokensDetails{CacheWrites: many}, 8, nil, 8},
	} {
		t.Run(name, func(t *testing.T) {
			store := memory.NewUsageStore()
			backend := chunkBackend(func() []*llm.ChatChunk {
				return []*llm.ChatChunk{llm.TextChunk("Hi"), {Usage: &llm.Usage{PromptTokens: 2000, PromptTokensDetails: test.details}}}
			})
			h := llmhttp.NewHandler(backend, llmhttp.AllowAll("acme"), &llmhttp.Options{Usage: store})
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(chatBody)))
			require.Equal(t, http.StatusOK, w.Code, w.Body)
			sums, err := store.Query(t.Context(), llmhttp.UsageQuery{Account: "acme", To: time.Now().Add(time.Hour)})
			require.NoError(t, err)
			require.Len(t, sums, 1)
			assert.Equal(t, test.wantTotal, sums[0].Units.CacheWriteTokens)
			assert.Len(t, sums[0].Units.CacheWrites, test.wantMembers)
			if test.want != nil {
				assert.Equal(t, test.want, sums[0].Units.CacheWrites)
			}
		})
	}
}
