package reportsum

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage"
)

func sum(account, model string, tokens, requests int64) manage.ReportSum {
	return manage.ReportSum{Account: account, UsageSum: llmhttp.UsageSum{Model: model, Requests: requests, Units: llmhttp.Units{PromptTokens: tokens}}}
}

func TestLargest(t *testing.T) {
	a1, a2, b, c, d := sum("a", "m", 3, 1), sum("a", "n", 3, 1), sum("b", "m", 5, 9), sum("c", "m", 4, 1), sum("d", "m", 4, 2)
	for _, test := range []struct {
		by    manage.ReportGroup
		limit int
		want  []manage.ReportSum
	}{
		{manage.ByAccount, 0, []manage.ReportSum{a1, a2, b, c, d}},
		{manage.ByAccount, -1, []manage.ReportSum{a1, a2, b, c, d}},
		{manage.ByAccount, 1, []manage.ReportSum{a1, a2}},
		{manage.ByAccount, 2, []manage.ReportSum{a1, a2, b}},
		{manage.ByAccount, 3, []manage.ReportSum{a1, a2, b, d}}, // has more requests than c
		{manage.ByAccount, 4, []manage.ReportSum{a1, a2, b, c, d}},
	} {
		got := Largest(&manage.ReportQuery{By: test.by, Limit: test.limit}, []manage.ReportSum{a1, a2, b, c, d})
		assert.Equal(t, test.want, got, "limit %d", test.limit)
	}
	m, n := sum("", "m", 1, 1), sum("", "n", 2, 1)
	assert.Equal(t, []manage.ReportSum{n}, Largest(&manage.ReportQuery{By: manage.ByModel, Limit: 1}, []manage.ReportSum{m, n}))
	assert.Equal(t, []manage.ReportSum{m, n}, Largest(&manage.ReportQuery{Limit: 1}, []manage.ReportSum{m, n}), "a total is one group")
}

func TestSort(t *testing.T) {
	later := manage.ReportSum{UsageSum: llmhttp.UsageSum{Start: time.Unix(1, 0)}}
	sorted := []manage.ReportSum{
		{}, {UsageSum: llmhttp.UsageSum{Model: "m"}}, {Label: "l"}, {User: "u"}, {User: "u", Label: "l"}, {KeyID: "k"}, {KeyID: "k", User: "u"}, {Account: "a"},
		{Account: "a", KeyID: "k"}, later,
	}
	for i := range sorted {
		sorted[i].Start = sorted[i].Start.Add(time.Hour)
	}
	shuffled := make([]manage.ReportSum, len(sorted))
	for i, s := range sorted {
		shuffled[(i*3+4)%len(sorted)] = s
	}
	Sort(shuffled)
	assert.Equal(t, sorted, shuffled)
}
