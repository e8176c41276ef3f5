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
		for _, by := range []manage.ReportGroup{manage.ByDay, manage.ByKey, manage.ByAccount, manage.ByModel, manage.ByUser, manage.ByLabel} {
			for _, account := range []string{"", "account 1"} {
				for _, period := range []time.Duration{30 * day, longPeriod + day} {
					from := noon.Truncate(day).Add(10 * day)
					q := manage.ReportQuery{Account: account, From: from, To: from.Add(period), By: by, Limit: 3, GroupLabel: "team"}
					expected, err := want.Report(t.Context(), q)
					require.NoError(t, err)
					require.NotEmpty(t, expected.Sums)
					got, err := s.Report(t.Context(), q)
					require.NoError(t, err)
					assert.Equal(t, expected, got, "%+v", q)
				}
			}
		}
	})
}

// Reports by account, key and model are complete after records were pruned; others say from when.
func TestReportUsage_AfterPruning(t *testing.T) {
	today := time.Now().UTC().Truncate(day)
	first := today.Add(-20 * day)
	var records []llmhttp.UsageRecord
	for i := range 10 {
		r := usageRecord(fmt.Sprint(i), "a", "m", first.Add(time.Duration(i)*day+time.Hour), 10)
		r.User, r.Labels = "u", []llmhttp.Label{{Name: "team", Value: "red"}}
		r.Cost = llmhttp.Cost{Input: 3, CacheRead: 4, CacheWrite: 5, Output: 6, Other: 7}
		records = append(records, r)
	}
	forEachDatabase(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, nil)
		mustRecord(t, s, records...)
		pruned := first.Add(4 * day)
		n, err := s.Prune(t.Context(), pruned)
		require.NoError(t, err)
		require.EqualValues(t, 4, n)

		red := llmhttp.Label{Name: "team", Value: "red"}
		for _, test := range []struct {
			name     string
			q        manage.ReportQuery
			requests int64
			since    time.Time
		}{
			{"total", manage.ReportQuery{}, 10, time.Time{}},
			{"account", manage.ReportQuery{By: manage.ByAccount, Account: "a"}, 10, time.Time{}},
			{"key", manage.ReportQuery{By: manage.ByKey, KeyID: "key_1"}, 10, time.Time{}},
			{"model", manage.ReportQuery{By: manage.ByModel, Model: "m"}, 10, time.Time{}},
			{"by user", manage.ReportQuery{By: manage.ByUser}, 6, pruned},
			{"user", manage.ReportQuery{User: "u"}, 6, pruned},
			{"by label", manage.ReportQuery{By: manage.ByLabel, GroupLabel: "team"}, 6, pruned},
			{"label", manage.ReportQuery{Label: red}, 6, pruned},
			{"later", manage.ReportQuery{From: pruned, Label: red}, 6, time.Time{}},
			{"before", manage.ReportQuery{To: pruned.Add(-day), User: "u"}, 0, pruned},
		} {
			if test.q.From.IsZero() {
				test.q.From = first
			}
			if test.q.To.IsZero() {
				test.q.To = today
			}
			r, err := s.Report(t.Context(), test.q)
			require.NoError(t, err, test.name)
			assert.True(t, test.since.Equal(r.Since), "%s: since %v", test.name, r.Since)
			var sum llmhttp.UsageSum
			for i := range r.Sums {
				sum.Add(r.Sums[i].UsageSum)
			}
			assert.Equal(t, test.requests, sum.Requests, test.name)
			assert.EqualValues(t, 5*test.requests, sum.Cost.CacheWrite, test.name)
			assert.EqualValues(t, 25*test.requests, sum.Cost.Total(), test.name)
		}
	})
}
