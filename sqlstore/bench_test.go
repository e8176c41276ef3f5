package sqlstore

import (
	"crypto/rand"
	"database/sql"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
)

var (
	benchRecords = flag.Int("records", 10_000, "the `number` of usage records in the database of BenchmarkStore")
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
	require.NoError(b, inTx(b.Context(), s.write, nil, func(tx *sql.Tx) error {
		for i := range *benchKeys {
			secret := llmhttp.NewSecret("sk-")
			secrets = append(secrets, secret)
			id := "key_" + strings.ToLower(rand.Text()[:20])
			_, err := tx.Exec("INSERT INTO llmhttp_keys (id, account, name, prefix, limits, created) VALUES ($1, $2, $3, $4, $5, $6)",
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
		at := benchStart.Add(time.Duration(number) * (100 * day / time.Duration(*benchRecords)))
		batch[i] = usageRecord("req_"+rand.Text(), benchAccount(number), fmt.Sprint("vendor/model-", number%5), at, 1000)
		batch[i].KeyID = "key_" + batch[i].ID[4:24]
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
	size := "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
	if s.name() == "postgres" {
		_, err := s.write.Exec("VACUUM ANALYZE") // the server would do it in the background
		require.NoError(b, err)
		size = "SELECT CAST(sum(pg_total_relation_size(oid)) AS bigint) FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace"
	}
	b.Logf("%d records in batches of 1000: %.0f records/s; the database has %.1f MB", *benchRecords, rate, float64(queryInt(b, s, size))/1e6)
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
			createKey(b, cached, KeyParams{Account: "new"})
		}
	})
	b.Run("ListKeys100", func(b *testing.B) {
		for b.Loop() {
			_, err := cached.ListKeys(b.Context(), KeyQuery{Account: busyAccount})
			require.NoError(b, err)
		}
	})
}
