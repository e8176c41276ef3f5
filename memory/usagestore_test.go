package memory

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
)

// storetest.TestUsageStore tests the requirements of the interface. The tests below
// are about the bounds of this store.

var noon = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

// recordUsage records n requests of one account. The request with index i is for the
// model and at the time that request returns.
func recordUsage(t testing.TB, u *UsageStore, n int, request func(i int) (model string, at time.Time)) {
	t.Helper()
	recordBatches(t, u, n, func(i int) llmhttp.UsageRecord {
		model, at := request(i)
		units := llmhttp.Units{PromptTokens: int64(i), CompletionTokens: 1, Images: 2}
		return llmhttp.UsageRecord{ID: fmt.Sprint(i), Time: at, Account: "a", Model: model, Units: units}
	})
}

// recordBatches records the n records that next returns, in batches, and checks
// that the store does not grow beyond its limits.
func recordBatches(t testing.TB, u *UsageStore, n int, next func(i int) llmhttp.UsageRecord) {
	t.Helper()
	records := make([]llmhttp.UsageRecord, 0, 100)
	for i := range n {
		records = append(records, next(i))
		if len(records) == cap(records) || i == n-1 {
			require.NoError(t, u.Record(t.Context(), records...))
			require.LessOrEqual(t, u.count, maxEntries)
			require.LessOrEqual(t, len(u.accounts), maxEntries)
			require.LessOrEqual(t, len(u.ids), 2*maxIDs)
			records = records[:0]
		}
	}
}

func queryUsage(t testing.TB, u *UsageStore, from, to time.Time, step time.Duration) []llmhttp.UsageSum {
	t.Helper()
	sums, err := u.Query(t.Context(), llmhttp.UsageQuery{Account: "a", From: from, To: to, Step: step})
	require.NoError(t, err)
	return sums
}

func TestUsageStore_AddsUpOldEntriesByHour(t *testing.T) {
	const n = maxEntries + maxEntries/4
	u := NewUsageStore()
	byHour, byDay := map[string]int64{}, map[string]int64{}
	recordUsage(t, u, n, func(i int) (string, time.Time) {
		at, model := noon.Add(time.Duration(i)*10*time.Second+time.Duration(i*7919%600)*time.Second), fmt.Sprint("m", i%3)
		byHour[fmt.Sprint(at.Truncate(time.Hour), model)] += int64(i)
		byDay[fmt.Sprint(at.Truncate(24*time.Hour), model)] += int64(i)
		return model, at
	})
	assert.Less(t, u.count, n/2+n/4, "old entries were added up")

	midnight := noon.Truncate(24 * time.Hour)
	for step, want := range map[time.Duration]map[string]int64{time.Hour: byHour, 24 * time.Hour: byDay} {
		got := map[string]int64{}
		for _, s := range queryUsage(t, u, midnight, midnight.AddDate(0, 1, 0), step) {
			got[fmt.Sprint(s.Start, s.Model)] += s.Units.PromptTokens
		}
		assert.Equal(t, want, got)
	}
	total := llmhttp.UsageSum{}
	for _, s := range queryUsage(t, u, time.Time{}, noon.AddDate(9, 0, 0), 0) {
		total.Requests += s.Requests
		total.Units.CompletionTokens += s.Units.CompletionTokens
		total.Units.Images += s.Units.Images
	}
	assert.Equal(t, llmhttp.UsageSum{Requests: n, Units: llmhttp.Units{CompletionTokens: n, Images: 2 * n}}, total)

	last := noon.Add((n - 100) * 10 * time.Second)
	recent := queryUsage(t, u, last, last.Add(time.Second), 0)
	assert.Less(t, len(recent), 3, "recent entries keep their times")
}

func TestUsageStore_DropsOldEntries(t *testing.T) {
	u := NewUsageStore()
	at := func(i int) time.Time { return noon.Add(time.Duration(i) * time.Second) }
	recordUsage(t, u, 2*maxEntries, func(i int) (string, time.Time) { return fmt.Sprint(i), at(i) })
	assert.Greater(t, u.count, maxEntries/4)
	assert.Empty(t, queryUsage(t, u, at(0), at(maxEntries), 0))
	assert.Len(t, queryUsage(t, u, at(2*maxEntries-100), at(2*maxEntries), 0), 100)

	recordBatches(t, u, maxEntries+1, func(i int) llmhttp.UsageRecord {
		return llmhttp.UsageRecord{ID: fmt.Sprint("account", i), Account: fmt.Sprint(i), Time: at(3*maxEntries + i)}
	})
}

func TestUsageStore_AddsUpEntriesWithSameTime(t *testing.T) {
	u := NewUsageStore()
	recordUsage(t, u, 2*maxEntries, func(int) (string, time.Time) { return "m", noon.Add(time.Minute) })
	sums := queryUsage(t, u, noon, noon.Add(time.Hour), 0)
	require.Len(t, sums, 1)
	assert.EqualValues(t, 2*maxEntries, sums[0].Requests)
}

func TestUsageStore_SkipsRecordsWithKnownIDs(t *testing.T) {
	u := NewUsageStore()
	recordIDs := func(prefix string, n int) {
		recordBatches(t, u, n, func(i int) llmhttp.UsageRecord {
			return llmhttp.UsageRecord{ID: fmt.Sprint(prefix, i), Account: "a", Model: "m", Time: noon}
		})
	}
	requests := func() int64 { return queryUsage(t, u, noon.Add(-time.Hour), noon.Add(1), 0)[0].Requests }
	for range 2 {
		recordIDs("a", maxIDs)
		assert.EqualValues(t, maxIDs, requests(), "each ID counts once")
	}
	recordIDs("b", 2*maxIDs)
	recordIDs("a", 1)
	assert.EqualValues(t, 3*maxIDs+1, requests(), "old IDs are forgotten")
}

func TestUsageStore_AcceptsAnyTime(t *testing.T) {
	u := NewUsageStore()
	times := []time.Time{{}, time.Unix(1<<40, 0), time.Date(-400, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(-1<<40, 5)}
	recordUsage(t, u, len(times), func(i int) (string, time.Time) { return "m", times[i] })
	from, to := time.Unix(-1<<41, 0), time.Unix(1<<41, 0)
	for _, step := range []time.Duration{0, 1, time.Hour, 1<<63 - 1} {
		var requests int64
		for _, s := range queryUsage(t, u, from, to, step) {
			requests += s.Requests
			assert.False(t, s.Start.Before(from))
		}
		assert.EqualValues(t, len(times), requests, step)
	}
}

func BenchmarkUsageStore_Record(b *testing.B) {
	u := NewUsageStore()
	ctx := b.Context()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		_ = u.Record(ctx, llmhttp.UsageRecord{ID: fmt.Sprintf("req_%032x", i), Time: noon.Add(time.Duration(i)), Account: "a", Model: "demo-chat"})
	}
}
