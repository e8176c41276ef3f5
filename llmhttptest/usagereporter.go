package llmhttptest

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
	"github.com/llmhttp/llmhttp/manage"
)

// TestUsageReporter tests a [manage.UsageReporter]. It calls newStore once for
// each subtest. Unlike other kits it needs a store without content, because it
// asks for the usage of all accounts. Test the methods of [llmhttp.UsageStore]
// with [TestUsageStore] too.
func TestUsageReporter(t *testing.T, newStore func(t testing.TB) manage.UsageReporter) {
	t.Helper()
	runChecks(t, reporterChecks, newStore)
}

var reporterChecks = []check[manage.UsageReporter]{
	{"Groups", "sums are grouped or filtered in another way than the query asks for, or a number is dropped.", checkReportGroups},
	{"Models", "the model is not a condition, or not what a limit counts.", checkReportModels},
	{"Detail", "end users or labels are mixed up: with those of other accounts, or with other names or values.", checkReportDetail},
	{"Unsupported", "an unknown group is taken for another one.", checkReportUnsupported},
	{"EmptyRange", "an empty range is not empty, or includes its end.", checkReportRange},
}

// reportStart is a midnight in UTC.
var reportStart = time.Date(2026, 2, 26, 0, 0, 0, 0, time.UTC)

// checkReportGroups compares reports about random records with expectedReport.
func checkReportGroups(t testing.TB, s manage.UsageReporter) {
	records := recordForReports(t, s)
	for _, by := range []manage.ReportGroup{manage.ByTotal, manage.ByDay, manage.ByKey, manage.ByAccount} {
		for _, account := range []string{"", "account 1", "it's", "nobody"} {
			for _, key := range []string{"", "key 2", "nobody"} {
				for _, limit := range []int{0, 1, 3, 1000} {
					q := manage.ReportQuery{
						Account: account,
						KeyID:   key,
						From:    reportStart.Add(day),
						To:      reportStart.Add(6 * day),
						By:      by,
						Limit:   limit,
					}
					wantReport(t, s, q, records)
				}
			}
		}
	}
}

// recordForReports records random records and returns them.
func recordForReports(t testing.TB, s manage.UsageReporter) (records []llmhttp.UsageRecord) {
	t.Helper()
	rng := newRand(t)
	for range 300 {
		records = append(records, randomReportRecord(rng))
	}
	if err := s.Record(t.Context(), records...); err != nil {
		t.Fatalf("Record returned the error %v, want nil", err)
	}
	return records
}

func checkReportModels(t testing.TB, s manage.UsageReporter) {
	records := recordForReports(t, s)
	for _, by := range []manage.ReportGroup{manage.ByTotal, manage.ByDay, manage.ByKey, manage.ByAccount, manage.ByModel} {
		for _, account := range []string{"", "account 1"} {
			for _, model := range []string{"", "large", "\\x00", "unknown"} {
				for _, limit := range []int{0, 2} {
					q := manage.ReportQuery{
						Account: account,
						Model:   model,
						From:    reportStart,
						To:      reportStart.Add(6 * day),
						By:      by,
						Limit:   limit,
					}
					wantReport(t, s, q, records)
				}
			}
		}
	}
}

// checkReportDetail asks only for what the store supports.
func checkReportDetail(t testing.TB, s manage.UsageReporter) {
	records := recordForReports(t, s)
	base := manage.ReportQuery{From: reportStart.Add(day), To: reportStart.Add(6 * day)}
	for _, by := range []manage.ReportGroup{manage.ByTotal, manage.ByDay, manage.ByKey, manage.ByAccount, manage.ByModel, manage.ByUser, manage.ByLabel} {
		for _, user := range []string{"", "user 1", "it's", "nobody"} {
			for _, label := range []llmhttp.Label{
				{}, {Name: "team", Value: "red"}, {Name: "team", Value: ""}, {Name: "stage", Value: "red"}, {Name: ",", Value: ":"}, {Name: `"team":`, Value: `\"`},
				{Name: "re", Value: "d"}, {Name: "unknown", Value: ""},
			} {
				for limit := range 2 {
					q := base
					q.By, q.User, q.Label, q.Limit, q.GroupLabel = by, user, label, 2*limit, "team"
					if !q.NeedsDetail() {
						continue
					}
					wantReport(t, s, q, records)
					q.Account, q.KeyID, q.Model, q.GroupLabel = "account 1", "key 2", "large", `"team":`
					wantReport(t, s, q, records)
				}
			}
		}
	}
}

func checkReportUnsupported(t testing.TB, s manage.UsageReporter) {
	recordForReports(t, s)
	q := manage.ReportQuery{From: reportStart, To: reportStart.Add(day), By: "nonsense"}
	if _, err := s.Report(t.Context(), q); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Report by an unknown group returned the error %v, want one that wraps errors.ErrUnsupported", err)
	}
}

func checkReportRange(t testing.TB, s manage.UsageReporter) {
	r := randomReportRecord(newRand(t))
	r.Time = reportStart
	if err := s.Record(t.Context(), r); err != nil {
		t.Fatalf("Record returned the error %v, want nil", err)
	}
	for _, q := range []manage.ReportQuery{
		{From: reportStart, To: reportStart}, {From: reportStart.Add(day), To: reportStart}, {From: reportStart.Add(-day), To: reportStart},
		{From: reportStart.Add(day), To: reportStart.Add(2 * day)}, {From: reportStart, To: reportStart.Add(day)},
	} {
		wantReport(t, s, q, []llmhttp.UsageRecord{r})
	}
}

func randomReportRecord(rng *rand.Rand) llmhttp.UsageRecord {
	account := rng.IntN(4)
	r := llmhttp.UsageRecord{
		ID: unique("request"), Time: reportStart.Add(time.Duration(rng.Int64N(int64(7 * day)))), Operation: llmhttp.OperationChat,
		Account: []string{"account 1", "account 2", "it's", "\u6a21\u578b\x00"}[account], KeyID: fmt.Sprint("key ", account, rng.IntN(3)),
		Model: pick(rng, "large", "small", "\\x00"),
	}
	if rng.IntN(2) == 0 {
		r.KeyID = "key 2" // keys of several accounts may have the same ID
	}
	r.User = pick(rng, "", "user 1", "user 2", "it's") // users of several accounts may have the same ID
	for _, name := range []string{"team", "stage", ",", `"team":`} {
		if rng.IntN(2) == 0 {
			r.Labels = append(r.Labels, llmhttp.Label{Name: name, Value: pick(rng, "", "red", ":", `\"`, "<\u6a21>")})
		}
	}
	randomNumbers(rng, &r)
	r.Units.PromptTokens = rng.Int64N(1_000_000)
	return r
}

// wantReport reports an error unless the report for q is that about records. It accepts a store
// that does not support end users and labels, or that says from when it knows them.
func wantReport(t testing.TB, s manage.UsageReporter, q manage.ReportQuery, records []llmhttp.UsageRecord) {
	t.Helper()
	report, err := s.Report(t.Context(), q)
	if q.NeedsDetail() && errors.Is(err, errors.ErrUnsupported) {
		return
	}
	if err != nil {
		t.Fatalf("Report(%+v) returned the error %v, want nil", q, err)
	}
	if since := report.Since; !since.IsZero() {
		if !q.NeedsDetail() || !since.After(q.From) {
			t.Errorf("Report(%+v) returned Since %v, want zero", q, since)
		}
		records = slices.DeleteFunc(slices.Clone(records), func(r llmhttp.UsageRecord) bool { return r.Time.Before(since) })
	}
	got := report.Sums
	for i := range got {
		got[i].Start = got[i].Start.UTC()
	}
	if want := expectedReport(q, records); !slices.Equal(got, want) {
		t.Errorf("Report(%+v) returned\n%+v, want\n%+v", q, got, want)
	}
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
	var list []manage.ReportSum
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
