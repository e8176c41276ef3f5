package sqlstore

import (
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// BenchmarkSizes measures what records and sums need on disk, indexes included, for 30 days of 20
// accounts with 5 keys each and 5 models. Records have what a Router and a price add. They come in
// batches of 100 in the order of their time, as from package usagebuffer.
func BenchmarkSizes(b *testing.B) {
	for name, newDatabase := range sharedDatabases {
		for _, users := range []int{0, 10} { // of each key
			b.Run(fmt.Sprintf("%s/EndUsersOfAKey%d", name, users), func(b *testing.B) {
				for b.Loop() {
					measureSizes(b, openStore(b, newDatabase(b), &Options{KeepRecords: -1}), users)
				}
			})
		}
	}
}

func measureSizes(b *testing.B, s *Store, users int) {
	const days = 30
	for from := 0; from < *benchRecords; from += 100 {
		batch := make([]llmhttp.UsageRecord, min(100, *benchRecords-from))
		for i := range batch {
			number := from + i
			at := benchStart.Add(time.Duration(number) * (days * day / time.Duration(*benchRecords)))
			key, model := number*7919%100, fmt.Sprint("vendor/model-", number/3%5)
			r := usageRecord("req_"+rand.Text(), fmt.Sprint("account-", key/5), model, at, 1000+number%5000)
			r.KeyID, r.ServedModel, r.Target = fmt.Sprintf("key_%020d", key), model, "models"
			r.Units = llmhttp.Units{PromptTokens: r.Units.PromptTokens, CachedTokens: 500, CompletionTokens: 300, ReasoningTokens: 100}
			r.Cost = llmhttp.Cost{Input: llm.USD(3) / 1000, CacheRead: llm.MoneyUnit / 5000, Output: llm.USD(2) / 1000}
			if users > 0 {
				r.User = fmt.Sprintf("user-%05d", key*users+number/100%users)
			}
			batch[i] = r
		}
		mustRecord(b, s, batch...)
	}
	b.ReportMetric(0, "ns/op")
	for table, unit := range map[string]string{"llmhttp_usage_records": "record", "llmhttp_usage_sums": "sum"} {
		rows := queryInt(b, s, "SELECT count(*) FROM "+table)
		b.ReportMetric(float64(rows), unit+"s")
		b.ReportMetric(float64(tableBytes(b, s, table))/float64(rows), "bytes/"+unit)
	}
}

// tableBytes returns the size of a table and its indexes.
func tableBytes(b *testing.B, s *Store, table string) int64 {
	if s.db.name() == "postgres" {
		_, err := s.db.write.Exec("VACUUM ANALYZE " + table) // the server would do it in the background
		require.NoError(b, err)
		return queryInt(b, s, "SELECT pg_total_relation_size('"+table+"')")
	}
	return queryInt(b, s, "SELECT sum(pgsize) FROM dbstat WHERE name IN (SELECT name FROM sqlite_schema WHERE tbl_name = '"+table+"')")
}
