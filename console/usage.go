package console

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/keytext"
)

const (
	day         = 24 * time.Hour
	defaultDays = 30
	maxDays     = 366

	// maxGroups is the number of keys or accounts in a table.
	maxGroups = 25
)

// usageTotals are sums of usage with their cost.
type usageTotals struct {
	llmhttp.UsageSum
	Cost float64 // in US dollars
}

func (t *usageTotals) add(h *Handler, s *llmhttp.UsageSum) {
	t.Requests += s.Requests
	t.PromptTokens += s.PromptTokens
	t.CompletionTokens += s.CompletionTokens
	t.CachedTokens += s.CachedTokens
	t.ReasoningTokens += s.ReasoningTokens
	t.Images += s.Images
	if h.opts.Cost != nil {
		t.Cost += h.opts.Cost(*s)
	}
}

// Tokens returns the tokens of prompts and completions.
func (t *usageTotals) Tokens() int64 { return t.PromptTokens + t.CompletionTokens }

// A usageRow is a row of a table of usage.
type usageRow struct {
	Name string // a date, a model, the ID of a key, or an account
	Note string // the name of a key
	usageTotals
}

// A usagePage is the data of usage.html.
type usagePage struct {
	usageFilter
	Rows     []usageRow
	Totals   usageTotals
	Tables   []link
	Measures []link
	Periods  []link
	Query    string // of the chart and the CSV file
	Costs    bool
	Admin    bool
	Limited  bool // there may be more rows
	Key      *llmhttp.KeyInfo
}

// A link leads to a variant of the page.
type link struct {
	Query, Title string
	Current      bool
}

var usageMeasures = []string{"tokens", "requests", "images", "cost"}

// report reads the sums that f selects. Of a key it selects what was used for its
// present account, as stores find that faster.
func (h *Handler) report(p *page, f *usageFilter, by llmhttp.ReportGroup, limit int) ([]llmhttp.ReportSum, error) {
	account := f.Account
	if account == "" && f.key != nil {
		account = f.key.Account
	}
	return h.usage.ReportUsage(p.r.Context(), llmhttp.ReportQuery{
		Account: account, KeyID: f.KeyID, From: f.From, To: f.To.Add(day), By: by, Limit: limit,
	})
}

func (h *Handler) serveUsage(p *page) error {
	f, err := h.readUsageFilter(p)
	if err != nil {
		return err
	}
	data := &usagePage{usageFilter: f, Query: f.query(p.user.Admin), Costs: h.opts.Cost != nil, Admin: p.user.Admin}
	data.Key = f.key
	if data.Rows, data.Totals, data.Limited, err = h.usageRows(p, &f, maxGroups); err != nil {
		return err
	}
	data.addLinks()
	return p.render("usage.html", "Usage", data)
}

// ByTitle returns the heading of the first column.
func (d *usagePage) ByTitle() string { return capitalized(d.By) }

func capitalized(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

func (d *usagePage) addLinks() {
	tables := []string{"day", "model", "key", "account"}
	if !d.Admin {
		tables = tables[:3]
	}
	for _, by := range tables {
		f := d.usageFilter
		f.By = by
		d.Tables = append(d.Tables, link{f.query(d.Admin), "By " + by, by == d.By})
	}
	for _, measure := range usageMeasures {
		if measure == "cost" && !d.Costs {
			continue
		}
		f := d.usageFilter
		f.Measure = measure
		d.Measures = append(d.Measures, link{f.query(d.Admin), capitalized(measure), measure == d.Measure})
	}
	today := time.Now().UTC().Truncate(day)
	for _, days := range []int{7, 30, 90, 365} {
		f := d.usageFilter
		f.From, f.To = today.Add(-time.Duration(days-1)*day), today
		d.Periods = append(d.Periods, link{f.query(d.Admin), strconv.Itoa(days) + " days", f.From.Equal(d.From) && f.To.Equal(d.To)})
	}
}

// usageRows returns the rows of the table that f selects and their sum. It
// reports whether there may be more than limit.
func (h *Handler) usageRows(p *page, f *usageFilter, limit int) (rows []usageRow, totals usageTotals, limited bool, err error) {
	by := map[string]llmhttp.ReportGroup{"key": llmhttp.ByKey, "account": llmhttp.ByAccount}[f.By]
	days, err := h.report(p, f, llmhttp.ByDay, 0)
	if err != nil {
		return nil, totals, false, err
	}
	for i := range days {
		totals.add(h, &days[i].UsageSum)
	}
	if by == llmhttp.ByTotal {
		rows = h.foldRows(days, func(s *llmhttp.ReportSum) string {
			if f.By == "model" {
				return s.Model
			}
			return formatDate(s.Start)
		})
	} else {
		sums, err := h.report(p, f, by, limit)
		if err != nil {
			return nil, totals, false, err
		}
		rows = h.foldRows(sums, func(s *llmhttp.ReportSum) string {
			if f.By == "key" {
				return s.KeyID
			}
			return s.Account
		})
		limited = limit > 0 && len(rows) >= limit
	}
	if f.By == "day" {
		slices.SortFunc(rows, func(a, b usageRow) int { return strings.Compare(b.Name, a.Name) })
	} else {
		slices.SortStableFunc(rows, func(a, b usageRow) int {
			return cmp.Or(cmp.Compare(b.Tokens(), a.Tokens()), cmp.Compare(b.Requests, a.Requests))
		})
	}
	if f.By == "key" {
		h.addKeyNames(p, rows)
	}
	return rows, totals, limited, nil
}

// foldRows adds up sums that have the same name.
func (h *Handler) foldRows(sums []llmhttp.ReportSum, name func(*llmhttp.ReportSum) string) []usageRow {
	var rows []usageRow
	indices := make(map[string]int)
	for i := range sums {
		n := name(&sums[i])
		j, ok := indices[n]
		if !ok {
			j = len(rows)
			indices[n] = j
			rows = append(rows, usageRow{Name: n})
		}
		rows[j].add(h, &sums[i].UsageSum)
	}
	return rows
}

// addKeyNames adds the names of up to maxGroups keys. Keys that are not known
// any more have none.
func (h *Handler) addKeyNames(p *page, rows []usageRow) {
	for i := range rows[:min(len(rows), maxGroups)] {
		if info, err := h.keys.Key(p.r.Context(), rows[i].Name); err == nil && p.user.sees(&info) {
			rows[i].Note = info.Name
		}
	}
}

// keyTotals returns what a key has used in the last defaultDays days.
func (h *Handler) keyTotals(p *page, info *llmhttp.KeyInfo) (*usageTotals, error) {
	today := time.Now().UTC().Truncate(day)
	f := &usageFilter{From: today.Add(-(defaultDays - 1) * day), To: today, KeyID: info.ID, Account: info.Account}
	sums, err := h.report(p, f, llmhttp.ByTotal, 0)
	if err != nil {
		return nil, err
	}
	totals := &usageTotals{}
	for i := range sums {
		totals.add(h, &sums[i].UsageSum)
	}
	return totals, nil
}

// serveUsageCSV replies with all rows of a table.
func (h *Handler) serveUsageCSV(p *page) error {
	f, err := h.readUsageFilter(p)
	if err != nil {
		return err
	}
	rows, _, _, err := h.usageRows(p, &f, 0)
	if err != nil {
		return err
	}
	p.w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	p.w.Header().Set("Content-Disposition", `attachment; filename="usage-by-`+f.By+"-"+formatDate(f.From)+"-"+formatDate(f.To)+`.csv"`)
	w := keytext.NewUsageCSV(p.w, []string{f.By}, "cost_usd")
	for i := range rows {
		cost := ""
		if h.opts.Cost != nil {
			cost = strconv.FormatFloat(rows[i].Cost, 'f', -1, 64)
		}
		w.Write([]string{rows[i].Name}, &rows[i].UsageSum, cost)
	}
	_ = w.Flush() // fails if the client has left
	return nil
}
