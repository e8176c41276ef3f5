package manage_test

import (
	"fmt"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage"
)

// A store adds what it has read, such as a row of its database for each key, model and day.
func ExampleReportBuilder() {
	day := time.Date(2026, 3, 14, 0, 0, 0, 0, time.UTC)
	q := manage.ReportQuery{
		From: day, To: day.AddDate(0, 0, 2), Interval: manage.EveryDay,
		By: manage.ByAccount, Order: manage.OrderByRequests, Limit: 1,
	}
	report, err := manage.NewReportBuilder(q)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, row := range []struct {
		account, key string
		sum          llmhttp.UsageSum
	}{
		{"acme", "key_1", llmhttp.UsageSum{Start: day, Model: "m", Requests: 3}},
		{"acme", "key_2", llmhttp.UsageSum{Start: day, Model: "m", Requests: 4}},
		{"acme", "key_2", llmhttp.UsageSum{Start: day.AddDate(0, 0, 1), Model: "m", Requests: 5}},
		{"small", "key_3", llmhttp.UsageSum{Start: day, Model: "m", Requests: 1}},
	} {
		report.Add(manage.ReportRowID{Account: row.account, KeyID: row.key, Model: row.sum.Model}, &row.sum)
	}
	r := report.Report()
	for _, row := range r.Rows {
		for _, sum := range row.Sums {
			fmt.Println(row.Account, sum.Start.Format(time.DateOnly), sum.Requests)
		}
	}
	for _, sum := range r.Others {
		fmt.Println("others", sum.Start.Format(time.DateOnly), sum.Requests)
	}
	// Output:
	// acme 2026-03-14 7
	// acme 2026-03-15 5
	// others 2026-03-14 1
}
