package console

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/console/internal/chart"
	"github.com/llmhttp/llmhttp/llm"
)

// Models with the least usage share a series, and long periods have a bar for each week.
func TestUsageChart(t *testing.T) {
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	table := new(usageTable)
	for i := range chart.MaxSeries + 2 {
		sum := llmhttp.UsageSum{
			Start: from.AddDate(0, 0, i), Units: llmhttp.Units{PromptTokens: int64(100 - i)}, Cost: llmhttp.Cost{Input: llm.MoneyUnit},
		}
		table.groups = append(table.groups, usageRow{Name: fmt.Sprint("model ", i)})
		table.series, table.days = append(table.series, []llmhttp.UsageSum{sum}), append(table.days, sum)
	}
	f := &usageFilter{From: from, To: from.AddDate(0, 0, maxDayBars-1), Measure: "tokens"}
	f.By = "day"
	c := f.chart(table)
	assert.Len(t, c.Labels, maxDayBars)
	assert.Equal(t, chart.Label{Axis: "Jan 2", Name: "Fri, Jan 2, 2026"}, c.Labels[1])
	assert.Len(t, c.Series, chart.MaxSeries)
	assert.Equal(t, "model 0", c.Series[0].Name)
	assert.Equal(t, "others", c.Series[chart.MaxSeries-1].Name)
	assert.Equal(t, []int64{0, 94, 93, 92, 0}, c.Series[chart.MaxSeries-1].Values[5:10])

	f.To, f.Measure = f.To.AddDate(0, 0, 1), "cost"
	c = f.chart(table)
	assert.Len(t, c.Labels, 15)
	assert.Equal(t, chart.Label{Axis: "Jan 8", Name: "Jan 8, 2026 – Jan 14, 2026"}, c.Labels[1])
	assert.Equal(t, "Apr 9, 2026 – Apr 11, 2026", c.Labels[14].Name)
	assert.Equal(t, "Cost of each week by model", f.chartTitle())
	v := c.Draw("")
	assert.Equal(t, []string{"$8", "$7.00", "$2.00"}, []string{v.Ticks[0].Text, v.Bars[0].Total, v.Bars[1].Total})
}
