// Package chart computes where the parts of a bar chart are.
package chart

import (
	"math"
	"slices"
	"strconv"
)

// A Chart has a bar for each label. A bar is a stack of one value of each series, all of
// which are amounts of the same unit.
type Chart struct {
	Labels []Label
	Series []Series
	Format func(int64) string // of the value of a bar
	Tick   func(int64) string // of a value of the axis, which is round
}

// A Label tells what a bar is about.
type Label struct {
	Axis string // short, for the axis
	Name string // for the values of the bar
}

// A Series has a value for each bar.
type Series struct {
	Name   string
	Values []int64 // one for each label; none is drawn for what is not positive
	Errors bool    // whether the series has the color of errors
}

// MaxSeries is the maximum number of series, and how many colors console.css has for them.
const MaxSeries = 7

// A View is the data of the template "chart".
type View struct {
	Title  string        // what the chart shows, for people who do not see it
	Legend []LegendEntry // of the series that are not zero everywhere
	Ticks  []Tick        // from the top to the bottom
	Bars   []Bar
}

// A LegendEntry names a series. Class selects its color in console.css.
type LegendEntry struct{ Name, Class string }

// A Tick is a value of the vertical axis. Y is its distance from the top in percent.
type Tick struct{ Text, Y string }

// A Bar is a column of the chart.
type Bar struct {
	Label
	Labelled   bool // whether the axis shows its label
	Sparse     bool // whether the axis shows its label on a narrow screen too
	RightHalf  bool // whether its values are shown to the left of it
	Total      string
	Parts      []Part
	HasSeveral bool // whether the chart has more than one series
}

// A Part is the part of one series in a bar. Y is the distance of its upper edge from the
// top, and Height its height, both in percent of the chart.
type Part struct {
	LegendEntry
	Value, Y, Height string
}

// Draw returns what the template needs to draw c.
func (c *Chart) Draw(title string) *View {
	step, steps := c.axis()
	v := &View{Title: title}
	for i, s := range c.Series {
		if slices.ContainsFunc(s.Values, func(n int64) bool { return n != 0 }) {
			v.Legend = append(v.Legend, c.legendEntry(i))
		}
	}
	for i := steps; i >= 0; i-- {
		v.Ticks = append(v.Ticks, Tick{c.Tick(i * step), Percent(steps-i, steps)})
	}
	const wide, narrow = 12, 4 // how many labels there is room for
	every := max((len(c.Labels)+wide-1)/wide, 1)
	sparse := every * (wide / narrow)
	for i := range c.Labels {
		b := c.bar(i, step*steps)
		fromLast := len(c.Labels) - 1 - i
		b.Labelled, b.Sparse = fromLast%every == 0, fromLast%sparse == 0
		v.Bars = append(v.Bars, b)
	}
	return v
}

func (c *Chart) legendEntry(i int) LegendEntry {
	if c.Series[i].Errors {
		return LegendEntry{c.Series[i].Name, "series-errors"}
	}
	return LegendEntry{c.Series[i].Name, SeriesClass(i)}
}

// SeriesClass returns the class of series number i in console.css.
func SeriesClass(i int) string { return "series-" + strconv.Itoa(i%MaxSeries+1) }

// bar returns bar number i of a chart whose axis ends at top.
func (c *Chart) bar(i int, top int64) Bar {
	b := Bar{Label: c.Labels[i], Total: c.Format(c.Total(i)), RightHalf: 2*i >= len(c.Labels), HasSeveral: len(c.Series) > 1}
	below := int64(0)
	for n, s := range c.Series {
		if s.Values[i] == 0 {
			continue
		}
		height := min(max(s.Values[i], 0), top-below)
		below += height
		b.Parts = append(b.Parts, Part{c.legendEntry(n), c.Format(s.Values[i]), Percent(top-below, top), Percent(height, top)})
	}
	return b
}

// maxValue bounds the value of a bar, so that the round value above it fits into an int64.
const maxValue = math.MaxInt64 / 2

// Total returns the value of bar number i.
func (c *Chart) Total(i int) (total int64) {
	for _, s := range c.Series {
		total = min(total+min(max(s.Values[i], 0), maxValue), maxValue)
	}
	return total
}

// axis returns the distance of the ticks, which is 1, 2 or 5 times a power of ten, and how many
// of them above zero hold the highest bar: at most five.
func (c *Chart) axis() (step, steps int64) {
	top := int64(1)
	for i := range c.Labels {
		top = max(top, c.Total(i))
	}
	for power := int64(1); ; power *= 10 {
		for _, factor := range []int64{1, 2, 5} {
			if step = factor * power; (top-1)/step < 5 {
				return step, (top-1)/step + 1
			}
		}
	}
}

// Percent returns a share in percent, without the sign.
func Percent(part, whole int64) string {
	return strconv.FormatFloat(math.Round(10_000*float64(part)/float64(whole))/100, 'f', -1, 64)
}

// ShortCount formats n with a suffix for thousands, millions and so on. It does not round.
func ShortCount(n int64) string {
	for _, unit := range []struct {
		size   float64
		suffix string
	}{{1e15, "P"}, {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if f := float64(n); f >= unit.size {
			return strconv.FormatFloat(f/unit.size, 'f', -1, 64) + unit.suffix
		}
	}
	return strconv.FormatInt(n, 10)
}
