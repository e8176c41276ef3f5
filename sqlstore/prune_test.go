package sqlstore

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
)

// hourlyRecords returns a record for each hour from from on.
func hourlyRecords(from time.Time, n int) []llmhttp.UsageRecord {
	records := make([]llmhttp.UsageRecord, n)
	for i := range records {
		records[i] = usageRecord(fmt.Sprint(i), "acme", "m", from.Add(time.Duration(i)*time.Hour), 1)
	}
	return records
}

func TestStore_Prune(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, nil)
		midnight := noon.Truncate(day)
		records := hourlyRecords(midnight, 10*24)
		mustRecord(t, s, records...)
		// requests returns the numbers of requests by period. Times count from midnight.
		requests := func(from, to, step time.Duration) (n []int64) {
			for _, sum := range mustQuery(t, s, llmhttp.UsageQuery{Account: "acme", From: midnight.Add(from), To: midnight.Add(to), Step: step}) {
				n = append(n, sum.Requests)
			}
			return n
		}
		require.Equal(t, []int64{12, 12, 12, 12, 12, 12}, requests(0, 3*day, 12*time.Hour))

		n, err := s.Prune(t.Context(), midnight.Add(2*day+13*time.Hour))
		require.NoError(t, err)
		assert.EqualValues(t, 2*24, n, "only whole days are pruned")
		assert.EqualValues(t, 8*24, queryInt(t, s, "SELECT count(*) FROM llmhttp_usage_records"))
		assert.Equal(t, []int64{24, 24, 12, 12}, requests(0, 3*day, 12*time.Hour), "pruned days count at their beginning")
		assert.Equal(t, []int64{24, 24, 24}, requests(0, 3*day, day))
		assert.Equal(t, []int64{24 + 12}, requests(12*time.Hour, 60*time.Hour, 0))
		assert.Empty(t, requests(time.Hour, day, time.Hour))
		assert.Equal(t, []int64{240}, requests(0, 10*day, 0))
		assert.Equal(t, []int64{240}, requests(-day, 10*day+1, 0))

		mustRecord(t, s, usageRecord("late", "acme", "m", midnight.Add(time.Hour), 1), records[2*24])
		assert.Equal(t, []int64{25, 24, 24}, requests(0, 3*day, day), "a late record counts and a stored record is skipped")
		assert.Equal(t, []int64{25, 24, 12, 12}, requests(0, 3*day, 12*time.Hour))
		n, err = s.Prune(t.Context(), midnight.Add(day))
		require.NoError(t, err)
		assert.EqualValues(t, 1, n)
		assert.Equal(t, []int64{25, 24, 12, 12}, requests(0, 3*day, 12*time.Hour), "an earlier limit does not replace a later one")

		for _, before := range []time.Time{time.Now(), time.Now().Add(-day + time.Minute), time.Now().Add(1000 * day)} {
			_, err = s.Prune(t.Context(), before)
			assert.ErrorContains(t, err, "at least a day ago")
		}
		n, err = s.Prune(t.Context(), time.Time{})
		require.NoError(t, err)
		assert.Zero(t, n)
	})
}

// TestStore_QueryDuringPrune checks that a query counts every request, at its
// time or at the beginning of its day.
func TestStore_QueryDuringPrune(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, nil)
		const days = 10
		midnight := noon.Truncate(day).Add(-days * day)
		mustRecord(t, s, hourlyRecords(midnight, days*24)...)
		var done atomic.Bool
		var running sync.WaitGroup
		running.Go(func() {
			defer done.Store(true)
			late := 0 // records that the next call prunes as well
			for i := range days {
				n, err := s.Prune(t.Context(), midnight.Add(time.Duration(i+1)*day))
				assert.NoError(t, err)
				assert.EqualValues(t, 24+late, n)
				assert.NoError(t, s.Record(t.Context(), usageRecord(fmt.Sprint("late", i), "late", "m", midnight, 1)))
				late = 1
			}
		})
		for last := false; !last; {
			last = done.Load()
			sums := mustQuery(t, s, llmhttp.UsageQuery{Account: "acme", From: midnight, To: midnight.Add(days * day), Step: 12 * time.Hour})
			require.EqualValues(t, days*24, countRequests(sums))
			for _, sum := range sums {
				require.Contains(t, []int64{12, 24}, sum.Requests)
			}
		}
		running.Wait()
		assert.EqualValues(t, days, countRequests(mustQuery(t, s, allTime("late"))))
	})
}

func TestStore_KeepRecords(t *testing.T) {
	for keep, want := range map[time.Duration]int64{-1: 6, 0: 5, 48 * time.Hour: 2, time.Hour: 1} {
		s := openStore(t, ":memory:", &Options{KeepRecords: keep, Logger: discardLogger})
		s.db.now = func() time.Time { return noon }
		for i, days := range []time.Duration{0, 2, 3, 100, 399, 402} {
			mustRecord(t, s, usageRecord(fmt.Sprint(i), "acme", "m", noon.Add(-days*day), 1))
		}
		s.pruneOldRecords()
		assert.Equal(t, want, queryInt(t, s, "SELECT count(*) FROM llmhttp_usage_records"), keep)
	}
}

func TestStore_PruneInBatches(t *testing.T) {
	forEachSharedDatabase(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, nil)
		const n = pruneBatch + 1
		mustRecord(t, s, hourlyRecords(noon.Add(-n*time.Hour-day), n)...)
		pruned, err := s.Prune(t.Context(), noon)
		require.NoError(t, err)
		assert.EqualValues(t, n, pruned)
		assert.EqualValues(t, n, countRequests(mustQuery(t, s, allTime("acme"))))
	})
}
