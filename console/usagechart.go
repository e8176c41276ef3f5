package console

import (
	"cmp"
	"slices"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage"
)

// maxDayBars is the length in days of the longest period of which a chart has a bar for each
// day. Charts of longer ones have a bar for each week.
const maxDayBars = 100

// An interval is how many days a bar has.
func (f *usageFilter) interval() int {
	if f.To.Sub(f.From) >= maxDayBars*day {
		return 7
	}
	return 1
}

// chartTitle says what the chart shows.
func (f *usageFilter) chartTitle() string {
	each := "day"
	if f.interval() > 1 {
		each = "week"
	}
	return capitalized(f.Measure) + " of each " + each + " by model"
}

// chart returns a chart of sums by day. Each model has a series, but if there are
// more than maxSeries models, those with the least usage share the last series.
func (u *usageReports) chart(f *usageFilter, sums []manage.ReportSum) *chart {
	c := &chart{Format: formatCount, Tick: shortCount, Labels: f.barLabels()}
	if f.Measure == "cost" {
		c.Format = func(n int64) string { return formatMoney(llmhttp.Money(n).Float64()) }
		c.Tick = func(n int64) string { return "$" + llmhttp.Money(n).String() }
	}
	models := u.group(sums, func(s *manage.ReportSum) (string, string) { return s.Model, "" })
	slices.SortStableFunc(models, func(a, b usageRow) int { return cmp.Compare(b.measure(f.Measure), a.measure(f.Measure)) })
	seriesOf := make(map[string]int) // the index of a model's series
	for i := range models {
		seriesOf[models[i].Name] = min(i, maxSeries-1)
		switch {
		case i < maxSeries:
			c.Series = append(c.Series, chartSeries{Name: models[i].Name})
		case i == maxSeries:
			c.Series[maxSeries-1].Name = "others"
		}
	}
	totals := make([][]usageTotals, len(c.Series)) // by series and bar
	for i := range totals {
		totals[i] = make([]usageTotals, len(c.Labels))
	}
	for i := range sums {
		totals[seriesOf[sums[i].Model]][f.barOf(sums[i].Start)].Add(sums[i].UsageSum)
	}
	for i := range totals {
		for bar := range totals[i] {
			c.Series[i].Values = append(c.Series[i].Values, totals[i][bar].measure(f.Measure))
		}
	}
	return c
}

// barLabels returns the labels of the days, or of the weeks, of the period.
func (f *usageFilter) barLabels() (labels []barLabel) {
	const inFull = "Jan 2, 2006"
	for t := f.From; !t.After(f.To); t = t.AddDate(0, 0, f.interval()) {
		label := barLabel{Axis: t.Format("Jan 2"), Name: t.Format("Mon, " + inFull)}
		if last := t.AddDate(0, 0, f.interval()-1); last.After(t) {
			label.Name = t.Format(inFull) + " – " + minTime(last, f.To).Format(inFull)
		}
		labels = append(labels, label)
	}
	return labels
}

// barOf returns the index of the bar to which a day belongs.
func (f *usageFilter) barOf(t time.Time) int { return int(t.Sub(f.From)/day) / f.interval() }

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// measure returns the number of t that is named in usageMeasures. Costs are in billionths.
func (t *usageTotals) measure(name string) int64 {
	switch name {
	case "requests":
		return t.Requests
	case "images":
		return t.Units.Images
	case "cost":
		return int64(t.Cost.Total())
	}
	return t.Tokens()
}
