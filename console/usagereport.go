// Reads usage and adds it up.

package console

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/console/internal/pages"
	"github.com/llmhttp/llmhttp/manage"
)

// defaultDays is the length of the period in days if the query names none.
const defaultDays = 30

// A usageTable has a row for each day, model, key, account, end user or value of a label.
type usageTable struct {
	Rows    []usageRow
	Others  *usageTotals // of the groups without a row; nil if each has one
	Totals  usageTotals  // of all usage
	Since   time.Time    // if not zero, what Rows need is known from then on
	Partial bool         // whether Totals lack what was used before, too

	groups []usageRow           // of which the chart may have a series: those of Rows, or models if these are days
	series [][]llmhttp.UsageSum // of groups, by day
	days   []llmhttp.UsageSum   // all usage by day, with any number of sums of a day
}

// A usageRow has the usage of one row of a usageTable.
type usageRow struct {
	Name string // a date, a model, the ID of a key, an account, an end user, or the value of a label
	Note string // the name of a key or an account; the account of an end user
	Page string // the page that shows the key or the account; empty if there is none
	usageTotals
}

// usageReports read and add up usage.
type usageReports struct {
	store manage.UsageReporter // nil if the host has none
}

// read reads the groups that f selects, the largest first in what f measures. If f selects a key, it reads
// only what was used for the current account of the key, because stores find that faster.
func (u *usageReports) read(ctx context.Context, f *usageFilter, by manage.ReportGroup, every manage.ReportInterval, limit int) (manage.Report, error) {
	account := f.Account
	if account == "" && f.Key != nil {
		account = f.Key.Account
	}
	name, label := f.label()
	report, err := u.store.Report(ctx, manage.ReportQuery{
		Account: account, KeyID: f.KeyID, Model: f.Model, User: f.User, Label: label, From: f.From, To: f.To.Add(day),
		By: by, GroupLabel: name, Interval: every, Order: f.order(), Limit: limit,
	})
	if errors.Is(err, errors.ErrUnsupported) {
		err = &pageError{http.StatusNotImplemented, "The usage store has no such report."}
	}
	return report, err
}

// order returns the order of groups by what f measures.
func (f *usageFilter) order() manage.ReportOrder {
	switch f.Measure {
	case "", "cost", measureParts:
		return manage.OrderByCost
	case "tokens":
		return manage.OrderByTokens
	case "requests":
		return manage.OrderByRequests
	}
	return manage.ReportOrder(f.Measure)
}

// group returns the groups of the report for f: those of its table, or models if these are days.
func (f *usageFilter) group() manage.ReportGroup {
	switch f.By {
	case "key", "account", "user", "label":
		return manage.ReportGroup(f.By)
	}
	return manage.ByModel
}

// table returns the table that f selects. A table by key, account, end user or label has at most limit rows;
// zero means no limit. With a limit, the table has what a chart needs.
func (u *usageReports) table(ctx context.Context, f *usageFilter, limit int) (*usageTable, error) {
	by, every := f.group(), manage.EveryDay
	if limit <= 0 && f.By != "day" {
		every = manage.NoInterval // without a limit there is no chart
	}
	if by == manage.ByModel {
		limit = 0
	}
	report, err := u.read(ctx, f, by, every, limit)
	if err != nil {
		return nil, err
	}
	t := &usageTable{Since: report.Since, Partial: f.SelectsDetail(), days: report.Others}
	for i := range report.Rows {
		t.days = append(t.days, report.Rows[i].Sums...)
	}
	t.addGroups(f, report.Rows)
	if report.Others != nil {
		t.Others = new(usageTotals)
		t.Others.addAll(report.Others)
	}
	if !t.Since.IsZero() && !t.Partial { // of all groups together, stores know more
		total, err := u.read(ctx, f, manage.ByTotal, manage.EveryDay, 0)
		if err != nil {
			return nil, err
		}
		t.days = nil
		for i := range total.Rows {
			t.days = append(t.days, total.Rows[i].Sums...)
		}
	}
	t.Totals.addAll(t.days)
	if t.Rows = t.groups; f.By == "day" {
		t.Rows = rowsOfDays(t.days)
	}
	return t, nil
}

// addGroups adds the groups of a report. A key that had several accounts is one group.
func (t *usageTable) addGroups(f *usageFilter, rows []manage.ReportRow) {
	type group struct {
		usageRow
		sums []llmhttp.UsageSum
	}
	var groups []group
	type name struct{ name, note string }
	indices := make(map[name]int)
	for i := range rows {
		row := newUsageRow(f, &rows[i])
		n, ok := indices[name{row.Name, row.Note}]
		if !ok {
			n = len(groups)
			indices[name{row.Name, row.Note}] = n
			groups = append(groups, group{usageRow: usageRow{Name: row.Name, Note: row.Note}})
		}
		groups[n].Add(row.UsageSum)
		groups[n].sums = append(groups[n].sums, rows[i].Sums...)
	}
	slices.SortStableFunc(groups, func(a, b group) int { return cmp.Compare(b.measure(f.Measure), a.measure(f.Measure)) })
	for _, g := range groups {
		t.groups, t.series = append(t.groups, g.usageRow), append(t.series, g.sums)
	}
}

func newUsageRow(f *usageFilter, r *manage.ReportRow) usageRow {
	row := usageRow{Name: r.Model}
	row.addAll(r.Sums)
	switch f.By {
	case "key":
		row.Name = r.KeyID
	case "account":
		row.Name = r.Account
	case "user":
		row.Name, row.Note = r.User, r.Account
	case "label":
		row.Name = r.Label
	}
	return row
}

// rowsOfDays returns a row for each day of sums, the last day first.
func rowsOfDays(sums []llmhttp.UsageSum) (rows []usageRow) {
	byDay := make(map[string]*usageTotals)
	for i := range sums {
		name := pages.FormatDate(sums[i].Start)
		if byDay[name] == nil {
			byDay[name] = new(usageTotals)
		}
		byDay[name].Add(sums[i])
	}
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(byDay))) {
		rows = append(rows, usageRow{Name: name, usageTotals: *byDay[name]})
	}
	return rows
}

// totals returns what f selects of the last defaultDays days, or nil if the host has no
// UsageReporter.
func (u *usageReports) totals(ctx context.Context, f *usageFilter) (*usageTotals, error) {
	if u.store == nil {
		return nil, nil
	}
	f.To = time.Now().UTC().Truncate(day)
	f.From = f.To.Add(-(defaultDays - 1) * day)
	report, err := u.read(ctx, f, manage.ByTotal, manage.NoInterval, 0)
	if err != nil {
		return nil, err
	}
	return &usageTotals{report.Total()}, nil
}
