package reportsum

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

// newAdder returns an Adder for a report of three days.
func newAdder(t *testing.T, q manage.ReportQuery) *Adder {
	t.Helper()
	q.From, q.To = start, start.Add(3*day)
	a, err := NewAdder(&q)
	require.NoError(t, err)
	return a
}

// names returns the accounts of a report in their order.
func names(t *testing.T, a *Adder) (names []string, others []llmhttp.UsageSum) {
	t.Helper()
	r, err := a.Report()
	require.NoError(t, err)
	for _, row := range r.Rows {
		names = append(names, row.Account)
	}
	return names, r.Others
}

// Groups are in the order of the query. Those that are equal in it are in that of cost, tokens and requests, and
// at last in that of their names.
func TestAdder_Order(t *testing.T) {
	sum := func(cost llm.Money, tokens, requests, images int64) *llmhttp.UsageSum {
		return &llmhttp.UsageSum{Start: start, Requests: requests, Units: llmhttp.Units{PromptTokens: tokens, Images: images}, Cost: llmhttp.Cost{Input: cost}}
	}
	sums := map[string]*llmhttp.UsageSum{"a": sum(1, 9, 1, 5), "b": sum(1, 8, 2, 5), "c": sum(2, 7, 2, 5), "d": sum(0, 9, 1, 6), "e": sum(0, 9, 1, 6)}
	for order, want := range map[manage.ReportOrder][]string{
		manage.OrderByCost: {"c", "a", "b", "d", "e"}, manage.OrderByTokens: {"a", "d", "e", "b", "c"},
		manage.OrderByRequests: {"c", "b", "a", "d", "e"}, "images": {"d", "e", "c", "a", "b"}, "characters": {"c", "a", "b", "d", "e"},
	} {
		for limit := -1; limit < 7; limit++ {
			a := newAdder(t, manage.ReportQuery{By: manage.ByAccount, Order: order, Limit: limit})
			var left llmhttp.UsageSum
			for name, s := range sums {
				a.Add(Group{Account: name}, s)
			}
			kept := want
			if limit > 0 {
				kept = want[:min(limit, len(want))]
			}
			for _, name := range want[len(kept):] {
				left.Add(*sums[name])
			}
			got, others := names(t, a)
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
func TestAdder_Total(t *testing.T) {
	sum := func(days int, model string, n int64, writes llm.CacheWrites) *llmhttp.UsageSum {
		return &llmhttp.UsageSum{
			Start: start.Add(time.Duration(days)*day + time.Hour), Model: model, Requests: n, Unpriced: n,
			Units: llmhttp.Units{Images: n, CacheWrites: writes}, Cost: llmhttp.Cost{Other: llm.Money(n)},
		}
	}
	a := newAdder(t, manage.ReportQuery{By: manage.ByAccount, PerModel: true, Interval: manage.EveryDay, Limit: 2})
	a.Add(Group{Account: "a"}, sum(0, "m", 1, llm.CacheWrites{time.Hour: 1}))
	a.Add(Group{Account: "a"}, sum(2, "m", 2, nil))
	a.Add(Group{Account: "b"}, sum(2, "m", 3, nil))
	a.AddTotal(sum(0, "m", 4, llm.CacheWrites{time.Hour: 1, time.Minute: 2}))
	a.AddTotal(sum(0, "n", 5, nil))
	a.AddTotal(sum(2, "m", 5, nil))
	r, err := a.Report()
	require.NoError(t, err)
	assert.Len(t, r.Rows, 2)
	first, second := *sum(0, "m", 3, llm.CacheWrites{time.Minute: 2}), *sum(0, "n", 5, nil)
	first.Start, second.Start = start, start
	assert.Equal(t, []llmhttp.UsageSum{first, second}, r.Others, "of the third day nothing is left")
}

func TestNewAdder_Unknown(t *testing.T) {
	for _, q := range []manage.ReportQuery{{Interval: "week"}, {Order: "name"}} {
		_, err := NewAdder(&q)
		assert.ErrorIs(t, err, errors.ErrUnsupported)
	}
	assert.ErrorIs(t, UnknownGroup("sqlstore", "week"), errors.ErrUnsupported)
	assert.EqualError(t, UnknownGroup("sqlstore", "week"), `sqlstore: usage cannot be reported by "week": unsupported operation`)
}
