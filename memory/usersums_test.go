package memory

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
)

// captureLog returns what is logged with the default Logger during the test.
func captureLog(t *testing.T) *bytes.Buffer {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return &log
}

func queryUser(t testing.TB, u *UsageStore, user string, from, to time.Time) (sum llmhttp.UsageSum) {
	t.Helper()
	sums, err := u.Query(t.Context(), llmhttp.UsageQuery{
		Account: "a", Subject: llmhttp.SubjectID{Kind: llmhttp.KindUser, ID: user}, From: from, To: to,
	})
	require.NoError(t, err)
	for i := range sums {
		sum.Add(sums[i])
	}
	return sum
}

// A month of many requests of some end users is added up and never forgotten.
func TestUserSums_AddsUp_NoRace(t *testing.T) {
	log := captureLog(t)
	u := NewUsageStore()
	rng := rand.New(rand.NewPCG(1, 2))
	start := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	const users, n, month = 5000, 5 * maxEntries, 31 * 24 * time.Hour
	tokens, recent := map[string]int64{}, map[string]int64{}
	hourAgo := start.Add(month - time.Hour)
	recordBatches(t, u, n, func(i int) llmhttp.UsageRecord {
		at := start.Add(time.Duration(i) * (month / n))
		user := fmt.Sprint("user ", rng.IntN(users))
		tokens[user] += int64(i)
		if !at.Before(hourAgo) {
			recent[user] += int64(i)
		}
		return llmhttp.UsageRecord{
			ID: fmt.Sprint(i), Time: at, Account: "a", KeyID: fmt.Sprint(i), Model: fmt.Sprint("m", i%2), User: user, Units: llmhttp.Units{PromptTokens: int64(i)},
		}
	})
	for user, want := range tokens {
		require.Equal(t, want, queryUser(t, u, user, start, start.AddDate(0, 1, 0)).Units.PromptTokens, user)
		require.Equal(t, recent[user], queryUser(t, u, user, hourAgo, start.AddDate(0, 1, 0)).Units.PromptTokens, user)
		require.Zero(t, queryUser(t, u, user, start.AddDate(0, 1, 0), start.AddDate(1, 0, 0)), user)
	}
	assert.LessOrEqual(t, u.users.count, maxEntries)
	assert.Len(t, u.users.users, users)
	assert.Empty(t, log.String())
}

// What was added up counts as used at the end.
func TestUserSums_CountsAtTheEnd(t *testing.T) {
	u := NewUsageStore()
	at := []time.Time{noon.Add(5 * time.Minute), noon.Add(50 * time.Minute), noon.Add(20 * time.Minute)}
	for i, time := range at {
		require.NoError(t, u.Record(t.Context(), llmhttp.UsageRecord{ID: fmt.Sprint(i), Time: time, Account: "a", Model: "m", User: "ann"}))
	}
	u.users.addUp(noon.Add(time.Hour), hourOf)
	assert.Equal(t, 1, u.users.count)
	assert.EqualValues(t, 3, queryUser(t, u, "ann", noon.Add(30*time.Minute), noon.Add(time.Hour)).Requests)
	assert.Zero(t, queryUser(t, u, "ann", noon, noon.Add(50*time.Minute)))
}

// A million end users do not exhaust the memory. Those who were idle for longest are forgotten, and
// that is logged.
func TestUserSums_AMillionUsers_NoRace(t *testing.T) {
	log := captureLog(t)
	u := NewUsageStore()
	const users = 1_000_000
	at := func(i int) time.Time { return noon.Add(time.Duration(i) * 100 * time.Millisecond) }
	record := func(i int, user string) {
		require.NoError(t, u.Record(t.Context(), llmhttp.UsageRecord{
			ID: fmt.Sprint(i), Time: at(i), Account: "a", Model: "m", User: user, Units: llmhttp.Units{PromptTokens: 1},
		}))
		if u.users.count > maxEntries || len(u.users.users) > maxEntries {
			require.Fail(t, "too many entries", i)
		}
	}
	for i := range users {
		if i%1000 == 0 {
			record(users+i, "ann")
		}
		record(i, fmt.Sprint("user ", i))
	}
	later := at(3 * users)
	assert.EqualValues(t, users/1000, queryUser(t, u, "ann", time.Time{}, later).Requests, "one who is not idle is remembered")
	for i := range maxEntries / 2 {
		require.EqualValues(t, 1, queryUser(t, u, fmt.Sprint("user ", users-1-i), time.Time{}, later).Requests)
	}
	assert.Zero(t, queryUser(t, u, "user 0", time.Time{}, later))
	assert.Contains(t, log.String(), "their quotas begin anew")
}
