// Package reportsum adds up, limits and sorts the sums of reports for the stores that implement
// [manage.UsageReporter].
package reportsum

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage"
)

// A Group identifies the sums of a report that ReportQuery.Limit counts as one. What sums are
// not grouped by is empty.
type Group struct {
	Start                              time.Time
	Account, KeyID, User, Label, Model string
}

// GroupOf returns the group of s in a report by the given group.
func GroupOf(by manage.ReportGroup, s *manage.ReportSum) Group {
	g := Group{Start: s.Start, Account: s.Account, KeyID: s.KeyID, User: s.User, Label: s.Label}
	if by == manage.ByModel {
		g.Model = s.Model
	}
	return g
}

func compareGroups(a, b Group) int {
	return cmp.Or(a.Start.Compare(b.Start), strings.Compare(a.Account, b.Account), strings.Compare(a.KeyID, b.KeyID),
		strings.Compare(a.User, b.User), strings.Compare(a.Label, b.Label), strings.Compare(a.Model, b.Model))
}

// IsKnown reports whether by is one of the groups that package manage defines.
func IsKnown(by manage.ReportGroup) bool {
	switch by {
	case manage.ByTotal, manage.ByDay, manage.ByKey, manage.ByAccount, manage.ByModel, manage.ByUser, manage.ByLabel:
		return true
	}
	return false
}

// Sort sorts sums in the order of [manage.Report].
func Sort(sums []manage.ReportSum) {
	groupOf := func(s *manage.ReportSum) Group { return GroupOf(manage.ByModel, s) }
	slices.SortFunc(sums, func(a, b manage.ReportSum) int { return compareGroups(groupOf(&a), groupOf(&b)) })
}

// Largest returns the sums of the q.Limit groups with the most tokens, or all if q has no
// Limit. It changes the elements of sums.
func Largest(q *manage.ReportQuery, sums []manage.ReportSum) []manage.ReportSum {
	if q.Limit <= 0 {
		return sums
	}
	totals := make(map[Group]llmhttp.UsageSum)
	for i := range sums {
		g := GroupOf(q.By, &sums[i])
		t := totals[g]
		t.Add(sums[i].UsageSum)
		totals[g] = t
	}
	if len(totals) <= q.Limit {
		return sums
	}
	groups := slices.SortedFunc(maps.Keys(totals), func(a, b Group) int {
		ta, tb := totals[a], totals[b]
		return cmp.Or(cmp.Compare(tb.Units.Tokens(), ta.Units.Tokens()), cmp.Compare(tb.Requests, ta.Requests), compareGroups(a, b))
	})
	for _, g := range groups[q.Limit:] {
		delete(totals, g)
	}
	return slices.DeleteFunc(sums, func(s manage.ReportSum) bool {
		_, kept := totals[GroupOf(q.By, &s)]
		return !kept
	})
}

// An Adder adds up sums by group and model. Its zero value is ready to use.
type Adder struct {
	sums    []manage.ReportSum
	indices map[Group]int // in sums, by group and model
}

// Add adds the numbers of sum to those of the sum with its group and model. All starts must
// have the same location.
func (a *Adder) Add(group Group, sum *llmhttp.UsageSum) {
	i, ok := a.indices[group]
	if !ok {
		if a.indices == nil {
			a.indices = make(map[Group]int)
		}
		i = len(a.sums)
		a.indices[group] = i
		a.sums = append(a.sums, manage.ReportSum{
			Account: group.Account, KeyID: group.KeyID, User: group.User, Label: group.Label,
			UsageSum: llmhttp.UsageSum{Start: group.Start, Model: group.Model},
		})
	}
	a.sums[i].Add(*sum)
}

// Sums returns what was added, in any order.
func (a *Adder) Sums() []manage.ReportSum { return a.sums }
