package sqlstore

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"
)

// ErrSchemaTooNew is wrapped by the error of [Open] if a newer version of this
// package has migrated the database, to a schema that this version cannot use.
var ErrSchemaTooNew = errors.New("sqlstore: the database schema is too new")

// ErrSchemaTooOld is wrapped by the error of [Open] with Options.NoMigrate if the
// database has no tables, or if those are of an older version of this package.
var ErrSchemaTooOld = errors.New("sqlstore: the database schema is missing or too old; migrate it with llmhttpctl migrate")

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

// readMigrations reads the migrations of a dialect in order. Their versions
// must be 1, 2, 3 and so on.
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
		if _, err := fmt.Sscanf(migrations[i].sql, "-- oldest: %d\n", &migrations[i].oldest); err != nil || migrations[i].oldest < 1 || migrations[i].oldest > version {
			return nil, fmt.Errorf("sqlstore: migration %s: expected \"-- oldest: VERSION\" in the first line", name)
		}
	}
	return migrations, nil
}

// migrate applies the missing migrations in one transaction.
// Concurrent calls, in this process or others, wait for each other. If no
// migration is missing, migrate takes no lock and needs no right to change the
// schema.
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
			if _, err := tx.ExecContext(ctx, "CREATE TABLE llmhttp_schema (version integer PRIMARY KEY, applied bigint NOT NULL)"); err != nil {
				return err
			}
		}
		return applyMigrations(ctx, tx, missing)
	})
}

// applyMigrations applies migrations in order. There must be at least one.
func applyMigrations(ctx context.Context, tx *sql.Tx, migrations []migration) error {
	for _, m := range migrations {
		if _, err := tx.ExecContext(ctx, m.sql); err != nil {
			return fmt.Errorf("migration %d: %w", m.version, err)
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO llmhttp_schema (version, applied) VALUES ($1, $2)", m.version, micros(time.Now())); err != nil {
			return err
		}
	}
	last := migrations[len(migrations)-1]
	if last.version < oldestColumn {
		return nil
	}
	_, err := tx.ExecContext(ctx, "UPDATE llmhttp_schema SET oldest = $1 WHERE version = $2", last.oldest, last.version)
	return err
}

// oldestColumn is the version that added the column oldest.
const oldestColumn = 2

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
	version, err := db.schemaVersion(ctx, q)
	if err != nil {
		return nil, err
	}
	if version <= len(migrations) {
		return migrations[version:], nil
	}
	var oldest int
	if err := q.QueryRowContext(ctx, "SELECT oldest FROM llmhttp_schema WHERE version = $1", version).Scan(&oldest); err != nil {
		return nil, err
	}
	if oldest > len(migrations) {
		return nil, fmt.Errorf("%w: its version %d can be used by programs of version %d and later, and this program has version %d", ErrSchemaTooNew, version, oldest, len(migrations))
	}
	return nil, nil
}

// schemaVersion returns the version of the schema, or 0 if there is no schema.
func (db *database) schemaVersion(ctx context.Context, q querier) (version int, err error) {
	var exists bool
	if err := q.QueryRowContext(ctx, db.hasSchema()).Scan(&exists); err != nil || !exists {
		return 0, err
	}
	err = q.QueryRowContext(ctx, "SELECT coalesce(max(version), 0) FROM llmhttp_schema").Scan(&version)
	return version, err
}
