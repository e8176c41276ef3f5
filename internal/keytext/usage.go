package keytext

import (
	"encoding/csv"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/lifetime"
	"github.com/llmhttp/llmhttp/llm"
)

// A UsageNumber is a number of a sum.
type UsageNumber struct {
	Name string // as in JSON, CSV files and databases
	Text string
}

// UsageNumbers returns the numbers of s: requests, all units, the parts of the cost, the cost,
// and unpriced records. The text of cache writes is that of CacheWrites.
func UsageNumbers(s *llmhttp.UsageSum) []UsageNumber {
	numbers := []UsageNumber{{"requests", strconv.FormatInt(s.Requests, 10)}}
	for name, n := range s.Units.All() {
		numbers = append(numbers, UsageNumber{name, strconv.FormatInt(*n, 10)})
		if name == "cache_write_tokens" {
			numbers = append(numbers, UsageNumber{"cache_writes", CacheWrites(s.Units.CacheWrites)})
		}
	}
	for name, m := range s.Cost.All() {
		numbers = append(numbers, UsageNumber{"cost_" + name, m.String()})
	}
	return append(numbers, UsageNumber{"cost", s.Cost.Total().String()}, UsageNumber{"unpriced", strconv.FormatInt(s.Unpriced, 10)})
}

// CacheWrites returns the text of w, such as 5m=100,1h=200. It is empty if there are none.
func CacheWrites(w llm.CacheWrites) string {
	var list []string
	for d, n := range w.All() {
		list = append(list, lifetime.Format(d)+"="+strconv.FormatInt(n, 10))
	}
	return strings.Join(list, ",")
}

// A UsageCSV writes sums of usage as comma-separated values.
type UsageCSV struct{ w *csv.Writer }

// NewUsageCSV returns a UsageCSV that begins with the names of the columns: group,
// and the numbers of a sum.
func NewUsageCSV(w io.Writer, group []string) *UsageCSV {
	c := &UsageCSV{csv.NewWriter(w)}
	header := slices.Clone(group)
	for _, n := range UsageNumbers(new(llmhttp.UsageSum)) {
		header = append(header, n.Name)
	}
	_ = c.w.Write(header) // Flush returns the error
	return c
}

// Write writes a line. The texts of group are those of the host and of clients:
// spreadsheets do not take them for formulas.
func (c *UsageCSV) Write(group []string, s *llmhttp.UsageSum) {
	texts := make([]string, len(group))
	for i, text := range group {
		texts[i] = spreadsheetText(text)
	}
	for _, n := range UsageNumbers(s) {
		texts = append(texts, n.Text)
	}
	_ = c.w.Write(texts)
}

// Flush writes what is buffered, and returns the first error.
func (c *UsageCSV) Flush() error {
	c.w.Flush()
	return c.w.Error()
}

// formulaStarts are the characters with which formulas begin, also in the full width of East Asian keyboards,
// and white space that spreadsheets skip before them.
const formulaStarts = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"

// spreadsheetText returns s in a form that spreadsheets do not take for a formula:
// with a leading apostrophe if need be.
func spreadsheetText(s string) string {
	if first, _ := utf8.DecodeRuneInString(s); s != "" && strings.ContainsRune(formulaStarts, first) {
		return "'" + s
	}
	return s
}
