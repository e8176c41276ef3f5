package sqlstore

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/manage"
)

// A report reads records only of the days that a bound divides, and sums of all others.
func TestReportTimes(t *testing.T) {
	hour := func(month time.Month, date, hours int) int64 {
		return micros(time.Date(2026, month, date, hours, 0, 0, 0, time.UTC))
	}
	days := func(month time.Month, date int, toMonth time.Month, toDate int) timeRange {
		return timeRange{hour(month, date, 0), hour(toMonth, toDate, 0)}
	}
	london, err := time.LoadLocation("Europe/London")
	require.NoError(t, err)
	const never = math.MinInt64
	for name, test := range map[string]struct {
		q             manage.ReportQuery
		from, to      int64
		pruned        int64
		days, records []timeRange
		steps         []step
		since         int64
	}{
		"a total": {
			from: hour(1, 1, 0), to: hour(1, 3, 0), pruned: hour(2, 1, 0), days: []timeRange{days(1, 1, 1, 3)}, steps: []step{{start: hour(1, 1, 0)}},
		},
		"hours of days": {
			from: hour(1, 1, 7), to: hour(1, 4, 9), pruned: never, days: []timeRange{days(1, 2, 1, 4)},
			records: []timeRange{{hour(1, 1, 7), hour(1, 2, 0)}, {hour(1, 4, 0), hour(1, 4, 9)}}, steps: []step{{start: hour(1, 1, 7)}},
		},
		"hours of one day": {
			from: hour(1, 1, 7), to: hour(1, 1, 9), pruned: never, records: []timeRange{{hour(1, 1, 7), hour(1, 1, 9)}}, steps: []step{{start: hour(1, 1, 7)}},
		},
		"months in Berlin": {
			q:    manage.ReportQuery{Interval: manage.EveryMonth, Location: berlin},
			from: hour(2, 1, 0) - int64(time.Hour/time.Microsecond), to: hour(4, 1, 0), pruned: never,
			days:    []timeRange{days(2, 1, 2, 28), days(3, 1, 3, 31)},
			records: []timeRange{{hour(1, 31, 23), hour(2, 1, 0)}, days(2, 28, 3, 1), {hour(3, 31, 0), hour(4, 1, 0)}},
			steps:   []step{{start: hour(1, 31, 23)}, {start: hour(2, 28, 23)}, {start: hour(3, 31, 22)}},
		},
		"days in London": { // at UTC until March 29
			q:    manage.ReportQuery{Interval: manage.EveryDay, Location: london},
			from: hour(3, 27, 0), to: hour(4, 1, 0), pruned: never, days: []timeRange{days(3, 27, 3, 29)}, records: []timeRange{days(3, 29, 4, 1)},
			steps: []step{{hour(3, 27, 0), dayMicros}, {start: hour(3, 29, 0)}, {hour(3, 29, 23), dayMicros}},
		},
		"days in London that were pruned": {
			q:    manage.ReportQuery{Interval: manage.EveryDay, Location: london},
			from: hour(3, 27, 0), to: hour(4, 1, 0), pruned: hour(3, 31, 0), records: []timeRange{days(3, 31, 4, 1)},
			steps: []step{{hour(3, 27, 0), dayMicros}, {start: hour(3, 29, 0)}, {hour(3, 29, 23), dayMicros}}, since: hour(3, 31, 0),
		},
		"days of users": {
			q:    manage.ReportQuery{Interval: manage.EveryDay, By: manage.ByUser},
			from: hour(1, 10, 0), to: hour(4, 1, 0), pruned: hour(3, 5, 0), days: []timeRange{days(3, 1, 4, 1)},
			steps: []step{{hour(1, 10, 0), dayMicros}}, since: hour(3, 1, 0),
		},
		"labels": {
			q: manage.ReportQuery{By: manage.ByLabel}, from: hour(1, 10, 0), to: hour(4, 1, 0), pruned: hour(3, 5, 0), records: []timeRange{days(3, 5, 4, 1)},
			steps: []step{{start: hour(1, 10, 0)}}, since: hour(3, 5, 0),
		},
	} {
		q := test.q
		q.From, q.To = fromMicros(test.from), fromMicros(test.to)
		starts, err := q.Intervals()
		require.NoError(t, err)
		r := newReportTimes(&q, starts, test.pruned)
		assert.Equal(t, test.days, r.days, name)
		assert.Equal(t, test.records, r.records, name)
		assert.Equal(t, test.steps, r.steps, name)
		assert.Equal(t, test.since != 0, r.incomplete, name)
		if r.incomplete {
			assert.Equal(t, test.since, r.from, name)
		}
	}
}
