package console

import (
	"bytes"
	"image/color"
	"math"
	"net/http"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// A chart has a bar for each label. A bar is a stack of one value of each series.
type chart struct {
	Labels []string
	Series []chartSeries
	Format func(float64) string // of values
}

type chartSeries struct {
	Name   string
	Values []float64 // one for each label
	Errors bool      // whether the series has the color of errors
}

// A chartStyle selects the colors and the size of a chart. Pages link to the chart in
// every style, and the browser chooses one.
type chartStyle struct{ dark, narrow bool }

func readChartStyle(r *http.Request) chartStyle {
	q := r.URL.Query()
	return chartStyle{dark: q.Get("theme") == "dark", narrow: q.Get("size") == "narrow"}
}

// maxSeries is the maximum number of series, and how many colors there are for them.
const maxSeries = 7

// A palette has the colors of a chart.
type palette struct {
	series             [maxSeries]color.Color
	errors, text, grid color.Color
}

var (
	lightPalette = palette{
		series: [maxSeries]color.Color{rgb(0x4f46e5), rgb(0x0d9488), rgb(0xd97706), rgb(0xdb2777), rgb(0x0284c7), rgb(0x65a30d), rgb(0x94a3b8)},
		errors: rgb(0xdc2626), text: rgb(0x4b5563), grid: rgb(0xe5e7eb),
	}
	darkPalette = palette{
		series: [maxSeries]color.Color{rgb(0x818cf8), rgb(0x2dd4bf), rgb(0xfbbf24), rgb(0xf472b6), rgb(0x38bdf8), rgb(0xa3e635), rgb(0x64748b)},
		errors: rgb(0xf87171), text: rgb(0x9ca3af), grid: rgb(0x2b3040),
	}
)

func rgb(hex uint32) color.Color {
	return color.NRGBA{R: uint8(hex >> 16), G: uint8(hex >> 8), B: uint8(hex), A: 255}
}

func (s chartStyle) palette() *palette {
	if s.dark {
		return &darkPalette
	}
	return &lightPalette
}

func (p *palette) color(i int, series *chartSeries) color.Color {
	if series.Errors {
		return p.errors
	}
	return p.series[i%maxSeries]
}

func (s chartStyle) size() (w, h vg.Length) {
	if s.narrow {
		return 340, 240
	}
	return 860, 260
}

// svg draws the chart as an SVG image.
func (c *chart) svg(style chartStyle) ([]byte, error) {
	p := plot.New()
	p.BackgroundColor = nil
	face := font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, 10)
	c.styleAxes(p, style, face)

	grid := plotter.NewGrid()
	grid.Vertical.Width = 0
	grid.Horizontal = draw.LineStyle{Color: style.palette().grid, Width: 0.7}
	p.Add(grid)

	if err := c.addBars(p, style); err != nil {
		return nil, err
	}
	w, h := style.size()
	canvas := vgsvg.New(w, h)
	c.draw(p, draw.New(canvas), style)
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// draw draws the plot, and above it the names of the series if there are several.
func (c *chart) draw(p *plot.Plot, canvas draw.Canvas, style chartStyle) {
	top := vg.Length(8) // the space above the plot
	if len(c.Series) > 1 {
		top += c.drawLegend(p.X.Tick.Label, canvas, style)
	}
	p.Draw(draw.Crop(canvas, 0, -6, 0, -top))
}

// drawLegend draws the names of the series at the top of the canvas, in as many lines
// as they need, and returns the height of these lines.
func (c *chart) drawLegend(label text.Style, canvas draw.Canvas, style chartStyle) vg.Length {
	const line, square, gap = 16, 9, 16
	label.XAlign, label.YAlign = draw.XLeft, draw.YCenter
	x, y := canvas.Min.X+4, canvas.Max.Y-line
	for i, s := range c.Series {
		name := shorten(s.Name, 32)
		width := square + 5 + label.Width(name) + gap
		if x+width > canvas.Max.X && x > canvas.Min.X+4 {
			x, y = canvas.Min.X+4, y-line
		}
		canvas.SetColor(style.palette().color(i, &s))
		canvas.Fill(vg.Rectangle{Min: vg.Point{X: x, Y: y}, Max: vg.Point{X: x + square, Y: y + square}}.Path())
		canvas.FillText(label, vg.Point{X: x + square + 5, Y: y + square/2}, name)
		x += width
	}
	return canvas.Max.Y - y
}

// shorten cuts s to at most n characters.
func shorten(s string, n int) string {
	runes := []rune(s)
	if len(runes) <= n {
		return s
	}
	return string(runes[:n-1]) + "…"
}

// styleAxes sets the range, the ticks and the style of both axes.
func (c *chart) styleAxes(p *plot.Plot, style chartStyle, face font.Font) {
	label := text.Style{Color: style.palette().text, Font: face, Handler: p.TextHandler}
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Tick.Label = label
		axis.Tick.LineStyle.Width, axis.Tick.Length = 0, 0
		axis.LineStyle.Width = 0
		axis.Padding = 4
	}
	p.X.LineStyle = draw.LineStyle{Color: style.palette().grid, Width: 1}
	p.X.Tick.Label.XAlign, p.X.Tick.Label.YAlign = draw.XCenter, draw.YTop
	p.Y.Tick.Label.XAlign, p.Y.Tick.Label.YAlign = draw.XRight, draw.YCenter
	p.X.Min, p.X.Max = -0.6, float64(len(c.Labels))-0.4
	p.Y.Min, p.Y.Max = 0, c.axisTop()
	p.X.Tick.Marker = plot.ConstantTicks(c.labelTicks(style))
	p.Y.Tick.Marker = plot.ConstantTicks(c.valueTicks(p.Y.Max))
}

// labelTicks returns ticks at equal distances, for as many labels as there is room for.
func (c *chart) labelTicks(style chartStyle) []plot.Tick {
	maxTicks := 12
	if style.narrow {
		maxTicks = 4
	}
	step := max((len(c.Labels)+maxTicks-1)/maxTicks, 1)
	var ticks []plot.Tick
	for i := (len(c.Labels) - 1) % step; i < len(c.Labels); i += step {
		ticks = append(ticks, plot.Tick{Value: float64(i), Label: c.Labels[i]})
	}
	return ticks
}

// valueTicks returns round values from zero to top.
func (c *chart) valueTicks(top float64) []plot.Tick {
	var ticks []plot.Tick
	step := roundStep(top)
	for v := 0.0; v <= top*1.0001; v += step { // 1.0001 tolerates rounding
		ticks = append(ticks, plot.Tick{Value: v, Label: c.Format(v)})
	}
	return ticks
}

// roundStep returns 1, 2, 2.5 or 5 times a power of ten, so that an axis up to top has
// at most five steps.
func roundStep(top float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(top/4)))
	for _, f := range []float64{1, 2, 2.5, 5} {
		if top/(f*power) <= 5 {
			return f * power
		}
	}
	return 10 * power
}

// axisTop returns the top of the value axis: a multiple of the step.
func (c *chart) axisTop() float64 {
	top := 0.0
	for i := range c.Labels {
		sum := 0.0
		for _, s := range c.Series {
			sum += s.Values[i]
		}
		top = max(top, sum)
	}
	if top <= 0 || math.IsInf(top, 0) || math.IsNaN(top) {
		return 1
	}
	step := roundStep(top)
	return math.Ceil(top/step) * step
}

// addBars adds the bars of each series to p, on top of those of the series before.
func (c *chart) addBars(p *plot.Plot, style chartStyle) error {
	w, _ := style.size()
	const axis, share, maxWidth = 60, 0.7, 36 // of the value axis; of a bar in the space of its label
	width := share * (w - axis) / vg.Length(max(len(c.Labels), 1))
	width = min(max(width, 1), maxWidth)
	var below *plotter.BarChart
	for i, s := range c.Series {
		bars, err := plotter.NewBarChart(plotter.Values(s.Values), width)
		if err != nil {
			return err
		}
		bars.Color, bars.LineStyle.Width = style.palette().color(i, &s), 0
		if below != nil {
			bars.StackOn(below)
		}
		below = bars
		p.Add(bars)
	}
	return nil
}

// shortNumber formats v with a suffix for thousands, millions and so on.
func shortNumber(v float64) string {
	for _, unit := range []struct {
		size   float64
		suffix string
	}{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if v >= unit.size {
			return strconv.FormatFloat(v/unit.size, 'f', -1, 64) + unit.suffix
		}
	}
	return strconv.FormatFloat(v, 'g', 6, 64)
}

func shortMoney(v float64) string { return "$" + strconv.FormatFloat(v, 'f', -1, 64) }

// chartPolicy is the Content-Security-Policy of charts. It permits style attributes,
// which the library writes, and nothing else.
const chartPolicy = "default-src 'none'; style-src 'unsafe-inline'"

// writeChart replies with c in the style that the query names.
func (q *request) writeChart(c *chart) error {
	b, err := c.svg(readChartStyle(q.r))
	if err != nil {
		return err
	}
	q.w.Header().Set("Content-Type", "image/svg+xml")
	q.w.Header().Set("Content-Security-Policy", chartPolicy)
	_, _ = q.w.Write(b) // fails if the client has left
	return nil
}
