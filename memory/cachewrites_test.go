package memory_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/memory"
)

// The store adds up cache writes by lifetime, also when it replaces records by hours and those of end
// users by months.
func TestUsageStore_CacheWrites(t *testing.T) {
	const n = 40_000 // times 2 lifetimes is more than the store keeps apart
	start := time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)
	store := memory.NewUsageStore()
	for i := range n {
		w := llm.CacheWrites{5 * time.Minute: 1, time.Hour: 2}
		if i%2 == 1 {
			w = llm.CacheWrites{30 * time.Minute: 3, 12 * time.Hour: 4}
		}
		r := llmhttp.UsageRecord{ID: time.Duration(i).String(), Account: "a", Model: "m", User: "u", Time: start.Add(time.Duration(i) * time.Second)}
		r.Units = llmhttp.Units{PromptTokens: 20, CacheWriteTokens: 10, CacheWrites: w}
		require.NoError(t, store.Record(t.Context(), r))
	}
	want := llmhttp.UsageSum{Start: start, Model: "m", Requests: n, Units: llmhttp.Units{
		PromptTokens: 20 * n, CacheWriteTokens: 10 * n,
		CacheWrites: llm.CacheWrites{5 * time.Minute: n / 2, time.Hour: n, 30 * time.Minute: n / 2 * 3, 12 * time.Hour: n * 2},
	}}
	for _, subject := range []llmhttp.SubjectID{{}, {Kind: llmhttp.KindUser, ID: "u"}} {
		sums, err := store.Query(t.Context(), llmhttp.UsageQuery{Account: "a", Subject: subject, From: start, To: start.Add(48 * time.Hour)})
		require.NoError(t, err)
		assert.Equal(t, []llmhttp.UsageSum{want}, sums)
	}
	want.Start = start.Truncate(24 * time.Hour)
	report, err := store.Report(t.Context(), manage.ReportQuery{From: want.Start, To: want.Start.AddDate(0, 0, 2), PerModel: true})
	require.NoError(t, err)
	assert.Equal(t, []manage.ReportRow{{Sums: []llmhttp.UsageSum{want}}}, report.Rows)
}
