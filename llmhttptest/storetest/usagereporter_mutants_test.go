package storetest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/memory"
)

func TestUsageReporterMutants(t *testing.T) {
	testMutants(t, reporterSequences.Run, reporterChecks, reporterFixture(func(*reporterHooks) {}), reporterMutants)
}

type reportQuery = manage.ReportQuery

// reporterHooks is a correct UsageReporter. Mutants replace its functions.
type reporterHooks struct {
	*memory.UsageStore

	ask    func(q *reportQuery)
	answer func(q reportQuery, r *manage.Report)
}

func (r *reporterHooks) Report(ctx context.Context, q reportQuery) (manage.Report, error) {
	asked := q
	r.ask(&q)
	report, err := r.UsageStore.Report(ctx, q)
	r.answer(asked, &report)
	return report, err
}

// reporterFixture returns a constructor of a UsageReporter with a fault.
func reporterFixture(fault func(*reporterHooks)) func(testing.TB) manage.UsageReporter {
	return func(testing.TB) manage.UsageReporter {
		r := &reporterHooks{UsageStore: memory.NewUsageStore(), ask: func(*reportQuery) {}, answer: func(reportQuery, *manage.Report) {}}
		fault(r)
		return r
	}
}

// reportingOn returns a constructor of a store that changes queries.
func reportingOn(change func(q *reportQuery)) func(testing.TB) manage.UsageReporter {
	return reporterFixture(func(r *reporterHooks) { r.ask = change })
}

// reportingBy is reportingOn for the queries by a group.
func reportingBy(by manage.ReportGroup, change func(q *reportQuery)) func(testing.TB) manage.UsageReporter {
	return reportingOn(func(q *reportQuery) {
		if q.By == by {
			change(q)
		}
	})
}

// answeringReports returns a constructor of a store that changes reports.
func answeringReports(change func(q reportQuery, r *manage.Report)) func(testing.TB) manage.UsageReporter {
	return reporterFixture(func(r *reporterHooks) { r.answer = change })
}

// reportingRows returns a constructor of a store that changes each row.
func reportingRows(change func(q reportQuery, r *manage.ReportRow)) func(testing.TB) manage.UsageReporter {
	return answeringReports(func(q reportQuery, r *manage.Report) {
		for i := range r.Rows {
			change(q, &r.Rows[i])
		}
	})
}

// reportingEach returns a constructor of a store that changes each sum of a row.
func reportingEach(change func(q reportQuery, s *llmhttp.UsageSum)) func(testing.TB) manage.UsageReporter {
	return reportingRows(func(q reportQuery, r *manage.ReportRow) {
		for i := range r.Sums {
			change(q, &r.Sums[i])
		}
	})
}

// orderedAs returns a constructor of a store that takes an order for another one.
func orderedAs(order, other manage.ReportOrder) func(testing.TB) manage.UsageReporter {
	return reportingOn(func(q *reportQuery) {
		if q.Order == order {
			q.Order = other
		}
	})
}

var reporterMutants = []mutant[manage.UsageReporter]{
	{"the account is ignored", randomCalls, reportingOn(func(q *reportQuery) { q.Account = "" })},
	{"the key is ignored", randomCalls, reportingOn(func(q *reportQuery) { q.KeyID = "" })},
	{"the model is ignored", randomCalls, reportingOn(func(q *reportQuery) { q.Model = "" })},
	{"the user is ignored", randomCalls, reportingOn(func(q *reportQuery) { q.User = "" })},
	{"the label is ignored", randomCalls, reportingOn(func(q *reportQuery) { q.Label = llmhttp.Label{} })},
	{"the value of the label is ignored", randomCalls, reportingOn(func(q *reportQuery) {
		if q.Label.Name != "" {
			q.Label.Value = "red"
		}
	})},
	{"the operation is ignored", randomCalls, reportingOn(func(q *reportQuery) { q.Operation = "" })},
	{"the target is ignored", randomCalls, reportingOn(func(q *reportQuery) { q.Target = "" })},
	{"the status is ignored", randomCalls, reportingOn(func(q *reportQuery) { q.Status = manage.StatusAny })},
	{"a class of errors is all that failed", randomCalls, reportingOn(func(q *reportQuery) {
		if q.Status == manage.ReportStatus(llmhttp.ClassTimeout) {
			q.Status = manage.StatusFailed
		}
	})},
	{"success is any status", randomCalls, reportingOn(func(q *reportQuery) {
		if q.Status == manage.StatusSucceeded {
			q.Status = manage.StatusAny
		}
	})},

	{"keys are grouped by account", randomCalls, reportingBy(manage.ByKey, func(q *reportQuery) { q.By = manage.ByAccount })},
	{"users are grouped by account", randomCalls, reportingBy(manage.ByUser, func(q *reportQuery) { q.By = manage.ByAccount })},
	{"models are added up", randomCalls, reportingBy(manage.ByModel, func(q *reportQuery) { q.By = manage.ByTotal })},
	{"keys have no account", randomCalls, reportingRows(func(q reportQuery, r *manage.ReportRow) {
		if q.By == manage.ByKey {
			r.Account = ""
		}
	})},
	{"users of several accounts are mixed up", randomCalls, reportingRows(func(q reportQuery, r *manage.ReportRow) {
		if q.By == manage.ByUser {
			r.Account = ""
		}
	})},
	{"the name of the label is ignored", randomCalls, reportingOn(func(q *reportQuery) { q.GroupLabel = "stage" })},
	{"records without the label are dropped", randomCalls, answeringReports(func(q reportQuery, r *manage.Report) {
		r.Rows = slices.DeleteFunc(r.Rows, func(row manage.ReportRow) bool { return q.By == manage.ByLabel && row.Label == "" })
	})},
	{"an unknown group is the total", randomCalls, reportingBy(unknown, func(q *reportQuery) { q.By = manage.ByTotal })},

	{"intervals are ignored", randomCalls, reportingOn(func(q *reportQuery) { q.Interval = manage.NoInterval })},
	{"hours are days", randomCalls, reportingOn(func(q *reportQuery) {
		if q.Interval == manage.EveryHour {
			q.Interval = manage.EveryDay
		}
	})},
	{"days are months", randomCalls, reportingOn(func(q *reportQuery) {
		if q.Interval == manage.EveryDay {
			q.Interval = manage.EveryMonth
		}
	})},
	{"months have 30 days", randomCalls, answeringReports(func(q reportQuery, r *manage.Report) {
		if q.Interval == manage.EveryMonth {
			for i := range r.Rows {
				for j := range r.Rows[i].Sums {
					if s := &r.Rows[i].Sums[j]; s.Start.After(q.From) {
						s.Start = q.From.Add(30 * day)
					}
				}
			}
		}
	})},
	{"days begin in UTC", randomCalls, reportingOn(func(q *reportQuery) { q.Location = nil })},
	{"all days have 24 hours", randomCalls, reportingOn(func(q *reportQuery) {
		if q.Location != nil {
			_, offset := q.From.In(q.Location).Zone()
			q.Location = time.FixedZone("", offset)
		}
	})},
	{"the repeated hour is one", randomCalls, answeringReports(func(q reportQuery, r *manage.Report) {
		for i := range r.Rows {
			sums := r.Rows[i].Sums
			for j := len(sums) - 1; j > 0; j-- {
				if sums[j].Start.Format(time.DateTime) == sums[j-1].Start.Format(time.DateTime) && sums[j].Model == sums[j-1].Model {
					sums[j-1].Add(sums[j])
					sums = slices.Delete(sums, j, j+1)
				}
			}
			r.Rows[i].Sums = sums
		}
	})},
	{"the first interval begins before From", randomCalls, reportingEach(func(q reportQuery, s *llmhttp.UsageSum) {
		if q.Interval == manage.EveryDay {
			year, month, day := s.Start.Date()
			s.Start = time.Date(year, month, day, 0, 0, 0, 0, s.Start.Location())
		}
	})},
	{"intervals begin in UTC", randomCalls, reportingEach(func(_ reportQuery, s *llmhttp.UsageSum) { s.Start = s.Start.UTC() })},
	{"an unknown interval is none", randomCalls, reportingOn(func(q *reportQuery) {
		if q.Interval == unknown {
			q.Interval = manage.NoInterval
		}
	})},
	{"any number of intervals", "TooManyIntervals", reportingOn(func(q *reportQuery) {
		if q.To.Sub(q.From) > manage.MaxIntervals*day {
			q.To = q.From
		}
	})},
	{"a total has no start", randomCalls, reportingEach(func(q reportQuery, s *llmhttp.UsageSum) {
		if q.By == manage.ByTotal && q.Interval == manage.NoInterval {
			s.Start = time.Time{}
		}
	})},

	{"cached tokens are dropped", randomCalls, reportingEach(func(_ reportQuery, s *llmhttp.UsageSum) { s.Units.CachedTokens = 0 })},
	{"cache writes are dropped", randomCalls, reportingEach(func(_ reportQuery, s *llmhttp.UsageSum) { s.Units.CacheWrites = nil })},
	{"reasoning tokens are dropped", randomCalls, reportingEach(func(_ reportQuery, s *llmhttp.UsageSum) { s.Units.ReasoningTokens = 0 })},
	{"images are dropped", randomCalls, reportingEach(func(_ reportQuery, s *llmhttp.UsageSum) { s.Units.Images = 0 })},
	{"search units are dropped", randomCalls, reportingEach(func(_ reportQuery, s *llmhttp.UsageSum) { s.Units.SearchUnits = 0 })},
	{"a part of the cost is dropped", randomCalls, reportingEach(func(_ reportQuery, s *llmhttp.UsageSum) { s.Cost.CacheWrite = 0 })},
	{"unpriced records are dropped", randomCalls, reportingEach(func(_ reportQuery, s *llmhttp.UsageSum) { s.Unpriced = 0 })},
	{"models are not told apart", randomCalls, reportingOn(func(q *reportQuery) { q.PerModel = false })},
	{"models are always told apart", randomCalls, reportingOn(func(q *reportQuery) { q.PerModel = true })},
	{"the sums of a model do not name it", randomCalls, reportingEach(func(q reportQuery, s *llmhttp.UsageSum) {
		if q.By == manage.ByModel && !q.PerModel {
			s.Model = ""
		}
	})},
	{"sums are in reverse order", randomCalls, reportingRows(func(_ reportQuery, r *manage.ReportRow) { slices.Reverse(r.Sums) })},

	{"rows are in reverse order", randomCalls, answeringReports(func(_ reportQuery, r *manage.Report) { slices.Reverse(r.Rows) })},
	{"rows are in the order of their names", randomCalls, answeringReports(func(_ reportQuery, r *manage.Report) {
		slices.SortFunc(r.Rows, func(a, b manage.ReportRow) int { return a.CompareNames(&b) })
	})},
	{"cost is that of tokens", randomCalls, orderedAs(manage.OrderByCost, manage.OrderByTokens)},
	{"tokens are cost", randomCalls, orderedAs(manage.OrderByTokens, manage.OrderByCost)},
	{"requests are tokens", randomCalls, orderedAs(manage.OrderByRequests, manage.OrderByTokens)},
	{"images are characters", randomCalls, orderedAs("images", "characters")},
	{"an unknown order is that by cost", randomCalls, orderedAs(unknown, manage.OrderByCost)},
	{"the limit is ignored", randomCalls, reportingOn(func(q *reportQuery) { q.Limit = 0 })},
	{"a negative limit is one", randomCalls, reportingOn(func(q *reportQuery) {
		if q.Limit < 0 {
			q.Limit = 1
		}
	})},
	{"the limit is that of sums", randomCalls, reportingRows(func(q reportQuery, r *manage.ReportRow) {
		if q.Limit > 0 {
			r.Sums = r.Sums[:min(len(r.Sums), q.Limit)]
		}
	})},
	{"the others are left out", randomCalls, answeringReports(func(_ reportQuery, r *manage.Report) { r.Others = nil })},
	{"the others are all", randomCalls, reporterFixture(func(h *reporterHooks) {
		h.answer = func(q reportQuery, r *manage.Report) {
			if r.Others != nil {
				q.By, q.Limit = manage.ByTotal, 0
				all, _ := h.UsageStore.Report(context.Background(), q)
				r.Others = all.Rows[0].Sums
			}
		}
	})},
	{"the others are not divided", randomCalls, answeringReports(func(q reportQuery, r *manage.Report) {
		if len(r.Others) > 1 {
			total := (&manage.Report{Others: r.Others}).Total()
			total.Start = r.Others[0].Start
			r.Others = []llmhttp.UsageSum{total}
		}
	})},

	{"a complete report claims a gap", randomCalls, answeringReports(func(_ reportQuery, r *manage.Report) { r.Since = reportStart.Add(day) })},
	{"a gap that is none is claimed", randomCalls, answeringReports(func(_ reportQuery, r *manage.Report) { r.Since = reportStart })},
	{"a gap is concealed", randomCalls, reportingOn(func(q *reportQuery) {
		if q.NeedsDetail() {
			q.From = q.From.Add(day)
		}
	})},

	{"To is inclusive", randomCalls, reportingOn(func(q *reportQuery) { q.To = q.To.Add(day) })},
	{"From is exclusive", randomCalls, reportingOn(func(q *reportQuery) { q.From = q.From.Add(1) })},
	{"reversed bounds are swapped", randomCalls, reportingOn(func(q *reportQuery) {
		if q.To.Before(q.From) {
			q.From, q.To = q.To, q.From
		}
	})},
	{"an empty range is all time", randomCalls, reportingOn(func(q *reportQuery) {
		if !q.From.Before(q.To) && q.Interval == manage.NoInterval {
			q.From, q.To = time.Time{}, reportStart.AddDate(1, 0, 0)
		}
	})},
}
