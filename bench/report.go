package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// A figure names what was measured.
type figure struct {
	Story   string `json:"story"`
	Case    string `json:"case"`
	Subject string `json:"subject"` // most often a contender
	Metric  string `json:"metric"`
}

// A series is what the rounds measured.
type series []float64

// over returns the ratios of each round.
func (s series) over(t series) series {
	return s.with(t, func(a, b float64) float64 { return a / b })
}

// minus returns the differences of each round.
func (s series) minus(t series) series {
	return s.with(t, func(a, b float64) float64 { return a - b })
}

func (s series) with(t series, f func(a, b float64) float64) series {
	out := make(series, min(len(s), len(t)))
	for i := range out {
		out[i] = f(s[i], t[i])
	}
	return out
}

func (s series) times(factor float64) series {
	out := make(series, len(s))
	for i := range s {
		out[i] = s[i] * factor
	}
	return out
}

func (s series) median() float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(s))
	mid := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[mid]
	}
	return (sorted[mid-1] + sorted[mid]) / 2
}

// String returns the median alone.
func (s series) String() string { return number(s.median()) }

// spread returns the median and the range.
func (s series) spread() string {
	if len(s) == 0 {
		return "-"
	}
	if len(s) == 1 {
		return s.String()
	}
	return fmt.Sprintf("%s (%s..%s)", s, number(slices.Min(s)), number(slices.Max(s)))
}

// number formats a number with as many digits as mean something.
func number(f float64) string {
	digits := 2
	switch a := math.Abs(f); {
	case math.IsNaN(f):
		return "-"
	case a == 0:
		digits = 0
	case a >= 100:
		digits = 0
	case a >= 10:
		digits = 1
	}
	return strconv.FormatFloat(f, 'f', digits, 64)
}

// A report gathers figures and prints what they tell.
type report struct {
	w       io.Writer
	bench   *bench
	about   about
	figures map[figure]series
	order   []figure // in which they were first taken
	stolen  [2]int64 // ticks of all CPUs at the start: taken by others, and all
}

// about is where and when the figures were taken.
type about struct {
	Date     string            `json:"date"`
	CPU      string            `json:"cpu"`
	CPUs     int               `json:"cpus"`
	Kernel   string            `json:"kernel"`
	Go       string            `json:"go"`
	Versions map[string]string `json:"versions"`
	Rounds   int               `json:"rounds"`
	Short    bool              `json:"short"`
	Placing  string            `json:"placing"`
	Load     string            `json:"load_before"`
	Stolen   float64           `json:"stolen_percent"`
	Seconds  float64           `json:"seconds"`
}

func newReport(w io.Writer, b *bench) *report {
	r := &report{w: w, bench: b, figures: make(map[figure]series)}
	r.about = about{
		Date: time.Now().Format(time.DateOnly), CPU: cpuModel(), CPUs: runtime.NumCPU(), Kernel: firstLine("/proc/sys/kernel/osrelease"),
		Go: runtime.Version(), Versions: peerVersions(), Rounds: b.rounds, Short: b.short,
		Load: firstLine("/proc/loadavg"),
	}
	r.about.Placing = "servers and the load share the CPUs"
	if n := len(b.cores.server); n > 0 {
		r.about.Placing = fmt.Sprintf("%d CPU for the servers, %d for the load", n, len(b.cores.load))
	}
	r.stolen = cpuTicks()
	return r
}

func (r *report) add(f figure, value float64) {
	if _, ok := r.figures[f]; !ok {
		r.order = append(r.order, f)
	}
	r.figures[f] = append(r.figures[f], value)
}

func (r *report) series(f figure) series { return r.figures[f] }

// begin prints where the figures are taken.
func (r *report) begin() {
	a := &r.about
	fmt.Fprintf(r.w, "# llmhttp, measured on %s\n\n", a.Date)
	fmt.Fprintf(r.w, "%s, %s/%s, %d CPUs (%s), Linux %s; %s. GOMAXPROCS and GOGC are the defaults.\n", a.Go, runtime.GOOS, runtime.GOARCH, a.CPUs, a.CPU, a.Kernel, a.Placing)
	var versions []string
	for _, name := range slices.Sorted(maps.Keys(a.Versions)) {
		versions = append(versions, name+" "+a.Versions[name])
	}
	fmt.Fprintf(r.w, "Peers: %s.\n", strings.Join(versions, ", "))
	fmt.Fprintf(r.w, "%d rounds, unless a table says otherwise. Figures are the median of the rounds; in parentheses is their range.\n", a.Rounds)
	if a.Short {
		fmt.Fprint(r.w, "\n**A short run: it shows that everything works. The figures mean nothing.**\n")
	}
}

// end prints the goals and how the run went.
func (r *report) end(took time.Duration) {
	r.about.Seconds = math.Round(took.Seconds())
	now := cpuTicks()
	if all := now[1] - r.stolen[1]; all > 0 {
		r.about.Stolen = 100 * float64(now[0]-r.stolen[0]) / float64(all)
	}
	r.print(r.goals())
	fmt.Fprintf(r.w, "\nThe run took %s. Other machines of the host took %.1f %% of the CPU time meanwhile; the load average before was %s.\n",
		took.Round(time.Second), r.about.Stolen, r.about.Load)
}

// save writes what every round measured.
func (r *report) save(file string) error {
	type row struct {
		figure
		Rounds series `json:"rounds"`
	}
	doc := struct {
		About   about  `json:"about"`
		Goals   []goal `json:"goals"`
		Figures []row  `json:"figures"`
	}{About: r.about, Goals: r.judged()}
	for _, f := range r.order {
		doc.Figures = append(doc.Figures, row{f, r.figures[f]})
	}
	data, err := json.MarshalIndent(doc, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o644)
}

// A table is printed as Markdown has it.
type table struct {
	title string
	head  []string
	rows  [][]string
	note  string
}

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

func (r *report) print(t *table) {
	widths := make([]int, len(t.head))
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	line := func(row []string) {
		for i, cell := range row {
			fmt.Fprintf(r.w, "| %s%s ", cell, strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)))
		}
		fmt.Fprintln(r.w, "|")
	}
	fmt.Fprintf(r.w, "\n## %s\n\n", t.title)
	line(t.head)
	rule := make([]string, len(widths))
	for i, n := range widths {
		rule[i] = strings.Repeat("-", n)
	}
	line(rule)
	for _, row := range t.rows {
		line(row)
	}
	if t.note != "" {
		fmt.Fprintf(r.w, "\n%s\n", t.note)
	}
}

func firstLine(file string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return "unknown"
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return line
}

func cpuModel() string {
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// cpuTicks returns how much CPU time other machines of the same host took, and
// how much there was.
func cpuTicks() (ticks [2]int64) {
	fields := strings.Fields(firstLine("/proc/stat"))
	for i, f := range fields {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil || i > 8 { // what follows is part of what came before
			continue
		}
		ticks[1] += n
		if i == 8 {
			ticks[0] = n
		}
	}
	return ticks
}

// peerVersions returns the versions of the modules that are measured.
func peerVersions() map[string]string {
	versions := make(map[string]string)
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return versions
	}
	for _, m := range info.Deps {
		switch m.Path {
		case "github.com/gin-gonic/gin", "github.com/ollama/ollama", "github.com/sashabaranov/go-openai":
			versions[m.Path] = m.Version
		}
	}
	return versions
}
