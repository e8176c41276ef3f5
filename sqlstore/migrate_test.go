package sqlstore

import (
	"fmt"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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

// fakeMigrations returns migrations that do not depend on the schema of this package: each
// creates a table with a row. They can be applied to every database.
func fakeMigrations(n int) []migration {
	migrations := make([]migration, n)
	for i := range migrations {
		version := i + 1
		migrations[i] = migration{version, 1, fmt.Sprintf("CREATE TABLE llmhttp_fake_%[1]d (a integer); INSERT INTO llmhttp_fake_%[1]d VALUES (%[1]d)", version)}
	}
	return migrations
}

func TestMigrate(t *testing.T) {
	forEachSharedDatabase(t, func(t *testing.T, dsn string) {
		db, err := openDatabase(t.Context(), dsn, true, 0)
		require.NoError(t, err)
		t.Cleanup(func() { db.stop(); assert.NoError(t, db.close()) })
		applied := func() int {
			versions, err := db.appliedMigrations(t.Context(), db.read)
			require.NoError(t, err)
			return len(versions)
		}
		count := func(table string) (n int) {
			require.NoError(t, db.read.QueryRow("SELECT count(*) FROM "+table).Scan(&n))
			return n
		}
		assert.Zero(t, applied())
		migrations := fakeMigrations(5)

		// A failure in the middle changes nothing, in an empty database and in another.
		broken := fakeMigrations(3)
		broken[1].sql += "; nonsense"
		require.ErrorContains(t, db.migrate(t.Context(), broken), "migration 2: ")
		assert.Zero(t, applied())
		require.NoError(t, db.migrate(t.Context(), migrations[:2]))
		broken = append(migrations[:3:3], broken[1])
		broken[3].version = 4
		require.ErrorContains(t, db.migrate(t.Context(), broken), "migration 4: ")
		assert.Equal(t, 2, applied())
		assert.Error(t, db.read.QueryRow("SELECT a FROM llmhttp_fake_3").Scan(new(int)))

		// Concurrent calls migrate once.
		var running sync.WaitGroup
		for range 8 {
			running.Go(func() {
				other, err := openDatabase(t.Context(), dsn, true, 0)
				if assert.NoError(t, err) {
					assert.NoError(t, other.retry(t.Context(), other.isConflict, func() error { return other.migrate(t.Context(), migrations[:4]) }))
					other.stop()
					assert.NoError(t, other.close())
				}
			})
		}
		running.Wait()
		assert.Equal(t, 4, applied())
		for version := range 4 {
			assert.Equal(t, 1, count(fmt.Sprint("llmhttp_fake_", version+1)))
		}
		require.NoError(t, db.migrate(t.Context(), migrations[:4]), "nothing is missing")
		require.NoError(t, db.migrate(t.Context(), migrations[:3]), "an older program can use the schema")

		require.ErrorIs(t, db.requireSchema(t.Context(), migrations), ErrSchemaTooOld)
		require.NoError(t, db.requireSchema(t.Context(), migrations[:4]))
		migrations[4].oldest = 4
		require.NoError(t, db.migrate(t.Context(), migrations))
		require.NoError(t, db.migrate(t.Context(), migrations[:4]))
		err = db.migrate(t.Context(), migrations[:3])
		require.ErrorIs(t, err, ErrSchemaTooNew)
		require.EqualError(t, err, "sqlstore: the database schema is too new: its version 5 can be used by programs of version 4 and later, and this program has version 3")
	})
}

// A database whose tables another program has made in another way is refused and not changed.
func TestMigrate_Fingerprints(t *testing.T) {
	forEachSharedDatabase(t, func(t *testing.T, dsn string) {
		db, err := openDatabase(t.Context(), dsn, true, 0)
		require.NoError(t, err)
		t.Cleanup(func() { db.stop(); assert.NoError(t, db.close()) })
		require.NoError(t, db.migrate(t.Context(), fakeMigrations(2)))
		for name, change := range map[string]func(m []migration){
			"the last":            func(m []migration) { m[1].sql += " " },
			"the first":           func(m []migration) { m[0].sql = "-- " + m[0].sql },
			"before one to apply": func(m []migration) { m[1].sql += ";" },
		} {
			for _, n := range []int{2, 3} {
				changed := fakeMigrations(n)
				change(changed)
				err := db.migrate(t.Context(), changed)
				require.ErrorIs(t, err, ErrSchemaUnknown, name)
				require.ErrorIs(t, db.requireSchema(t.Context(), changed), ErrSchemaUnknown, name)
			}
		}
		assert.Error(t, db.read.QueryRow("SELECT a FROM llmhttp_fake_3").Scan(new(int)))

		// Open tells what to do.
		for _, opts := range []*Options{nil, {NoMigrate: true}} {
			_, err = Open(t.Context(), dsn, opts)
			require.ErrorIs(t, err, ErrSchemaUnknown)
			require.EqualError(t, err, "sqlstore: the tables are not those of a release: use another database, or export what is needed and drop the tables and functions whose names begin with llmhttp_ (migration 1 differs)")
		}
		// Development versions kept no fingerprints.
		_, err = db.write.Exec("ALTER TABLE llmhttp_schema DROP COLUMN fingerprint")
		require.NoError(t, err)
		_, err = Open(t.Context(), dsn, nil)
		require.ErrorIs(t, err, ErrSchemaUnknown)
		_, err = db.write.Exec("DELETE FROM llmhttp_schema WHERE version = 1; ALTER TABLE llmhttp_schema ADD COLUMN fingerprint text")
		require.NoError(t, err)
		_, err = Open(t.Context(), dsn, nil)
		require.Error(t, err, "a version is missing")
		assert.NoError(t, db.read.QueryRow("SELECT a FROM llmhttp_fake_2").Scan(new(int)), "nothing has changed")
	})
}

func TestOpen_ReadOnlyDatabase(t *testing.T) {
	dsn := newPostgres(t)
	_, secret := createKey(t, openStore(t, dsn, nil), manage.KeyParams{Account: "acme"})
	readOnly := openStore(t, dsn+"&default_transaction_read_only=on", &Options{Logger: discardLogger})
	assert.Equal(t, "acme", lookup(t, readOnly, secret).Account)
}

func TestOpen_NoMigrate(t *testing.T) {
	forEachSharedDatabase(t, func(t *testing.T, dsn string) {
		opts := &Options{NoMigrate: true, Logger: discardLogger}
		_, err := Open(t.Context(), dsn, opts)
		require.ErrorIs(t, err, ErrSchemaTooOld)
		require.ErrorContains(t, err, "sqlstore: the database schema is missing or too old; migrate it with llmhttpctl migrate")
		require.NoFileExists(t, dsn)
		openStore(t, dsn, nil)
		openStore(t, dsn, opts)
	})
}
