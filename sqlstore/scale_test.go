package sqlstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/servertest"
)

var (
	scale        = flag.Bool("scale", false, "run TestScale, which takes minutes")
	scaleRecords = flag.Int("scale.records", 1_000_000, "the `number` of records of TestScale")
	scaleKeys    = flag.Int("scale.keys", 100_000, "the `number` of keys of TestScale")
)

// TestScale prints what it takes to find keys, to record and to query when
// there are many keys and records, and how much room these take.
func TestScale(t *testing.T) {
	if !*scale {
		t.Skip("it takes minutes; make bench-stores runs it")
	}
	columns := [][][2]string{
		measureScale(t, sqliteDSN(t)),
		measureScale(t, servertest.Postgres(t).DSN()),
	}
	fmt.Printf("%s, %s/%s, %d CPUs. %d records of 100 days, 1000 accounts and 5 models, half of them of one account; %d keys.\nTimes are the median, and in parentheses the 99th percentile.\n\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), *scaleRecords, *scaleKeys)
	line := func(cells ...any) { fmt.Printf("| %-40s | %-25s | %-25s |\n", cells...) }
	line("", "SQLite", "PostgreSQL")
	line("---", "---", "---")
	for i, row := range columns[0] {
		line(row[0], row[1], columns[1][i][1])
	}
}

const busy = "busy account"

func measureScale(t *testing.T, dsn string) (rows [][2]string) {
	ctx := t.Context()
	s := openStore(t, dsn, &Options{KeepRecords: -1, KeyTTL: time.Hour})
	uncached := openStore(t, dsn, &Options{KeepRecords: -1, KeyTTL: -1})
	add := func(name, value string) { rows = append(rows, [2]string{name, value}) }
	// sample measures what each of n calls takes.
	sample := func(name string, n int, f func(i int)) {
		times := make([]time.Duration, n)
		for i := range times {
			start := time.Now()
			f(i)
			times[i] = time.Since(start)
		}
		slices.Sort(times)
		add(name, fmt.Sprintf("%s (%s)", short(times[n/2]), short(times[n*99/100])))
	}

	secrets := make([]string, *scaleKeys)
	require.NoError(t, inTx(ctx, s.write, nil, func(tx *sql.Tx) error {
		key, err := tx.Prepare("INSERT INTO llmhttp_keys (id, account, name, prefix, limits, created) VALUES ($1, $2, $3, $4, $5, $6)")
		require.NoError(t, err)
		secret, err := tx.Prepare("INSERT INTO llmhttp_secrets (hash, key_id) VALUES ($1, $2)")
		require.NoError(t, err)
		limits := limitsText(llmhttp.Limits{Requests: llmhttp.PerMinute(60), Tokens: llmhttp.PerMinute(20_000)})
		for i := range secrets {
			secrets[i] = llmhttp.NewSecret("sk-")
			id := "key_" + strings.ToLower(rand.Text()[:20])
			_, err := key.Exec(id, accountOf(i), fmt.Sprint("key number ", i), secrets[i][:11], limits, int64(i))
			require.NoError(t, err)
			_, err = secret.Exec(llmhttp.HashSecret(secrets[i]), id)
			require.NoError(t, err)
		}
		return nil
	}))
	record := func(i int) llmhttp.UsageRecord {
		at := noon.Truncate(day).Add(time.Duration(i) * (100 * day / time.Duration(*scaleRecords)))
		r := newRecord("req_"+rand.Text(), accountOf(i), fmt.Sprint("vendor/model-", i%5), at, 1000)
		r.KeyID = "key_" + r.ID[4:24]
		return r
	}
	batchOf := func(from, n int) []llmhttp.UsageRecord {
		batch := make([]llmhttp.UsageRecord, n)
		for i := range batch {
			batch[i] = record((from + i) % *scaleRecords)
		}
		return batch
	}
	start := time.Now()
	for i := 0; i < *scaleRecords; i += 1000 {
		mustRecord(t, s, batchOf(i, min(1000, *scaleRecords-i))...)
	}
	add("record all, in batches of 1000", fmt.Sprintf("%.0f records/s", float64(*scaleRecords)/time.Since(start).Seconds()))
	if s.read == s.write {
		_, err := s.write.Exec("VACUUM ANALYZE") // as the server would by itself, later
		require.NoError(t, err)
	}
	for _, line := range sizes(t, s, dsn) {
		add(line[0], line[1])
	}

	sample("record a batch of 100", 200, func(i int) { mustRecord(t, s, batchOf(i*7919, 100)...) })
	sample("record one", 500, func(i int) { mustRecord(t, s, record(i*7919%*scaleRecords)) })
	again := batchOf(0, 100)
	mustRecord(t, s, again...)
	sample("record a batch of 100 again", 200, func(int) { mustRecord(t, s, again...) })

	query := func(name, account string, n int, q llmhttp.UsageQuery) {
		q.Account = account
		sample(name, n, func(int) { require.NotEmpty(t, mustQuery(t, s, q)) })
	}
	midnight := noon.Truncate(day)
	whole := llmhttp.UsageQuery{From: midnight, To: midnight.Add(100 * day), Step: day}
	query("query 100 days of the busy account", busy, 200, whole)
	query("query 100 days of another account", accountOf(1), 200, whole)
	query("query 100 days and a half, in one sum", busy, 50, llmhttp.UsageQuery{From: midnight.Add(6 * time.Hour), To: midnight.Add(99*day + 18*time.Hour)})
	query("query a day by the hour", busy, 50, llmhttp.UsageQuery{From: midnight.Add(50 * day), To: midnight.Add(51 * day), Step: time.Hour})

	lookup := func(s *Store) func(int) {
		return func(i int) {
			_, err := s.Lookup(ctx, secrets[i*7919%len(secrets)])
			require.NoError(t, err)
		}
	}
	sample("look up a key in the database", 2000, lookup(uncached))
	stranger := llmhttp.NewSecret("sk-")
	sample("look up a secret of none in the database", 2000, func(int) { _, _ = uncached.Lookup(ctx, stranger) })
	lookup(s)(0)
	sample("look up a key that is cached", 100_000, func(int) { lookup(s)(0) })
	sample("create a key", 200, func(i int) {
		_, _, err := s.CreateKey(ctx, KeyParams{Account: accountOf(i)})
		require.NoError(t, err)
	})
	sample("list 100 keys of an account", 200, func(int) {
		_, err := s.ListKeys(ctx, KeyQuery{Account: busy})
		require.NoError(t, err)
	})
	start = time.Now()
	n, err := s.Prune(context.Background(), midnight.Add(10*day))
	require.NoError(t, err)
	add("prune a tenth of the records", fmt.Sprintf("%.0f records/s", float64(n)/time.Since(start).Seconds()))
	return rows
}

// accountOf returns the account of record or key number i.
func accountOf(i int) string {
	if i%2 == 0 {
		return busy
	}
	return fmt.Sprint("account number ", i/2%999)
}

func short(d time.Duration) string {
	switch {
	case d < 10*time.Microsecond:
		return fmt.Sprintf("%.2f µs", float64(d)/1e3)
	case d < time.Millisecond:
		return fmt.Sprintf("%.0f µs", float64(d)/1e3)
	}
	return fmt.Sprintf("%.1f ms", float64(d)/1e6)
}

// sizes returns what is on disk, with indexes.
func sizes(t *testing.T, s *Store, dsn string) [][2]string {
	table := func(names ...string) int64 {
		if s.read != s.write {
			list := "'" + strings.Join(names, "', '") + "'"
			return count(t, s, "SELECT coalesce(sum(pgsize), 0) FROM dbstat WHERE name IN (SELECT name FROM sqlite_master WHERE tbl_name IN ("+list+"))")
		}
		var n int64
		for _, name := range names {
			n += count(t, s, "SELECT pg_total_relation_size('"+name+"')")
		}
		return n
	}
	var total int64
	if s.read != s.write {
		files, err := filepath.Glob(dsn + "*")
		require.NoError(t, err)
		for _, f := range files {
			info, err := os.Stat(f)
			require.NoError(t, err)
			total += info.Size()
		}
	} else {
		total = count(t, s, "SELECT pg_database_size(current_database())")
	}
	mb := func(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }
	each := func(bytes int64, n int) string {
		return fmt.Sprintf("%s, %d bytes each", mb(bytes), bytes/int64(cmp.Or(n, 1)))
	}
	return [][2]string{
		{"size of the keys", each(table("llmhttp_keys", "llmhttp_secrets"), *scaleKeys)},
		{"size of the records", each(table("llmhttp_usage_records"), *scaleRecords)},
		{"size of the sums by day", mb(table("llmhttp_usage_days"))},
		{"size of the database", mb(total)},
	}
}
