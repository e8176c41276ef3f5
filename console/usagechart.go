package console

import (
	"cmp"
	"slices"

	"github.com/llmhttp/llmhttp/manage"
)

// serveChart draws the usage of each day by model.
func (u *usagePages) serveChart(q *request) error {
	f, err := u.readFilter(q)
	if err != nil {
		return err
	}
	report, err := u.reports.read(q.r.Context(), &f, manage.ByDay, 0)
	if err != nil {
		return err
	}
	return q.writeChart(u.reports.chart(&f, report.Sums))
}

// chart returns a chart of sums by day. Each model has a series, but if there are
// more than maxSeries models, those with the least usage share the last series.
func (u *usageReports) chart(f *usageFilter, sums []manage.ReportSum) *chart {
	c := &chart{Format: shortNumber}
	if f.Measure == "cost" {
		c.Format = shortMoney
	}
	for t := f.From; !t.After(f.To); t = t.Add(day) {
		c.Labels = append(c.Labels, t.Format("Jan 2"))
	}
	models := u.group(sums, func(s *manage.ReportSum) (string, string) { return s.Model, "" })
	slices.SortStableFunc(models, func(a, b usageRow) int { return cmp.Compare(b.measure(f.Measure), a.measure(f.Measure)) })
	seriesOf := make(map[string]int) // the index of a model's series
	for i := range models {
		seriesOf[models[i].Name] = min(i, maxSeries-1)
		switch {
		case i < maxSeries:
			c.Series = append(c.Series, chartSeries{Name: models[i].Name, Values: make([]float64, len(c.Labels))})
		case i == maxSeries:
			c.Series[maxSeries-1].Name = "others"
		}
	}
	for i := range sums {
		totals := usageTotals{sums[i].UsageSum}
		dayIndex := int(sums[i].Start.Sub(f.From) / day)
		c.Series[seriesOf[sums[i].Model]].Values[dayIndex] += totals.measure(f.Measure)
	}
	return c
}

// measure returns the number of t that is named in usageMeasures.
func (t *usageTotals) measure(name string) float64 {
	switch name {
	case "requests":
		return float64(t.Requests)
	case "images":
		return float64(t.Units.Images)
	case "cost":
		return t.Cost.Total().Float64()
	}
	return float64(t.Tokens())
}
