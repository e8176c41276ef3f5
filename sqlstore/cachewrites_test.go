package sqlstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/manage"
)

// Cache writes are added up by lifetime: within a batch, with what is stored, in queries of records and
// of days, in reports of both, and in the months of end users.
func TestCacheWrites(t *testing.T) {
	const m, h = time.Minute, time.Hour
	many := make(llm.CacheWrites)
	for i := range 20 {
		many[time.Duration(1+i)*h] = 1
	}
	forEachDatabase(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, nil)
		number := 0
		record := func(account string, at time.Time, writes ...llm.CacheWrites) {
			var records []llmhttp.UsageRecord
			for _, w := range writes {
				number++
				records = append(records, llmhttp.UsageRecord{
					ID: fmt.Sprint("r", number), Account: account, KeyID: "k", User: "u", Model: "m", Time: at,
					Subjects: []llmhttp.SubjectID{{Kind: "team", ID: "t"}}, Units: llmhttp.Units{PromptTokens: 1, CacheWrites: w},
				})
			}
			mustRecord(t, s, records...)
			mustRecord(t, s, records...) // do not count again
		}
		check := func(want llm.CacheWrites, account string, subject llmhttp.SubjectID, from, to time.Time) {
			t.Helper()
			sums := mustQuery(t, s, llmhttp.UsageQuery{Account: account, Subject: subject, From: from, To: to})
			require.Len(t, sums, 1)
			assert.Equal(t, want, sums[0].Units.CacheWrites)
		}
		first := noon.Truncate(day)
		record("a", noon, llm.CacheWrites{5 * m: 1, h: 2}, nil, llm.CacheWrites{h: 3, 12 * h: 1 << 60})
		record("a", noon, llm.CacheWrites{30 * m: 4})
		record("a", noon.Add(day), llm.CacheWrites{12 * h: 1<<63 - 1}, nil)
		record("many", noon, many)
		record("many", noon, llm.CacheWrites{30 * m: 5}, many, llm.CacheWrites{time.Hour: -1, time.Nanosecond: 1})
		record("none", noon, nil, nil)

		day1 := llm.CacheWrites{5 * m: 1, 30 * m: 4, h: 5, 12 * h: 1 << 60}
		both := llm.CacheWrites{5 * m: 1, 30 * m: 4, h: 5, 12 * h: 1<<63 - 1}
		bounded := llm.CacheWrites{30 * m: 5}
		for i := range 7 {
			bounded[time.Duration(1+i)*h] = 2
		}
		for _, subject := range []llmhttp.SubjectID{{}, {Kind: llmhttp.KindKey, ID: "k"}, {Kind: llmhttp.KindUser, ID: "u"}, {Kind: "team", ID: "t"}} {
			check(day1, "a", subject, first, first.Add(day))       // the sum of a day
			check(day1, "a", subject, noon.Add(-h), noon.Add(h))   // records
			check(both, "a", subject, first, first.Add(2*day))     // two days
			check(bounded, "many", subject, first, first.Add(day)) // the shortest ones
			check(nil, "none", subject, first, first.Add(day))
		}
		for by, status := range map[manage.ReportGroup]manage.ReportStatus{manage.ByAccount: "", manage.ByUser: manage.StatusSucceeded} { // of sums, and of records
			report, err := s.Report(t.Context(), manage.ReportQuery{From: first, To: first.Add(2 * day), By: by, Status: status})
			require.NoError(t, err)
			require.Len(t, report.Rows, 3)
			for _, row := range report.Rows {
				assert.Equal(t, map[string]llm.CacheWrites{"a": both, "many": bounded}[row.Account], row.Total().Units.CacheWrites)
			}
		}
		require.NoError(t, s.addUpUserMonths(t.Context(), micros(first.Add(40*day))))
		check(both, "a", llmhttp.SubjectID{Kind: llmhttp.KindUser, ID: "u"}, first.Add(-40*day), first.Add(40*day))

		for _, account := range []string{"a", "many"} { // a damaged row is an error that tells what
			_, err := s.db.write.Exec("UPDATE llmhttp_usage_records SET cache_writes = '{\"1w\":1}' WHERE account = $1", account)
			require.NoError(t, err)
		}
		_, err := s.Query(t.Context(), llmhttp.UsageQuery{Account: "a", From: noon, To: noon.Add(h)})
		assert.ErrorContains(t, err, `"1w" is not how long a cache keeps tokens`)
	})
}
