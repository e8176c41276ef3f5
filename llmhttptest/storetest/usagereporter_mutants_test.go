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
	testMutants(t, reporterSequences.Run, nil, reporterFixture(func(*reporterHooks) {}), reporterMutants)
}

type (
	reportQuery = manage.ReportQuery
	reportSum   = manage.ReportSum
)

// reporterHooks is a correct UsageReporter. Mutants replace its functions.
type reporterHooks struct {
	*memory.UsageStore

	ask    func(q *reportQuery)
	answer func(q reportQuery, sums []reportSum) []reportSum
	since  time.Time // of all reports
}

func (r *reporterHooks) Report(ctx context.Context, q reportQuery) (manage.Report, error) {
	asked := q
	r.ask(&q)
	report, err := r.UsageStore.Report(ctx, q)
	report.Sums = r.answer(asked, report.Sums)
	if !r.since.IsZero() {
		report.Since = r.since
	}
	return report, err
}

// reporterFixture returns a constructor of a UsageReporter with a fault.
func reporterFixture(fault func(*reporterHooks)) func(testing.TB) manage.UsageReporter {
	return func(testing.TB) manage.UsageReporter {
		r := &reporterHooks{
			UsageStore: memory.NewUsageStore(), ask: func(*reportQuery) {}, answer: func(_ reportQuery, sums []reportSum) []reportSum { return sums },
		}
		fault(r)
		return r
	}
}

// reportingOn returns a constructor of a store that changes queries.
func reportingOn(change func(q *reportQuery)) func(testing.TB) manage.UsageReporter {
	return reporterFixture(func(r *reporterHooks) { r.ask = change })
}

// answeringReports returns a constructor of a store that changes reports.
func answeringReports(change func(q reportQuery, sums []reportSum) []reportSum) func(testing.TB) manage.UsageReporter {
	return reporterFixture(func(r *reporterHooks) { r.answer = change })
}

// reportingEach returns a constructor of a store that changes each sum.
func reportingEach(change func(q reportQuery, s *reportSum)) func(testing.TB) manage.UsageReporter {
	return answeringReports(func(q reportQuery, sums []reportSum) []reportSum {
		for i := range sums {
			change(q, &sums[i])
		}
		return sums
	})
}

var reporterMutants = []mutant[manage.UsageReporter]{
	{"the account is ignored", randomCalls, reportingOn(func(q *reportQuery) { q.Account = "" })},
	{"the key is ignored", randomCalls, reportingOn(func(q *reportQuery) { q.KeyID = "" })},
	{"days are added up", randomCalls, reportingOn(func(q *reportQuery) {
		if q.By == manage.ByDay {
			q.By = manage.ByTotal
		}
	})},
	{"keys are grouped by account", randomCalls, reportingOn(func(q *reportQuery) {
		if q.By == manage.ByKey {
			q.By = manage.ByAccount
		}
	})},
	{"keys have no account", randomCalls, reportingEach(func(q reportQuery, s *reportSum) {
		if q.By == manage.ByKey {
			s.Account = ""
		}
	})},
	{"a total has no start", randomCalls, reportingEach(func(q reportQuery, s *reportSum) {
		if q.By == manage.ByTotal {
			s.Start = time.Time{}
		}
	})},
	{"cached tokens are dropped", randomCalls, reportingEach(func(_ reportQuery, s *reportSum) { s.Units.CachedTokens = 0 })},
	{"cache writes are dropped", randomCalls, reportingEach(func(_ reportQuery, s *reportSum) { s.Units.CacheWrites = nil })},
	{"reasoning tokens are dropped", randomCalls, reportingEach(func(_ reportQuery, s *reportSum) { s.Units.ReasoningTokens = 0 })},
	{"images are dropped", randomCalls, reportingEach(func(_ reportQuery, s *reportSum) { s.Units.Images = 0 })},
	{"search units are dropped", randomCalls, reportingEach(func(_ reportQuery, s *reportSum) { s.Units.SearchUnits = 0 })},
	{"a part of the cost is dropped", randomCalls, reportingEach(func(_ reportQuery, s *reportSum) { s.Cost.CacheWrite = 0 })},
	{"unpriced records are dropped", randomCalls, reportingEach(func(_ reportQuery, s *reportSum) { s.Unpriced = 0 })},
	{"the model is dropped", randomCalls, reportingEach(func(_ reportQuery, s *reportSum) { s.Model = "" })},
	{"sums are in reverse order", randomCalls, answeringReports(func(_ reportQuery, sums []reportSum) []reportSum {
		slices.Reverse(sums)
		return sums
	})},
	{"the limit is ignored", randomCalls, reportingOn(func(q *reportQuery) { q.Limit = 0 })},
	{"the limit is that of sums", randomCalls, answeringReports(func(q reportQuery, sums []reportSum) []reportSum {
		if q.Limit > 0 {
			sums = sums[:min(len(sums), q.Limit)]
		}
		return sums
	})},
	{"the limit keeps the first groups", randomCalls, reporterFixture(func(r *reporterHooks) {
		r.ask = func(q *reportQuery) { q.Limit = 0 }
		r.answer = func(q reportQuery, sums []reportSum) []reportSum {
			groups := 0
			for i := range sums {
				same := i > 0 && sums[i].Start.Equal(sums[i-1].Start) && sums[i].Account == sums[i-1].Account && sums[i].KeyID == sums[i-1].KeyID
				if !same {
					groups++
				}
				if q.Limit > 0 && groups > q.Limit {
					return sums[:i]
				}
			}
			return sums
		}
	})},

	{"the model is ignored", randomCalls, reportingOn(func(q *reportQuery) { q.Model = "" })},
	{"a limit does not count models", randomCalls, reportingOn(func(q *reportQuery) {
		if q.By == manage.ByModel {
			q.By = manage.ByTotal
		}
	})},
	{"a complete report claims a gap", randomCalls, reporterFixture(func(r *reporterHooks) { r.since = reportStart.Add(day) })},
	{"the user is ignored", randomCalls, reportingOn(func(q *reportQuery) { q.User = "" })},
	{"the label is ignored", randomCalls, reportingOn(func(q *reportQuery) { q.Label = llmhttp.Label{} })},
	{"the value of the label is ignored", randomCalls, reportingOn(func(q *reportQuery) {
		if q.Label.Name != "" {
			q.Label.Value = "red"
		}
	})},
	{"users of several accounts are mixed up", randomCalls, reportingEach(func(q reportQuery, s *reportSum) {
		if q.By == manage.ByUser {
			s.Account = ""
		}
	})},
	{"users are grouped by account", randomCalls, reportingOn(func(q *reportQuery) {
		if q.By == manage.ByUser {
			q.By = manage.ByAccount
		}
	})},
	{"the name of the label is ignored", randomCalls, reportingOn(func(q *reportQuery) { q.GroupLabel = "stage" })},
	{"records without the label are dropped", randomCalls, answeringReports(func(q reportQuery, sums []reportSum) []reportSum {
		return slices.DeleteFunc(sums, func(s reportSum) bool { return q.By == manage.ByLabel && s.Label == "" })
	})},
	{"a gap that is none is claimed", randomCalls, reporterFixture(func(r *reporterHooks) { r.since = reportStart })},
	{"a gap is concealed", randomCalls, reportingOn(func(q *reportQuery) {
		if q.NeedsDetail() {
			q.From = q.From.Add(day)
		}
	})},
	{"an unknown group is the total", randomCalls, reportingOn(func(q *reportQuery) {
		if q.By == "nonsense" {
			q.By = manage.ByTotal
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
		if !q.From.Before(q.To) {
			q.From, q.To = time.Time{}, reportStart.AddDate(1, 0, 0)
		}
	})},
}
