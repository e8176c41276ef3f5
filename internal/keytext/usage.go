package keytext

import (
	"encoding/csv"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/llmhttp/llmhttp"
)

// usageColumns are the names of the numbers of a sum in CSV files, as in JSON.
var usageColumns = []string{"requests", "prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens", "images"}

// UsageNumbers returns the numbers of a sum as texts: requests, prompt tokens, cached
// tokens, completion tokens, reasoning tokens and images.
func UsageNumbers(s *llmhttp.UsageSum) (texts []string) {
	for _, n := range []int64{s.Requests, s.PromptTokens, s.CachedTokens, s.CompletionTokens, s.ReasoningTokens, s.Images} {
		texts = append(texts, strconv.FormatInt(n, 10))
	}
	return texts
}

// A UsageCSV writes sums of usage as comma-separated values.
type UsageCSV struct{ w *csv.Writer }

// NewUsageCSV returns a UsageCSV that begins with the names of the columns: group,
// the numbers of a sum, and more.
func NewUsageCSV(w io.Writer, group []string, more ...string) *UsageCSV {
	c := &UsageCSV{csv.NewWriter(w)}
	_ = c.w.Write(slices.Concat(group, usageColumns, more)) // Flush returns the error
	return c
}

// Write writes a line. The texts of group are those of the host and of clients:
// spreadsheets do not take them for formulas.
func (c *UsageCSV) Write(group []string, s *llmhttp.UsageSum, more ...string) {
	texts := make([]string, len(group))
	for i, text := range group {
		texts[i] = spreadsheetText(text)
	}
	_ = c.w.Write(slices.Concat(texts, UsageNumbers(s), more))
}

// Flush writes what is buffered, and returns the first error.
func (c *UsageCSV) Flush() error {
	c.w.Flush()
	return c.w.Error()
}

// spreadsheetText returns s in a form that spreadsheets do not take for a formula:
// with a leading apostrophe if need be.
func spreadsheetText(s string) string {
	if s != "" && strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		return "'" + s
	}
	return s
}
