package sqlstore

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage"
)

func TestReadMigrations(t *testing.T) {
	sqlite, err := readMigrations(migrationFiles, "sqlite")
	require.NoError(t, err)
	assert.NotEmpty(t, sqlite)
	postgres, err := readMigrations(migrationFiles, "postgres")
	require.NoError(t, err)
	assert.Len(t, postgres, len(sqlite), "all dialects have the same versions")

	first := &fstest.MapFile{Data: []byte("-- oldest: 1\n")}
	_, err = readMigrations(fstest.MapFS{"migrations/sqlite/0001_a.sql": first, "migrations/sqlite/0003_b.sql": first}, "sqlite")
	assert.ErrorContains(t, err, "0003_b.sql: expected version 2")
	for _, text := range []string{"", "CREATE TABLE a (b)", "-- oldest: 0\n", "-- oldest: 3\n"} {
		files := fstest.MapFS{"migrations/sqlite/0001_a.sql": first, "migrations/sqlite/0002_b.sql": {Data: []byte(text)}}
		_, err = readMigrations(files, "sqlite")
		assert.ErrorContains(t, err, "0002_b.sql: expected \"-- oldest: VERSION\"")
	}
}

func TestMigrate(t *testing.T) {
	forEachSharedDatabase(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, nil)
		_, secret := createKey(t, s, manage.KeyParams{Account: "acme"})
		released, err := readMigrations(migrationFiles, s.db.name())
		require.NoError(t, err)
		// with returns the released migrations and one more.
		with := func(sql string) []migration {
			next := len(released) + 1
			return append(released[:len(released):len(released)], migration{next, next, sql})
		}

		_, err = open(t.Context(), dsn, nil, with("CREATE TABLE llmhttp_new (a integer); nonsense"))
		require.ErrorContains(t, err, fmt.Sprintf("migration %d: ", len(released)+1))
		version, err := s.db.schemaVersion(t.Context(), s.db.read)
		require.NoError(t, err)
		assert.Equal(t, len(released), version)
		assert.Error(t, s.db.read.QueryRow("SELECT a FROM llmhttp_new").Scan(new(int)), "a failed migration changes nothing")

		migrated := with("CREATE TABLE llmhttp_new (a integer); INSERT INTO llmhttp_new VALUES (1)")
		var running sync.WaitGroup
		for range 8 {
			running.Go(func() {
				s, err := open(t.Context(), dsn, nil, migrated)
				if assert.NoError(t, err) {
					assert.NoError(t, s.Close())
				}
			})
		}
		running.Wait()
		assert.EqualValues(t, 1, queryInt(t, s, "SELECT count(*) FROM llmhttp_new"), "concurrent calls migrate once")
		assert.EqualValues(t, len(migrated), queryInt(t, s, "SELECT count(*) FROM llmhttp_schema"))
		assert.Equal(t, "acme", lookup(t, s, secret).Account)

		_, err = Open(t.Context(), dsn, nil)
		require.ErrorIs(t, err, ErrSchemaTooNew)
		assert.EqualError(t, err, fmt.Sprintf("sqlstore: the database schema is too new: its version %[1]d can be used by programs of version %[1]d and later, and this program has version %[2]d",
			len(migrated), len(released)))
	})
}

func TestOpen_ReadOnlyDatabase(t *testing.T) {
	dsn := newPostgres(t)
	_, secret := createKey(t, openStore(t, dsn, nil), manage.KeyParams{Account: "acme"})
	readOnly := openStore(t, dsn+"&default_transaction_read_only=on", &Options{Logger: discardLogger})
	assert.Equal(t, "acme", lookup(t, readOnly, secret).Account)
}

// During a rolling deployment, programs of version 1 run beside newer ones, and can be
// restarted. The usage that they record counts toward quotas.
func TestMigrate_RollingDeployment(t *testing.T) {
	forEachSharedDatabase(t, func(t *testing.T, dsn string) {
		dialect := "sqlite"
		if strings.HasPrefix(dsn, "postgres") {
			dialect = "postgres"
		}
		released, err := readMigrations(migrationFiles, dialect)
		require.NoError(t, err)
		openOld := func() *Store {
			s, err := open(t.Context(), dsn, nil, released[:1])
			require.NoError(t, err)
			t.Cleanup(func() { s.Close() })
			return s
		}
		// insert records as version 1 does.
		insert := func(s *Store, id, key string, tokens int) {
			_, err := s.db.write.Exec(`
				INSERT INTO llmhttp_usage_records (id, time, account, key_id, model, endpoint, prompt_tokens, completion_tokens, images, estimated)
				VALUES ($1, $2, 'acme', $3, 'm', 'chat', $4, 1, 0, $5) ON CONFLICT DO NOTHING`, id, micros(noon), key, tokens, false)
			require.NoError(t, err)
		}
		old := openOld()
		insert(old, "1", "key_1", 10)
		insert(old, "2", "key_2", 5)
		insert(old, "3", "key_1", asInt(math.MaxInt64))

		current := openStore(t, dsn, nil)
		insert(old, "4", "key_2", 100)
		insert(old, "4", "key_2", 100)
		mustRecord(t, current, usageRecord("5", "acme", "m", noon, 1000))
		mustRecord(t, current, usageRecord("6", "acme", "m", noon.Add(time.Hour), 2000))
		again := openOld()
		insert(again, "7", "key_2", 10_000)

		q := allTime("acme")
		sums, err := current.QueryKey(t.Context(), "key_2", q)
		require.NoError(t, err)
		assert.Equal(t, []llmhttp.UsageSum{{Start: q.From, Model: "m", Requests: 3, PromptTokens: 10_105, CompletionTokens: 3}}, sums)
		assert.EqualValues(t, 5, queryInt(t, current, "SELECT count(*) FROM llmhttp_usage_records WHERE protocol = ''"), "of version 1")
		assert.EqualValues(t, 2, queryInt(t, current, "SELECT count(*) FROM llmhttp_usage_records WHERE protocol = 'chat'"))
		sums, err = current.QueryKey(t.Context(), "key_1", q)
		require.NoError(t, err)
		assert.Equal(t, []llmhttp.UsageSum{{Start: q.From, Model: "m", Requests: 4, PromptTokens: math.MaxInt64, CompletionTokens: 4, Images: 4}}, sums)
		assert.EqualValues(t, 4, queryInt(t, current, "SELECT requests FROM llmhttp_usage_totals"), "those since the migration, as insert adds to no sums by day")
	})
}

func TestOpen_NoMigrate(t *testing.T) {
	forEachSharedDatabase(t, func(t *testing.T, dsn string) {
		released, err := readMigrations(migrationFiles, "sqlite")
		if strings.HasPrefix(dsn, "postgres") {
			released, err = readMigrations(migrationFiles, "postgres")
		}
		require.NoError(t, err)
		opts := &Options{NoMigrate: true, Logger: discardLogger}
		_, err = Open(t.Context(), dsn, opts)
		require.ErrorIs(t, err, ErrSchemaTooOld)
		require.NoFileExists(t, dsn)
		old, err := open(t.Context(), dsn, nil, released[:1])
		require.NoError(t, err)
		require.NoError(t, old.Close())
		_, err = Open(t.Context(), dsn, opts)
		require.EqualError(t, err, "sqlstore: the database schema is missing or too old; migrate it with llmhttpctl migrate")
		openStore(t, dsn, nil)
		openStore(t, dsn, opts)
	})
}
