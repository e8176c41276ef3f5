package memory

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
)

// What every UsageStore promises is tested by package llmhttptest.

var noon = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

func record(t testing.TB, u *UsageStore, id, model string, at time.Time, prompt int) {
	t.Helper()
	require.NoError(t, u.Record(t.Context(), llmhttp.UsageRecord{
		ID: id, Time: at, Account: "a", Model: model, Usage: llmhttp.Usage{PromptTokens: prompt, CompletionTokens: 1}, Images: 2,
	}))
}

func query(t testing.TB, u *UsageStore, from, to time.Time, step time.Duration) []llmhttp.UsageSum {
	t.Helper()
	sums, err := u.Query(t.Context(), llmhttp.UsageQuery{Account: "a", From: from, To: to, Step: step})
	require.NoError(t, err)
	return sums
}

func TestUsageCompacts(t *testing.T) {
	const n = 10000
	u := NewUsageStore()
	u.limit = n / 2 * entrySize
	rng := rand.New(rand.NewPCG(1, 2))
	byHour, byDay := map[string]int64{}, map[string]int64{}
	for i := range n {
		at := noon.Add(time.Duration(i)*time.Minute + time.Duration(rng.IntN(int(10*time.Minute))))
		model := fmt.Sprint("m", i%3)
		record(t, u, fmt.Sprint(i), model, at, i)
		byHour[fmt.Sprint(at.Truncate(time.Hour), model)] += int64(i)
		byDay[fmt.Sprint(at.Truncate(24*time.Hour), model)] += int64(i)
		assert.LessOrEqual(t, u.size, u.limit)
	}
	assert.Less(t, len(u.ledgers["a"].entries), n/2)
	assert.Equal(t, n/2*entrySize, u.limit)

	midnight := noon.Truncate(24 * time.Hour)
	for step, want := range map[time.Duration]map[string]int64{time.Hour: byHour, 24 * time.Hour: byDay} {
		got := map[string]int64{}
		for _, s := range query(t, u, midnight, midnight.AddDate(0, 1, 0), step) {
			got[fmt.Sprint(s.Start, s.Model)] += s.PromptTokens
		}
		assert.Equal(t, want, got)
	}
	total := query(t, u, time.Time{}, noon.AddDate(9, 0, 0), 0)
	require.Len(t, total, 3)
	var requests, images int64
	for _, s := range total {
		requests += s.Requests
		images += s.Images
	}
	assert.EqualValues(t, n, requests)
	assert.EqualValues(t, 2*n, images)

	// What is recent is exact.
	last := noon.Add((n - 20) * time.Minute)
	recent := query(t, u, last, last.AddDate(1, 0, 0), 0)
	assert.NotEmpty(t, recent)
	assert.Len(t, query(t, u, last.AddDate(-1, 0, 0), last, 0), 3)
}

// A client may name as many models as it likes.
func TestUsageForgets(t *testing.T) {
	u := NewUsageStore()
	u.limit = 1 << 20
	for i := range 5000 {
		record(t, u, fmt.Sprint(i), fmt.Sprint(i, strings.Repeat("x", 5000)), noon.Add(time.Duration(i)*time.Second), 1)
		require.LessOrEqual(t, u.size, u.limit)
	}
	sums := query(t, u, noon, noon.AddDate(1, 0, 0), 0)
	assert.Less(t, len(sums), 1<<20/maxModel)
	assert.Greater(t, len(sums), 1<<20/maxModel/8)
	for _, s := range sums {
		assert.Len(t, s.Model, maxModel)
	}
	assert.Len(t, u.ledgers["a"].models, len(sums))

	// Nor does a host with many accounts fill the memory.
	for i := range 5000 {
		require.NoError(t, u.Record(t.Context(), llmhttp.UsageRecord{ID: fmt.Sprint("b", i), Account: fmt.Sprint(i), Time: noon.Add(time.Duration(i) * time.Hour)}))
		require.LessOrEqual(t, u.size, u.limit)
	}
	assert.Less(t, len(u.ledgers), 1<<20/nameSize)
}

func TestUsageSameMoment(t *testing.T) {
	u := NewUsageStore()
	u.limit = 100 * entrySize
	for i := range 10000 {
		record(t, u, fmt.Sprint(i), "m", noon.Add(time.Minute), 1)
	}
	sums := query(t, u, noon, noon.Add(time.Hour), 0)
	require.Len(t, sums, 1)
	assert.EqualValues(t, 10000, sums[0].Requests)
}

func TestUsageSameID(t *testing.T) {
	const generation = 1000
	u := NewUsageStore()
	u.ids.limit = generation
	for round := range 2 {
		for i := range generation {
			record(t, u, fmt.Sprint(i), "m", noon, 1)
		}
		assert.EqualValues(t, generation, query(t, u, noon, noon.Add(1), 0)[0].Requests, round)
	}
	for i := range 3 * generation {
		record(t, u, fmt.Sprint("other", i), "m", noon, 1)
	}
	assert.LessOrEqual(t, len(u.ids.newer)+len(u.ids.older), 2*generation)
	record(t, u, "0", "m", noon, 1)
	assert.EqualValues(t, 4*generation+1, query(t, u, noon, noon.Add(1), 0)[0].Requests, "what is long ago is forgotten")
}

func TestUsageHostile(t *testing.T) {
	u := NewUsageStore()
	record(t, u, "", "", time.Time{}, math.MaxInt)
	record(t, u, "1", "", time.Time{}, math.MaxInt)
	record(t, u, "2", "n", time.Unix(1<<40, 0), math.MinInt)
	record(t, u, "3", "n", time.Unix(1<<40, 999999999), math.MinInt)
	record(t, u, "4", "", time.Date(-400, 1, 1, 0, 0, 0, 0, time.UTC), 7)

	sums := query(t, u, time.Date(-1000, 1, 1, 0, 0, 0, 5, time.UTC), time.Unix(1<<41, 0), 0)
	require.Len(t, sums, 2)
	assert.EqualValues(t, math.MaxInt64, sums[0].PromptTokens)
	assert.EqualValues(t, 3, sums[0].Requests)
	assert.EqualValues(t, math.MinInt64, sums[1].PromptTokens)

	from := time.Date(-1000, 1, 1, 0, 0, 0, 5, time.UTC)
	for _, step := range []time.Duration{1, 7, time.Hour, math.MaxInt64} {
		sums := query(t, u, from, time.Unix(1<<41, 0), step)
		var requests int64
		for _, s := range sums {
			requests += s.Requests
			assert.False(t, s.Start.Before(from))
		}
		assert.EqualValues(t, 5, requests, step)
	}
	assert.Empty(t, query(t, u, noon, noon, 0))
	assert.Empty(t, query(t, u, noon.Add(1), noon, 1))
	u.compact()
	assert.EqualValues(t, 5, func() (n int64) {
		for _, s := range query(t, u, from, time.Unix(1<<41, 0), 0) {
			n += s.Requests
		}
		return n
	}())
}

func TestPeriodOf(t *testing.T) {
	at := func(s string) time.Time {
		t.Helper()
		v, err := time.Parse(time.RFC3339Nano, s)
		require.NoError(t, err)
		return v
	}
	for _, test := range []struct {
		t, from string
		step    time.Duration
		want    string
	}{
		{"2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", time.Hour, "2026-01-01T00:00:00Z"},
		{"2026-01-01T00:59:59.999999999Z", "2026-01-01T00:00:00Z", time.Hour, "2026-01-01T00:00:00Z"},
		{"2026-01-01T01:00:00Z", "2026-01-01T00:00:00Z", time.Hour, "2026-01-01T01:00:00Z"},
		{"2026-01-01T01:00:00Z", "2026-01-01T00:00:00.5Z", time.Hour, "2026-01-01T00:00:00.5Z"},
		{"2026-01-01T01:00:00.7Z", "2026-01-01T00:00:00.5Z", time.Hour, "2026-01-01T01:00:00.5Z"},
		{"2026-01-01T00:00:00.000000008Z", "2026-01-01T00:00:00Z", 3, "2026-01-01T00:00:00.000000006Z"},
		{"2026-03-14T12:34:56Z", "0001-01-01T00:00:00Z", 24 * time.Hour, "2026-03-14T00:00:00Z"},
		{"2026-03-14T12:34:56Z", "0001-01-01T00:00:00Z", math.MaxInt64, "1754-08-30T22:43:41.128654842Z"},
	} {
		got := periodOf(at(test.t), at(test.from), test.step)
		assert.Equal(t, at(test.want), got, test)
		assert.Equal(t, time.UTC, got.Location())
	}
}

func BenchmarkRecord(b *testing.B) {
	u := NewUsageStore()
	ids := make([]string, 1<<16)
	for i := range ids {
		ids[i] = fmt.Sprintf("req_%032x", i)
	}
	ctx := b.Context()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%len(ids) == 0 {
			u.ids = idSet{} // which forgets them
		}
		_ = u.Record(ctx, llmhttp.UsageRecord{ID: ids[i%len(ids)], Time: noon.Add(time.Duration(i)), Account: "a", Model: "demo-chat"})
	}
}
