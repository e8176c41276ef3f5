package sqlstore

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// userRecords returns a record of each of n end users for each of the days from from on. The
// user with number i has a prompt of i+1 tokens.
func userRecords(from time.Time, days, users int) (records []llmhttp.UsageRecord) {
	for d := range days {
		for i := range users {
			r := usageRecord(fmt.Sprint(d, "-", i), "acme", fmt.Sprint("m", d%2), from.Add(time.Duration(d)*day+time.Hour), i+1)
			r.User, r.Cost.Output = fmt.Sprint("user ", i), llm.Money(1)<<53
			records = append(records, r)
		}
	}
	return records
}

// What an end user has used counts for all time after its records were pruned, in few rows.
func TestStore_PruneUserMonths(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, nil)
		const users, days = 120, 31 + 28 + 31 // January to March 2026
		january := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		records := userRecords(january, days, users)
		mustRecord(t, s, records...)
		rows := func() int64 { return queryInt(t, s, "SELECT count(*) FROM llmhttp_usage_sums WHERE kind = 'user'") }
		require.EqualValues(t, users*days, rows())
		// requests returns the number of requests of a user between two times.
		requests := func(user string, from, to time.Time) int64 {
			return countRequests(mustQuery(t, s, llmhttp.UsageQuery{
				Account: "acme", Subject: llmhttp.SubjectID{Kind: llmhttp.KindUser, ID: user}, From: from, To: to,
			}))
		}

		_, err := s.Prune(t.Context(), january.AddDate(0, 2, 10).Add(time.Hour))
		require.NoError(t, err)
		const months = 2 * 2 // of two models
		assert.EqualValues(t, users*(months+31), rows(), "March has not ended")
		for i := range users {
			q := allTime("acme")
			q.Subject = llmhttp.SubjectID{Kind: llmhttp.KindUser, ID: fmt.Sprint("user ", i)}
			sums := mustQuery(t, s, q)
			require.EqualValues(t, days, countRequests(sums), q.Subject.ID)
			require.EqualValues(t, (days+1)/2*(i+1), sums[0].Units.PromptTokens, q.Subject.ID)
			require.EqualValues(t, int64((days+1)/2*(1<<53)), sums[0].Cost.Output, q.Subject.ID)
		}
		for month, want := range []int64{31, 28, 31} {
			assert.Equal(t, want, requests("user 7", january.AddDate(0, month, 0), january.AddDate(0, month+1, 0)), "calendar months are exact")
		}
		assert.EqualValues(t, 31+28+31, requests("user 7", january.AddDate(0, 0, 15), january.AddDate(0, 3, 0)), "nothing is forgotten")
		assert.EqualValues(t, 31, requests("user 7", january.AddDate(0, 2, 0), january.AddDate(0, 3, 0)))
		assert.EqualValues(t, 31-15, requests("user 7", january.AddDate(0, 2, 15), january.AddDate(0, 3, 0)), "days of the month that has not ended")
		assert.Zero(t, requests("user", january, january.AddDate(1, 0, 0)))

		late := records[users*3]
		late.ID = "late"
		mustRecord(t, s, late)
		assert.EqualValues(t, 32, requests("user 0", january, january.AddDate(0, 1, 0)))
		_, err = s.Prune(t.Context(), january.AddDate(0, 2, 11))
		require.NoError(t, err)
		assert.EqualValues(t, users*(months+31)+1, rows(), "the months were added up")
		_, err = s.Prune(t.Context(), january.AddDate(0, 3, 0))
		require.NoError(t, err)
		assert.EqualValues(t, users*3*2, rows())
		assert.EqualValues(t, days+1, requests("user 0", january, january.AddDate(0, 3, 0)))
	})
}

// Queries and late records count each request once while several Stores add up months.
func TestStore_UserMonthsConcurrently(t *testing.T) {
	forEachSharedDatabase(t, func(t *testing.T, dsn string) {
		stores := []*Store{openStore(t, dsn, nil), openStore(t, dsn, nil)}
		january := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		const users, days, late = 20, 59, 50
		mustRecord(t, stores[0], userRecords(january, days, users)...)
		var running sync.WaitGroup
		for _, s := range stores {
			running.Go(func() {
				for month := range 3 {
					_, err := s.Prune(t.Context(), january.AddDate(0, month, 0))
					assert.NoError(t, err)
				}
			})
		}
		running.Go(func() {
			for i := range late {
				r := usageRecord(fmt.Sprint("late ", i), "acme", fmt.Sprint("m", i%2), january.Add(time.Duration(i)*day), 1)
				r.User = "user 0"
				assert.NoError(t, stores[i%2].Record(t.Context(), r))
			}
		})
		q := allTime("acme")
		q.Subject = llmhttp.SubjectID{Kind: llmhttp.KindUser, ID: "user 1"}
		for i := range 50 {
			require.EqualValues(t, days, countRequests(mustQuery(t, stores[i%2], q)))
		}
		running.Wait()
		q.Subject.ID = "user 0"
		assert.EqualValues(t, days+late, countRequests(mustQuery(t, stores[0], q)))
	})
}
