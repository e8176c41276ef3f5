package manage_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/manage"
)

var start = time.Date(2026, 3, 14, 0, 0, 0, 0, time.UTC)

const day = 24 * time.Hour

// newReport returns a builder for a report of three days.
func newReport(t *testing.T, q manage.ReportQuery) *manage.ReportBuilder {
	t.Helper()
	q.From, q.To = start, start.Add(3*day)
	b, err := manage.NewReportBuilder(q)
	require.NoError(t, err)
	return b
}

// rowNames returns the accounts of a report in their order.
func rowNames(b *manage.ReportBuilder) (names []string, others []llmhttp.UsageSum) {
	r := b.Report()
	for _, row := range r.Rows {
		names = append(names, row.Account)
	}
	return names, r.Others
}

// Groups are in the order of the query. Those that are equal in it are in that of cost, tokens and requests, and
// at last in that of their names.
func TestReportBuilder_Order(t *testing.T) {
	sum := func(cost llm.Money, tokens, requests, images int64) *llmhttp.UsageSum {
		return &llmhttp.UsageSum{Start: start, Requests: requests, Units: llmhttp.Units{PromptTokens: tokens, Images: images}, Cost: llmhttp.Cost{Input: cost}}
	}
	sums := map[string]*llmhttp.UsageSum{"a": sum(1, 9, 1, 5), "b": sum(1, 8, 2, 5), "c": sum(2, 7, 2, 5), "d": sum(0, 9, 1, 6), "e": sum(0, 9, 1, 6)}
	for order, want := range map[manage.ReportOrder][]string{
		manage.OrderByCost: {"c", "a", "b", "d", "e"}, manage.OrderByTokens: {"a", "d", "e", "b", "c"},
		manage.OrderByRequests: {"c", "b", "a", "d", "e"}, "images": {"d", "e", "c", "a", "b"}, "characters": {"c", "a", "b", "d", "e"},
	} {
		for limit := -1; limit < 7; limit++ {
			a := newReport(t, manage.ReportQuery{By: manage.ByAccount, Order: order, Limit: limit})
			var left llmhttp.UsageSum
			for name, s := range sums {
				a.Add(manage.ReportRowID{Account: name}, s)
			}
			kept := want
			if limit > 0 {
				kept = want[:min(limit, len(want))]
			}
			for _, name := range want[len(kept):] {
				left.Add(*sums[name])
			}
			got, others := rowNames(a)
			assert.Equal(t, kept, got, "%q, limit %d", order, limit)
			if len(kept) == len(want) {
				assert.Nil(t, others)
				continue
			}
			left.Start = start
			assert.Equal(t, []llmhttp.UsageSum{left}, others, "%q, limit %d", order, limit)
		}
	}
}

// The others are what is left of the total over the rows, in each interval and for each model.
func TestReportBuilder_Total(t *testing.T) {
	sum := func(days int, model string, n int64, writes llm.CacheWrites) *llmhttp.UsageSum {
		return &llmhttp.UsageSum{
			Start: start.Add(time.Duration(days)*day + time.Hour), Model: model, Requests: n, Unpriced: n,
			Units: llmhttp.Units{Images: n, CacheWrites: writes}, Cost: llmhttp.Cost{Other: llm.Money(n)},
		}
	}
	a := newReport(t, manage.ReportQuery{By: manage.ByAccount, PerModel: true, Interval: manage.EveryDay, Limit: 2})
	a.Add(manage.ReportRowID{Account: "a"}, sum(0, "m", 1, llm.CacheWrites{time.Hour: 1}))
	a.Add(manage.ReportRowID{Account: "a"}, sum(2, "m", 2, nil))
	a.Add(manage.ReportRowID{Account: "b"}, sum(2, "m", 3, nil))
	a.AddTotal(sum(0, "m", 4, llm.CacheWrites{time.Hour: 1, time.Minute: 2}))
	a.AddTotal(sum(0, "n", 5, nil))
	a.AddTotal(sum(2, "m", 5, nil))
	r := a.Report()
	assert.Len(t, r.Rows, 2)
	first, second := *sum(0, "m", 3, llm.CacheWrites{time.Minute: 2}), *sum(0, "n", 5, nil)
	first.Start, second.Start = start, start
	assert.Equal(t, []llmhttp.UsageSum{first, second}, r.Others, "of the third day nothing is left")
}

// Only the fields by which a report groups count, whatever else a store knows of a sum.
func TestReportBuilder_Groups(t *testing.T) {
	id := manage.ReportRowID{Account: "a", KeyID: "k", User: "u", Label: "l", Model: "m"}
	for by, want := range map[manage.ReportGroup]manage.ReportRow{
		manage.ByTotal: {}, manage.ByKey: {Account: "a", KeyID: "k"}, manage.ByAccount: {Account: "a"}, manage.ByModel: {Model: "m"},
		manage.ByUser: {Account: "a", User: "u"}, manage.ByLabel: {Label: "l"},
	} {
		b := newReport(t, manage.ReportQuery{By: by})
		b.Add(id, &llmhttp.UsageSum{Start: start, Model: "m", Requests: 1})
		b.Add(id, &llmhttp.UsageSum{Start: start.Add(day), Model: "m", Requests: 2})
		want.Sums = []llmhttp.UsageSum{{Start: start, Model: want.Model, Requests: 3}}
		assert.Equal(t, manage.Report{Rows: []manage.ReportRow{want}}, b.Report(), "%q", by)
	}
}

// Sums before and after the time of the report belong to its first and last interval.
func TestReportBuilder_Intervals(t *testing.T) {
	b := newReport(t, manage.ReportQuery{Interval: manage.EveryDay})
	for i, at := range []time.Duration{-day, 0, day - 1, day, 3 * day} {
		b.Add(manage.ReportRowID{}, &llmhttp.UsageSum{Start: start.Add(at), Requests: 1 << i})
	}
	assert.Equal(t, []llmhttp.UsageSum{
		{Start: start, Requests: 0b111}, {Start: start.Add(day), Requests: 0b1000}, {Start: start.Add(2 * day), Requests: 0b10000},
	}, b.Report().Rows[0].Sums)
}

func TestReportBuilder_NoTime(t *testing.T) {
	b, err := manage.NewReportBuilder(manage.ReportQuery{From: start, To: start})
	require.NoError(t, err)
	assert.Empty(t, b.Starts())
	sum := &llmhttp.UsageSum{Start: start, Requests: 1}
	b.Add(manage.ReportRowID{}, sum)
	b.AddTotal(sum)
	b.AddOthers(sum)
	assert.Zero(t, b.Report())
}

func TestNewReportBuilder_Unsupported(t *testing.T) {
	for _, q := range []manage.ReportQuery{{Interval: "week"}, {Order: "name"}, {By: "week"}} {
		_, err := manage.NewReportBuilder(q)
		assert.ErrorIs(t, err, errors.ErrUnsupported)
		assert.ErrorContains(t, err, "manage: ")
	}
}
