package manage

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
)

// A ReportRowID identifies a row of a [Report]: see [ReportRow] for its fields. It can be the key of a map.
type ReportRowID struct{ Account, KeyID, User, Label, Model string }

// A ReportBuilder makes the [Report] of a [UsageReporter] out of what the store has read: it adds up
// the sums of the same row, interval and model, orders the rows and limits them. A store on SQL selects what the
// query asks for, as finely divided as it likes, such as
//
//	SELECT account, key_id, model, day, sum(requests), ... FROM usage
//	WHERE day >= $1 AND day < $2 GROUP BY account, key_id, model, day
//
// and adds each row of the result, or each record, if it does not sum up at all:
//
//	if err := q.CheckFields("Account", "From", "To", "By", "Interval", "PerModel", "Order", "Limit"); err != nil {
//		return manage.Report{}, err // the query has a condition that the statement ignores
//	}
//	report, err := manage.NewReportBuilder(q)
//	...
//	for rows.Next() {
//		...
//		report.Add(manage.ReportRowID{Account: account, KeyID: keyID, Model: sum.Model}, &sum)
//	}
//	...
//	return report.Report(), nil
//
// If q has a Limit and there are many groups, the store may read only the largest ones, in the order of
// [ReportOrder]. It must then add the sums of all groups together with AddTotal, or those of the other groups
// with AddOthers.
//
// Create one with [NewReportBuilder]. It is not safe for concurrent use.
type ReportBuilder struct {
	query  ReportQuery
	starts []time.Time // of the intervals
	rows   map[ReportRowID]cells
	others cells
	totals cells // of all groups; nil if the others are known
}

// cells are the sums of a group by interval and model.
type cells map[cell]*llmhttp.UsageSum

type cell struct {
	interval int
	model    string // empty unless sums are divided by model
}

// NewReportBuilder returns a ReportBuilder for the report of q. The error wraps [errors.ErrUnsupported] and tells
// that there is no such group, interval or order, or tells that there are more than [MaxIntervals]. The store must
// call [ReportQuery.CheckFields] itself.
func NewReportBuilder(q ReportQuery) (*ReportBuilder, error) {
	if _, err := q.By.rowID(ReportRowID{}); err != nil {
		return nil, err
	}
	starts, err := q.Intervals()
	if err != nil {
		return nil, err
	}
	if _, err := q.Order.Number(new(llmhttp.UsageSum)); err != nil {
		return nil, err
	}
	return &ReportBuilder{query: q, starts: starts, rows: make(map[ReportRowID]cells)}, nil
}

// rowID returns the part of id by which g groups.
func (g ReportGroup) rowID(id ReportRowID) (ReportRowID, error) {
	switch g {
	case ByTotal:
		return ReportRowID{}, nil
	case ByKey:
		return ReportRowID{Account: id.Account, KeyID: id.KeyID}, nil
	case ByAccount:
		return ReportRowID{Account: id.Account}, nil
	case ByModel:
		return ReportRowID{Model: id.Model}, nil
	case ByUser:
		return ReportRowID{Account: id.Account, User: id.User}, nil
	case ByLabel:
		return ReportRowID{Label: id.Label}, nil
	}
	return ReportRowID{}, fmt.Errorf("manage: usage cannot be grouped by %q: %w", string(g), errors.ErrUnsupported)
}

// Starts returns when the intervals of the report begin, as [ReportQuery.Intervals] does. It is empty if the query
// selects no time: then the report is empty too. The caller must not change the slice.
func (b *ReportBuilder) Starts() []time.Time { return b.starts }

// Add adds the numbers of sum to a row. Only the fields of id by which the query groups count; the others are
// ignored, so that a store can always set what it knows. The Label is the value of the label GroupLabel.
//
// The numbers belong to the interval that contains sum.Start; one before all intervals belongs to the
// first, and one after them to the last. sum.Model matters only with PerModel. Add does not keep sum.
func (b *ReportBuilder) Add(id ReportRowID, sum *llmhttp.UsageSum) {
	id, _ = b.query.By.rowID(id) // NewReportBuilder has checked it
	c := b.rows[id]
	if c == nil {
		c = make(cells)
		b.rows[id] = c
	}
	b.add(c, sum)
}

// AddTotal adds the numbers of sum, which are those of any groups, to the total of the report. What is left of
// the total without the rows belongs to the others. A store that uses it must add the sums of all groups
// to the total, also of those with a row. The interval and the model are found as in Add.
func (b *ReportBuilder) AddTotal(sum *llmhttp.UsageSum) {
	if b.totals == nil {
		b.totals = make(cells)
	}
	b.add(b.totals, sum)
}

// AddOthers adds the numbers of sum, which are those of groups without a row, to [Report].Others. The interval
// and the model are found as in Add.
func (b *ReportBuilder) AddOthers(sum *llmhttp.UsageSum) {
	if b.others == nil {
		b.others = make(cells)
	}
	b.add(b.others, sum)
}

func (b *ReportBuilder) add(to cells, sum *llmhttp.UsageSum) {
	interval := 0
	if len(b.starts) > 1 {
		after, _ := slices.BinarySearchFunc(b.starts, sum.Start, func(start, t time.Time) int {
			return cmp.Or(start.Compare(t), -1)
		})
		interval = max(after-1, 0)
	}
	at := cell{interval: interval}
	if b.query.PerModel {
		at.model = sum.Model
	}
	if to[at] == nil {
		to[at] = new(llmhttp.UsageSum)
	}
	to[at].Add(*sum)
}

// Report returns the report of what was added. Its Since is zero: the store sets it. Call Report once, after
// everything was added.
func (b *ReportBuilder) Report() (r Report) {
	if len(b.starts) == 0 {
		return r
	}
	type ranked struct {
		ReportRow
		number int64
		total  llmhttp.UsageSum
	}
	rows := make([]ranked, 0, len(b.rows))
	for id, c := range b.rows {
		row := ranked{ReportRow: ReportRow{Account: id.Account, KeyID: id.KeyID, User: id.User, Label: id.Label, Model: id.Model}}
		for _, sum := range c {
			row.total.Add(*sum)
		}
		row.number, _ = b.query.Order.Number(&row.total) // NewReportBuilder has checked it
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(x, y ranked) int {
		return cmp.Or(cmp.Compare(y.number, x.number), cmp.Compare(y.total.Cost.Total(), x.total.Cost.Total()),
			cmp.Compare(y.total.Units.Tokens(), x.total.Units.Tokens()), cmp.Compare(y.total.Requests, x.total.Requests),
			x.CompareNames(&y.ReportRow))
	})
	for i := range rows {
		id := ReportRowID{rows[i].Account, rows[i].KeyID, rows[i].User, rows[i].Label, rows[i].Model}
		if b.query.Limit > 0 && i >= b.query.Limit {
			for at, sum := range b.rows[id] {
				sum.Start, sum.Model = b.starts[at.interval], at.model
				b.AddOthers(sum)
			}
			continue
		}
		rows[i].Sums = b.list(b.rows[id], id.Model)
		r.Rows = append(r.Rows, rows[i].ReportRow)
		for at, sum := range b.rows[id] {
			if total := b.totals[at]; total != nil {
				subtract(total, sum)
			}
		}
	}
	for at, sum := range b.totals {
		if sum.Requests != 0 || sum.Unpriced != 0 || !sum.Units.IsZero() || sum.Cost != (llmhttp.Cost{}) {
			sum.Start, sum.Model = b.starts[at.interval], at.model
			b.AddOthers(sum)
		}
	}
	r.Others = b.list(b.others, "")
	return r
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
func (b *ReportBuilder) list(c cells, model string) (sums []llmhttp.UsageSum) {
	inOrder := func(x, y cell) int { return cmp.Or(x.interval-y.interval, strings.Compare(x.model, y.model)) }
	for _, at := range slices.SortedFunc(maps.Keys(c), inOrder) {
		sum := *c[at]
		sum.Start, sum.Model = b.starts[at.interval], cmp.Or(at.model, model)
		sums = append(sums, sum)
	}
	return sums
}
