// The schema and its migrations.

package sqlstore

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
)

// ErrSchemaTooNew is wrapped by the error of [Open] if a newer version of this
// package has migrated the database, to a schema that this version cannot use.
var ErrSchemaTooNew = errors.New("sqlstore: the database schema is too new")

// ErrSchemaTooOld is wrapped by the error of [Open] with Options.NoMigrate if the
// database has no tables, or if those are of an older version of this package.
var ErrSchemaTooOld = errors.New("sqlstore: the database schema is missing or too old; migrate it with llmhttpctl migrate")

// ErrSchemaUnknown is wrapped by the error of [Open] if the tables are not those of any release
// of this package, for example because a development version has created them.
var ErrSchemaUnknown = errors.New(
	"sqlstore: the tables are not those of a release: use another database, or export what is needed and drop the tables and functions whose names begin with llmhttp_",
)

// migrationFiles has a directory for each dialect. The name of a file begins with
// the schema version that the file creates. A program has the version of its last
// migration. The first line of a file names the oldest program that can use the
// schema: during a rolling deployment and after a rollback, older programs use a
// newer schema. Released files never change.
//
//go:embed migrations
var migrationFiles embed.FS

// A migration brings the schema from the previous version to version.
type migration struct {
	version int
	oldest  int // the version of the oldest program that can use the schema
	sql     string
}

// fingerprint identifies the text of m. A schema has that of each migration that made it.
func (m *migration) fingerprint() string { return llmhttp.HashSecret(m.sql) }

// readMigrations reads the migrations of a dialect in order. Their versions must be 1, 2, 3 and so
// on.
func readMigrations(files fs.FS, dialect string) ([]migration, error) {
	names, err := fs.Glob(files, path.Join("migrations", dialect, "*.sql")) // sorted
	if err != nil {
		return nil, err
	}
	migrations := make([]migration, len(names))
	for i, name := range names {
		number, _, _ := strings.Cut(path.Base(name), "_")
		version, err := strconv.Atoi(number)
		if err != nil || version != i+1 {
			return nil, fmt.Errorf("sqlstore: migration %s: expected version %d", name, i+1)
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		migrations[i] = migration{version: version, sql: string(text)}
		if _, err := fmt.Sscanf(migrations[i].sql, "-- oldest: %d\n", &migrations[i].oldest); err != nil || migrations[i].oldest < 1 ||
			migrations[i].oldest > version {
			return nil, fmt.Errorf("sqlstore: migration %s: expected \"-- oldest: VERSION\" in the first line", name)
		}
	}
	return migrations, nil
}

// migrate applies the missing migrations in one transaction. Concurrent calls, in this process or
// others, wait for each other. If no migration is missing, migrate takes no lock and needs no right
// to change the schema.
func (db *database) migrate(ctx context.Context, migrations []migration) error {
	missing, err := db.missingMigrations(ctx, db.write, migrations)
	if err != nil || len(missing) == 0 {
		return err
	}
	return inTx(ctx, db.write, nil, func(tx *sql.Tx) error {
		if err := db.lockSchema(ctx, tx); err != nil {
			return err
		}
		missing, err := db.missingMigrations(ctx, tx, migrations) // another process may have been first
		if err != nil || len(missing) == 0 {
			return err
		}
		if len(missing) == len(migrations) {
			if _, err := tx.ExecContext(ctx, createSchemaTable); err != nil {
				return err
			}
		}
		return applyMigrations(ctx, tx, missing)
	})
}

// createSchemaTable creates the table with a row for each migration that was applied.
const createSchemaTable = `
	CREATE TABLE llmhttp_schema (
		version     integer PRIMARY KEY,
		applied     bigint NOT NULL,
		oldest      integer NOT NULL, -- the version of the oldest program that can use the schema
		fingerprint text NOT NULL     -- of the migration
	)`

// applyMigrations applies migrations in order.
func applyMigrations(ctx context.Context, tx *sql.Tx, migrations []migration) error {
	for _, m := range migrations {
		if _, err := tx.ExecContext(ctx, m.sql); err != nil {
			return fmt.Errorf("migration %d: %w", m.version, err)
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO llmhttp_schema (version, applied, oldest, fingerprint) VALUES ($1, $2, $3, $4)",
			m.version, micros(time.Now()), m.oldest, m.fingerprint())
		if err != nil {
			return err
		}
	}
	return nil
}

// requireSchema returns an error if a migration is missing.
func (db *database) requireSchema(ctx context.Context, migrations []migration) error {
	missing, err := db.missingMigrations(ctx, db.read, migrations)
	if err == nil && len(missing) > 0 {
		err = ErrSchemaTooOld
	}
	return err
}

// missingMigrations returns the migrations that the schema lacks.
func (db *database) missingMigrations(ctx context.Context, q querier, migrations []migration) ([]migration, error) {
	applied, err := db.appliedMigrations(ctx, q)
	if err != nil {
		return nil, err
	}
	for i := range min(len(applied), len(migrations)) {
		if applied[i].fingerprint != migrations[i].fingerprint() {
			return nil, fmt.Errorf("%w (migration %d differs)", ErrSchemaUnknown, migrations[i].version)
		}
	}
	if len(applied) <= len(migrations) {
		return migrations[len(applied):], nil
	}
	if last := applied[len(applied)-1]; last.oldest > len(migrations) {
		return nil, fmt.Errorf(
			"%w: its version %d can be used by programs of version %d and later, and this program has version %d",
			ErrSchemaTooNew,
			len(applied),
			last.oldest,
			len(migrations),
		)
	}
	return nil, nil
}

// An appliedMigration is a row of llmhttp_schema.
type appliedMigration struct {
	oldest      int
	fingerprint string
}

// appliedMigrations returns the migrations that made the schema, in order; none if there is no
// schema. If the table llmhttp_schema is another one than createSchemaTable creates, the error
// wraps ErrSchemaUnknown.
func (db *database) appliedMigrations(ctx context.Context, q querier) ([]appliedMigration, error) {
	var exists bool
	if err := q.QueryRowContext(ctx, db.hasSchema()).Scan(&exists); err != nil || !exists {
		return nil, err
	}
	var applied []appliedMigration
	// A query that names a column which does not exist would end a transaction of PostgreSQL.
	err := forEachRow(ctx, q, func(rows *sql.Rows) error {
		columns, err := rows.Columns()
		if err != nil {
			return err
		}
		if !slices.Equal(columns, []string{"version", "applied", "oldest", "fingerprint"}) {
			return fmt.Errorf("%w (it has no fingerprints)", ErrSchemaUnknown)
		}
		var m appliedMigration
		var version, at int64
		if err := rows.Scan(&version, &at, &m.oldest, &m.fingerprint); err != nil {
			return err
		}
		if applied = append(applied, m); version != int64(len(applied)) {
			return fmt.Errorf("%w (version %d is missing)", ErrSchemaUnknown, len(applied))
		}
		return nil
	}, "SELECT * FROM llmhttp_schema ORDER BY version")
	return applied, err
}
