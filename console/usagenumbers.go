// Sums of units and costs, with their names.

package console

import (
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/console/internal/pages"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/manage/keytext"
)

// usageTotals are sums of usage.
type usageTotals struct{ llmhttp.UsageSum }

// addAll adds the numbers of sums.
func (t *usageTotals) addAll(sums []llmhttp.UsageSum) {
	for i := range sums {
		t.Add(sums[i])
	}
}

// HasCost reports whether there is a cost to show.
func (t *usageTotals) HasCost() bool { return t.Cost != llmhttp.Cost{} || t.Unpriced > 0 }

// unit returns the number of a unit, which has a name of Units.All.
func (t *usageTotals) unit(name string) int64 {
	for other, n := range t.Units.All() {
		if other == name {
			return *n
		}
	}
	return 0
}

// part returns a part of the cost, which has a name of Cost.All.
func (t *usageTotals) part(name string) llm.Money {
	for other, m := range t.Cost.All() {
		if other == name {
			return *m
		}
	}
	return 0
}

// measureParts is the measure of the parts of the cost. Others are "tokens", "requests",
// "cost" and the names of Units.All.
const measureParts = "parts"

// isMeasure reports whether there is a measure with the given name.
func isMeasure(name string) bool {
	for unit := range new(llmhttp.Units).All() {
		if name == unit {
			return true
		}
	}
	return name == "tokens" || name == "requests" || name == "cost" || name == measureParts
}

// measure returns the number of t that is named. Costs are in billionths.
func (t *usageTotals) measure(name string) int64 {
	switch name {
	case "tokens":
		return t.Units.Tokens()
	case "requests":
		return t.Requests
	case "cost", measureParts:
		return int64(t.Cost.Total())
	}
	return t.unit(name)
}

// measures returns the measures of which t has numbers. Units of tokens have none of their
// own, but are summed up in "tokens".
func (t *usageTotals) measures() []string {
	measures := []string{"tokens", "requests"}
	for name, n := range t.Units.All() {
		if *n != 0 && !strings.HasSuffix(name, "_tokens") {
			measures = append(measures, name)
		}
	}
	if t.HasCost() {
		measures = append(measures, "cost", measureParts)
	}
	return measures
}

// measureTitle returns the title of a measure, such as "Search units".
func measureTitle(name string) string {
	if name == measureParts {
		return "Cost by part"
	}
	if rest, ok := strings.CutSuffix(name, "_millis"); ok {
		name = rest + " ms"
	}
	return capitalized(strings.ReplaceAll(name, "_", " "))
}

// costTitle returns the title of a part of the cost.
func costTitle(name string) string { return capitalized(strings.ReplaceAll(name, "_", " ")) }

// A usageColumn is a column of a table of usage.
type usageColumn struct {
	Title string
	text  func(*usageTotals) string
}

// Text returns the text of t in a column.
func (t *usageTotals) Text(c usageColumn) string { return c.text(t) }

// columns returns the columns of a table with the totals t: the parts of the cost or the units,
// as far as they are not zero, between requests and costs.
func (t *usageTotals) columns(parts bool) []usageColumn {
	columns := []usageColumn{{"Requests", func(t *usageTotals) string { return pages.FormatCount(t.Requests) }}}
	if parts {
		for name, m := range t.Cost.All() {
			if *m != 0 {
				columns = append(columns, usageColumn{costTitle(name), func(t *usageTotals) string { return pages.FormatMoney(t.part(name)) }})
			}
		}
	} else {
		for name, n := range t.Units.All() {
			if *n != 0 {
				columns = append(columns, usageColumn{measureTitle(name), func(t *usageTotals) string { return pages.FormatCount(t.unit(name)) }})
			}
			if name == "cache_write_tokens" && keytext.FormatCacheWrites(t.Units.CacheWrites) != "" {
				columns = append(columns, usageColumn{measureTitle("cache_writes"), func(t *usageTotals) string { return keytext.FormatCacheWrites(t.Units.CacheWrites) }})
			}
		}
	}
	if t.HasCost() {
		columns = append(columns, usageColumn{"Cost", func(t *usageTotals) string { return pages.FormatMoney(t.Cost.Total()) }})
	}
	if t.Unpriced > 0 {
		columns = append(columns, usageColumn{"Without a price", func(t *usageTotals) string { return pages.FormatCount(t.Unpriced) }})
	}
	return columns
}
