package console

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage"
)

// chartOf returns a chart with a bar for each value.
func chartOf(values ...int64) *chart {
	c := &chart{Series: []chartSeries{{Name: "one", Values: values}}, Format: formatCount, Tick: shortCount}
	for i := range values {
		c.Labels = append(c.Labels, barLabel{Axis: fmt.Sprint(i), Name: fmt.Sprint("bar ", i)})
	}
	return c
}

func TestChart_Axis(t *testing.T) {
	for highest, want := range map[int64][]string{
		0: {"1", "0"}, -5: {"1", "0"}, 1: {"1", "0"}, 5: {"5", "4", "3", "2", "1", "0"}, 6: {"6", "4", "2", "0"}, 10: {"10", "8", "6", "4", "2", "0"},
		11: {"15", "10", "5", "0"}, 26: {"30", "20", "10", "0"}, 999: {"1k", "800", "600", "400", "200", "0"}, 2_400_001: {"2.5M", "2M", "1.5M", "1M", "500k", "0"},
		math.MaxInt64: {"5000P", "4000P", "3000P", "2000P", "1000P", "0"},
	} {
		v := chartOf(1, highest).view("")
		var got []string
		for _, tick := range v.Ticks {
			got = append(got, tick.Text)
		}
		assert.Equal(t, want, got, highest)
		assert.Equal(t, "0", v.Ticks[0].Y)
		assert.Equal(t, "100", v.Ticks[len(v.Ticks)-1].Y)
	}
}

// The parts of a bar are a stack from the bottom of the chart. Values that are zero have no part.
func TestChart_Bars(t *testing.T) {
	c := chartOf(10, 0, 3)
	c.Series = append(c.Series, chartSeries{Name: "two", Values: []int64{30, 0, 0}, Errors: true})
	v := c.view("amounts")
	assert.Equal(t, []legendEntry{{"one", "series-1"}, {"two", "series-errors"}}, v.Legend)
	assert.Equal(t, []barPart{
		{legendEntry{"one", "series-1"}, "10", "75", "25"}, {legendEntry{"two", "series-errors"}, "30", "0", "75"},
	}, v.Bars[0].Parts)
	assert.Equal(t, "40", v.Bars[0].Total)
	assert.Empty(t, v.Bars[1].Parts)
	assert.Equal(t, "7.5", v.Bars[2].Parts[0].Height)

	c = chartOf(math.MaxInt64)
	c.Series = append(c.Series, chartSeries{Name: "two", Values: []int64{math.MaxInt64}}, chartSeries{Name: "three", Values: []int64{-1}})
	var below, height float64
	for _, p := range c.view("").Bars[0].Parts {
		assert.NotContains(t, p.Y+p.Height, "-", "a part does not leave the chart")
		fmt.Sscan(p.Y, &below)
		fmt.Sscan(p.Height, &height)
		assert.LessOrEqual(t, below+height, 100.0)
	}
}

// The axis has room for a label at some bars: always at the last, and at fewer on narrow screens.
func TestChart_Labels(t *testing.T) {
	for bars, want := range map[int][2]int{1: {1, 1}, 12: {12, 4}, 13: {7, 3}, 30: {10, 4}, 60: {12, 4}, 100: {12, 4}} {
		labelled, sparse := 0, 0
		v := chartOf(make([]int64, bars)...).view("")
		for _, b := range v.Bars {
			if b.Labelled {
				labelled++
			}
			if b.Sparse {
				sparse++
			}
		}
		assert.Equal(t, want, [2]int{labelled, sparse}, bars)
		assert.True(t, v.Bars[bars-1].Sparse)
	}
}

func TestFormatMoney(t *testing.T) {
	for text, want := range map[string]string{
		"0": "$0.00", "0.000000001": "$0.000000001", "-0.00005": "-$0.00005", "0.0001": "$0.0001", "0.12345": "$0.1235",
		"-0.5": "-$0.5000", "1": "$1.00", "-1234.567": "-$1234.57", "0.99999": "$1.0000",
	} {
		var m llmhttp.Money
		require.NoError(t, m.UnmarshalText([]byte(text)))
		assert.Equal(t, want, formatMoney(m), text)
	}
}

// Models with the least usage share a series, and long periods have a bar for each week.
func TestUsageChart(t *testing.T) {
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var sums []manage.ReportSum
	for i := range maxSeries + 2 {
		sums = append(sums, manage.ReportSum{UsageSum: llmhttp.UsageSum{
			Start: from.AddDate(0, 0, i), Model: fmt.Sprint("model ", i), Units: llmhttp.Units{PromptTokens: int64(100 - i)}, Cost: llmhttp.Cost{Input: llmhttp.MoneyUnit},
		}})
	}
	f := &usageFilter{From: from, To: from.AddDate(0, 0, maxDayBars-1), Measure: "tokens"}
	f.By = "day"
	draw := func() *chart {
		c, err := new(usageReports).chart(t.Context(), f, &usageTable{days: sums})
		require.NoError(t, err)
		return c
	}
	c := draw()
	assert.Len(t, c.Labels, maxDayBars)
	assert.Equal(t, barLabel{"Jan 2", "Fri, Jan 2, 2026"}, c.Labels[1])
	assert.Len(t, c.Series, maxSeries)
	assert.Equal(t, "model 0", c.Series[0].Name)
	assert.Equal(t, "others", c.Series[maxSeries-1].Name)
	assert.Equal(t, []int64{0, 94, 93, 92, 0}, c.Series[maxSeries-1].Values[5:10])

	f.To, f.Measure = f.To.AddDate(0, 0, 1), "cost"
	c = draw()
	assert.Len(t, c.Labels, 15)
	assert.Equal(t, barLabel{"Jan 8", "Jan 8, 2026 – Jan 14, 2026"}, c.Labels[1])
	assert.Equal(t, "Apr 9, 2026 – Apr 11, 2026", c.Labels[14].Name)
	assert.Equal(t, "Cost of each week by model", f.chartTitle())
	v := c.view("")
	assert.Equal(t, []string{"$8", "$7.00", "$2.00"}, []string{v.Ticks[0].Text, v.Bars[0].Total, v.Bars[1].Total})
}
