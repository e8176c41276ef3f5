package manage_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage"
)

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Skip("the database of time zones is missing")
	}
	return loc
}

// Intervals begin when the clock in their location says so, also on days on which it is changed.
func TestReportQuery_Intervals(t *testing.T) {
	for name, test := range map[string]struct {
		zone     string
		every    manage.ReportInterval
		from, to string // in the zone, or with an offset
		want     []string
	}{
		"days in UTC": {"UTC", manage.EveryDay, "2026-02-28T00:00:00Z", "2026-03-02T00:00:00Z", []string{"2026-02-28T00:00:00Z", "2026-03-01T00:00:00Z"}},
		"parts of days": {
			"UTC", manage.EveryDay, "2026-02-28T12:00:00Z", "2026-03-01T00:00:01Z", []string{"2026-02-28T12:00:00Z", "2026-03-01T00:00:00Z"},
		},
		"a day of 23 hours": {
			"Europe/Berlin", manage.EveryDay, "2026-03-28T00:00:00+01:00", "2026-03-31T00:00:00+02:00",
			[]string{"2026-03-28T00:00:00+01:00", "2026-03-29T00:00:00+01:00", "2026-03-30T00:00:00+02:00"},
		},
		"a day of 25 hours": {
			"Europe/Berlin", manage.EveryDay, "2026-10-24T22:00:00Z", "2026-10-26T23:30:00Z",
			[]string{"2026-10-25T00:00:00+02:00", "2026-10-26T00:00:00+01:00", "2026-10-27T00:00:00+01:00"},
		},
		"the hour that is skipped": {
			"Europe/Berlin", manage.EveryHour, "2026-03-29T01:30:00+01:00", "2026-03-29T05:00:00+02:00",
			[]string{"2026-03-29T01:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-29T04:00:00+02:00"},
		},
		"the hour that is repeated": {
			"Europe/Berlin", manage.EveryHour, "2026-10-25T02:00:00+02:00", "2026-10-25T03:01:00+01:00",
			[]string{"2026-10-25T02:00:00+02:00", "2026-10-25T02:00:00+01:00", "2026-10-25T03:00:00+01:00"},
		},
		"half an hour that is skipped": {
			"Australia/Lord_Howe", manage.EveryHour, "2026-10-04T01:00:00+10:30", "2026-10-04T03:30:00+11:00",
			[]string{"2026-10-04T01:00:00+10:30", "2026-10-04T02:30:00+11:00", "2026-10-04T03:00:00+11:00"},
		},
		"hours that begin at half past": {
			"Asia/Kolkata", manage.EveryHour, "2026-01-01T00:00:00Z", "2026-01-01T02:00:00Z",
			[]string{"2026-01-01T05:30:00+05:30", "2026-01-01T06:00:00+05:30", "2026-01-01T07:00:00+05:30"},
		},
		"a midnight that is skipped": {
			"Africa/Cairo", manage.EveryDay, "2024-04-25T00:00:00+02:00", "2024-04-27T00:00:00+03:00",
			[]string{"2024-04-25T00:00:00+02:00", "2024-04-26T01:00:00+03:00"},
		},
		"a midnight that is repeated": {
			"Atlantic/Azores", manage.EveryDay, "2024-10-26T00:00:00Z", "2024-10-27T12:00:00-01:00",
			[]string{"2024-10-26T00:00:00Z", "2024-10-27T00:00:00Z"},
		},
		"a day that is skipped": {
			"Pacific/Apia", manage.EveryDay, "2011-12-29T00:00:00-10:00", "2012-01-01T00:00:00+14:00",
			[]string{"2011-12-29T00:00:00-10:00", "2011-12-31T00:00:00+14:00"},
		},
		"months": {
			"Europe/Berlin", manage.EveryMonth, "2026-02-15T00:00:00+01:00", "2026-04-01T00:00:00.000001+02:00",
			[]string{"2026-02-15T00:00:00+01:00", "2026-03-01T00:00:00+01:00", "2026-04-01T00:00:00+02:00"},
		},
		"nothing": {"UTC", manage.EveryHour, "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", nil},
	} {
		t.Run(name, func(t *testing.T) {
			loc := zone(t, test.zone)
			at := func(s string) time.Time {
				parsed, err := time.Parse(time.RFC3339, s)
				require.NoError(t, err)
				return parsed
			}
			q := manage.ReportQuery{Interval: test.every, Location: loc, From: at(test.from), To: at(test.to)}
			starts, err := q.Intervals()
			require.NoError(t, err)
			var got []string
			for i, start := range starts {
				assert.Same(t, loc, start.Location())
				got = append(got, start.Format(time.RFC3339))
				assert.True(t, i == 0 || starts[i-1].Before(start))
			}
			assert.Equal(t, test.want, got)
		})
	}
}

func TestReportQuery_IntervalsOfNothingKnown(t *testing.T) {
	from := time.Date(2026, 1, 1, 5, 0, 0, 0, time.FixedZone("", 7200))
	q := manage.ReportQuery{From: from, To: from.Add(1)}
	starts, err := q.Intervals()
	require.NoError(t, err)
	assert.Equal(t, []time.Time{from}, starts, "without an Interval, the From of the query")

	q.Interval, q.To = manage.EveryDay, from.Add(24*time.Hour)
	starts, err = q.Intervals()
	require.NoError(t, err)
	assert.Equal(t, time.UTC, starts[0].Location(), "without a Location, UTC")

	q.Interval, q.To = manage.EveryHour, from.Add(manage.MaxIntervals*time.Hour)
	starts, err = q.Intervals()
	require.NoError(t, err)
	assert.Len(t, starts, manage.MaxIntervals)
	q.To = q.To.Add(1)
	_, err = q.Intervals()
	assert.ErrorContains(t, err, "there are more than 10000 intervals of one hour")
	assert.NotErrorIs(t, err, errors.ErrUnsupported)

	q.Interval = "week"
	_, err = q.Intervals()
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	assert.ErrorContains(t, err, `"week"`)
}

// What sums by account, key, model and day in UTC are enough for needs no detail.
func TestReportQuery_NeedsDetail(t *testing.T) {
	from := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	berlin := zone(t, "Europe/Berlin")
	for want, changes := range map[bool][]func(q *manage.ReportQuery){
		false: {
			func(*manage.ReportQuery) {}, func(q *manage.ReportQuery) { q.Account, q.KeyID, q.Model = "a", "k", "m" },
			func(q *manage.ReportQuery) { q.By, q.Order, q.Limit, q.PerModel = manage.ByKey, "images", 1, true },
			func(q *manage.ReportQuery) { q.Interval = manage.EveryDay }, func(q *manage.ReportQuery) { q.Interval = manage.EveryMonth },
			func(q *manage.ReportQuery) { q.Location = berlin }, func(q *manage.ReportQuery) { q.GroupLabel = "team" },
			func(q *manage.ReportQuery) { q.Interval, q.Location = manage.EveryDay, zone(t, "Etc/UTC") },
		},
		true: {
			func(q *manage.ReportQuery) { q.User = "u" }, func(q *manage.ReportQuery) { q.Label.Name = "team" },
			func(q *manage.ReportQuery) { q.Operation = "chat" }, func(q *manage.ReportQuery) { q.Target = "t" },
			func(q *manage.ReportQuery) { q.Status = manage.StatusSucceeded }, func(q *manage.ReportQuery) { q.By = manage.ByUser },
			func(q *manage.ReportQuery) { q.By = manage.ByLabel }, func(q *manage.ReportQuery) { q.Interval = manage.EveryHour },
			func(q *manage.ReportQuery) { q.Interval, q.Location = manage.EveryDay, berlin },
			func(q *manage.ReportQuery) { q.From = q.From.Add(time.Hour) }, func(q *manage.ReportQuery) { q.To = q.To.Add(time.Hour) },
			func(q *manage.ReportQuery) { q.Interval = "unknown" },
		},
	} {
		for i, change := range changes {
			q := manage.ReportQuery{From: from, To: from.AddDate(0, 2, 0)}
			change(&q)
			assert.Equal(t, want, q.NeedsDetail(), "%d: %+v", i, q)
		}
	}
}

// A store refuses a query with a field that it does not know.
func TestReportQuery_CheckFields(t *testing.T) {
	q := manage.ReportQuery{Account: "a", From: time.Unix(1, 0), Limit: -1}
	assert.NoError(t, q.CheckFields("From", "Account", "Limit", "Model"))
	err := q.CheckFields("From", "Account")
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	assert.ErrorContains(t, err, "does not know Limit of a ReportQuery")
	assert.NoError(t, new(manage.ReportQuery).CheckFields())
}

func TestReportStatus_Includes(t *testing.T) {
	for status, want := range map[manage.ReportStatus][3]bool{ // of success, a timeout and a client that left
		manage.StatusAny: {true, true, true}, manage.StatusSucceeded: {true, false, false}, manage.StatusFailed: {false, true, true},
		manage.ReportStatus(llmhttp.ClassTimeout): {false, true, false}, "unknown": {},
	} {
		for i, class := range []llmhttp.ErrorClass{"", llmhttp.ClassTimeout, llmhttp.ClassCanceled} {
			assert.Equal(t, want[i], status.Includes(class), "%q of %q", status, class)
		}
	}
}

func TestReportOrder_Number(t *testing.T) {
	s := &llmhttp.UsageSum{Requests: 3, Units: llmhttp.Units{PromptTokens: 5, CompletionTokens: 6, Images: 7}, Cost: llmhttp.Cost{Input: 8, Other: 9}}
	for order, want := range map[manage.ReportOrder]int64{
		manage.OrderByCost: 17, manage.OrderByTokens: 11, manage.OrderByRequests: 3, "images": 7, "prompt_tokens": 5, "characters": 0,
	} {
		n, err := order.Number(s)
		require.NoError(t, err)
		assert.Equal(t, want, n, order)
	}
	_, err := manage.ReportOrder("name").Number(s)
	assert.ErrorIs(t, err, errors.ErrUnsupported)
}

func TestReport_Total(t *testing.T) {
	sum := func(n int64) []llmhttp.UsageSum {
		return []llmhttp.UsageSum{{Model: "m", Requests: n}, {Requests: 10 * n}}
	}
	r := manage.Report{Rows: []manage.ReportRow{{Sums: sum(1)}, {Sums: sum(2)}}, Others: sum(3)}
	assert.Equal(t, llmhttp.UsageSum{Requests: 66}, r.Total())
	assert.Equal(t, llmhttp.UsageSum{Requests: 22}, r.Rows[1].Total())
}
