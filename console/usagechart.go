package console

import (
	"cmp"
	"context"
	"slices"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/console/internal/chart"
	"github.com/llmhttp/llmhttp/console/internal/pages"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/manage"
)

// maxDayBars is the length in days of the longest period of which a chart has a bar for each
// day. Charts of longer ones have a bar for each week.
const maxDayBars = 100

// interval returns how many days a bar has.
func (f *usageFilter) interval() int {
	if f.To.Sub(f.From) >= maxDayBars*day {
		return 7
	}
	return 1
}

// chartTitle says what the chart shows.
func (f *usageFilter) chartTitle() string {
	title, each, by := measureTitle(f.Measure), "day", f.By
	if f.interval() > 1 {
		each = "week"
	}
	switch {
	case f.Measure == measureParts:
		title, by = "Cost", "part"
	case f.By == "day":
		by = "model"
	case f.By == "label":
		by, _ = f.label()
	}
	return title + " of each " + each + " by " + by
}

// chart returns a chart of the usage in t. The parts of the cost have a series each, if they are
// what f measures, and otherwise the largest groups of f.By; groups of days are models.
func (u *usageReports) chart(ctx context.Context, f *usageFilter, t *usageTable) (*chart.Chart, error) {
	c := &chart.Chart{Format: pages.FormatCount, Tick: chart.ShortCount, Labels: f.barLabels()}
	if f.Measure == "cost" || f.Measure == measureParts {
		c.Format = func(n int64) string { return pages.FormatMoney(llm.Money(n)) }
		c.Tick = func(n int64) string { return "$" + llm.Money(n).String() }
	}
	all := f.bars(t.days)
	if f.Measure == measureParts {
		for name := range new(llmhttp.Cost).All() {
			addSeries(c, costTitle(name), all, func(t *usageTotals) int64 { return int64(t.part(name)) })
		}
		return c, nil
	}
	measure := func(t *usageTotals) int64 { return t.measure(f.Measure) }
	groups, err := u.chartGroups(ctx, f, t)
	if err != nil {
		return nil, err
	}
	for i := range groups {
		addSeries(c, groups[i].Name, f.bars(groups[i].sums), measure)
	}
	addOthers(c, all, measure)
	return c, nil
}

// addSeries adds a series with the number that measure returns of each bar.
func addSeries(c *chart.Chart, name string, bars []usageTotals, measure func(*usageTotals) int64) {
	s := chart.Series{Name: name}
	for i := range bars {
		s.Values = append(s.Values, measure(&bars[i]))
	}
	c.Series = append(c.Series, s)
}

// addOthers adds a series with what is missing in those that c has, unless that is nothing.
func addOthers(c *chart.Chart, all []usageTotals, measure func(*usageTotals) int64) {
	others := chart.Series{Name: "others", Values: make([]int64, len(all))}
	for i := range all {
		others.Values[i] = max(measure(&all[i])-c.Total(i), 0)
	}
	if slices.Max(others.Values) > 0 {
		c.Series = append(c.Series, others)
	}
}

// A chartGroup is the usage of one group by day.
type chartGroup struct {
	usageRow
	sums []manage.ReportSum
}

// chartGroups returns the groups with the most usage. Those of requests that name no end user or
// label cannot be selected, so that they are among the others.
func (u *usageReports) chartGroups(ctx context.Context, f *usageFilter, t *usageTable) (groups []chartGroup, err error) {
	if f.By == "day" || f.By == "model" {
		return largest(f, u.groupModels(t.days)), nil
	}
	for i := range t.Rows {
		if t.Rows[i].Name != "" {
			groups = append(groups, chartGroup{usageRow: t.Rows[i]})
		}
	}
	groups = largest(f, groups)
	for i := range groups {
		row := &groups[i].usageRow
		report, err := u.read(ctx, f.selecting(row), manage.ByDay, 0)
		if err != nil {
			return nil, err
		}
		groups[i].sums = report.Sums
		if row.Page != "" {
			row.Name = cmp.Or(row.Note, row.Name)
		}
	}
	return groups, nil
}

// groupModels returns the usage of each model.
func (u *usageReports) groupModels(days []manage.ReportSum) (groups []chartGroup) {
	for _, row := range u.group(days, func(s *manage.ReportSum) (string, string) { return s.Model, "" }) {
		g := chartGroup{usageRow: row}
		for i := range days {
			if days[i].Model == row.Name {
				g.sums = append(g.sums, days[i])
			}
		}
		groups = append(groups, g)
	}
	return groups
}

// largest returns the groups that have a series of their own, beginning with the largest. If
// there are more than colors, one color is left for the others.
func largest(f *usageFilter, groups []chartGroup) []chartGroup {
	slices.SortStableFunc(groups, func(a, b chartGroup) int { return cmp.Compare(b.measure(f.Measure), a.measure(f.Measure)) })
	if len(groups) > chart.MaxSeries {
		groups = groups[:chart.MaxSeries-1]
	}
	return groups
}

// selecting returns a filter that selects what f selects in one row of its table.
func (f *usageFilter) selecting(row *usageRow) *usageFilter {
	only := *f
	only.Account = cmp.Or(f.Account, row.account) // stores find that faster
	switch f.By {
	case "key":
		only.KeyID, only.Key = row.Name, nil
	case "user":
		only.User = row.Name
	case "label":
		name, _ := f.label()
		only.Label = name + "=" + row.Name
	}
	return &only
}

// bars adds up the sums of the days that share a bar.
func (f *usageFilter) bars(days []manage.ReportSum) []usageTotals {
	bars := make([]usageTotals, int(f.To.Sub(f.From)/day)/f.interval()+1)
	for i := range days {
		bars[int(days[i].Start.Sub(f.From)/day)/f.interval()].Add(days[i].UsageSum)
	}
	return bars
}

// barLabels returns the labels of the days, or of the weeks, of the period.
func (f *usageFilter) barLabels() (labels []chart.Label) {
	const inFull = "Jan 2, 2006"
	for t := f.From; !t.After(f.To); t = t.AddDate(0, 0, f.interval()) {
		label := chart.Label{Axis: t.Format("Jan 2"), Name: t.Format("Mon, " + inFull)}
		if f.interval() > 1 {
			last := t.AddDate(0, 0, f.interval()-1)
			if last.After(f.To) {
				last = f.To
			}
			label.Name = t.Format(inFull) + " – " + last.Format(inFull)
		}
		labels = append(labels, label)
	}
	return labels
}
