// TestUsageReporter and its checks.

package storetest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llmhttptest/internal/kit"
	"github.com/llmhttp/llmhttp/manage"
)

// TestUsageReporter tests a [manage.UsageReporter]. It calls newStore once for
// each subtest. Unlike other kits it needs a store without content, because it
// asks for the usage of all accounts. Test the methods of [llmhttp.UsageStore]
// with [TestUsageStore] too.
func TestUsageReporter(t *testing.T, newStore func(t testing.TB) manage.UsageReporter) {
	t.Helper()
	kit.Run(t, &reporterSequences, reporterChecks, newStore)
}

// A reportCall records Records or asks for a report. Of a Query, a From and a To of zero are those of
// all records.
type reportCall struct {
	method  string
	Records []llmhttp.UsageRecord
	Query   manage.ReportQuery
}

var reporterSequences = kit.Sequences[manage.UsageReporter, reportCall]{
	Count:    1, // because a report has the records of all sequences
	Generate: randomReportCalls, Begin: beginReportCalls, Simpler: kit.SimplerEach(kit.SimplerFields[reportCall]),
	Describe: func(c reportCall) string { return c.method + kit.Describe(c) },
}

var reporterChecks = []kit.Check[manage.UsageReporter]{
	{Name: "TooManyIntervals", Test: checkTooManyIntervals},
}

// unknown is a value that no field of a ReportQuery has.
const unknown = "nonsense"

// reportStart is a midnight in UTC, and reportEnd one after all records. In this time a month ends, and
// clocks are put back in Berlin and in New York.
var (
	reportStart = time.Date(2025, 10, 25, 0, 0, 0, 0, time.UTC)
	reportEnd   = reportStart.Add(reportDays * day)
)

const reportDays = 10

// beginReportCalls gives records an ID, and tokens that do not add up to the same sum for two groups.
func beginReportCalls(t testing.TB, s manage.UsageReporter) func(reportCall) {
	var records []llmhttp.UsageRecord
	return func(c reportCall) {
		q := c.Query
		q.From, q.To = orTime(q.From, reportStart), orTime(q.To, reportEnd)
		if c.method == "Report" {
			wantReport(t, s, q, records)
			return
		}
		n := len(records)
		for _, r := range c.Records {
			r.ID, r.Operation, r.Time = kit.Unique("request"), cmp.Or(r.Operation, llmhttp.OperationChat), orTime(r.Time, reportStart)
			r.Units.PromptTokens += kit.FixedRand(uint64(len(records))).Int64N(1e12)
			records = append(records, r)
		}
		kit.Must(t, "Record", s.Record(t.Context(), slices.Clone(records[n:])...))
	}
}

func randomReportCalls(rng *rand.Rand, _ manage.UsageReporter, _ int) (calls []reportCall) {
	for range 5 {
		c := reportCall{method: "Record"}
		for range 50 {
			c.Records = append(c.Records, randomReportRecord(rng))
		}
		calls = append(calls, c)
		for range 150 {
			calls = append(calls, reportCall{method: "Report", Query: randomReportQuery(rng)})
		}
	}
	return calls
}

func randomReportRecord(rng *rand.Rand) llmhttp.UsageRecord {
	account := rng.IntN(4)
	r := llmhttp.UsageRecord{
		Time: reportStart.Add(time.Duration(rng.Int64N(int64(reportDays * day)))).Truncate(time.Microsecond), Model: kit.Pick(rng, "large", "small", "\\x00"),
		Account:    []string{"account 1", "account 2", "it's", "\u6a21\u578b\x00"}[account],
		KeyID:      kit.Pick(rng, "key 2", fmt.Sprint("key ", account, rng.IntN(3))), // keys of several accounts may have the same ID
		User:       kit.Pick(rng, "", "user 1", "user 2", "it's"),                    // and so may their end users
		Operation:  kit.Pick(rng, llmhttp.OperationChat, llmhttp.OperationImages),
		Target:     kit.Pick(rng, "", "first", "second"),
		ErrorClass: kit.Pick(rng, "", "", llmhttp.ClassTimeout, llmhttp.ClassCanceled),
	}
	if rng.IntN(4) == 0 {
		r.Time = r.Time.Truncate(kit.Pick(rng, day, time.Hour))
	}
	for _, name := range []string{"team", "stage", ",", `"team":`} {
		if rng.IntN(2) == 0 {
			r.Labels = append(r.Labels, llmhttp.Label{Name: name, Value: kit.Pick(rng, "", "red", ":", `\"`, "<\u6a21>")})
		}
	}
	randomNumbers(rng, &r)
	return r
}

// randomReportQuery returns a query that has few conditions, so that it selects something.
func randomReportQuery(rng *rand.Rand) (q manage.ReportQuery) {
	seldom := func(f func()) {
		if rng.IntN(6) == 0 {
			f()
		}
	}
	bound := func() time.Time {
		at := reportStart.Add(time.Duration(rng.IntN(reportDays+2)-1) * day)
		seldom(func() { at = at.Add(kit.Pick(rng, time.Microsecond, 90*time.Minute, 22*time.Hour, 23*time.Hour, -1)) })
		return at.In(kit.Pick(rng, usageZones...))
	}
	q.By = kit.Pick(rng, manage.ByTotal, manage.ByKey, manage.ByAccount, manage.ByModel, manage.ByUser, manage.ByLabel)
	q.GroupLabel = kit.Pick(rng, "team", `"team":`)
	q.Interval = kit.Pick(rng, manage.NoInterval, manage.NoInterval, manage.EveryDay, manage.EveryDay, manage.EveryMonth, manage.EveryHour)
	if rng.IntN(2) == 0 {
		q.Location = kit.Pick(rng, usageZones...)
	}
	q.PerModel = rng.IntN(3) == 0
	seldom(func() { q.Account = kit.Pick(rng, "account 1", "it's", "nobody") })
	seldom(func() { q.KeyID = kit.Pick(rng, "key 2", "key 0 1", "nobody") })
	seldom(func() { q.Model = kit.Pick(rng, "large", "\\x00", "unknown") })
	seldom(func() { q.User = kit.Pick(rng, "user 1", "it's", "nobody") })
	seldom(func() {
		q.Label.Name = kit.Pick(rng, "team", "stage", ",", `"team":`, "re", "unknown")
		q.Label.Value = kit.Pick(rng, "", "red", ":", `\"`, "d")
	})
	seldom(func() { q.Operation = kit.Pick(rng, llmhttp.OperationImages, "unknown") })
	seldom(func() { q.Target = kit.Pick(rng, "second", "unknown") })
	seldom(func() {
		q.Status = kit.Pick(rng, manage.StatusSucceeded, manage.StatusFailed, manage.ReportStatus(llmhttp.ClassTimeout), "unknown")
	})
	q.From, q.To = kit.Pick(rng, time.Time{}, time.Time{}, bound()), kit.Pick(rng, time.Time{}, time.Time{}, bound())
	q.Order = kit.Pick(rng, manage.OrderByCost, manage.OrderByCost, manage.OrderByTokens, manage.OrderByRequests, "images", "characters")
	q.Limit = kit.Pick(rng, 0, 0, 0, 1, 1, 2, 2, -1)
	seldom(func() {
		seldom(func() {
			kit.Pick(rng, func() { q.By = unknown }, func() { q.Interval = unknown }, func() { q.Order = unknown })()
		})
	})
	return q
}

// wantReport reports an error unless the report for q is that about records. It accepts a store that
// cannot do what needs detail, or that says from when it knows that.
func wantReport(t testing.TB, s manage.UsageReporter, q manage.ReportQuery, records []llmhttp.UsageRecord) {
	t.Helper()
	report, err := s.Report(t.Context(), q)
	unsupported, isUnknown := errors.Is(err, errors.ErrUnsupported), q.By == unknown || q.Interval == unknown || q.Order == unknown
	if unsupported && (q.NeedsDetail() || isUnknown) {
		return
	}
	if isUnknown {
		kit.Wrong(t, "Report", err, errors.ErrUnsupported)
		return
	}
	kit.Must(t, "Report", err)
	if since := report.Since; !since.IsZero() {
		if !q.NeedsDetail() || !since.After(q.From) {
			kit.Wrong(t, "Report", "Since "+kit.Describe(since), "zero")
		}
		records = slices.DeleteFunc(slices.Clone(records), func(r llmhttp.UsageRecord) bool { return r.Time.Before(since) })
	}
	got := manage.Report{Rows: append([]manage.ReportRow(nil), report.Rows...), Others: append([]llmhttp.UsageSum(nil), report.Others...)}
	kit.WantSame(t, "Report", got, expectedReport(q, records))
	if t.Failed() {
		return
	}
	for _, row := range append(got.Rows, manage.ReportRow{Sums: got.Others}) {
		for _, sum := range row.Sums {
			if loc := cmp.Or(q.Location, time.UTC); q.Interval != manage.NoInterval && sum.Start.Location() != loc {
				kit.Wrong(t, "Report", "a Start in "+sum.Start.Location().String(), loc.String())
				return
			}
		}
	}
}

// expectedReport returns the report for q about records.
func expectedReport(q manage.ReportQuery, records []llmhttp.UsageRecord) (report manage.Report) {
	rows := make(map[reportGroup][]llmhttp.UsageRecord)
	for _, r := range records {
		switch {
		case r.Time.Before(q.From) || !r.Time.Before(q.To), q.Account != "" && r.Account != q.Account, q.KeyID != "" && r.KeyID != q.KeyID,
			q.Model != "" && r.Model != q.Model, q.User != "" && r.User != q.User, q.Label.Name != "" && !slices.Contains(r.Labels, q.Label),
			q.Operation != "" && r.Operation != q.Operation, q.Target != "" && r.Target != q.Target,
			q.Status == manage.StatusSucceeded && r.ErrorClass != "", q.Status == manage.StatusFailed && r.ErrorClass == "":
			continue
		case q.Status != manage.StatusAny && q.Status != manage.StatusSucceeded && q.Status != manage.StatusFailed && string(q.Status) != string(r.ErrorClass):
			continue
		}
		g := groupOf(q, &r)
		rows[g] = append(rows[g], r)
	}
	number := func(g reportGroup, order manage.ReportOrder) (sum int64) {
		for _, r := range rows[g] {
			switch order {
			case manage.OrderByCost:
				sum += int64(r.Cost.Total())
			case manage.OrderByTokens:
				sum += r.Units.PromptTokens + r.Units.CompletionTokens
			case manage.OrderByRequests:
				sum += r.Sum().Requests
			case "images":
				sum += r.Units.Images
			case "characters":
				sum += r.Units.Characters
			}
		}
		return sum
	}
	largest := slices.SortedFunc(maps.Keys(rows), func(a, b reportGroup) int {
		for _, order := range []manage.ReportOrder{q.Order, manage.OrderByCost, manage.OrderByTokens, manage.OrderByRequests} {
			if c := cmp.Compare(number(b, order), number(a, order)); c != 0 {
				return c
			}
		}
		return 0 // random tokens are not equal
	})
	var others []llmhttp.UsageRecord
	for i, g := range largest {
		if q.Limit > 0 && i >= q.Limit {
			others = append(others, rows[g]...)
			continue
		}
		row := manage.ReportRow{Account: g.account, KeyID: g.key, User: g.user, Label: g.label, Model: g.model, Sums: addIntervals(q, rows[g])}
		for i := range row.Sums {
			row.Sums[i].Model = cmp.Or(row.Sums[i].Model, g.model)
		}
		report.Rows = append(report.Rows, row)
	}
	report.Others = addIntervals(q, others)
	return report
}

// addIntervals returns the sums of records by interval, and by model if q says so.
func addIntervals(q manage.ReportQuery, records []llmhttp.UsageRecord) (list []llmhttp.UsageSum) {
	for _, r := range records {
		sum := r.Sum()
		sum.Start, sum.Model = intervalStart(q, r.Time), ""
		if q.PerModel {
			sum.Model = r.Model
		}
		i, found := slices.BinarySearchFunc(list, sum, func(a, b llmhttp.UsageSum) int {
			return cmp.Or(a.Start.Compare(b.Start), strings.Compare(a.Model, b.Model))
		})
		if !found {
			list = slices.Insert(list, i, llmhttp.UsageSum{Start: sum.Start, Model: sum.Model})
		}
		list[i].Add(sum)
	}
	return list
}

// intervalStart returns the start of the interval that contains t. No clock of usageZones changes at
// midnight, or by a part of an hour.
func intervalStart(q manage.ReportQuery, t time.Time) time.Time {
	start := t.In(cmp.Or(q.Location, time.UTC))
	year, month, date := start.Date()
	switch q.Interval {
	case manage.EveryHour:
		_, minute, second := start.Clock()
		start = start.Add(-time.Duration(minute)*time.Minute - time.Duration(second)*time.Second - time.Duration(start.Nanosecond()))
	case manage.EveryDay:
		start = time.Date(year, month, date, 0, 0, 0, 0, start.Location())
	case manage.EveryMonth:
		start = time.Date(year, month, 1, 0, 0, 0, 0, start.Location())
	default:
		return q.From
	}
	if start.Before(q.From) {
		return q.From.In(start.Location())
	}
	return start
}

// A reportGroup identifies a row of a report.
type reportGroup struct{ key, account, user, label, model string }

func groupOf(q manage.ReportQuery, r *llmhttp.UsageRecord) (g reportGroup) {
	switch q.By {
	case manage.ByKey:
		return reportGroup{key: r.KeyID, account: r.Account}
	case manage.ByAccount:
		return reportGroup{account: r.Account}
	case manage.ByModel:
		return reportGroup{model: r.Model}
	case manage.ByUser:
		return reportGroup{account: r.Account, user: r.User}
	case manage.ByLabel:
		for _, l := range r.Labels {
			if l.Name == q.GroupLabel {
				g.label = l.Value
			}
		}
	}
	return g
}

// checkTooManyIntervals asks for more intervals than a report may have.
func checkTooManyIntervals(t testing.TB, s manage.UsageReporter) {
	q := manage.ReportQuery{From: reportStart, To: reportStart.Add(manage.MaxIntervals*day + 1), Interval: manage.EveryDay}
	if _, err := s.Report(t.Context(), q); err == nil {
		kit.Wrong(t, "Report"+kit.Describe(q), err, "an error")
	}
}
