package llmhttptest

import (
	"cmp"
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
	{"EmptyRange", "an empty range is not empty, or includes its end.", checkReportRange},
}

// reportStart is a midnight in UTC.
var reportStart = time.Date(2026, 2, 26, 0, 0, 0, 0, time.UTC)

// checkReportGroups compares reports about random records with expectedReport.
func checkReportGroups(t testing.TB, s manage.UsageReporter) {
	rng := newRand(t)
	var records []llmhttp.UsageRecord
	for range 300 {
		records = append(records, randomReportRecord(rng))
	}
	if err := s.Record(t.Context(), records...); err != nil {
		t.Fatalf("Record returned the error %v, want nil", err)
	}
	for _, by := range []manage.ReportGroup{manage.ByTotal, manage.ByDay, manage.ByKey, manage.ByAccount} {
		for _, account := range []string{"", "account 1", "it's", "nobody"} {
			for _, key := range []string{"", "key 2", "nobody"} {
				for _, limit := range []int{0, 1, 3, 1000} {
					q := manage.ReportQuery{Account: account, KeyID: key, From: reportStart.Add(day), To: reportStart.Add(6 * day), By: by, Limit: limit}
					wantReport(t, s, q, records)
				}
			}
		}
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
	randomNumbers(rng, &r)
	r.Units.PromptTokens = rng.Int64N(1_000_000)
	return r
}

// wantReport reports an error unless the report for q is that about records.
func wantReport(t testing.TB, s manage.UsageReporter, q manage.ReportQuery, records []llmhttp.UsageRecord) {
	t.Helper()
	got, err := s.Report(t.Context(), q)
	if err != nil {
		t.Fatalf("Report(%+v) returned the error %v, want nil", q, err)
	}
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
		if r.Time.Before(q.From) || !r.Time.Before(q.To) || q.Account != "" && r.Account != q.Account || q.KeyID != "" && r.KeyID != q.KeyID {
			continue
		}
		g := groupOf(q, &r)
		if groups[g] == nil {
			groups[g] = make(map[string]*manage.ReportSum)
		}
		if groups[g][r.Model] == nil {
			groups[g][r.Model] = &manage.ReportSum{KeyID: g.key, Account: g.account, UsageSum: llmhttp.UsageSum{Start: g.start, Model: r.Model}}
		}
		groups[g][r.Model].Add(r.Sum())
		tokens[g] += r.Units.PromptTokens + r.Units.CompletionTokens
	}
	largest := slices.SortedFunc(maps.Keys(groups), func(a, b reportGroup) int { return cmp.Compare(tokens[b], tokens[a]) }) // random tokens are not equal
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
		return cmp.Or(a.Start.Compare(b.Start), strings.Compare(a.Account, b.Account), strings.Compare(a.KeyID, b.KeyID), strings.Compare(a.Model, b.Model))
	})
	return list
}

// A reportGroup identifies the sums of a report that Limit counts as one.
type reportGroup struct {
	start        time.Time
	key, account string
}

func groupOf(q manage.ReportQuery, r *llmhttp.UsageRecord) reportGroup {
	switch q.By {
	case manage.ByDay:
		return reportGroup{start: r.Time.Truncate(day)}
	case manage.ByKey:
		return reportGroup{start: q.From, key: r.KeyID, account: r.Account}
	case manage.ByAccount:
		return reportGroup{start: q.From, account: r.Account}
	}
	return reportGroup{start: q.From}
}
