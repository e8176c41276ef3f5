// The page of usage.

package console

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp/console/internal/chart"
	"github.com/llmhttp/llmhttp/console/internal/pages"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/manage/keytext"
)

// maxGroups is the maximum number of keys, accounts, users or values of labels in a table.
const maxGroups = 25

// usageData is the data of usage.html.
type usageData struct {
	usageFilter
	*usageTable
	Chart    *chart.View
	Tables   []link
	Measures []link
	Periods  []link
	Query    string // of the CSV file
	Columns  []usageColumn
	Shares   [][]rowShare // of each row, if the page shows the parts of the cost
	Admin    bool
}

// A link leads to a variant of the same page.
type link struct {
	Query, Title string
	Current      bool
}

// usagePages serve the page of usage and its CSV file.
type usagePages struct {
	keys     manage.KeyManager
	accounts manage.AccountManager // nil if the store keeps none
	reports  *usageReports
}

// serve shows usage as a table with a chart.
func (u *usagePages) serve(q *request) error {
	f, err := u.readFilter(q)
	if err != nil {
		return err
	}
	table, err := u.reports.table(q.r.Context(), &f, maxGroups)
	if err != nil {
		return err
	}
	switch f.By {
	case "key":
		err = u.addKeyNames(q, table.Rows)
	case "account":
		err = u.addAccountNames(q, table.Rows)
	}
	if err != nil {
		return err
	}
	data := &usageData{
		usageFilter: f, usageTable: table, Query: f.query(q.user.Admin), Admin: q.user.Admin,
		Chart: f.chart(table).Draw(f.chartTitle()), Columns: table.Totals.columns(f.Measure == "cost" || f.Measure == measureParts),
	}
	if f.Measure == measureParts {
		data.Shares = shares(table.Rows)
	}
	data.addLinks()
	return q.render("usage.html", "Usage", data)
}

// A rowShare is a part of the cost of a row. X and Width are its place in percent of the
// cost of the row with the highest one.
type rowShare struct{ Class, X, Width string }

// shares returns the parts of the cost of each row.
func shares(rows []usageRow) [][]rowShare {
	all := make([][]rowShare, len(rows))
	highest := llm.Money(1)
	for i := range rows {
		highest = max(highest, rows[i].Cost.Total())
	}
	for i := range rows {
		left, n := llm.Money(0), 0
		for _, m := range rows[i].Cost.All() {
			n++
			if width := min(max(*m, 0), highest-left); width > 0 {
				all[i] = append(
					all[i],
					rowShare{chart.SeriesClass(n - 1), chart.Percent(int64(left), int64(highest)), chart.Percent(int64(width), int64(highest))},
				)
				left += width
			}
		}
	}
	return all
}

// addAccountNames adds the names of accounts that have settings, and links to their pages.
func (u *usagePages) addAccountNames(q *request, rows []usageRow) error {
	for i := range rows {
		account, err := findAccount(q.r.Context(), u.accounts, rows[i].Name)
		if err != nil {
			return err
		}
		if account != nil {
			rows[i].Note, rows[i].Page = account.Name, "account"
		}
	}
	return nil
}

// addKeyNames adds the names of keys that still exist and that the user sees. It reads
// few keys one by one, and for many rows all keys.
func (u *usagePages) addKeyNames(q *request, rows []usageRow) error {
	if len(rows) > maxGroups {
		return u.addListedNames(q, rows)
	}
	for i := range rows {
		rows[i].Page = "key"
		if info, err := q.findKey(u.keys, rows[i].Name); err == nil {
			rows[i].Note = info.Name
		}
	}
	return nil
}

// addListedNames is addKeyNames for many rows.
func (u *usagePages) addListedNames(q *request, rows []usageRow) error {
	rowOf := make(map[string]*usageRow, len(rows))
	for i := range rows {
		rowOf[rows[i].Name] = &rows[i]
	}
	const pageSize = 1000
	page := manage.KeyQuery{Limit: pageSize}
	if !q.user.Admin {
		page.Account = q.user.Account
	}
	for {
		keys, err := u.keys.ListKeys(q.r.Context(), page)
		if err != nil {
			return err
		}
		for i := range keys {
			if row := rowOf[keys[i].ID]; row != nil {
				row.Note = keys[i].Name
			}
		}
		if len(keys) < pageSize {
			return nil
		}
		page.After = keys[pageSize-1].ID
	}
}

// The names of the rows of requests that name no end user and have no value of a label.
const (
	noUser  = "no user"
	noValue = "no value"
)

// RowName returns the name of a row that has no page.
func (d *usageData) RowName(row usageRow) string { return d.seriesName(&row) }

// MeasureText returns by what the largest rows are chosen.
func (d *usageData) MeasureText() string {
	if d.Measure == measureParts {
		return "cost"
	}
	return strings.ToLower(measureTitle(d.Measure))
}

// ByTitle returns the heading of the first column.
func (d *usageData) ByTitle() string { return capitalized(d.By) }

func capitalized(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// addLinks adds links to the same page with another table, measure or period.
func (d *usageData) addLinks() {
	tables := []string{"day", "model", "key", "user"}
	if d.Label != "" {
		tables = append(tables, "label")
	}
	if d.Admin {
		tables = append(tables, "account")
	}
	for _, by := range tables {
		f := d.usageFilter
		f.By = by
		d.Tables = append(d.Tables, link{f.query(d.Admin), "By " + by, by == d.By})
	}
	measures := d.Totals.measures()
	if !slices.Contains(measures, d.Measure) {
		measures = append(measures, d.Measure)
	}
	for _, measure := range measures {
		f := d.usageFilter
		f.Measure = measure
		d.Measures = append(d.Measures, link{f.query(d.Admin), measureTitle(measure), measure == d.Measure})
	}
	today := time.Now().UTC().Truncate(day)
	for _, days := range []int{7, 30, 90, 365} {
		f := d.usageFilter
		f.From, f.To = today.Add(-time.Duration(days-1)*day), today
		current := f.From.Equal(d.From) && f.To.Equal(d.To)
		d.Periods = append(d.Periods, link{f.query(d.Admin), strconv.Itoa(days) + " days", current})
	}
}

// serveCSV replies with all rows of the table as comma-separated values. Rows of keys
// have the name of the key too, and those of end users their account.
func (u *usagePages) serveCSV(q *request) error {
	f, err := u.readFilter(q)
	if err != nil {
		return err
	}
	table, err := u.reports.table(q.r.Context(), &f, 0)
	if err != nil {
		return err
	}
	columns := []string{f.By}
	switch f.By {
	case "user":
		columns = append(columns, "account")
	case "key":
		columns = append(columns, "name")
		if err := u.addKeyNames(q, table.Rows); err != nil {
			return err
		}
	}
	q.w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	from := f.From
	if table.Since.After(from) {
		from = table.Since // what the file has
	}
	name := "usage-by-" + f.By + "-" + pages.FormatDate(from) + "-" + pages.FormatDate(f.To) + ".csv"
	q.w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
	w := keytext.NewUsageCSV(q.w, columns)
	for i := range table.Rows {
		row := &table.Rows[i]
		w.Write([]string{row.Name, row.Note}[:len(columns)], &row.UsageSum)
	}
	_ = w.Flush() // fails if the client has left
	return nil
}
