package sqlstore

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/responsestore"
)

var (
	benchRecords = flag.Int("records", 10_000, "the `number` of usage records in the database of BenchmarkStore")
	benchStored  = flag.Int("responses", 1_000, "the `number` of responses in the database of BenchmarkResponses")
	benchKeys    = flag.Int("keys", 1_000, "the `number` of keys in the database of BenchmarkStore")
)

// BenchmarkStore measures a Store whose database already has many keys and
// records: 100 days, 1000 accounts and 5 models, with half of the records in
// one account.
func BenchmarkStore(b *testing.B) {
	for name, newDatabase := range sharedDatabases {
		b.Run(name, func(b *testing.B) {
			dsn := newDatabase(b)
			s := openStore(b, dsn, &Options{KeepRecords: -1, KeyTTL: time.Hour})
			secrets := insertBenchKeys(b, s)
			insertBenchRecords(b, s)
			benchmarkUsage(b, s)
			benchmarkKeys(b, s, openStore(b, dsn, &Options{KeepRecords: -1, KeyTTL: -1}), secrets)
		})
	}
}

const busyAccount = "busy account"

// benchAccount returns the account of the record or key number i.
func benchAccount(i int) string {
	if i%2 == 0 {
		return busyAccount
	}
	return fmt.Sprint("account number ", i/2%999)
}

func insertBenchKeys(b *testing.B, s *Store) (secrets []string) {
	limits := encodeLimits(llmhttp.Limits{Requests: llmhttp.PerMinute(60), Tokens: llmhttp.PerMinute(20_000)})
	require.NoError(b, inTx(b.Context(), s.db.write, nil, func(tx *sql.Tx) error {
		for i := range *benchKeys {
			secret := llmhttp.NewSecret("sk-")
			secrets = append(secrets, secret)
			id := "key_" + strings.ToLower(rand.Text()[:20])
			_, err := tx.Exec("INSERT INTO llmhttp_keys (id, account, name, prefix, limits, created, suspended) VALUES ($1, $2, $3, $4, $5, $6, false)",
				id, benchAccount(i), fmt.Sprint("key number ", i), secret[:11], limits, int64(i))
			if err != nil {
				return err
			}
			if err := insertSecret(b.Context(), tx, secret, id); err != nil {
				return err
			}
		}
		return nil
	}))
	return secrets
}

var benchStart = noon.Truncate(day)

// benchBatch returns n records with new IDs, the first of which is number from.
func benchBatch(from, n int) []llmhttp.UsageRecord {
	batch := make([]llmhttp.UsageRecord, n)
	for i := range batch {
		number := (from + i) % *benchRecords
		key := number * 7919 % *benchKeys
		at := benchStart.Add(time.Duration(number) * (100 * day / time.Duration(*benchRecords)))
		batch[i] = usageRecord("req_"+rand.Text(), benchAccount(key), fmt.Sprint("vendor/model-", number%5), at, 1000)
		batch[i].KeyID = fmt.Sprintf("key_%020d", key)
	}
	return batch
}

// insertBenchRecords logs how long it takes and the size of the database.
func insertBenchRecords(b *testing.B, s *Store) {
	start := time.Now()
	for i := 0; i < *benchRecords; i += 1000 {
		mustRecord(b, s, benchBatch(i, min(1000, *benchRecords-i))...)
	}
	rate := float64(*benchRecords) / time.Since(start).Seconds()
	b.Logf("%d records in batches of 1000: %.0f records/s; the database has %.1f MB", *benchRecords, rate, databaseMB(b, s))
}

// databaseMB returns the size of the database.
func databaseMB(b *testing.B, s *Store) float64 {
	size := "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
	if s.db.name() == "postgres" {
		_, err := s.db.write.Exec("VACUUM ANALYZE") // the server would do it in the background
		require.NoError(b, err)
		size = "SELECT CAST(sum(pg_total_relation_size(oid)) AS bigint) FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace"
	}
	return float64(queryInt(b, s, size)) / 1e6
}

func benchmarkUsage(b *testing.B, s *Store) {
	for _, size := range []int{1, 100} {
		b.Run(fmt.Sprint("Record", size), func(b *testing.B) {
			for i := 0; b.Loop(); i += 7919 {
				mustRecord(b, s, benchBatch(i, size)...)
			}
		})
	}
	repeated := benchBatch(0, 100)
	mustRecord(b, s, repeated...)
	b.Run("Record100Again", func(b *testing.B) {
		for b.Loop() {
			mustRecord(b, s, repeated...)
		}
	})
	for name, q := range map[string]llmhttp.UsageQuery{
		"Query100DaysOfBusyAccount":  {Account: busyAccount, From: benchStart, To: benchStart.Add(100 * day), Step: day},
		"Query100DaysOfOtherAccount": {Account: benchAccount(1), From: benchStart, To: benchStart.Add(100 * day), Step: day},
		"QueryDayByHour":             {Account: busyAccount, From: benchStart.Add(50 * day), To: benchStart.Add(51 * day), Step: time.Hour},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				require.NotEmpty(b, mustQuery(b, s, q))
			}
		})
	}
	benchmarkReports(b, s)
}

func benchmarkReports(b *testing.B, s *Store) {
	for name, q := range map[string]manage.ReportQuery{
		"Report100DaysByDay":     {From: benchStart, To: benchStart.Add(100 * day), Interval: manage.EveryDay},
		"Report100DaysByAccount": {From: benchStart, To: benchStart.Add(100 * day), By: manage.ByAccount, Limit: 25},
		"Report100DaysByKey":     {From: benchStart, To: benchStart.Add(100 * day), By: manage.ByKey, Limit: 25},
		"Report30DaysByKey":      {From: benchStart.Add(70 * day), To: benchStart.Add(100 * day), By: manage.ByKey, Limit: 25},
		"Report1DayByKey":        {From: benchStart.Add(99 * day), To: benchStart.Add(100 * day), By: manage.ByKey, Limit: 25},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				report, err := s.Report(b.Context(), q)
				require.NoError(b, err)
				require.NotEmpty(b, report.Rows)
			}
		})
	}
}

func benchmarkKeys(b *testing.B, cached, uncached *Store, secrets []string) {
	b.Run("LookupCached", func(b *testing.B) {
		for b.Loop() {
			lookup(b, cached, secrets[0])
		}
	})
	b.Run("LookupUncached", func(b *testing.B) {
		for i := 0; b.Loop(); i += 7919 {
			lookup(b, uncached, secrets[i%len(secrets)])
		}
	})
	b.Run("LookupUnknownUncached", func(b *testing.B) {
		for b.Loop() {
			_, err := uncached.Lookup(b.Context(), "sk-unknown")
			require.ErrorIs(b, err, llmhttp.ErrKeyNotFound)
		}
	})
	b.Run("CreateKey", func(b *testing.B) {
		for b.Loop() {
			createKey(b, cached, manage.KeyParams{Account: "new"})
		}
	})
	b.Run("ListKeys100", func(b *testing.B) {
		for b.Loop() {
			_, err := cached.ListKeys(b.Context(), manage.KeyQuery{Account: busyAccount})
			require.NoError(b, err)
		}
	})
}

// BenchmarkResponses measures a Store whose database already has many responses:
// conversations of 10 turns of 1000 accounts, half of them of one account.
func BenchmarkResponses(b *testing.B) {
	for name, newDatabase := range sharedDatabases {
		b.Run(name, func(b *testing.B) {
			s := openStore(b, newDatabase(b), nil)
			insertBenchResponses(b, s)
			b.Run("Save", func(b *testing.B) {
				for i := *benchStored; b.Loop(); i++ {
					mustSave(b, s, benchResponse(i))
				}
			})
			b.Run("CommitOneRow", func(b *testing.B) { // what the disk takes at least
				for b.Loop() {
					_, err := s.db.write.Exec("INSERT INTO llmhttp_state (name, value) VALUES ($1, 0)", rand.Text())
					require.NoError(b, err)
				}
			})
			b.Run("Load", func(b *testing.B) {
				for i := 0; b.Loop(); i += 7919 {
					r := benchResponse(i % *benchStored)
					_, err := s.LoadResponse(b.Context(), r.Account, r.ID)
					require.NoError(b, err)
				}
			})
			b.Run("LoadItems10", func(b *testing.B) {
				for i := 0; b.Loop(); i += 7919 {
					var ids []string
					first := i % *benchStored / 10 * 10
					for turn := range 10 {
						ids = append(ids, benchResponse(first + turn).Output[0].ID)
					}
					found, err := s.LoadItems(b.Context(), benchResponse(first).Account, ids, math.MaxInt)
					require.NoError(b, err)
					require.Len(b, found, 10)
				}
			})
			b.Run("LoadUnknown", func(b *testing.B) {
				for b.Loop() {
					_, err := s.LoadResponse(b.Context(), busyAccount, "resp_unknown")
					require.ErrorIs(b, err, responsestore.ErrNotFound)
				}
			})
		})
	}
}

// fillBatch is how many responses one transaction of insertBenchResponses inserts.
const fillBatch = 50_000

// insertBenchResponses inserts responses in bulk, because SaveResponse commits each
// of them. It logs how long that takes and the size of the database.
func insertBenchResponses(b *testing.B, s *Store) {
	fill := fillSQLite
	if s.db.name() == "postgres" {
		fill = fillPostgres
	}
	start := time.Now()
	for from := 0; from < *benchStored; from += fillBatch {
		rows := make([]*responseRow, min(fillBatch, *benchStored-from))
		for i := range rows {
			rows[i] = newResponseRow(benchResponse(from + i))
		}
		require.NoError(b, fill(b.Context(), s, rows))
	}
	took := time.Since(start)
	mb := databaseMB(b, s)
	b.Logf("%d responses, inserted in bulk in %.0f s; the database has %.1f MB, %.0f bytes for each", *benchStored, took.Seconds(), mb, mb*1e6/float64(*benchStored))
}

// fillSQLite lifts the limit on the memory of the connection that writes: with
// the limit, each response reads and writes several pages of the file. It empties
// the write-ahead log, which the next commits would have to do otherwise.
func fillSQLite(ctx context.Context, s *Store, rows []*responseRow) error {
	if _, err := s.db.write.ExecContext(ctx, "PRAGMA cache_size = -500000; PRAGMA synchronous = off"); err != nil {
		return err
	}
	err := inTx(ctx, s.db.write, nil, func(tx *sql.Tx) error {
		for _, row := range rows {
			if _, err := s.db.insertResponseTx(ctx, tx, row); err != nil {
				return err
			}
		}
		return nil
	})
	_, restoreErr := s.db.write.ExecContext(ctx, "PRAGMA synchronous = full; PRAGMA wal_checkpoint(truncate); PRAGMA cache_size = -2000")
	return errors.Join(err, restoreErr)
}

func fillPostgres(ctx context.Context, s *Store, rows []*responseRow) error {
	var responses, items [][]any
	for _, row := range rows {
		responses = append(responses, []any{row.account, row.id, row.created, row.expires, row.previous, row.itemBytes, row.data})
		for i, item := range row.items {
			items = append(items, []any{row.account, row.id, i, item.id, item.name, item.output, item.repeated, item.data})
		}
	}
	conn, err := s.db.write.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.Raw(func(driverConn any) error {
		pg := driverConn.(*stdlib.Conn).Conn()
		_, err := pg.CopyFrom(ctx, pgx.Identifier{"llmhttp_responses"}, []string{"account", "id", "created", "expires", "previous", "item_bytes", "data"}, pgx.CopyFromRows(responses))
		if err != nil {
			return err
		}
		_, err = pg.CopyFrom(ctx, pgx.Identifier{"llmhttp_response_items"}, []string{"account", "response", "position", "id", "name", "output", "repeated", "data"}, pgx.CopyFromRows(items))
		return err
	})
}

// benchResponse returns response number i: a response object of 1100 bytes, a
// question of 200 bytes and an answer of 200 to 1000. Their texts are random.
func benchResponse(i int) *responsestore.Response {
	id := func(prefix string) string {
		return fmt.Sprintf("%s%s", prefix, llmhttp.HashSecret(fmt.Sprint(prefix, i))[:32])
	}
	var text strings.Builder
	for text.Len() < 1100 {
		text.WriteString(llmhttp.HashSecret(fmt.Sprint(i, text.Len())))
	}
	item := func(prefix string, size int) responsestore.Item {
		return responsestore.Item{ID: id(prefix), Body: fmt.Appendf(nil, `{"id":%q,"type":"message","text":%q}`, id(prefix), text.String()[:size])}
	}
	r := &responsestore.Response{
		ID: id("resp_"), Account: benchAccount(i / 10), Created: benchStart, Expires: benchStart.AddDate(10, 0, 0),
		Body:  fmt.Appendf(nil, `{"id":%q,"text":%q}`, id("resp_"), text.String()[:1050]),
		Input: []responsestore.Item{item("in_", 130)}, Output: []responsestore.Item{item("msg_", 130+i*37%800)},
	}
	if i%10 > 0 {
		r.Previous = fmt.Sprintf("resp_%s", llmhttp.HashSecret(fmt.Sprint("resp_", i-1))[:32])
	}
	return r
}
