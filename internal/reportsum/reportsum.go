// Package reportsum adds up, orders and limits the sums of reports for the stores that implement
// [manage.UsageReporter].
package reportsum

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/manage"
)

// A Group identifies a row of a report. What the report is not grouped by is empty.
type Group struct{ Account, KeyID, User, Label, Model string }

// An Adder adds up the rows of a report. Create one with NewAdder.
type Adder struct {
	query  *manage.ReportQuery
	starts []time.Time // of the intervals
	groups map[Group]cells
	others cells
	totals cells // of all groups; nil if the others are known
}

// cells are the sums of a group by interval and model.
type cells map[cell]*llmhttp.UsageSum

type cell struct {
	interval int
	model    string // empty unless sums are divided by model
}

// NewAdder returns an Adder for a report. The error tells that there is no such interval or order, or
// that there are too many intervals.
func NewAdder(q *manage.ReportQuery) (*Adder, error) {
	starts, err := q.Intervals()
	if err != nil {
		return nil, err
	}
	if _, err := q.Order.Number(new(llmhttp.UsageSum)); err != nil {
		return nil, err
	}
	return &Adder{query: q, starts: starts, groups: make(map[Group]cells)}, nil
}

// Starts returns when the intervals of the report begin. The caller must not change it.
func (a *Adder) Starts() []time.Time { return a.starts }

// Add adds the numbers of sum to those of a group in the interval with sum.Start, which must be in the
// time of the report. Its Model counts only if sums are divided by it.
func (a *Adder) Add(g Group, sum *llmhttp.UsageSum) {
	c := a.groups[g]
	if c == nil {
		c = make(cells)
		a.groups[g] = c
	}
	a.add(c, sum)
}

// AddTotal adds the numbers of sum to those of all groups together. What is then left over the rows
// belongs to the others.
func (a *Adder) AddTotal(sum *llmhttp.UsageSum) {
	if a.totals == nil {
		a.totals = make(cells)
	}
	a.add(a.totals, sum)
}

// AddOthers adds the numbers of sum to those of the groups without a row.
func (a *Adder) AddOthers(sum *llmhttp.UsageSum) {
	if a.others == nil {
		a.others = make(cells)
	}
	a.add(a.others, sum)
}

func (a *Adder) add(to cells, sum *llmhttp.UsageSum) {
	interval := 0
	if len(a.starts) > 1 {
		after, _ := slices.BinarySearchFunc(a.starts, sum.Start, func(start, t time.Time) int {
			return cmp.Or(start.Compare(t), -1)
		})
		interval = max(after-1, 0)
	}
	at := cell{interval: interval}
	if a.query.PerModel {
		at.model = sum.Model
	}
	if to[at] == nil {
		to[at] = new(llmhttp.UsageSum)
	}
	to[at].Add(*sum)
}

// Report returns the report of what was added.
func (a *Adder) Report() (r manage.Report, err error) {
	type ranked struct {
		manage.ReportRow
		number int64
		total  llmhttp.UsageSum
	}
	rows := make([]ranked, 0, len(a.groups))
	for g, c := range a.groups {
		row := ranked{ReportRow: manage.ReportRow{
			Account: g.Account, KeyID: g.KeyID, User: g.User, Label: g.Label, Model: g.Model,
		}}
		for _, sum := range c {
			row.total.Add(*sum)
		}
		if row.number, err = a.query.Order.Number(&row.total); err != nil {
			return r, err
		}
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(x, y ranked) int {
		return cmp.Or(cmp.Compare(y.number, x.number), cmp.Compare(y.total.Cost.Total(), x.total.Cost.Total()),
			cmp.Compare(y.total.Units.Tokens(), x.total.Units.Tokens()), cmp.Compare(y.total.Requests, x.total.Requests),
			x.CompareNames(&y.ReportRow))
	})
	for i := range rows {
		g := Group{rows[i].Account, rows[i].KeyID, rows[i].User, rows[i].Label, rows[i].Model}
		if a.query.Limit > 0 && i >= a.query.Limit {
			for at, sum := range a.groups[g] {
				sum.Start, sum.Model = a.starts[at.interval], at.model
				a.AddOthers(sum)
			}
			continue
		}
		rows[i].Sums = a.list(a.groups[g], g.Model)
		r.Rows = append(r.Rows, rows[i].ReportRow)
		for at, sum := range a.groups[g] {
			if total := a.totals[at]; total != nil {
				subtract(total, sum)
			}
		}
	}
	for at, sum := range a.totals {
		if sum.Requests != 0 || sum.Unpriced != 0 || !sum.Units.IsZero() || sum.Cost != (llmhttp.Cost{}) {
			sum.Start, sum.Model = a.starts[at.interval], at.model
			a.AddOthers(sum)
		}
	}
	r.Others = a.list(a.others, "")
	return r, nil
}

// subtract subtracts part from sum, which it is a part of.
func subtract(sum, part *llmhttp.UsageSum) {
	sum.Requests -= part.Requests
	sum.Unpriced -= part.Unpriced
	units, costs := numbersOf(part)
	for _, n := range sum.Units.All() {
		*n -= units[0]
		units = units[1:]
	}
	for _, m := range sum.Cost.All() {
		*m -= costs[0]
		costs = costs[1:]
	}
	// A sum has not all lifetimes if there are many.
	left := make(llm.CacheWrites)
	for lifetime, n := range sum.Units.CacheWrites.All() {
		if n -= part.Units.CacheWrites[lifetime]; n > 0 {
			left[lifetime] = n
		}
	}
	if sum.Units.CacheWrites = left; len(left) == 0 {
		sum.Units.CacheWrites = nil
	}
}

// numbersOf returns the numbers of Units.All and of Cost.All.
func numbersOf(s *llmhttp.UsageSum) (units []int64, costs []llm.Money) {
	for _, n := range s.Units.All() {
		units = append(units, *n)
	}
	for _, m := range s.Cost.All() {
		costs = append(costs, *m)
	}
	return units, costs
}

// list returns sums in their order. Those that are not divided by model get the given one.
func (a *Adder) list(c cells, model string) (sums []llmhttp.UsageSum) {
	inOrder := func(x, y cell) int { return cmp.Or(x.interval-y.interval, strings.Compare(x.model, y.model)) }
	for _, at := range slices.SortedFunc(maps.Keys(c), inOrder) {
		sum := *c[at]
		sum.Start, sum.Model = a.starts[at.interval], cmp.Or(at.model, model)
		sums = append(sums, sum)
	}
	return sums
}

// UnknownGroup returns the error for a group that a store of the package with the given name does not
// know.
func UnknownGroup(name string, by manage.ReportGroup) error {
	return fmt.Errorf("%s: usage cannot be reported by %q: %w", name, string(by), errors.ErrUnsupported)
}
