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
	kit.Run(t, &reporterSequences, nil, newStore)
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

const unknownGroup manage.ReportGroup = "nonsense"

// reportStart is a midnight in UTC, and reportEnd one after all records.
var (
	reportStart = time.Date(2026, 2, 26, 0, 0, 0, 0, time.UTC)
	reportEnd   = reportStart.Add(7 * day)
)

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
			r.ID, r.Operation, r.Time = kit.Unique("request"), llmhttp.OperationChat, orTime(r.Time, reportStart)
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
		for range 100 {
			calls = append(calls, reportCall{method: "Report", Query: randomReportQuery(rng)})
		}
	}
	return calls
}

func randomReportRecord(rng *rand.Rand) llmhttp.UsageRecord {
	account := rng.IntN(4)
	r := llmhttp.UsageRecord{
		Time: reportStart.Add(time.Duration(rng.Int64N(int64(7 * day)))), Model: kit.Pick(rng, "large", "small", "\\x00"),
		Account: []string{"account 1", "account 2", "it's", "\u6a21\u578b\x00"}[account],
		KeyID:   kit.Pick(rng, "key 2", fmt.Sprint("key ", account, rng.IntN(3))), // keys of several accounts may have the same ID
		User:    kit.Pick(rng, "", "user 1", "user 2", "it's"),                    // and so may their end users
	}
	if rng.IntN(4) == 0 {
		r.Time = r.Time.Truncate(day)
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
		if rng.IntN(5) == 0 {
			f()
		}
	}
	midnight := func() time.Time { return reportStart.Add(time.Duration(rng.IntN(9)-1) * day) }
	q.By = kit.Pick(rng, manage.ByTotal, manage.ByDay, manage.ByKey, manage.ByAccount, manage.ByModel, manage.ByUser, manage.ByLabel)
	q.GroupLabel = kit.Pick(rng, "team", `"team":`)
	seldom(func() { q.Account = kit.Pick(rng, "account 1", "it's", "nobody") })
	seldom(func() { q.KeyID = kit.Pick(rng, "key 2", "key 0 1", "nobody") })
	seldom(func() { q.Model = kit.Pick(rng, "large", "\\x00", "unknown") })
	seldom(func() { q.User = kit.Pick(rng, "user 1", "it's", "nobody") })
	seldom(func() {
		q.Label.Name = kit.Pick(rng, "team", "stage", ",", `"team":`, "re", "unknown")
		q.Label.Value = kit.Pick(rng, "", "red", ":", `\"`, "d")
	})
	q.From, q.To = kit.Pick(rng, time.Time{}, time.Time{}, midnight()), kit.Pick(rng, time.Time{}, time.Time{}, midnight())
	q.Limit = kit.Pick(rng, 0, 0, 0, 0, 0, 1, 1, 2, 2, -1)
	seldom(func() { seldom(func() { q.By = unknownGroup }) })
	return q
}

// wantReport reports an error unless the report for q is that about records. It accepts a store
// that does not support end users and labels, or that says from when it knows them.
func wantReport(t testing.TB, s manage.UsageReporter, q manage.ReportQuery, records []llmhttp.UsageRecord) {
	t.Helper()
	report, err := s.Report(t.Context(), q)
	unsupported := errors.Is(err, errors.ErrUnsupported)
	if unsupported && (q.NeedsDetail() || q.By == unknownGroup) {
		return
	}
	if q.By == unknownGroup {
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
	kit.WantSame(t, "Report", manage.Report{Sums: append([]manage.ReportSum{}, report.Sums...)}, manage.Report{Sums: expectedReport(q, records)})
}

// expectedReport returns the report for q about records.
func expectedReport(q manage.ReportQuery, records []llmhttp.UsageRecord) []manage.ReportSum {
	groups := make(map[reportGroup]map[string]*manage.ReportSum) // the sums by model
	tokens := make(map[reportGroup]int64)
	for _, r := range records {
		switch {
		case r.Time.Before(q.From) || !r.Time.Before(q.To), q.Account != "" && r.Account != q.Account, q.KeyID != "" && r.KeyID != q.KeyID,
			q.Model != "" && r.Model != q.Model, q.User != "" && r.User != q.User, q.Label.Name != "" && !slices.Contains(r.Labels, q.Label):
			continue
		}
		g := groupOf(q, &r)
		if groups[g] == nil {
			groups[g] = make(map[string]*manage.ReportSum)
		}
		if groups[g][r.Model] == nil {
			groups[g][r.Model] = &manage.ReportSum{
				KeyID:    g.key,
				Account:  g.account,
				User:     g.user,
				Label:    g.label,
				UsageSum: llmhttp.UsageSum{Start: g.start, Model: r.Model},
			}
		}
		groups[g][r.Model].Add(r.Sum())
		tokens[g] += r.Units.PromptTokens + r.Units.CompletionTokens
	}
	largest := slices.SortedFunc(
		maps.Keys(groups),
		func(a, b reportGroup) int { return cmp.Compare(tokens[b], tokens[a]) },
	) // random tokens are not equal
	if q.Limit > 0 {
		largest = largest[:min(len(largest), q.Limit)]
	}
	list := []manage.ReportSum{}
	for _, g := range largest {
		for _, sum := range groups[g] {
			list = append(list, *sum)
		}
	}
	slices.SortFunc(list, func(a, b manage.ReportSum) int {
		return cmp.Or(a.Start.Compare(b.Start), strings.Compare(a.Account, b.Account), strings.Compare(a.KeyID, b.KeyID),
			strings.Compare(a.User, b.User), strings.Compare(a.Label, b.Label), strings.Compare(a.Model, b.Model))
	})
	return list
}

// A reportGroup identifies the sums of a report that Limit counts as one.
type reportGroup struct {
	start                            time.Time
	key, account, user, label, model string
}

func groupOf(q manage.ReportQuery, r *llmhttp.UsageRecord) reportGroup {
	switch q.By {
	case manage.ByDay:
		return reportGroup{start: r.Time.Truncate(day)}
	case manage.ByKey:
		return reportGroup{start: q.From, key: r.KeyID, account: r.Account}
	case manage.ByAccount:
		return reportGroup{start: q.From, account: r.Account}
	case manage.ByModel:
		return reportGroup{start: q.From, model: r.Model}
	case manage.ByUser:
		return reportGroup{start: q.From, account: r.Account, user: r.User}
	case manage.ByLabel:
		g := reportGroup{start: q.From}
		for _, l := range r.Labels {
			if l.Name == q.GroupLabel {
				g.label = l.Value
			}
		}
		return g
	}
	return reportGroup{start: q.From}
}
