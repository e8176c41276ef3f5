// The chart of the page of usage.

package console

import (
	"cmp"
	"slices"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/console/internal/chart"
	"github.com/llmhttp/llmhttp/console/internal/pages"
	"github.com/llmhttp/llmhttp/llm"
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
func (f *usageFilter) chart(t *usageTable) *chart.Chart {
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
		return c
	}
	measure := func(t *usageTotals) int64 { return t.measure(f.Measure) }
	shown := len(t.groups)
	if shown > chart.MaxSeries {
		shown = chart.MaxSeries - 1 // one color is left for the others
	}
	for i := range t.groups[:shown] {
		addSeries(c, f.seriesName(&t.groups[i]), f.bars(t.series[i]), measure)
	}
	addOthers(c, all, measure)
	return c
}

// seriesName returns the name of the series of a group.
func (f *usageFilter) seriesName(row *usageRow) string {
	switch {
	case row.Page != "":
		return cmp.Or(row.Note, row.Name)
	case f.By == "user":
		return cmp.Or(row.Name, noUser)
	case f.By == "label":
		return cmp.Or(row.Name, noValue)
	}
	return row.Name
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

// bars adds up the sums of the days that share a bar.
func (f *usageFilter) bars(days []llmhttp.UsageSum) []usageTotals {
	bars := make([]usageTotals, int(f.To.Sub(f.From)/day)/f.interval()+1)
	for i := range days {
		bars[int(days[i].Start.Sub(f.From)/day)/f.interval()].Add(days[i])
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
