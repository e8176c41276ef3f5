package sqlstore

import (
	"sync"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReadMigrations(t *testing.T) {
	sqlite, err := readMigrations(migrations, "sqlite")
	require.NoError(t, err)
	assert.NotEmpty(t, sqlite)
	postgres, err := readMigrations(migrations, "postgres")
	require.NoError(t, err)
	assert.Len(t, postgres, len(sqlite), "all dialects have the same versions")

	gap := fstest.MapFS{"migrations/sqlite/0001_a.sql": {}, "migrations/sqlite/0003_b.sql": {}}
	_, err = readMigrations(gap, "sqlite")
	assert.ErrorContains(t, err, "0003_b.sql: expected version 2")
}

func TestMigrate(t *testing.T) {
	forEachSharedDatabase(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, nil)
		_, secret := createKey(t, s, KeyParams{Account: "acme"})
		released, err := readMigrations(migrations, s.name())
		require.NoError(t, err)
		// with returns the released migrations and one more.
		with := func(sql string) []migration {
			return append(released[:len(released):len(released)], migration{len(released) + 1, sql})
		}

		_, err = open(t.Context(), dsn, nil, with("CREATE TABLE llmhttp_new (a integer); nonsense"))
		require.ErrorContains(t, err, "migration 2: ")
		version, err := s.schemaVersion(t.Context(), s.read)
		require.NoError(t, err)
		assert.Equal(t, 1, version)
		assert.Error(t, s.read.QueryRow("SELECT a FROM llmhttp_new").Scan(new(int)), "a failed migration changes nothing")

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
		assert.EqualValues(t, 2, queryInt(t, s, "SELECT count(*) FROM llmhttp_schema"))
		assert.Equal(t, "acme", lookup(t, s, secret).Account)

		_, err = Open(t.Context(), dsn, nil)
		require.ErrorIs(t, err, ErrSchemaTooNew)
		assert.EqualError(t, err, "sqlstore: the database schema is too new: it has version 2, and this program supports versions up to 1")
	})
}

func TestOpen_ReadOnlyDatabase(t *testing.T) {
	dsn := newPostgres(t)
	_, secret := createKey(t, openStore(t, dsn, nil), KeyParams{Account: "acme"})
	readOnly := openStore(t, dsn+"&default_transaction_read_only=on", &Options{Logger: discardLogger})
	assert.Equal(t, "acme", lookup(t, readOnly, secret).Account)
}
