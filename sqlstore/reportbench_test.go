package sqlstore

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/manage"
)

// BenchmarkReports measures what pages about usage ask for: the 25 largest groups by day. The records of
// -records are of 30 days, 20 accounts with 100 end users each, 5 models and 10 values of a label.
func BenchmarkReports(b *testing.B) {
	for name, newDatabase := range sharedDatabases {
		b.Run(name, func(b *testing.B) {
			s := openStore(b, newDatabase(b), &Options{KeepRecords: -1})
			insertReportRecords(b, s)
			benchmarkReportPages(b, s)
		})
	}
}

const reportBenchDays = 30

func insertReportRecords(b *testing.B, s *Store) {
	const batch = 2000
	rng := rand.New(rand.NewPCG(1, 1))
	records := make([]llmhttp.UsageRecord, batch)
	for from := 0; from < *benchRecords; from += batch {
		for i := range records {
			n := from + i
			at := benchStart.Add(time.Duration(n) * (reportBenchDays * day / time.Duration(*benchRecords)))
			account := rng.IntN(20)
			r := usageRecord(fmt.Sprint("report ", n), fmt.Sprint("account ", account), fmt.Sprint("model ", rng.IntN(5)), at, rng.IntN(1000))
			r.KeyID, r.User = fmt.Sprint("key ", account), fmt.Sprint("user ", rng.IntN(100))
			r.Labels = []llmhttp.Label{{Name: "team", Value: fmt.Sprint(rng.IntN(10))}}
			r.Cost.Input = llm.Money(rng.IntN(1000))
			records[i] = r
		}
		mustRecord(b, s, records...)
	}
	databaseMB(b, s) // analyzes the tables
}

func benchmarkReportPages(b *testing.B, s *Store) {
	base := manage.ReportQuery{From: benchStart, To: benchStart.Add(reportBenchDays * day), Interval: manage.EveryDay, GroupLabel: "team", Limit: 25}
	for name, change := range map[string]func(q *manage.ReportQuery){
		"ByAccount":     func(q *manage.ReportQuery) { q.By = manage.ByAccount },
		"ByUser":        func(q *manage.ReportQuery) { q.By = manage.ByUser },
		"ByLabel":       func(q *manage.ReportQuery) { q.By = manage.ByLabel },
		"HoursOfTarget": func(q *manage.ReportQuery) { q.Target, q.Interval = "none", manage.EveryHour },
		"DaysElsewhere": func(q *manage.ReportQuery) { q.By, q.Location = manage.ByAccount, berlin },
		"Hours":         func(q *manage.ReportQuery) { q.By, q.Interval = manage.ByAccount, manage.EveryHour },
	} {
		q := base
		change(&q)
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				_, err := s.Report(b.Context(), q)
				require.NoError(b, err)
			}
		})
	}
}
