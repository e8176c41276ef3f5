package console

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp/console/internal/pages"
	"github.com/llmhttp/llmhttp/manage"
)

// defaultDays is the length of the period in days if the query names none.
const defaultDays = 30

// A usageTable has a row for each day, model, key, account, end user or value of a label.
type usageTable struct {
	Rows    []usageRow
	Totals  usageTotals // of all usage, including that of rows that are left out
	Limited bool        // whether rows may be left out
	Since   time.Time   // if not zero, end users and labels are known from then on

	days []manage.ReportSum // all usage by day and model
}

// A usageRow has the usage of one row of a usageTable.
type usageRow struct {
	Name string // a date, a model, the ID of a key, an account, an end user, or the value of a label
	Note string // the name of a key or an account; the account of an end user
	Page string // the page that shows the key or the account; empty if there is none
	usageTotals

	account string // of all usage of the row; empty if that is not known or there are several
}

// usageReports read and add up usage.
type usageReports struct {
	store manage.UsageReporter // nil if the host has none
}

// read reads the sums that f selects. If f selects a key, it reads only what was used
// for the current account of the key, because stores find that faster.
func (u *usageReports) read(ctx context.Context, f *usageFilter, by manage.ReportGroup, limit int) (manage.Report, error) {
	account := f.Account
	if account == "" && f.Key != nil {
		account = f.Key.Account
	}
	name, label := f.label()
	report, err := u.store.Report(ctx, manage.ReportQuery{
		Account: account, KeyID: f.KeyID, Model: f.Model, User: f.User, Label: label, From: f.From, To: f.To.Add(day), By: by, GroupLabel: name, Limit: limit,
	})
	if errors.Is(err, errors.ErrUnsupported) {
		err = &pageError{http.StatusNotImplemented, "The usage store has no such report."}
	}
	return report, err
}

// table returns the table that f selects. A table by key, account, end user or label has at
// most limit rows; zero means no limit.
func (u *usageReports) table(ctx context.Context, f *usageFilter, limit int) (*usageTable, error) {
	report, err := u.read(ctx, f, manage.ByDay, 0)
	if err != nil {
		return nil, err
	}
	t := &usageTable{Totals: u.sum(report.Sums), days: report.Sums}
	switch f.By {
	case "key", "account", "user", "label":
		report, err = u.read(ctx, f, manage.ReportGroup(f.By), limit)
	default:
		limit = 0
	}
	if err != nil {
		return nil, err
	}
	t.Since = report.Since
	t.Rows = u.group(report.Sums, f.rowName)
	t.Limited = limit > 0 && len(t.Rows) >= limit
	t.sort(f)
	return t, nil
}

// rowName returns the name and the note of the row to which s belongs.
func (f *usageFilter) rowName(s *manage.ReportSum) (name, note string) {
	switch f.By {
	case "model":
		return s.Model, ""
	case "key":
		return s.KeyID, ""
	case "account":
		return s.Account, ""
	case "user":
		return s.User, s.Account
	case "label":
		return s.Label, ""
	}
	return pages.FormatDate(s.Start), ""
}

// sort sorts days from the last to the first, and other rows by what f measures.
func (t *usageTable) sort(f *usageFilter) {
	if f.By == "day" {
		slices.SortFunc(t.Rows, func(a, b usageRow) int { return strings.Compare(b.Name, a.Name) })
		return
	}
	slices.SortStableFunc(t.Rows, func(a, b usageRow) int {
		return cmp.Or(cmp.Compare(b.measure(f.Measure), a.measure(f.Measure)), cmp.Compare(b.Requests, a.Requests))
	})
}

// group adds up the sums for which nameOf returns the same name and note.
func (u *usageReports) group(sums []manage.ReportSum, nameOf func(*manage.ReportSum) (name, note string)) []usageRow {
	type key struct{ name, note string }
	var rows []usageRow
	rowOf := make(map[key]int) // the index of a row
	for i := range sums {
		var k key
		k.name, k.note = nameOf(&sums[i])
		row, ok := rowOf[k]
		if !ok {
			row = len(rows)
			rowOf[k] = row
			rows = append(rows, usageRow{Name: k.name, Note: k.note, account: sums[i].Account})
		}
		if rows[row].account != sums[i].Account {
			rows[row].account = ""
		}
		rows[row].Add(sums[i].UsageSum)
	}
	return rows
}

// sum adds up all sums.
func (u *usageReports) sum(sums []manage.ReportSum) (t usageTotals) {
	for i := range sums {
		t.Add(sums[i].UsageSum)
	}
	return t
}

// totals returns what f selects of the last defaultDays days, or nil if the host has no
// UsageReporter.
func (u *usageReports) totals(ctx context.Context, f *usageFilter) (*usageTotals, error) {
	if u.store == nil {
		return nil, nil
	}
	f.To = time.Now().UTC().Truncate(day)
	f.From = f.To.Add(-(defaultDays - 1) * day)
	report, err := u.read(ctx, f, manage.ByTotal, 0)
	if err != nil {
		return nil, err
	}
	totals := u.sum(report.Sums)
	return &totals, nil
}
