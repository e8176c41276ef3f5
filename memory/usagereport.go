package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage"
)

// Report implements [manage.UsageReporter]. An entry that adds up an hour
// counts at the beginning of that hour.
func (u *UsageStore) Report(ctx context.Context, q manage.ReportQuery) ([]manage.ReportSum, error) {
	sums := u.reportSums(&q)
	if q.Limit > 0 {
		sums = largestGroups(sums, q.Limit)
	}
	slices.SortFunc(sums, compareReportSums)
	return sums, nil
}

func compareReportSums(a, b manage.ReportSum) int {
	return cmp.Or(a.Start.Compare(b.Start), strings.Compare(a.Account, b.Account), strings.Compare(a.KeyID, b.KeyID), strings.Compare(a.Model, b.Model))
}

// reportSums adds up the entries that q selects.
func (u *UsageStore) reportSums(q *manage.ReportQuery) []manage.ReportSum {
	u.mu.Lock()
	defer u.mu.Unlock()
	groups := make(map[reportGroup]*usageAdder)
	for account, sources := range u.accounts {
		for source, entries := range sources {
			if q.Account != "" && account != q.Account || q.KeyID != "" && source.keyID != q.KeyID {
				continue
			}
			g := reportGroup{start: q.From}
			switch q.By {
			case manage.ByKey:
				g.keyID, g.account = source.keyID, account
			case manage.ByAccount:
				g.account = account
			}
			for e := range sumsBetween(*entries, q.From, q.To) {
				if q.By == manage.ByDay {
					g.start = e.Start.Truncate(24 * time.Hour)
				}
				if groups[g] == nil {
					groups[g] = &usageAdder{}
				}
				groups[g].add(g.start, source.model, e)
			}
		}
	}
	var sums []manage.ReportSum
	for g, a := range groups {
		for _, sum := range a.sums {
			sums = append(sums, manage.ReportSum{KeyID: g.keyID, Account: g.account, UsageSum: sum})
		}
	}
	return sums
}

// A reportGroup identifies the sums of a report that ReportQuery.Limit counts as one.
// keyID and account are empty if sums are not grouped by them.
type reportGroup struct {
	start          time.Time
	keyID, account string
}

// largestGroups returns the sums of the n groups with the most tokens.
func largestGroups(sums []manage.ReportSum, n int) []manage.ReportSum {
	groupOf := func(s *manage.ReportSum) reportGroup {
		return reportGroup{s.Start, s.KeyID, s.Account}
	}
	totals := make(map[reportGroup]llmhttp.UsageSum)
	for i := range sums {
		g := groupOf(&sums[i])
		t := totals[g]
		t.Add(sums[i].UsageSum)
		totals[g] = t
	}
	if len(totals) <= n {
		return sums
	}
	groups := slices.SortedFunc(maps.Keys(totals), func(a, b reportGroup) int {
		ta, tb := totals[a], totals[b]
		return cmp.Or(
			cmp.Compare(tb.Units.Tokens(), ta.Units.Tokens()), cmp.Compare(tb.Requests, ta.Requests),
			a.start.Compare(b.start), strings.Compare(a.keyID, b.keyID), strings.Compare(a.account, b.account),
		)
	})
	for _, g := range groups[n:] {
		delete(totals, g)
	}
	return slices.DeleteFunc(sums, func(s manage.ReportSum) bool {
		_, kept := totals[groupOf(&s)]
		return !kept
	})
}
