package sqlstore

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/memory"
)

// A report with a Limit finds the largest groups in short and in long periods.
func TestReportUsage_Limit(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var records []llmhttp.UsageRecord
	for i := range 1000 {
		key := rng.IntN(50)
		at := noon.Truncate(day).Add(time.Duration(rng.Int64N(int64(100 * day))))
		r := usageRecord(fmt.Sprint(i), fmt.Sprint("account ", key%10), fmt.Sprint("m", rng.IntN(2)), at, rng.IntN(1_000_000))
		r.KeyID, r.User = fmt.Sprint("key ", key), fmt.Sprint("user ", key%7)
		r.Labels = []llmhttp.Label{{Name: "team", Value: fmt.Sprint(key % 5)}}
		records = append(records, r)
	}
	var want memory.UsageStore
	mustRecord(t, &want, records...)
	forEachDatabase(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, nil)
		mustRecord(t, s, records...)
		for _, by := range []manage.ReportGroup{manage.ByKey, manage.ByAccount, manage.ByModel, manage.ByUser, manage.ByLabel} {
			for _, account := range []string{"", "account 1"} {
				for _, period := range []time.Duration{30 * day, longPeriod + day} {
					from := noon.Truncate(day).Add(10 * day)
					q := manage.ReportQuery{Account: account, From: from, To: from.Add(period), By: by, Limit: 3, GroupLabel: "team"}
					expected, err := want.Report(t.Context(), q)
					require.NoError(t, err)
					require.NotEmpty(t, expected.Rows)
					got, err := s.Report(t.Context(), q)
					require.NoError(t, err)
					assert.Equal(t, expected, got, "%+v", q)
				}
			}
		}
	})
}

// Reports of what there are sums of are complete after records were pruned; others say from when. Sums of
// end users are those of months in UTC then.
func TestReportUsage_AfterPruning(t *testing.T) {
	date := func(month time.Month, day int) time.Time { return time.Date(2026, month, day, 0, 0, 0, 0, time.UTC) }
	first, end, pruned := date(1, 20), date(3, 21), date(3, 5)
	var records []llmhttp.UsageRecord
	for at := first.Add(12 * time.Hour); at.Before(end); at = at.Add(day) {
		r := usageRecord(at.String(), "a", "m", at, 10)
		r.User, r.Target, r.ErrorClass, r.Labels = "u", "t", llmhttp.ClassTimeout, []llmhttp.Label{{Name: "team", Value: "red"}}
		r.Cost = llmhttp.Cost{Input: 3, CacheRead: 4, CacheWrite: 5, Output: 6, Other: 7}
		records = append(records, r)
	}
	days := func(from, to time.Time) int64 { return int64(to.Sub(from) / day) }
	forEachDatabase(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, nil)
		mustRecord(t, s, records...)
		_, err := s.Prune(t.Context(), pruned)
		require.NoError(t, err)
		nobody := usageRecord("without a user", "a", "m", end.Add(-time.Hour), 10)
		nobody.Cost = records[0].Cost
		mustRecord(t, s, nobody)

		red := llmhttp.Label{Name: "team", Value: "red"}
		january, february, march := date(1, 1), date(2, 1), date(3, 1)
		for _, test := range []struct {
			name     string
			q        manage.ReportQuery
			requests int64
			since    time.Time
		}{
			{"total", manage.ReportQuery{}, days(first, end) + 1, time.Time{}},
			{"days", manage.ReportQuery{Interval: manage.EveryDay}, days(first, end) + 1, time.Time{}},
			{"account", manage.ReportQuery{By: manage.ByAccount, Account: "a"}, days(first, end) + 1, time.Time{}},
			{"key", manage.ReportQuery{By: manage.ByKey, KeyID: "key_1"}, days(first, end) + 1, time.Time{}},
			{"model", manage.ReportQuery{By: manage.ByModel, Model: "m"}, days(first, end) + 1, time.Time{}},

			{"by user, from a day", manage.ReportQuery{By: manage.ByUser}, days(february, end) + 1, february},
			{"by user, from a month", manage.ReportQuery{By: manage.ByUser, From: january}, days(first, end) + 1, time.Time{}},
			{"months of a user", manage.ReportQuery{User: "u", From: january, Interval: manage.EveryMonth}, days(first, end), time.Time{}},
			{"days of a user", manage.ReportQuery{User: "u", From: january, Interval: manage.EveryDay}, days(march, end), march},
			{"user, until a day", manage.ReportQuery{User: "u", From: january, To: date(2, 10)}, 0, march},
			{"user, until a later day", manage.ReportQuery{User: "u", From: january, To: date(3, 3)}, days(first, date(3, 3)), time.Time{}},
			{"hours of a user", manage.ReportQuery{User: "u", From: january, Interval: manage.EveryHour}, days(pruned, end), pruned},
			{"keys of users", manage.ReportQuery{By: manage.ByUser, KeyID: "key_1"}, days(pruned, end) + 1, pruned},

			{"by label", manage.ReportQuery{By: manage.ByLabel, GroupLabel: "team"}, days(pruned, end) + 1, pruned},
			{"label", manage.ReportQuery{Label: red}, days(pruned, end), pruned},
			{"target", manage.ReportQuery{Target: "t"}, days(pruned, end), pruned},
			{"status", manage.ReportQuery{Status: manage.StatusFailed}, days(pruned, end), pruned},
			{"later", manage.ReportQuery{From: pruned, Label: red}, days(pruned, end), time.Time{}},
			{"before", manage.ReportQuery{To: date(2, 1), Label: red}, 0, pruned},

			{"from an hour", manage.ReportQuery{From: first.Add(time.Hour)}, days(first, end), first.Add(day)},
			{"until an hour", manage.ReportQuery{To: end.Add(-time.Hour)}, days(first, end), time.Time{}},
			{"until a pruned hour", manage.ReportQuery{To: pruned.Add(-time.Hour)}, 0, pruned},
			{"months elsewhere", manage.ReportQuery{Interval: manage.EveryMonth, Location: berlin}, days(march, end) + 1, march},
			{"days elsewhere", manage.ReportQuery{Interval: manage.EveryDay, Location: berlin}, days(pruned, end) + 1, pruned},
		} {
			test.q.From, test.q.To = orTime(test.q.From, first), orTime(test.q.To, end)
			r, err := s.Report(t.Context(), test.q)
			require.NoError(t, err, test.name)
			assert.True(t, test.since.Equal(r.Since), "%s: since %v", test.name, r.Since)
			sum := r.Total()
			assert.Equal(t, test.requests, sum.Requests, test.name)
			assert.EqualValues(t, 5*test.requests, sum.Cost.CacheWrite, test.name)
			assert.EqualValues(t, 25*test.requests, sum.Cost.Total(), test.name)
		}
	})
}

func orTime(t, ifZero time.Time) time.Time {
	if t.IsZero() {
		return ifZero
	}
	return t
}
