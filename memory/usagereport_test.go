package memory

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage"
)

func report(t testing.TB, u *UsageStore, q manage.ReportQuery) (requests int64, r manage.Report) {
	t.Helper()
	r, err := u.Report(t.Context(), q)
	require.NoError(t, err)
	return r.Total().Requests, r
}

// Users, labels and the like of the older half are forgotten when the store is full, and reports tell so.
func TestUsageStore_ReportsDetailWhileRetained(t *testing.T) {
	const n = maxEntries + 1000
	u := NewUsageStore()
	at := func(i int) time.Time { return noon.Add(time.Duration(i) * time.Second) }
	recordBatches(t, u, n, func(i int) llmhttp.UsageRecord {
		labels := []llmhttp.Label{{Name: "team", Value: fmt.Sprint(i % 3)}}
		return llmhttp.UsageRecord{ID: fmt.Sprint(i), Time: at(i), Account: "a", KeyID: "k", Model: "m", User: fmt.Sprint("user ", i), Labels: labels, Operation: llmhttp.OperationChat, Target: "t", ErrorClass: llmhttp.ClassTimeout}
	})
	from := noon.Truncate(24 * time.Hour)
	base := manage.ReportQuery{From: from, To: from.AddDate(0, 0, 5)}
	for _, by := range []manage.ReportGroup{manage.ByTotal, manage.ByAccount, manage.ByKey, manage.ByModel} {
		q := base
		q.By, q.Interval = by, manage.EveryDay
		requests, r := report(t, u, q)
		assert.EqualValues(t, n, requests, by)
		assert.Zero(t, r.Since, by)
	}
	for _, change := range []func(q *manage.ReportQuery){
		func(q *manage.ReportQuery) { q.By = manage.ByUser }, func(q *manage.ReportQuery) { q.By, q.GroupLabel = manage.ByLabel, "team" },
		func(q *manage.ReportQuery) { q.Interval = manage.EveryHour }, func(q *manage.ReportQuery) { q.Target = "t" },
		func(q *manage.ReportQuery) { q.Operation = llmhttp.OperationChat }, func(q *manage.ReportQuery) { q.Status = manage.StatusFailed },
	} {
		q := base
		change(&q)
		requests, r := report(t, u, q)
		require.True(t, r.Since.After(at(n/4)) && r.Since.Before(at(n)), "%v", r.Since)
		assert.Equal(t, int64(at(n).Sub(r.Since.Add(-1))/time.Second)-1, requests, "%+v", q)
	}
	requests, r := report(t, u, manage.ReportQuery{From: from, To: base.To, User: fmt.Sprint("user ", n-1)})
	assert.EqualValues(t, 1, requests)
	assert.NotZero(t, r.Since)
	requests, r = report(t, u, manage.ReportQuery{From: from, To: base.To, Label: llmhttp.Label{Name: "team", Value: "3"}})
	assert.Zero(t, requests)
	assert.NotZero(t, r.Since)
	_, r = report(t, u, manage.ReportQuery{From: from.AddDate(0, 0, 1), To: base.To, By: manage.ByUser})
	assert.Zero(t, r.Since, "what is missing is older")
}

// A store that has dropped usage says so in every report, also when it then adds up the rest of
// the hour in which that ended.
func TestUsageStore_ReportsWhatItDropped(t *testing.T) {
	u := NewUsageStore()
	at := func(i int) time.Time { return noon.Add(time.Duration(i) * 10 * time.Millisecond) }
	recordBatches(t, u, maxEntries+1, func(i int) llmhttp.UsageRecord {
		return llmhttp.UsageRecord{ID: fmt.Sprint(i), Time: at(i), Account: "a", Model: fmt.Sprint(i)}
	})
	q := manage.ReportQuery{From: noon.Truncate(24 * time.Hour), To: noon.Truncate(24*time.Hour).AddDate(0, 0, 1)}
	requests, r := report(t, u, q)
	require.False(t, r.Since.IsZero())
	kept := requests
	assert.EqualValues(t, at(maxEntries+1).Sub(r.Since.Add(-1))/(10*time.Millisecond)-1, kept)

	u.addUpHours(noon.Add(time.Hour))
	requests, _ = report(t, u, q)
	assert.Equal(t, kept, requests)
}
