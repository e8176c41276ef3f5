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

// A UsageNumber is a number of a [llmhttp.UsageSum].
type UsageNumber struct {
	Name string // as in JSON and CSV files, such as prompt_tokens
	Text string // the decimal number; cost in dollars; cache_writes as FormatCacheWrites returns them
}

// UsageNumbers returns the numbers of s, also those that are zero, always in the same order: requests, the
// units of [llmhttp.Units.All] and the cache writes, the parts of the cost, the cost, and unpriced records.
func UsageNumbers(s *llmhttp.UsageSum) []UsageNumber {
	numbers := []UsageNumber{{"requests", strconv.FormatInt(s.Requests, 10)}}
	for name, n := range s.Units.All() {
		numbers = append(numbers, UsageNumber{name, strconv.FormatInt(*n, 10)})
		if name == "cache_write_tokens" {
			numbers = append(numbers, UsageNumber{"cache_writes", FormatCacheWrites(s.Units.CacheWrites)})
		}
	}
	for name, m := range s.Cost.All() {
		numbers = append(numbers, UsageNumber{"cost_" + name, m.String()})
	}
	return append(numbers, UsageNumber{"cost", s.Cost.Total().String()}, UsageNumber{"unpriced", strconv.FormatInt(s.Unpriced, 10)})
}

// FormatCacheWrites returns the tokens of w by how long the cache keeps them, such as 5m=100,1h=200. It is empty
// if there are none.
func FormatCacheWrites(w llm.CacheWrites) string {
	var list []string
	for d, n := range w.All() {
		list = append(list, lifetime.Format(d)+"="+strconv.FormatInt(n, 10))
	}
	return strings.Join(list, ",")
}

// A UsageCSV writes sums of usage as comma-separated values. Create one with [NewUsageCSV]. It is not safe for
// concurrent use.
type UsageCSV struct{ w *csv.Writer }

// NewUsageCSV returns a UsageCSV that writes to w, beginning with the names of the columns: those of group, such as
// account and model, and those of [UsageNumbers].
func NewUsageCSV(w io.Writer, group []string) *UsageCSV {
	c := &UsageCSV{csv.NewWriter(w)}
	header := slices.Clone(group)
	for _, n := range UsageNumbers(new(llmhttp.UsageSum)) {
		header = append(header, n.Name)
	}
	_ = c.w.Write(header) // Flush returns the error
	return c
}

// Write writes a line: the texts of group, which has as many items as that of NewUsageCSV, and the numbers of s.
// Names of users and models are chosen by clients, so a text that a spreadsheet would take for a formula gets a
// leading apostrophe. Flush returns the first error.
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

// Flush writes what is buffered, and returns the first error of w. Call it after the last line.
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
