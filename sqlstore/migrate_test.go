package sqlstore

import (
	"sync"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// engines are the databases that others can open as well.
var engines = map[string]func(t testing.TB) string{"SQLite": sqliteDSN, "PostgreSQL": postgresDSN}

func forEngines(t *testing.T, f func(t *testing.T, dsn string)) {
	for name, dsn := range engines {
		t.Run(name, func(t *testing.T) { f(t, dsn(t)) })
	}
}

func TestReadMigrations(t *testing.T) {
	var versions []int
	for _, name := range []string{"sqlite", "postgres"} {
		list, err := readMigrations(migrations, name)
		require.NoError(t, err)
		require.NotEmpty(t, list)
		versions = append(versions, len(list))
	}
	assert.Equal(t, versions[0], versions[1], "a version is the same for all databases")

	gap := fstest.MapFS{"migrations/sqlite/0001_a.sql": {}, "migrations/sqlite/0003_b.sql": {}}
	_, err := readMigrations(gap, "sqlite")
	assert.ErrorContains(t, err, "0003_b.sql is not number 2")
}

// more returns the migrations of dsn and one more.
func more(t testing.TB, dsn, text string) []migration {
	d, err := parseDSN(dsn)
	require.NoError(t, err)
	dialect := "sqlite"
	if d.postgres {
		dialect = "postgres"
	}
	list, err := readMigrations(migrations, dialect)
	require.NoError(t, err)
	return append(list, migration{len(list) + 1, text})
}

func TestMigrate(t *testing.T) {
	forEngines(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, nil)
		_, secret, err := s.CreateKey(t.Context(), KeyParams{Account: "acme"})
		require.NoError(t, err)

		// What fails in the middle changes nothing.
		_, err = open(t.Context(), dsn, nil, more(t, dsn, "CREATE TABLE llmhttp_new (a integer); nonsense"))
		require.ErrorContains(t, err, "migration 2: ")
		version, err := s.schemaVersion(t.Context(), s.read)
		require.NoError(t, err)
		assert.Equal(t, 1, version)
		assert.Error(t, s.read.QueryRow("SELECT a FROM llmhttp_new").Scan(new(int)))

		// Many at once do what is to be done once.
		list := more(t, dsn, "CREATE TABLE llmhttp_new (a integer); INSERT INTO llmhttp_new VALUES (1)")
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				s, err := open(t.Context(), dsn, nil, list)
				if assert.NoError(t, err) {
					assert.NoError(t, s.Close())
				}
			})
		}
		all.Wait()
		assert.EqualValues(t, 1, count(t, s, "SELECT count(*) FROM llmhttp_new"))
		assert.EqualValues(t, 2, count(t, s, "SELECT count(*) FROM llmhttp_schema"))
		key, err := s.Lookup(t.Context(), secret)
		require.NoError(t, err)
		assert.Equal(t, "acme", key.Account)

		// An older program refuses it.
		_, err = Open(t.Context(), dsn, nil)
		require.ErrorIs(t, err, ErrSchemaTooNew)
		assert.EqualError(t, err, "sqlstore: the database is of a newer version: its schema is of version 2, and this program knows those up to 1")
	})
}

// Who only uses the tables needs no right to change them.
func TestOpenWithoutRights(t *testing.T) {
	dsn := postgresDSN(t)
	s := openStore(t, dsn, nil)
	_, secret, err := s.CreateKey(t.Context(), KeyParams{Account: "acme"})
	require.NoError(t, err)
	restricted := openStore(t, dsn+"&default_transaction_read_only=on", &Options{Logger: quiet})
	key, err := restricted.Lookup(t.Context(), secret)
	require.NoError(t, err)
	assert.Equal(t, "acme", key.Account)
}
