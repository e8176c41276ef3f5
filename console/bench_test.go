package console_test

import (
	"bytes"
	"database/sql"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/servertest"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/sqlstore"
)

var (
	benchRecords = flag.Int("records", 2_000, "the `number` of usage records in the databases of BenchmarkPages and BenchmarkReports")
	benchKeys    = flag.Int("keys", 1_000, "the `number` of keys in the databases of BenchmarkPages and BenchmarkReports")
)

// BenchmarkPages measures the time in which a server replies with each page, of a
// database with many keys and records: 100 days, 1000 accounts and 5 models, with
// half of the records in one account, and in each account more records for some
// keys than for others.
func BenchmarkPages(b *testing.B) {
	b.Run("SQLite", func(b *testing.B) {
		benchmarkPages(b, "file:"+filepath.Join(b.TempDir(), "llm.db")+"?_pragma=synchronous(0)")
	})
	b.Run("PostgreSQL", func(b *testing.B) {
		benchmarkPages(b, servertest.Postgres(b, servertest.Args("-c", "fsync=off")).DSN())
	})
}

func benchmarkPages(b *testing.B, dsn string) {
	store, err := sqlstore.Open(b.Context(), dsn, &sqlstore.Options{KeepRecords: -1, KeyTTL: time.Hour})
	require.NoError(b, err)
	defer store.Close()
	keys := insertKeys(b, store)
	insertRecords(b, store, keys)
	cpu := newCPUMeter(b, dsn)
	h := newHostWithStores(b, store, store, nil)
	v := h.newAdmin(b)
	busy, quiet := keys[0], keys[1]
	period := func(days int) string {
		return url.Values{"from": {today().Add(-time.Duration(days-1) * 24 * time.Hour).Format(time.DateOnly)}}.Encode()
	}
	for _, page := range []struct{ name, path string }{
		{"Overview", "overview"},
		{"Keys", "keys"},
		{"KeysNextPage", "keys?after=" + keys[len(keys)/2].ID},
		{"KeysOfAccount", "keys?account=" + url.QueryEscape(busy.Account)},
		{"KeysSearch", "keys?search=number+77"},
		{"KeysSearchNothing", "keys?search=no+key+has+this"},
		{"KeysStatus", "keys?status=expired"},
		{"Key", "key?id=" + busy.ID},
		{"Usage", "usage"},
		{"UsageByModel", "usage?by=model"},
		{"UsageByKey", "usage?by=key"},
		{"UsageByAccount", "usage?by=account"},
		{"UsageOfAccount", "usage?by=key&account=" + url.QueryEscape(busy.Account)},
		{"UsageOfKey", "usage?key=" + busy.ID},
		{"UsageOfQuietKey", "usage?key=" + quiet.ID},
		{"Usage7DaysByKey", "usage?by=key&" + period(7)},
		{"Usage100Days", "usage?" + period(100)},
		{"Usage100DaysByKey", "usage?by=key&" + period(100)},
		{"Usage100DaysByAccount", "usage?by=account&" + period(100)},
		{"Usage100DaysOfAccount", "usage?by=key&" + period(100) + "&account=" + url.QueryEscape(busy.Account)},
		{"Playground", "playground"},
		{"Audit", "audit"},
	} {
		b.Run(page.name, func(b *testing.B) {
			v.t = b
			before := cpu()
			for b.Loop() {
				require.Equal(b, http.StatusOK, v.get(page.path).status)
			}
			b.ReportMetric(0, "ns/op") // which includes the time of other programs
			b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/page")
			b.ReportMetric(float64((cpu()-before).Milliseconds())/float64(b.N), "cpu-ms/page")
		})
	}
}

// benchAccount returns the account of key number i.
func benchAccount(i int) string {
	if i%2 == 0 {
		return "busy account"
	}
	return fmt.Sprint("account number ", i/2%999)
}

func insertKeys(b *testing.B, s *sqlstore.Store) (keys []manage.KeyInfo) {
	start := time.Now()
	for i := range *benchKeys {
		p := manage.KeyParams{Account: benchAccount(i), Name: fmt.Sprint("key number ", i), Limits: llmhttp.Limits{Requests: llmhttp.PerMinute(60), Quota: llmhttp.Quota{Tokens: 1_000_000}}}
		info, _, err := s.CreateKey(b.Context(), p)
		require.NoError(b, err)
		keys = append(keys, info)
	}
	b.Logf("%d keys in %v", *benchKeys, time.Since(start))
	return keys
}

// insertRecords stores the records of 100 days. The number of records of a key
// falls with its number, as that of a few applications among many people does.
func insertRecords(b *testing.B, s *sqlstore.Store, keys []manage.KeyInfo) {
	start := time.Now()
	rng := rand.New(rand.NewPCG(1, 2))
	begin := today().Add(-99 * 24 * time.Hour)
	const batch = 5000
	for i := 0; i < *benchRecords; i += batch {
		var records []llmhttp.UsageRecord
		for n := i; n < min(i+batch, *benchRecords); n++ {
			at := begin.Add(time.Duration(n) * (100 * 24 * time.Hour / time.Duration(*benchRecords)))
			share := rng.Float64()
			key := &keys[int(share*share*float64(len(keys)))]
			records = append(records, record(fmt.Sprint("req_", n), at, key.Account, key.ID, fmt.Sprint("vendor/model-", rng.IntN(5)), 100+rng.IntN(2000)))
		}
		require.NoError(b, s.Record(b.Context(), records...))
	}
	b.Logf("%d records in %v", *benchRecords, time.Since(start))
}

// newCPUMeter returns a function that returns the time for which this process and
// those of the PostgreSQL server used a CPU. Unlike the elapsed time it does not
// depend on what else the machine does. It also updates the statistics of
// PostgreSQL, which the server would do in the background.
func newCPUMeter(b *testing.B, dsn string) func() time.Duration {
	if strings.HasPrefix(dsn, "file:") {
		return func() time.Duration { return cpuOf(os.Getpid()) }
	}
	db, err := sql.Open("pgx", dsn)
	require.NoError(b, err)
	b.Cleanup(func() { db.Close() })
	_, err = db.ExecContext(b.Context(), "VACUUM ANALYZE")
	require.NoError(b, err)
	var backend int
	require.NoError(b, db.QueryRowContext(b.Context(), "SELECT pg_backend_pid()").Scan(&backend))
	server := statOf(backend)[1]
	return func() time.Duration {
		sum := cpuOf(os.Getpid())
		processes, _ := filepath.Glob("/proc/[0-9]*")
		for _, dir := range processes {
			pid, _ := strconv.Atoi(filepath.Base(dir))
			if stat := statOf(pid); len(stat) > 1 && (stat[1] == server || filepath.Base(dir) == server) {
				sum += cpuOf(pid)
			}
		}
		return sum
	}
}

// statOf returns the fields of /proc/PID/stat that follow the name of the process.
func statOf(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	return strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
}

// cpuOf returns the time for which a process, and its children that have ended,
// used a CPU.
func cpuOf(pid int) (sum time.Duration) {
	if stat := statOf(pid); len(stat) > 14 {
		for _, ticks := range stat[11:15] {
			n, _ := strconv.Atoi(ticks)
			sum += time.Duration(n) * (time.Second / 100) // clock ticks, of which Linux has 100 per second
		}
	}
	return sum
}
