package chart

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp/console/internal/pages"
)

// chartOf returns a chart with a bar for each value.
func chartOf(values ...int64) *Chart {
	c := &Chart{Series: []Series{{Name: "one", Values: values}}, Format: pages.FormatCount, Tick: ShortCount}
	for i := range values {
		c.Labels = append(c.Labels, Label{Axis: fmt.Sprint(i), Name: fmt.Sprint("bar ", i)})
	}
	return c
}

func TestChart_Axis(t *testing.T) {
	for highest, want := range map[int64][]string{
		0: {"1", "0"}, -5: {"1", "0"}, 1: {"1", "0"}, 5: {"5", "4", "3", "2", "1", "0"}, 6: {"6", "4", "2", "0"}, 10: {"10", "8", "6", "4", "2", "0"},
		11: {"15", "10", "5", "0"}, 26: {"30", "20", "10", "0"}, 999: {"1k", "800", "600", "400", "200", "0"}, 2_400_001: {"2.5M", "2M", "1.5M", "1M", "500k", "0"},
		math.MaxInt64: {"5000P", "4000P", "3000P", "2000P", "1000P", "0"},
	} {
		v := chartOf(1, highest).Draw("")
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
	c.Series = append(c.Series, Series{Name: "two", Values: []int64{30, 0, 0}, Errors: true})
	v := c.Draw("amounts")
	assert.Equal(t, []LegendEntry{{"one", "series-1"}, {"two", "series-errors"}}, v.Legend)
	assert.Equal(t, []Part{
		{LegendEntry{"one", "series-1"}, "10", "75", "25"}, {LegendEntry{"two", "series-errors"}, "30", "0", "75"},
	}, v.Bars[0].Parts)
	assert.Equal(t, "40", v.Bars[0].Total)
	assert.Empty(t, v.Bars[1].Parts)
	assert.Equal(t, "7.5", v.Bars[2].Parts[0].Height)

	c = chartOf(math.MaxInt64)
	c.Series = append(c.Series, Series{Name: "two", Values: []int64{math.MaxInt64}}, Series{Name: "three", Values: []int64{-1}})
	var below, height float64
	for _, p := range c.Draw("").Bars[0].Parts {
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
		v := chartOf(make([]int64, bars)...).Draw("")
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
